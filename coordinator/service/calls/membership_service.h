// The workers' side door: control streams and weights.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_MEMBERSHIP_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_MEMBERSHIP_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/link.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/transport.h"
#include "coordinator/service/nodes/membership_handler.h"
#include "strata/v1/membership.pb.h"

namespace strata {

class BlobStore;
class WeightHolders;

struct MembershipOptions {
  // From a control stream's start to its Register, which a worker sends first thing. It is refused
  // then: DEADLINE_EXCEEDED (NOT_REGISTERED).
  std::chrono::milliseconds register_timeout{10'000};
  // Control streams that have not joined yet; one more is refused.
  uint32_t max_joining = 256;
  // For the advertised address to answer and be measured.
  std::chrono::milliseconds dial_back_timeout{3000};
  // Blobs that are sent at once, each by a thread.
  size_t max_transfers = 128;
  // Of those that are asked for besides, the ones that wait for their turn; one more is refused.
  size_t max_waiting_transfers = 4096;
  // Told who may not join, and why. Any thread; does not wait. May be empty.
  std::function<void(const v1::NodeInfo& node, const absl::Status& why)> on_refused{};
  // Told of those whose certificate is not for the call. May be empty.
  OnRefusedCall on_refused_call{};
};

// Control streams hold no thread once they have joined.
class MembershipService final : public IoService {
 public:
  // Nothing is owned; all outlive the service.
  MembershipService(MembershipOptions options, MembershipHandler* handler, const BlobStore* blobs,
                    WeightHolders* holders, const Transport* transport);
  ~MembershipService() override;  // The server has ended.

  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

  // Ends all control streams and refuses new ones.
  void Shutdown();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_MEMBERSHIP_SERVICE_H_
