// The workers' side door: control streams and weights.
#ifndef STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_

#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/rpc/link.h"
#include "common/rpc/transport.h"
#include "coordinator/service/node_channel.h"
#include "strata/v1/membership.grpc.pb.h"

namespace strata {

class BlobStore;

// What happens to control streams. Called from gRPC's threads; implemented by the coordinator,
// which moves everything to its loop.
class MembershipHandler {
 public:
  virtual ~MembershipHandler() = default;
  // Before anything is dialled: whether the name is free and the info makes sense.
  virtual absl::Status MayJoin(const v1::NodeInfo& info) = 0;
  // The advertised address answered as this node. On success the worker is a member, and what the
  // coordinator wants to tell it goes into `channel`.
  virtual absl::StatusOr<v1::Registered> Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                              std::shared_ptr<NodeChannel> channel) = 0;
  virtual void OnMessage(const std::string& node, uint64_t incarnation,
                         v1::WorkerMessage message) = 0;
  virtual void OnLeave(const std::string& node, uint64_t incarnation,
                       std::shared_ptr<NodeChannel> channel) = 0;
};

class MembershipServiceImpl final : public v1::MembershipService::Service {
 public:
  // Nothing is owned; all outlive the service.
  MembershipServiceImpl(MembershipHandler* handler, const BlobStore* blobs,
                        const Transport* transport)
      : handler_(handler), blobs_(blobs), transport_(transport) {}

  grpc::Status Control(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override;
  grpc::Status FetchBlob(grpc::ServerContext* context, const v1::FetchBlobRequest* request,
                         grpc::ServerWriter<v1::FetchBlobChunk>* writer) override;

  // Ends all control streams and refuses new ones.
  void Shutdown();

 private:
  absl::StatusOr<LinkSpeed> DialBack(const v1::NodeInfo& info, const std::string& peer);
  bool Track(grpc::ServerContext* context, bool begins);

  MembershipHandler* const handler_;
  const BlobStore* const blobs_;
  const Transport* const transport_;
  Mutex mutex_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::set<grpc::ServerContext*> streams_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_
