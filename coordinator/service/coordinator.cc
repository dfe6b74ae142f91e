#include "coordinator/service/coordinator.h"

#include <ctime>
#include <random>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/rpc/link.h"
#include "common/status.h"
#include "coordinator/service/errors.h"
#include "coordinator/service/worker_claims.h"

namespace strata {
namespace {

// How often links are measured because a pipeline over them had faults.
constexpr nanoseconds kDoubtEvery = std::chrono::seconds(1);
constexpr milliseconds kMeasureTimeout{2000};
// How often nodes that left are looked at.
constexpr nanoseconds kForgetEvery = std::chrono::seconds(1);

uint64_t RandomNonZero() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) {
    value = uint64_t{device()} << 32 | device();
  }
  return value;
}

absl::Status NotLoaded(const std::string& model) {
  return Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
               "model '" + model + "' is not loaded")
      .Hint("load it with `strata model load " + model + "`");
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, const Transport* transport, const Clock* clock,
                         StateStore* store, Models* models, uint64_t term, std::string cluster_id)
    : options_(options),
      transport_(transport),
      clock_(clock),
      store_(store),
      models_(models),
      term_(term),
      cluster_id_(std::move(cluster_id)),
      incarnation_(RandomNonZero()),
      started_(clock->Now()),
      sequence_numbers_(term),
      wait_board_(clock),
      cluster_(options_.cluster),
      keys_(store, [this](std::function<void()> task) { RunBlocking(std::move(task)); }),
      loop_(
          clock, [this](TimePoint now) { return Tick(now); }, options_.max_waiting_calls) {}

Coordinator::~Coordinator() { Shutdown(nanoseconds(0)); }

// ---- Start and end.

