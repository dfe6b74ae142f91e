// A whole cluster in one process, on its real threads: the coordinator's event loop, deployment and
// engine, and workers' shard hosts, over links that are queues. Without gRPC, so that
// ThreadSanitizer sees everything.
#ifndef STRATA_TESTS_CLUSTER_THREADED_CLUSTER_H_
#define STRATA_TESTS_CLUSTER_THREADED_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/service/loop/event_loop.h"
#include "tests/worker/service/local_links.h"
#include "worker/service/shard_host.h"

namespace strata::testing {

// What a client of the cluster sees. Its thread waits; the loop fills.
class WaitingSink : public SessionSink {
 public:
  void OnStarted(const StartedInfo&) override {}
  void OnRows(const RowsInfo&) override {}
  Verdict OnToken(const TokenInfo& token) override;
  void OnDone(const FinishInfo& info) override;
  void OnFailed(const absl::Status& status) override;

  // Waits for the end, or until `tokens` have come.
  bool WaitFor(size_t tokens, nanoseconds timeout);
  bool WaitForEnd(nanoseconds timeout) { return WaitFor(SIZE_MAX, timeout); }
  std::vector<uint32_t> tokens();
  absl::Status status();  // How it failed; ok when it did not.
  std::string reason();   // How it was done.

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint32_t> tokens_ STRATA_GUARDED_BY(mutex_);
  absl::Status status_ STRATA_GUARDED_BY(mutex_);
  std::string reason_ STRATA_GUARDED_BY(mutex_);
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
};

class ThreadedCluster : public DeploymentHost {
 public:
  // Loaded and ready when it returns. Two layers of the hash model a stage.
  ThreadedCluster(uint32_t stages, uint64_t pages, DeploymentOptions options);
  ~ThreadedCluster() override;

  // Any thread.
  absl::Status Submit(const std::string& id, std::vector<uint32_t> prompt, uint32_t max_tokens,
                      std::shared_ptr<WaitingSink> sink);
  void Cancel(const std::string& id);
  // A link breaks; a worker loses everything and comes back, with the model loaded again on it.
  void BreakLink(size_t back) { dialer_.BreakOne(back); }
  void RestartWorker(uint32_t stage);
  absl::Status Resize(uint64_t pages);
  bool WaitReady(nanoseconds timeout);
  EngineSnapshot Snapshot();
  std::vector<uint32_t> Oracle(std::vector<uint32_t> prompt, uint32_t tokens) const;
  uint32_t vocab() const { return model_spec_.vocab; }

  // DeploymentHost, on the loop.
  bool SendToNode(const std::string& node, uint64_t incarnation,
                  v1::CoordinatorMessage message) override;
  TimePoint Now() const override { return clock_.Now(); }
  void OpenLink(StepLinkRequest request,
                std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                std::function<void(const absl::Status& status)> on_broken) override;
  std::string AddressOf(const std::string& node) const override { return node; }
  bool LinksAhead(const std::string&) const override { return false; }
  uint64_t coordinator_incarnation() const override { return 1; }
  void RecordLater(uint64_t) override;
  void OnPlacement(uint64_t, const v1::Plan&, bool, bool) override {}
  void OnPrepared(uint64_t, const v1::Plan*) override {}
  SequenceNumbers* sequence_numbers() override { return &sequence_numbers_; }

 private:
  class Worker;
  class ResultsSink;

  v1::Plan MakePlan(uint64_t pages) const;
  void Load();

  const ModelSpec model_spec_;
  const uint32_t stages_;
  const SystemClock clock_;
  SequenceNumbers sequence_numbers_{1};
  Mutex compute_;
  LocalDialer dialer_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::string, uint64_t> incarnations_;  // On the loop.
  std::unique_ptr<Deployment> deployment_;        // On the loop.
  EventLoop loop_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_CLUSTER_THREADED_CLUSTER_H_
