#ifndef STRATA_WORKER_SERVICE_GRPC_WEIGHT_SOURCES_H_
#define STRATA_WORKER_SERVICE_GRPC_WEIGHT_SOURCES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "strata/v1/membership.pb.h"
#include "worker/weights/sourced_blobs.h"

namespace strata {

// Asks by gRPC, on connections of its own, so that weights do not hold up heartbeats and steps. Any
// thread.
class GrpcWeightSources : public WeightSources {
 public:
  // `coordinator` is its host:port; `self` says who asks.
  GrpcWeightSources(const Transport& transport, const std::string& coordinator,
                    std::function<LinkHandler::Identity()> self);
  ~GrpcWeightSources() override;
  // One call lasts a minute at most; what is missing then is asked for again.
  absl::Status FromCoordinator(const std::string& sha256, uint64_t offset,
                               const std::vector<std::string>& not_from,
                               std::vector<WeightSource>* sources, const ChunkFn& sink,
                               Cancellation* cancel) override;
  absl::Status FromWorker(const WeightSource& source, const std::string& sha256, uint64_t offset,
                          std::chrono::milliseconds timeout, const ChunkFn& sink,
                          Cancellation* cancel) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// The sources that an answer names: at most 8, and none that is not whole. What comes from outside.
std::vector<WeightSource> SourcesOf(const v1::FetchBlobChunk& chunk);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_GRPC_WEIGHT_SOURCES_H_
