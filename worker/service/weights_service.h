// Gives other workers what this one's cache has of weights.
#ifndef STRATA_WORKER_SERVICE_WEIGHTS_SERVICE_H_
#define STRATA_WORKER_SERVICE_WEIGHTS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "worker/weights/blob_fetcher.h"

namespace strata {

struct WeightsServiceOptions {
  // Blobs that are sent at once; more wait, and still more are refused.
  size_t sends = 16;
  size_t waiting = 64;
};

// Any thread. A file is read and checked before its first bytes leave, once for each process.
class WeightsService : public IoService {
 public:
  // `self` says who this is now. All outlive the service.
  WeightsService(const WeightsServiceOptions& options, WeightCache* cache,
                 const BlobFetcher* fetcher, std::function<LinkHandler::Identity()> self);
  ~WeightsService() override;  // The server is gone.

  // IoService.
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

  // To other workers since the start.
  uint64_t sent_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_WEIGHTS_SERVICE_H_
