#include "tests/cluster/threaded_cluster.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <tuple>

#include "common/status.h"
#include "coordinator/service/request/model_runtime.h"
#include "tests/worker/runner/chain.h"
#include "tests/worker/runner/hash_shard.h"

namespace strata::testing {
namespace {

constexpr uint64_t kId = 7;
constexpr char kNumerics[] = "hash-1";
constexpr char kWeights[] = "weights";
constexpr uint32_t kContext = 512;
constexpr uint32_t kMaxCalls = 4096;

std::string NodeName(uint32_t stage) { return "node" + std::to_string(stage); }

std::shared_ptr<const ModelRuntime> MakeModel(const ModelSpec& spec) {
  auto manifest = std::make_shared<ModelManifest>();
  manifest->weights_digest = kWeights;
  manifest->spec = spec;
  auto model = std::make_shared<ModelRuntime>();
  model->name = "hash";
  model->manifest = manifest;
  return model;
}

}  // namespace

Verdict WaitingSink::OnToken(const TokenInfo& token) {
  MutexLock lock(&mutex_);
  tokens_.push_back(token.token.token_id());
  changed_.NotifyAll();
  return Verdict::kContinue;
}

void WaitingSink::OnDone(const FinishInfo& info) {
  MutexLock lock(&mutex_);
  reason_ = info.reason;
  ended_ = true;
  changed_.NotifyAll();
}

void WaitingSink::OnFailed(const absl::Status& status) {
  MutexLock lock(&mutex_);
  status_ = status;
  ended_ = true;
  changed_.NotifyAll();
}

bool WaitingSink::WaitFor(size_t tokens, nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (!ended_ && tokens_.size() < tokens) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= nanoseconds(0)) {
      return false;
    }
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

std::vector<uint32_t> WaitingSink::tokens() {
  MutexLock lock(&mutex_);
  return tokens_;
}

absl::Status WaitingSink::status() {
  MutexLock lock(&mutex_);
  return status_;
}

std::string WaitingSink::reason() {
  MutexLock lock(&mutex_);
  return reason_;
}

// What a worker's process does with the coordinator's messages, on a thread of its own.
class ThreadedCluster::Worker {
 public:
  Worker(ThreadedCluster* cluster, uint32_t stage)
      : cluster_(cluster), stage_(stage), thread_([this] { Run(); }) {
    cluster_->dialer_.Listen(
        NodeName(stage),
        [this](const v1::LinkOpen& open,
               std::shared_ptr<InboundLink> link) -> absl::StatusOr<std::shared_ptr<LinkSink>> {
          const std::shared_ptr<ShardHost> host = Host();
          if (host == nullptr) {
            return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "not loaded here");
          }
          return host->AcceptLink(open, std::move(link));
        });
  }
  ~Worker() {
    Post(0, nullptr);
    thread_.join();
  }

  void Post(uint64_t incarnation, std::shared_ptr<v1::CoordinatorMessage> message) {
    MutexLock lock(&mutex_);
    inbox_.emplace_back(incarnation, std::move(message));
    changed_.NotifyAll();
  }

 private:
  class Events : public ShardHostEvents {
   public:
    Events(ThreadedCluster* cluster, std::string node)
        : cluster_(cluster), node_(std::move(node)) {}
    void OnFenceAck(const v1::FenceAck& ack) override {
      cluster_->loop_.Post(
          [c = cluster_, node = node_, ack] { c->deployment_->pipeline()->OnFenceAck(node, ack); });
    }
    void OnStepHangs() override { ADD_FAILURE() << "a step hangs"; }
    void OnLinkFault(const v1::LinkFault& fault) override {
      cluster_->loop_.Post([c = cluster_, node = node_, fault] {
        c->deployment_->pipeline()->OnLinkFault(node, fault);
      });
    }

   private:
    ThreadedCluster* const cluster_;
    const std::string node_;
  };

  std::shared_ptr<ShardHost> Host() {
    MutexLock lock(&mutex_);
    return host_;
  }
  void SetHost(std::shared_ptr<ShardHost> host) {
    std::shared_ptr<ShardHost> old;
    {
      MutexLock lock(&mutex_);
      old = std::exchange(host_, std::move(host));
    }
    if (old != nullptr) {
      old->Stop();
    }
  }

  void Run() {
    while (true) {
      std::shared_ptr<v1::CoordinatorMessage> message;
      uint64_t incarnation = 0;
      {
        MutexLock lock(&mutex_);
        while (inbox_.empty()) {
          changed_.Wait(&mutex_);
        }
        std::tie(incarnation, message) = std::move(inbox_.front());
        inbox_.pop_front();
      }
      if (message == nullptr) {
        SetHost(nullptr);
        return;
      }
      if (message->has_load()) {
        Load(incarnation, message->load());
      } else if (message->has_unload()) {
        SetHost(nullptr);
      } else if (const auto host = Host(); message->has_fence() && host != nullptr) {
        host->Fence(message->fence().epoch());
      }
    }
  }