void Coordinator::Shutdown(nanoseconds drain_timeout) {
  loop_.Call([this] {
    draining_ = true;
    healthy_ = false;
    for (auto& [id, deployment] : deployments_) {
      if (deployment->engine() != nullptr) deployment->engine()->StopAdmitting(Stopping());
    }
    return true;
  });
  const TimePoint deadline = clock_->Now() + drain_timeout;
  while (clock_->Now() < deadline) {
    const auto live = loop_.Call([this] {
      size_t n = 0;
      for (auto& [id, deployment] : deployments_) {
        n += deployment->engine() != nullptr ? deployment->engine()->live_sessions() : 0;
      }
      return n;
    });
    if (live.value_or(0) == 0) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::optional<Unsaved> unsaved;
  loop_.Call([&] {
    unsaved = TakeUnsaved();
    for (auto& [id, deployment] : deployments_) {
      deployment->Unload(Stopping());
    }
    deployments_.clear();
    for (auto& [name, peer] : peers_) {
      peer.channel->Close();
    }
    return true;
  });
  if (unsaved.has_value()) {
    MutexLock lock(&changes_);
    (void)Save(*unsaved);  // It has been logged; nothing comes after.
  }
  keys_.Close();
  {
    MutexLock lock(&blocking_mutex_);
    while (blocking_ > 0) {
      blocking_done_.Wait(&blocking_mutex_);
    }
  }
  loop_.Stop();
}

void Coordinator::RunBlocking(std::function<void()> task) {
  {
    MutexLock lock(&blocking_mutex_);
    ++blocking_;
  }
  std::thread([this, task = std::move(task)]() mutable {
    task();
    task = nullptr;  // What it holds ends before the count says so.
    MutexLock lock(&blocking_mutex_);
    --blocking_;
    blocking_done_.NotifyAll();
  }).detach();
}

std::optional<TimePoint> Coordinator::Tick(TimePoint now) {
  for (const std::string& node : cluster_.Expire(now)) {
    NodeLost(node, "its lease lapsed: no heartbeat for " +
                       std::to_string(ToMs(options_.cluster.lease)) + " ms");
  }
  if (now - last_measured_ > options_.measure_again) {
    last_measured_ = now;
    MeasureBrokenLinks();
  }
  if (now - last_doubt_ > kDoubtEvery) {
    last_doubt_ = now;
    MeasureDoubtfulLinks();
  }
  if (now - last_forgot_ > kForgetEvery) {
    last_forgot_ = now;
    ForgetNodes(now);
  }
  if (save_again_.has_value() && now >= *save_again_) {
    save_again_.reset();
    SaveLater();
  }
  // Weights are not sent while the file that they are in is read again.
  const bool reading = !models_->blobs()->trust()->BeingRead().empty();
  bool again = false;
  for (auto& [id, deployment] : deployments_) {
    if (reading) deployment->ExcuseSilence();
    deployment->Tick(now);
    again |= deployment->BeginRetry(now);
  }
  if (again) {
    Reconcile();
  }
  std::optional<TimePoint> next = save_again_;
  bool any_ready = false;
  for (auto& [id, deployment] : deployments_) {
    const auto wake = deployment->NextWake();
    if (wake.has_value() && (!next.has_value() || *wake < *next)) {
      next = wake;
    }
    any_ready |= deployment->serves() && !deployment->engine()->down();
  }
  healthy_ = any_ready && !draining_;
  return next;
}

// ---- Nodes.

std::string Coordinator::ModelOn(const std::string& node) const {
  for (const auto& [id, deployment] : deployments_) {
    if (deployment->Uses(node)) {
      return deployment->model()->name;
    }
  }
  return "";
}

void Coordinator::ForgetNodes(TimePoint now) {
  for (const std::string& name : cluster_.Forgettable(now)) {
    if (!ModelOn(name).empty() || !cluster_.Remove(name).ok()) {
      continue;
    }
    LogInfo({{"node", name}}, "a node that left is forgotten");
    forgotten_nodes_.insert(name);
    unsaved_nodes_.erase(name);
    SaveLater();
  }
}

absl::Status Coordinator::MayJoin(const v1::NodeInfo& info) {
  return loop_.Call([&] { return cluster_.MayJoin(info); }).value_or(Stopping());
}

absl::StatusOr<v1::Registered> Coordinator::Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                                 std::shared_ptr<NodeChannel> channel) {
  const auto status = loop_.Call([&]() -> absl::Status {
    if (draining_) {
      return Stopping();
    }
    if (const auto it = peers_.find(info.name()); it != peers_.end()) {
      // The same incarnation on a new stream: the old one is as good as gone.
      if (it->second.incarnation == info.incarnation() &&
          cluster_.Leave(info.name(), info.incarnation())) {
        it->second.channel->Close();
        NodeLost(info.name(), "its control stream was replaced by a new one");
      }
    }
    RETURN_IF_ERROR(cluster_.Join(info, clock_->Now()));
    peers_[info.name()] = {.incarnation = info.incarnation(), .channel = channel};
    cluster_.SetLink(info.name(), "", {speed.latency_ms, speed.bytes_per_s, {}, 0}, clock_->Now());
    certificates_[info.name()] = speed.certificate;
    unsaved_nodes_.insert(info.name());
    forgotten_nodes_.erase(info.name());
    SaveLater();
    LogInfo({{"node", info.name()},
             {"address", info.address()},
             {"isa", info.isa()},
             {"threads", info.threads()},
             {"numerics", info.numerics()},
             {"incarnation", info.incarnation()}},
            "a node joined");
    MeasurePeers(info.name());
    for (auto& [id, deployment] : deployments_) {
      deployment->OnNodeJoined(info.name());
    }
    Reconcile();
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(status.value_or(Stopping()));
  v1::Registered registered;
  registered.set_term(term_);
  registered.set_lease_ms(static_cast<uint32_t>(ToMs(options_.cluster.lease)));
  registered.set_heartbeat_ms(static_cast<uint32_t>(ToMs(options_.cluster.heartbeat)));
  registered.set_cluster_id(cluster_id_);
  return registered;
}

void Coordinator::AskToMeasure(const NodeRecord& from, const NodeRecord& to) {
  cluster_.BeginMeasure(from.info.name(), to.info.name(), clock_->Now());
  v1::CoordinatorMessage message;
  message.mutable_measure_peer()->set_node(to.info.name());
  message.mutable_measure_peer()->set_incarnation(to.info.incarnation());
  message.mutable_measure_peer()->set_address(to.info.address());
  SendToNode(from.info.name(), from.info.incarnation(), std::move(message));
}

void Coordinator::MeasureFromHere(const NodeRecord& node) {
  RunBlocking([this, info = node.info] {
    const auto speed =
        MeasureLink(*transport_, info.address(), info.name(), info.incarnation(), kMeasureTimeout);
    loop_.Post([this, info, speed] {
      const NodeRecord* record = cluster_.Find(info.name());
      if (record == nullptr || record->info.incarnation() != info.incarnation()) {
        return;
      }
      LinkMeasure measure;
      if (speed.ok()) {
        measure = {speed->latency_ms, speed->bytes_per_s, {}, 0};
      } else {
        measure.error = DetailOf(speed.status());
        LogWarn({{"node", info.name()}},
                "the coordinator cannot reach the node: " + measure.error.message());
      }
      cluster_.SetLink(info.name(), "", measure, clock_->Now());
    });
  });
}

// A firewall may have been opened since, or a worker have been deaf.
void Coordinator::MeasureBrokenLinks() {
  for (const auto& [name, node] : cluster_.nodes()) {
    const auto owed = cluster_.OwedMeasures(node);
    if (owed.has_value() && clock_->Now() - owed->since >= options_.cluster.measure_timeout) {
      for (const std::string& peer : owed->peers) {
        AskToMeasure(node, *cluster_.Find(peer));
      }
    }
    for (const auto& [peer, link] : node.links) {
      const NodeRecord* other = cluster_.Find(peer);
      if (!node.alive || link.ok()) {
        continue;
      }
      if (peer.empty()) {
        MeasureFromHere(node);
      } else if (other != nullptr && other->alive) {
        AskToMeasure(node, *other);
      }
    }
  }
}

// A new epoch may be due to a link that broke: which one is measured, so that `status` can say.
void Coordinator::MeasureDoubtfulLinks() {
  std::erase_if(epochs_seen_, [&](const auto& seen) { return !deployments_.contains(seen.first); });
  for (const auto& [id, deployment] : deployments_) {
    uint64_t& seen = epochs_seen_[id];
    if (deployment->state() != DeploymentState::kReady || seen == deployment->plan().epoch()) {
      continue;
    }
    const bool doubtful = std::exchange(seen, deployment->plan().epoch()) != 0;
    const NodeRecord* from = nullptr;  // The coordinator.
    for (const v1::PlanStage& stage : OnlyPipeline(deployment->plan()).stages()) {
      const NodeRecord* to = cluster_.Find(OnlyRank(stage).node());
      if (!doubtful || to == nullptr || !to->alive) {
        break;
      }
      if (from == nullptr) {
        MeasureFromHere(*to);
      } else {
        AskToMeasure(*from, *to);
      }
      from = to;
    }
  }
}

void Coordinator::MeasurePeers(const std::string& node) {
  const NodeRecord* joined = cluster_.Find(node);
  for (const auto& [name, other] : cluster_.nodes()) {
    if (other.alive && name != node) {
      AskToMeasure(*joined, other);
      AskToMeasure(other, *joined);
    }
  }
}

void Coordinator::OnLeave(const std::string& node, uint64_t incarnation,
                          std::shared_ptr<NodeChannel> channel) {
  loop_.Post([this, node, incarnation, channel] {
    const auto it = peers_.find(node);
    if (it == peers_.end() || it->second.channel != channel) {
      return;
    }
    peers_.erase(it);
    if (cluster_.Leave(node, incarnation)) {
      NodeLost(node, "its control stream ended");
    }
  });
}

void Coordinator::NodeLost(const std::string& node, const std::string& why) {
  LogWarn({{"node", node}}, "a node is lost: " + why);
  if (const auto it = peers_.find(node); it != peers_.end()) {
    it->second.channel->Close();
    peers_.erase(it);
  }
  for (auto& [id, deployment] : deployments_) {
    deployment->OnNodeLost(node);
  }
  LoseChecksOn(node);
}

void Coordinator::OnMessage(const std::string& node, uint64_t incarnation,
                            v1::WorkerMessage message, std::function<void()> done) {
  // Every worker has one message on the loop at most.
  const absl::Status claims = CleanMessage(&message);
  const bool posted =
      loop_.Post([this, node, incarnation, message = std::move(message), claims, done] {
        const auto it = peers_.find(node);
        if (it != peers_.end() && it->second.incarnation == incarnation) {
          if (!claims.ok() && it->second.nonsense++ == 0) {
            LogWarn({{"node", node}}, "the node says what cannot be: " + strata::Describe(claims));
          }
          Handle(node, incarnation, message);
        }
        done();
      });
  if (!posted) {
    done();  // The stream is about to end, which a read tells.
  }
}

void Coordinator::Handle(const std::string& node, uint64_t incarnation,
                         const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat: {
      cluster_.Heartbeat(node, incarnation, message.heartbeat(), clock_->Now());
      v1::CoordinatorMessage renewed;
      renewed.mutable_lease_renewed()->set_term(term_);
      SendToNode(node, incarnation, std::move(renewed));
      if (message.heartbeat().leaving()) {
        for (auto& [id, deployment] : deployments_) {
          deployment->OnNodeLeaving(node);
        }
      }
      break;
    }
    case v1::WorkerMessage::kLoadProgress:
      if (Deployment* d = FindDeployment(message.load_progress().deployment())) {
        d->OnLoadProgress(node, message.load_progress());
      }
      break;
    case v1::WorkerMessage::kFenceAck:
      if (Deployment* d = FindDeployment(message.fence_ack().deployment())) {
        d->OnFenceAck(node, message.fence_ack());
      }
      break;
    case v1::WorkerMessage::kLinkFault:
      if (Deployment* d = FindDeployment(message.link_fault().deployment())) {
        d->OnLinkFault(node, message.link_fault());
      }
      break;
    case v1::WorkerMessage::kPeerMeasured: {
      const v1::PeerMeasured& m = message.peer_measured();
      if (cluster_.Find(m.node()) == nullptr) {
        break;  // It left meanwhile, or never was.
      }
      cluster_.SetLink(node, m.node(),
                       {m.latency_ms(), m.bytes_per_s(), m.error(), m.incarnation()},
                       clock_->Now());
      if (m.has_error()) {
        LogWarn({{"node", node}, {"peer", m.node()}},
                "the node cannot reach another: " + m.error().message());
      }
      break;
    }
    case v1::WorkerMessage::kLayersComputed:
      OnLayersComputed(node, incarnation, message.layers_computed());
      break;
    default:
      break;
  }
}

bool Coordinator::SendToNode(const std::string& node, uint64_t incarnation,
                             v1::CoordinatorMessage message) {
  const auto it = peers_.find(node);
  return it != peers_.end() && it->second.incarnation == incarnation &&
         it->second.channel->Send(std::move(message));
}

std::string Coordinator::AddressOf(const std::string& node) const {
  const NodeRecord* record = cluster_.Find(node);
  return record == nullptr ? "" : record->info.address();
}

// ---- Links to first stages, and results.

// Closing may wait for a callback that waits for nothing of ours; still off the loop.
class Coordinator::FirstLink : public StepLink {
 public:
  FirstLink(Coordinator* coordinator, std::shared_ptr<LinkSender> link)
      : coordinator_(coordinator), link_(std::move(link)) {}
  ~FirstLink() override {
    coordinator_->RunBlocking([link = std::move(link_)] { link->Close(); });
  }
  void Send(StepMessage step) override { link_->Send(std::move(step)).IgnoreError(); }

 private:
  Coordinator* const coordinator_;
  std::shared_ptr<LinkSender> link_;
};

void Coordinator::OpenLink(
    StepLinkRequest request,
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
    std::function<void(const absl::Status& status)> on_broken) {
  LinkOptions options;
  options.address = std::move(request.address);
  options.open = std::move(request.open);
  options.open_timeout = request.open_timeout;
  options.max_queued_frames = request.max_queued_frames;
  auto broken = [this, on_broken = std::move(on_broken)](const absl::Status& status) {
    loop_.Post([on_broken, status] { on_broken(status); });
  };
  RunBlocking([this, options = std::move(options), on_opened = std::move(on_opened),
               broken = std::move(broken)] {
    auto link = LinkSender::Open(link_loop_, *transport_, options, broken);
    const absl::Status status = link.status();
    std::shared_ptr<LinkSender> opened = link.ok() ? *std::move(link) : nullptr;
    loop_.Post([this, on_opened, status, opened] {
      if (opened != nullptr) {
        on_opened(std::make_unique<FirstLink>(this, opened));
      } else {
        on_opened(status);
      }
    });
  });
}

class Coordinator::ResultsSink : public LinkSink {
 public:
  ResultsSink(Coordinator* coordinator, uint64_t deployment, uint64_t link)
      : coordinator_(coordinator), deployment_(deployment), link_(link) {}

  absl::Status OnResult(ResultMessage result) override {
    auto shared = std::make_shared<ResultMessage>(std::move(result));
    const bool posted =
        coordinator_->loop_.RunOrPost([c = coordinator_, id = deployment_, link = link_, shared] {
          if (Deployment* deployment = c->FindDeployment(id)) {
            deployment->OnResult(link, std::move(*shared));
          }
        });
    return posted ? absl::OkStatus() : Stopping();
  }

  void OnClosed(const absl::Status& status) override {
    coordinator_->loop_.Post([c = coordinator_, id = deployment_, link = link_, status] {
      if (Deployment* deployment = c->FindDeployment(id)) {
        deployment->OnResultsClosed(link, status);
      }
    });
  }

 private:
  Coordinator* const coordinator_;
  const uint64_t deployment_;
  const uint64_t link_;
};

absl::StatusOr<std::shared_ptr<LinkSink>> Coordinator::OnOpen(const v1::LinkOpen& open,
                                                              const std::string& peer,
                                                              std::shared_ptr<InboundLink> link) {
  const std::optional<uint64_t> accepted =
      loop_
          .Call([&] {
            Deployment* deployment = FindDeployment(open.deployment());
            return deployment != nullptr ? deployment->AcceptResults(open) : std::nullopt;
          })
          .value_or(std::nullopt);
  if (!accepted.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_EXPECTED",
                 "no results of deployment " + std::to_string(open.deployment()) + " epoch " +
                     std::to_string(open.epoch()) + " are expected from node '" + open.from_node() +
                     "' at " + peer);
  }
  return std::make_shared<ResultsSink>(this, open.deployment(), *accepted);
}

