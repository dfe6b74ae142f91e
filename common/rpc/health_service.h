// grpc.health.v1.Health on a server's loop: gRPC's own has threads.
#ifndef STRATA_COMMON_RPC_HEALTH_SERVICE_H_
#define STRATA_COMMON_RPC_HEALTH_SERVICE_H_

#include <memory>

#include "common/rpc/transport.h"

namespace strata {

// Knows the empty service only, the whole process. Any thread.
class HealthService : public IoService {
 public:
  HealthService();
  ~HealthService() override;  // The server has ended.

  void SetServing(bool serving);
  // Ends what watches: NOT_SERVING is the last it hears.
  void Shutdown();

  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_HEALTH_SERVICE_H_
