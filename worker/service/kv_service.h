// Gives other workers the KV of this one's stages, whose places theirs are to take.
#ifndef STRATA_WORKER_SERVICE_KV_SERVICE_H_
#define STRATA_WORKER_SERVICE_KV_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "worker/service/shard_host.h"

namespace strata {

struct KvServiceOptions {
  // Stages that are given away at once; more are refused.
  size_t gives = 8;
};

// Any thread.
class KvService : public IoService {
 public:
  // The loaded stage of a deployment whose Load had this epoch; null: there is none.
  using FindFn =
      std::function<std::shared_ptr<ShardHost>(uint64_t deployment, uint64_t loaded_epoch)>;

  // `self` says who this is now, and outlives the service.
  KvService(const KvServiceOptions& options, std::function<LinkHandler::Identity()> self);
  ~KvService() override;  // The server is gone.

  // Before this there is no stage.
  void Set(FindFn find);

  // IoService.
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_KV_SERVICE_H_