// ---- Requests.

absl::StatusOr<std::shared_ptr<Caller>> Coordinator::Authenticate(std::string_view authorization) {
  return keys_.Authenticate(authorization, static_cast<uint64_t>(std::time(nullptr)));
}

Coordinator::Serving Coordinator::ServingOf(const std::string& model) {
  Serving serving;
  Deployment* deployment = DeploymentOf(model);
  if (deployment == nullptr) {
    serving.problem = NotLoaded(model);
  } else if (deployment->held()) {
    serving.problem = BeingChanged(model);
  } else if (!deployment->serves()) {
    serving.problem =
        !deployment->problem().ok()
            ? NotServed(model, deployment->problem())
            : Error(absl::StatusCode::kUnavailable, "MODEL_LOADING",
                    "model '" + model + "' is " + DeploymentStateName(deployment->state()))
                  .Hint("see `strata model show " + model + "`");
  } else {
    serving.engine = deployment->engine();
    serving.deployment = deployment->id();
    serving.numerics_class = deployment->plan().numerics_class().name();
    serving.plan_epoch = deployment->plan().epoch();
  }
  return serving;
}

absl::Status Coordinator::WithEngine(const std::string& model,
                                     std::function<void(const Serving&)> use) {
  return loop_.Offer([this, model, use = std::move(use)] { use(ServingOf(model)); });
}