  void Load(uint64_t incarnation, const v1::Load& load) {
    SetHost(nullptr);
    ShardHostConfig config;
    config.incarnation = incarnation;
    config.next_incarnation = load.next_incarnation();
    config.runner.node = NodeName(stage_);
    config.runner.deployment = load.deployment();
    config.runner.epoch = load.epoch();
    config.runner.stage = load.stage();
    config.runner.stage_count = load.stage_count();
    StageSpec& spec = config.runner.spec;
    spec.model = cluster_->model_spec_;
    spec.first_layer = load.first_layer();
    spec.last_layer = load.last_layer();
    spec.embeds = load.stage() == 0;
    spec.heads = load.stage() + 1 == load.stage_count();
    spec.context = load.context();
    spec.kv_pages.assign(load.kv_pages().begin(), load.kv_pages().end());
    spec.max_batch_tokens = load.max_batch_tokens();
    spec.max_batch_items = load.max_batch_items();
    config.runner.weights_digest = load.weights_digest();
    config.runner.numerics_class = load.numerics_class();
    config.max_in_flight = load.max_in_flight();
    config.next_node = load.next_node();
    config.next_address = spec.heads ? "coordinator" : load.next_address();
    config.step_timeout = milliseconds(load.step_timeout_ms());
    const StageSpec shard_spec = spec;
    SetHost(std::make_shared<ShardHost>(std::move(config), std::make_unique<HashShard>(shard_spec),
                                        &cluster_->clock_, &cluster_->compute_, &cluster_->dialer_,
                                        std::make_shared<Events>(cluster_, NodeName(stage_))));
    v1::LoadProgress progress;
    progress.set_deployment(load.deployment());
    progress.set_epoch(load.epoch());
    progress.set_phase(v1::LoadProgress::PHASE_READY);
    cluster_->loop_.Post([c = cluster_, node = NodeName(stage_), progress] {
      c->deployment_->OnLoadProgress(node, progress);
    });
  }

  ThreadedCluster* const cluster_;
  const uint32_t stage_;
  Mutex mutex_;
  CondVar changed_;
  // With the incarnation that each was meant for.
  std::deque<std::pair<uint64_t, std::shared_ptr<v1::CoordinatorMessage>>> inbox_
      STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<ShardHost> host_ STRATA_GUARDED_BY(mutex_);
  std::thread thread_;
};

