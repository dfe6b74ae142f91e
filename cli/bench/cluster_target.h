// A load on a Strata cluster, through the client library.
#ifndef STRATA_CLI_BENCH_CLUSTER_TARGET_H_
#define STRATA_CLI_BENCH_CLUSTER_TARGET_H_

#include <string>

#include "cli/bench/target.h"
#include "sdk/cpp/strata.h"

namespace strata::cli {

// Answers are greedy and go on to their full length. Lost connections are not mended: they are
// failures.
class ClusterTarget : public LoadTarget {
 public:
  ClusterTarget(const sdk::Client& client, std::string model)
      : model_(std::move(model)), streams_(client) {}

  void Start(uint32_t request, const WorkloadRequest& what) override;
  void Poll(TimePoint until, LoadObserver* observer) override;
  void CancelAll() override { streams_.CancelAll(); }

 private:
  const std::string model_;
  sdk::StreamSet streams_;
};

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_CLUSTER_TARGET_H_
