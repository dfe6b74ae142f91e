// The workers' side door: control streams and weights.
#ifndef STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_
#define STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

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

struct MembershipOptions {
  // From a control stream's start to its Register, which a worker sends first thing. Cancelled
  // then: a stream that says nothing holds a thread.
  std::chrono::milliseconds register_timeout{10'000};
  // Control streams that have not joined yet; one more is refused.
  uint32_t max_joining = 256;
  // For the advertised address to answer and be measured.
  std::chrono::milliseconds dial_back_timeout{3000};
};

class MembershipServiceImpl final : public v1::MembershipService::Service {
 public:
  // Nothing is owned; all outlive the service.
  MembershipServiceImpl(MembershipOptions options, MembershipHandler* handler,
                        const BlobStore* blobs, const Transport* transport);
  ~MembershipServiceImpl() override;  // The server has ended.

  grpc::Status Control(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override;
  grpc::Status FetchBlob(grpc::ServerContext* context, const v1::FetchBlobRequest* request,
                         grpc::ServerWriter<v1::FetchBlobChunk>* writer) override;

  // Ends all control streams and refuses new ones.
  void Shutdown();

 private:
  using ControlStream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;
  struct StreamState {
    std::chrono::steady_clock::time_point since;
    bool registered = false;  // Register, or something else, came in time.
    bool late = false;        // It did not: the stream was cancelled.
    bool member = false;
  };

  absl::StatusOr<LinkSpeed> DialBack(const v1::NodeInfo& info, const std::string& peer);
  absl::Status Begin(grpc::ServerContext* context);
  void End(grpc::ServerContext* context);
  absl::StatusOr<v1::NodeInfo> ReadRegister(grpc::ServerContext* context, ControlStream* stream);
  absl::StatusOr<v1::Registered> Admit(grpc::ServerContext* context, const v1::NodeInfo& info,
                                       std::shared_ptr<NodeChannel> channel);
  void ReapLoop();

  const MembershipOptions options_;
  MembershipHandler* const handler_;
  const BlobStore* const blobs_;
  const Transport* const transport_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::map<grpc::ServerContext*, StreamState> streams_ STRATA_GUARDED_BY(mutex_);
  uint32_t joining_ STRATA_GUARDED_BY(mutex_) = 0;  // Those of `streams_` that are no members.
  std::thread reaper_;                              // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MEMBERSHIP_SERVICE_H_