class ThreadedCluster::ResultsSink : public LinkSink {
 public:
  ResultsSink(ThreadedCluster* cluster, uint64_t link) : cluster_(cluster), link_(link) {}
  absl::Status OnResult(ResultMessage result) override {
    auto shared = std::make_shared<ResultMessage>(std::move(result));
    cluster_->loop_.Post([c = cluster_, link = link_, shared] {
      c->deployment_->pipeline()->OnResult(link, std::move(*shared));
    });
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override {
    cluster_->loop_.Post([c = cluster_, link = link_, status] {
      c->deployment_->pipeline()->OnResultsClosed(link, status);
    });
  }

 private:
  ThreadedCluster* const cluster_;
  const uint64_t link_;
};

ThreadedCluster::ThreadedCluster(uint32_t stages, uint64_t pages, DeploymentOptions options)
    : model_spec_(HashModel(2 * stages)),
      stages_(stages),
      loop_(
          &clock_,
          [this](TimePoint now) {
            deployment_->Tick(now);
            return deployment_->NextWake();
          },
          kMaxCalls) {
  dialer_.Listen("coordinator",
                 [this](const v1::LinkOpen& open,
                        std::shared_ptr<InboundLink>) -> absl::StatusOr<std::shared_ptr<LinkSink>> {
                   const std::optional<uint64_t> link =
                       loop_.Call([&] { return deployment_->pipeline()->AcceptResults(open); })
                           .value_or(std::nullopt);
                   if (!link.has_value()) {
                     return Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_EXPECTED", "");
                   }
                   return std::make_shared<ResultsSink>(this, *link);
                 });
  v1::LoadOptions load;
  load.set_context(kContext);
  load.set_max_batch_tokens(64);
  load.set_speculate("auto");
  deployment_ = std::make_unique<Deployment>(kId, MakeModel(model_spec_), MakePlan(pages), load,
                                             RotaryBlob{}, options, this);
  for (uint32_t s = 0; s < stages; ++s) {
    incarnations_[NodeName(s)] = s + 1;
    workers_.push_back(std::make_unique<Worker>(this, s));
  }
  loop_.Start();
  loop_.Call([this] {
    deployment_->OnRecorded(deployment_->Record().plan.epoch(), absl::OkStatus());
    deployment_->Load(incarnations_);
    return true;
  });
}

ThreadedCluster::~ThreadedCluster() {
  loop_.Call([this] {
    deployment_->Unload(absl::CancelledError("the test is over"));
    return true;
  });
  workers_.clear();
  loop_.Stop();
  deployment_ = nullptr;
}

v1::Plan ThreadedCluster::MakePlan(uint64_t pages) const {
  v1::Plan plan;
  plan.mutable_numerics_class()->set_name(kNumerics);
  v1::PlanPipeline* pipeline = plan.add_pipelines();
  for (uint32_t s = 0; s < stages_; ++s) {
    v1::PlanStage* stage = pipeline->add_stages();
    stage->add_ranks()->set_node(NodeName(s));
    stage->set_first_layer(2 * s);
    stage->set_last_layer(2 * s + 1);
    stage->add_kv_pages(pages);
  }
  return plan;
}

bool ThreadedCluster::SendToNode(const std::string& node, uint64_t incarnation,
                                 v1::CoordinatorMessage message) {
  if (incarnations_.at(node) != incarnation) {
    return false;
  }
  workers_[static_cast<size_t>(std::stoi(node.substr(4)))]->Post(
      incarnation, std::make_shared<v1::CoordinatorMessage>(std::move(message)));
  return true;
}

void ThreadedCluster::OpenLink(
    StepLinkRequest request,
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
    std::function<void(const absl::Status& status)> on_broken) {
  class Link : public StepLink {
   public:
    explicit Link(std::unique_ptr<FrameLink> link) : link_(std::move(link)) {}
    void Send(StepMessage step) override { link_->Send(std::move(step)).IgnoreError(); }

   private:
    const std::unique_ptr<FrameLink> link_;
  };
  // Dialling blocks, and a LocalDialer's does so for a moment only: from the loop, but later.
  loop_.Post([this, request = std::move(request), on_opened = std::move(on_opened),
              on_broken = std::move(on_broken)] {
    auto link = dialer_.Dial(request.address, request.open, request.max_queued_frames,
                             request.open_timeout, [this, on_broken](const absl::Status& status) {
                               loop_.Post([on_broken, status] { on_broken(status); });
                             });
    if (link.ok()) {
      on_opened(std::make_unique<Link>(*std::move(link)));
    } else {
      on_opened(link.status());
    }
  });
}

absl::Status ThreadedCluster::Submit(const std::string& id, std::vector<uint32_t> prompt,
                                     uint32_t max_tokens, std::shared_ptr<WaitingSink> sink) {
  SessionRequest request;
  request.key = request.request_id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.params = Greedy();
  request.params.set_prompt_length(0);
  return loop_
      .Call([&]() -> absl::Status {
        if (!deployment_->serves()) {
          return Error(absl::StatusCode::kUnavailable, "MODEL_LOADING", "loading");
        }
        return deployment_->engine()->Submit(std::move(request), sink, Now());
      })
      .value_or(absl::UnavailableError("stopped"));
}

void ThreadedCluster::Cancel(const std::string& id) {
  loop_.Call([&] {
    return deployment_->serves() && deployment_->engine()->Cancel(id, absl::OkStatus(), Now());
  });
}

void ThreadedCluster::RestartWorker(uint32_t stage) {
  loop_.Call([&] {
    const std::string node = NodeName(stage);
    incarnations_[node] += 100;
    deployment_->OnNodeLost(node);
    deployment_->Load(incarnations_);
    return true;
  });
}

absl::Status ThreadedCluster::Resize(uint64_t pages) {
  return loop_
      .Call([&] { return deployment_->Resize(MakePlan(pages), deployment_->load_options()); })
      .value_or(absl::UnavailableError("stopped"));
}

// As after a disk's time.
void ThreadedCluster::RecordLater(uint64_t) {
  loop_.Post(
      [this] { deployment_->OnRecorded(deployment_->Record().plan.epoch(), absl::OkStatus()); });
}

bool ThreadedCluster::WaitReady(nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    if (loop_.Call([&] { return deployment_->state() == DeploymentState::kReady; })
            .value_or(false)) {
      return true;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

EngineSnapshot ThreadedCluster::Snapshot() {
  return *loop_.Call([&] { return deployment_->engine()->Snapshot(Now()); });
}

std::vector<uint32_t> ThreadedCluster::Oracle(std::vector<uint32_t> prompt, uint32_t tokens) const {
  const size_t begin = prompt.size();
  for (uint32_t i = 0; i < tokens; ++i) {
    const std::vector<float> logits = HashLogits(model_spec_, prompt).back();
    prompt.push_back(
        static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {prompt.begin() + static_cast<ptrdiff_t>(begin), prompt.end()};
}

}  // namespace strata::testing
