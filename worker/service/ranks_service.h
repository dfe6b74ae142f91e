// Lets the leader of a stage's ranks join those that are loaded here.
#ifndef STRATA_WORKER_SERVICE_RANKS_SERVICE_H_
#define STRATA_WORKER_SERVICE_RANKS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "worker/ranks/sockets/join_followers.h"
#include "worker/ranks/sockets/rank_seat.h"
#include "worker/service/rank_parts.h"

namespace strata {

// Any thread.
class RanksService : public IoService {
 public:
  // The seat that was loaded with that epoch; null: there is none.
  using FindFn = std::function<std::shared_ptr<RankSeat>(uint64_t deployment, uint64_t epoch)>;

  explicit RanksService(std::function<LinkHandler::Identity()> self);
  ~RanksService() override;  // The server is gone.

  // Until then nothing is loaded.
  void Set(FindFn find);

  // IoService.
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Asks the worker over gRPC, which may take `timeout`. Errors: the service's, or the connection's.
absl::StatusOr<RankAddress> AskToJoin(const Transport& transport, const RankPeer& peer,
                                      uint64_t deployment, const RankToJoin& join,
                                      milliseconds timeout);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_RANKS_SERVICE_H_