absl::StatusOr<PromptLimit> Coordinator::LongestPrompt(const std::string& model) {
  return loop_.Ask([this, model]() -> absl::StatusOr<PromptLimit> {
    const Serving serving = ServingOf(model);
    RETURN_IF_ERROR(serving.problem);
    return serving.engine->LongestPrompt();
  });
}

Deployment* Coordinator::DeploymentWith(const std::string& key) const {
  for (const auto& [id, deployment] : deployments_) {
    if (deployment->engine() != nullptr && deployment->engine()->IsLive(key)) {
      return deployment.get();
    }
  }
  return nullptr;
}

bool Coordinator::CancelRequest(const std::string& key, const absl::Status& why) {
  Deployment* const deployment = DeploymentWith(key);
  return deployment != nullptr && deployment->engine()->Cancel(key, why, clock_->Now());
}

void Coordinator::PauseRequest(const std::string& key, bool paused) {
  if (Deployment* const deployment = DeploymentWith(key)) {
    deployment->engine()->SetPaused(key, paused, clock_->Now());
  }
}

absl::Status Coordinator::ClaimId(const SessionRequest& request, bool replace) {
  if (replace) {
    CancelRequest(request.key, Error(absl::StatusCode::kAborted, "REPLACED",
                                     "a newer request with this id took its place"));
    return absl::OkStatus();
  }
  if (const Deployment* const deployment = DeploymentWith(request.key)) {
    return Error(absl::StatusCode::kAlreadyExists, "REQUEST_IN_FLIGHT",
                 "request \"" + request.request_id + "\" is in flight on model '" +
                     deployment->model()->name + "'")
        .Hint("wait for it, cancel it, or set replace (HTTP: X-Strata-Replace: true)");
  }
  return absl::OkStatus();
}

}  // namespace strata
