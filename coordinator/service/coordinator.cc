#include "coordinator/service/coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <utility>

#include "common/app/flags.h"
#include "common/limits.h"
#include "common/rpc/link.h"
#include "common/status.h"
#include "coordinator/planner/planner.h"

namespace strata {
namespace {

uint64_t RandomNonZero() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) {
    value = uint64_t{device()} << 32 | device();
  }
  return value;
}

absl::Status Stopping() {
  return Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping")
      .Hint("send the request again once it is back");
}

absl::Status NotLoaded(const std::string& model) {
  return Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
               "model '" + model + "' is not loaded")
      .Hint("load it with `strata model load " + model + "`");
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, const Transport* transport, const Clock* clock,
                         StateStore* store, Models* models, uint64_t term, std::string cluster_id)
    : options_(std::move(options)),
      transport_(transport),
      clock_(clock),
      store_(store),
      models_(models),
      term_(term),
      cluster_id_(std::move(cluster_id)),
      incarnation_(RandomNonZero()),
      started_(clock->Now()),
      generations_(term),
      cluster_(options_.cluster),
      loop_(clock, [this](TimePoint now) { return Tick(now); }) {}

Coordinator::~Coordinator() { Shutdown(nanoseconds(0)); }

// ---- Start and end.

void Coordinator::Shutdown(nanoseconds drain_timeout) {
  healthy_ = false;
  loop_.Call([this] {
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
  loop_.Call([this] {
    for (auto& [id, deployment] : deployments_) {
      deployment->Unload(Stopping());
    }
    deployments_.clear();
    for (auto& [name, peer] : peers_) {
      peer.channel->Close();
    }
    return true;
  });
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
  std::optional<TimePoint> next;
  bool any_ready = false;
  for (auto& [id, deployment] : deployments_) {
    deployment->Tick(now);
    const auto wake = deployment->NextWake();
    if (wake.has_value() && (!next.has_value() || *wake < *next)) {
      next = wake;
    }
    any_ready |= deployment->state() == DeploymentState::kReady;
  }
  healthy_ = any_ready;
  return next;
}

// ---- Nodes.

absl::Status Coordinator::MayJoin(const v1::NodeInfo& info) {
  return loop_.Call([&] { return cluster_.MayJoin(info); }).value_or(Stopping());
}

absl::StatusOr<v1::Registered> Coordinator::Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                                 std::shared_ptr<NodeChannel> channel) {
  const auto status = loop_.Call([&]() -> absl::Status {
    if (const auto it = peers_.find(info.name()); it != peers_.end()) {
      // The same incarnation on a new stream: the old one is as good as gone.
      if (it->second.incarnation == info.incarnation() &&
          cluster_.Leave(info.name(), info.incarnation())) {
        it->second.channel->Close();
        NodeLost(info.name(), "its control stream was replaced by a new one");
      }
    }
    RETURN_IF_ERROR(cluster_.Join(info, clock_->Now()));
    peers_[info.name()] = {info.incarnation(), channel};
    cluster_.SetLink(info.name(), "", {speed.latency_ms, speed.bytes_per_s, {}, 0});
    const NodeRecord* node = cluster_.Find(info.name());
    if (absl::Status saved = store_->SaveNode(info.name(), info, node->draining); !saved.ok()) {
      spdlog::error("node {}: {}", info.name(), strata::Describe(saved));
    }
    spdlog::info("node {} joined from {} ({}, {} threads, {})", info.name(), info.address(),
                 info.isa(), info.threads(), info.numerics());
    MeasurePeers(info.name());
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

void Coordinator::MeasurePeers(const std::string& node) {
  auto ask = [this](const NodeRecord& from, const NodeRecord& to) {
    v1::CoordinatorMessage message;
    message.mutable_measure_peer()->set_node(to.info.name());
    message.mutable_measure_peer()->set_incarnation(to.info.incarnation());
    message.mutable_measure_peer()->set_address(to.info.address());
    SendToNode(from.info.name(), from.info.incarnation(), std::move(message));
  };
  const NodeRecord* joined = cluster_.Find(node);
  for (const auto& [name, other] : cluster_.nodes()) {
    if (other.alive && name != node) {
      ask(*joined, other);
      ask(other, *joined);
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
  spdlog::warn("node {} is lost: {}", node, why);
  if (const auto it = peers_.find(node); it != peers_.end()) {
    it->second.channel->Close();
    peers_.erase(it);
  }
  for (auto& [id, deployment] : deployments_) {
    deployment->OnNodeLost(node);
  }
}

void Coordinator::OnMessage(const std::string& node, uint64_t incarnation,
                            v1::WorkerMessage message) {
  loop_.Post([this, node, incarnation, message = std::move(message)] {
    const auto it = peers_.find(node);
    if (it != peers_.end() && it->second.incarnation == incarnation) {
      Handle(node, incarnation, message);
    }
  });
}

void Coordinator::Handle(const std::string& node, uint64_t incarnation,
                         const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat: {
      cluster_.Heartbeat(node, incarnation, message.heartbeat(), clock_->Now());
      v1::CoordinatorMessage renewed;
      renewed.mutable_lease_renewed()->set_term(term_);
      SendToNode(node, incarnation, std::move(renewed));
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
      cluster_.SetLink(node, m.node(),
                       {m.latency_ms(), m.bytes_per_s(), m.error(), m.incarnation()});
      if (m.has_error()) {
        spdlog::warn("node {} cannot reach {}: {}", node, m.node(), m.error().message());
      }
      break;
    }
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

// ---- Results.

class Coordinator::ResultsSink : public LinkSink {
 public:
  ResultsSink(Coordinator* coordinator, uint64_t deployment, uint64_t epoch)
      : coordinator_(coordinator), deployment_(deployment), epoch_(epoch) {}

  absl::Status OnResult(ResultMessage result) override {
    auto shared = std::make_shared<ResultMessage>(std::move(result));
    const bool posted = coordinator_->loop_.Post([c = coordinator_, id = deployment_, shared] {
      if (Deployment* deployment = c->FindDeployment(id)) {
        deployment->OnResult(std::move(*shared));
      }
    });
    return posted ? absl::OkStatus() : Stopping();
  }

  void OnClosed(const absl::Status& status) override {
    coordinator_->loop_.Post([c = coordinator_, id = deployment_, epoch = epoch_, status] {
      if (Deployment* deployment = c->FindDeployment(id)) {
        deployment->OnResultsClosed(epoch, status);
      }
    });
  }

 private:
  Coordinator* const coordinator_;
  const uint64_t deployment_;
  const uint64_t epoch_;
};

absl::StatusOr<std::shared_ptr<LinkSink>> Coordinator::OnOpen(const v1::LinkOpen& open,
                                                              const std::string& peer,
                                                              std::shared_ptr<InboundLink> link) {
  const auto accepted = loop_.Call([&] {
    const Deployment* deployment = FindDeployment(open.deployment());
    return deployment != nullptr && deployment->AcceptsResults(open);
  });
  if (!accepted.value_or(false)) {
    return Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_EXPECTED",
                 "no results of deployment " + std::to_string(open.deployment()) + " epoch " +
                     std::to_string(open.epoch()) + " are expected from node '" + open.from_node() +
                     "' at " + peer);
  }
  return std::make_shared<ResultsSink>(this, open.deployment(), open.epoch());
}

// ---- Admin.

std::vector<v1::Node> Coordinator::ListNodes() {
  return loop_.Call([this] { return cluster_.Describe(clock_->Now()); })
      .value_or(std::vector<v1::Node>());
}

absl::StatusOr<v1::Node> Coordinator::GetNode(const std::string& name) {
  return loop_
      .Call([&]() -> absl::StatusOr<v1::Node> {
        const NodeRecord* node = cluster_.Find(name);
        if (node == nullptr) {
          return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
                       "there is no node '" + name + "'")
              .Hint("see `strata node list`");
        }
        return cluster_.Describe(*node, clock_->Now());
      })
      .value_or(Stopping());
}

absl::StatusOr<v1::Node> Coordinator::SetDraining(const std::string& name, bool draining) {
  const auto status = loop_.Call([&]() -> absl::Status {
    RETURN_IF_ERROR(cluster_.SetDraining(name, draining));
    return store_->SaveNode(name, cluster_.Find(name)->info, draining);
  });
  RETURN_IF_ERROR(status.value_or(Stopping()));
  return GetNode(name);
}

absl::Status Coordinator::RemoveNode(const std::string& name, bool force) {
  return loop_
      .Call([&]() -> absl::Status {
        if (force) {
          std::vector<Deployment*> users;
          for (auto& [id, deployment] : deployments_) {
            if (deployment->Uses(name)) users.push_back(deployment.get());
          }
          for (Deployment* deployment : users) {
            Erase(deployment, Error(absl::StatusCode::kUnavailable, "NODE_REMOVED",
                                    "node '" + name + "' was removed")
                                  .Node(name));
          }
        }
        RETURN_IF_ERROR(cluster_.Remove(name));
        if (const auto it = peers_.find(name); it != peers_.end()) {
          it->second.channel->Close();
          peers_.erase(it);
        }
        return store_->RemoveNode(name);
      })
      .value_or(Stopping());
}

std::vector<v1::Model> Coordinator::ListModels() {
  const auto all = models_->List();
  return loop_
      .Call([&] {
        std::vector<v1::Model> out;
        for (const auto& model : all) {
          out.push_back(Describe(*model));
        }
        return out;
      })
      .value_or(std::vector<v1::Model>());
}

absl::StatusOr<v1::Model> Coordinator::GetModel(const std::string& name) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  const auto described = loop_.Call([&] { return Describe(*model); });
  if (!described.has_value()) {
    return Stopping();
  }
  return *described;
}

v1::Model Coordinator::Describe(const ModelRuntime& model) const {
  v1::Model out = DescribeModel(model);
  out.set_state("registered");
  if (const Deployment* deployment = DeploymentOf(model.name)) {
    out.set_state(DeploymentStateName(deployment->state()));
    *out.mutable_plan() = deployment->plan();
    *out.mutable_options() = deployment->load_options();
    if (!deployment->problem().ok()) {
      out.set_problem(strata::Describe(deployment->problem()));
    }
  }
  return out;
}

absl::Status Coordinator::RemoveModel(const std::string& name, bool force) {
  RETURN_IF_ERROR(models_->Get(name).status());
  const bool loaded = loop_.Call([&] { return DeploymentOf(name) != nullptr; }).value_or(false);
  if (loaded && !force) {
    return Error(absl::StatusCode::kFailedPrecondition, "MODEL_IN_USE",
                 "model '" + name + "' is loaded")
        .Hint("unload it first with `strata model unload " + name + "`, or use --force");
  }
  if (loaded) {
    RETURN_IF_ERROR(UnloadModel(name, true));
  }
  return models_->Remove(name);
}

std::vector<v1::Session> Coordinator::ListSessions() {
  return loop_
      .Call([this] {
        std::vector<v1::Session> out;
        for (const auto& [id, deployment] : deployments_) {
          if (deployment->engine() == nullptr) continue;
          for (const SessionSnapshot& s : deployment->engine()->Snapshot(clock_->Now()).sessions) {
            v1::Session& session = out.emplace_back();
            session.set_request_id(s.request_id);
            session.set_model(deployment->model()->name);
            session.set_state(s.state);
            session.set_prompt_tokens(s.prompt_tokens);
            session.set_generated_tokens(s.generated_tokens);
            session.set_max_tokens(s.max_tokens);
            session.set_age_ms(ToMs(s.age));
          }
        }
        return out;
      })
      .value_or(std::vector<v1::Session>());
}

absl::Status Coordinator::CancelSession(const std::string& request_id) {
  return loop_
      .Call([&]() -> absl::Status {
        bool found = false;
        for (const auto& [id, deployment] : deployments_) {
          if (deployment->engine() == nullptr) continue;
          for (const SessionSnapshot& s : deployment->engine()->Snapshot(clock_->Now()).sessions) {
            if (s.request_id == request_id) {
              found |= deployment->engine()->Cancel(s.key, absl::OkStatus(), clock_->Now());
            }
          }
        }
        if (!found) {
          return Error(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
                       "there is no request '" + request_id + "' in flight")
              .Hint("see `strata session list`");
        }
        return absl::OkStatus();
      })
      .value_or(Stopping());
}

std::vector<v1::Problem> Coordinator::Problems() const {
  std::vector<v1::Problem> problems = cluster_.Problems();
  auto add = [&problems](const std::string& what, const std::string& hint) {
    v1::Problem& problem = problems.emplace_back();
    problem.set_what(what);
    problem.set_do_(hint);
  };
  for (const auto& [id, deployment] : deployments_) {
    const std::string& name = deployment->model()->name;
    if (!deployment->problem().ok()) {
      const v1::ErrorDetail detail = DetailOf(deployment->problem());
      add("model " + name + " is " + DeploymentStateName(deployment->state()) + ": " +
              detail.message(),
          detail.hint().empty() ? "strata model load " + name : detail.hint());
    }
    if (deployment->engine() != nullptr) {
      for (const EngineProblem& p : deployment->engine()->Snapshot(clock_->Now()).problems) {
        add("model " + name + ": " + p.what, p.hint);
      }
      for (const auto& [node_name, node] : cluster_.nodes()) {
        if (node.alive && !node.draining && node.placements.empty()) {
          add("node " + node_name + " joined and holds no layers yet", "strata model load " + name);
        }
      }
    }
  }
  if (options_.insecure_off_loopback) {
    add("traffic is neither encrypted nor authenticated (--insecure)",
        "start coordinator and workers with --tls-dir");
  }
  return problems;
}

v1::GetStatusResponse Coordinator::GetStatus() {
  v1::GetStatusResponse out;
  for (v1::Model& model : ListModels()) *out.add_models() = std::move(model);
  for (v1::Session& session : ListSessions()) *out.add_sessions() = std::move(session);
  loop_.Call([&] {
    for (v1::Node& node : cluster_.Describe(clock_->Now())) *out.add_nodes() = std::move(node);
    for (v1::Problem& problem : Problems()) *out.add_problems() = std::move(problem);
    for (const auto& [id, deployment] : deployments_) {
      if (deployment->engine() == nullptr) continue;
      for (const KvSnapshot& kv : deployment->engine()->Snapshot(clock_->Now()).kv) {
        v1::KvUse* use = out.add_kv();
        use->set_model(deployment->model()->name);
        use->set_stage(kv.stage);
        use->set_group(KvGroupName(deployment->model()->spec().kv_groups[kv.group]));
        use->set_total(kv.total);
        use->set_free(kv.free);
        use->set_live(kv.live);
        use->set_cached(kv.cached);
        use->set_fenced(kv.fenced);
      }
    }
    return true;
  });
  out.set_version(kVersion);
  out.set_term(term_);
  out.set_uptime_s(ToMs(clock_->Now() - started_) / 1e3);
  return out;
}

// ---- Requests.

bool Coordinator::WithEngine(const std::string& model, std::function<void(const Serving&)> use) {
  return loop_.Post([this, model, use = std::move(use)] {
    Serving serving;
    Deployment* deployment = DeploymentOf(model);
    if (deployment == nullptr) {
      serving.problem = NotLoaded(model);
    } else if (deployment->engine() == nullptr || deployment->state() != DeploymentState::kReady) {
      serving.problem =
          !deployment->problem().ok()
              ? deployment->problem()
              : Error(absl::StatusCode::kUnavailable, "MODEL_LOADING",
                      "model '" + model + "' is " + DeploymentStateName(deployment->state()))
                    .Hint("see `strata model show " + model + "`");
    } else {
      serving.engine = deployment->engine();
      serving.numerics_class = deployment->plan().numerics_class().name();
      serving.plan_epoch = deployment->plan().epoch();
    }
    use(serving);
  });
}

}  // namespace strata
