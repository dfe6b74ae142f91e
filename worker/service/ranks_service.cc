#include "worker/service/ranks_service.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "common/model/rank_outputs.h"
#include "common/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/ranks.grpc.pb.h"
#include "worker/service/expected_node.h"

namespace strata {
namespace {

absl::Status BadJoin(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "RANK_JOIN", what);
}

absl::StatusOr<RankToJoin> JoinOf(const v1::JoinRankRequest& request) {
  if (request.ranks() > kMostRanks || request.rank() == 0 || request.rank() >= request.ranks()) {
    return BadJoin("rank " + std::to_string(request.rank()) + " of " +
                   std::to_string(request.ranks()) + " is no rank that may follow");
  }
  RankToJoin join = {.epoch = request.epoch(), .rank = request.rank(), .ranks = request.ranks()};
  if (request.secret().size() != join.secret.size()) {
    return BadJoin("the secret of an epoch of ranks has " +
                   std::to_string(request.secret().size()) + " bytes, not " +
                   std::to_string(join.secret.size()));
  }
  std::copy(request.secret().begin(), request.secret().end(), join.secret.begin());
  for (const v1::RankAddress& address : request.lower()) {
    if (address.port() > std::numeric_limits<uint16_t>::max() ||
        !ParseDialled(HostPort{address.host(), static_cast<uint16_t>(address.port())}.ToString())
             .ok()) {
      return BadJoin("where a rank is to connect to is no address");
    }
    join.lower.push_back({address.host(), static_cast<uint16_t>(address.port())});
  }
  return join;
}

}  // namespace

class RanksService::Impl {
 public:
  explicit Impl(std::function<LinkHandler::Identity()> self)
      : self_(std::move(self)),
        threads_(
            {.threads = 2, .name = "rank_joins", .hint = "the leader of the ranks asks again"}) {}

  void Set(FindFn find) {
    MutexLock lock(&mutex_);
    find_ = std::move(find);
  }

  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    BlockingMethods(service_.get(), loop, &threads_)
        .Serve(&AsyncService::RequestJoinRank, std::bind_front(&Impl::JoinRank, this));
  }

 private:
  using AsyncService = v1::RanksService::AsyncService;

  absl::StatusOr<std::shared_ptr<RankSeat>> Find(const v1::JoinRankRequest& request) const {
    const LinkHandler::Identity self = self_();
    RETURN_IF_ERROR(CheckExpectedNode(request, self));
    FindFn find;
    {
      MutexLock lock(&mutex_);
      find = find_;
    }
    std::shared_ptr<RankSeat> seat =
        find != nullptr ? find(request.deployment(), request.loaded_epoch()) : nullptr;
    if (seat == nullptr) {
      return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
                   "no rank of deployment " + std::to_string(request.deployment()) + " of epoch " +
                       std::to_string(request.loaded_epoch()) + " is loaded here")
          .Node(self.node);
    }
    return seat;
  }

  grpc::Status JoinRank(CallContext* context, const v1::JoinRankRequest* request,
                        v1::JoinRankResponse* response) {
    const absl::Status status = [&]() -> absl::Status {
      RETURN_IF_ERROR(CheckPeerRole(context->grpc(), CallFor::kMembers));
      ASSIGN_OR_RETURN(const auto seat, Find(*request));
      ASSIGN_OR_RETURN(const RankToJoin join, JoinOf(*request));
      ASSIGN_OR_RETURN(const uint16_t port, seat->Join(join));
      response->set_port(port);
      return absl::OkStatus();
    }();
    return ToGrpc(status);
  }

  const std::function<LinkHandler::Identity()> self_;
  mutable Mutex mutex_;
  FindFn find_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<AsyncService> service_;
  CallThreads threads_;  // Last: it uses the others.
};

RanksService::RanksService(std::function<LinkHandler::Identity()> self)
    : impl_(std::make_unique<Impl>(std::move(self))) {}
RanksService::~RanksService() = default;
void RanksService::Set(FindFn find) { impl_->Set(std::move(find)); }
grpc::Service* RanksService::NewService() { return impl_->NewService(); }
void RanksService::Serve(IoLoop* loop) { impl_->Serve(loop); }

absl::StatusOr<RankAddress> AskToJoin(const Transport& transport, const RankPeer& peer,
                                      uint64_t deployment, const RankToJoin& join,
                                      milliseconds timeout) {
  ASSIGN_OR_RETURN(const HostPort dialled, ParseDialled(peer.address));
  v1::JoinRankRequest request;
  request.set_expected_node(peer.node);
  request.set_expected_incarnation(peer.incarnation);
  request.set_deployment(deployment);
  request.set_loaded_epoch(peer.loaded_epoch);
  request.set_epoch(join.epoch);
  request.set_rank(join.rank);
  request.set_ranks(join.ranks);
  request.set_secret(join.secret.data(), join.secret.size());
  for (const RankAddress& lower : join.lower) {
    v1::RankAddress* const address = request.add_lower();
    address->set_host(lower.host);
    address->set_port(lower.port);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  v1::JoinRankResponse response;
  RETURN_IF_ERROR(FromGrpc(v1::RanksService::NewStub(transport.MakeChannel(peer.address))
                               ->JoinRank(&context, request, &response)));
  if (response.port() == 0 || response.port() > std::numeric_limits<uint16_t>::max()) {
    return Error(absl::StatusCode::kInternal, "RANK_JOIN",
                 "node '" + peer.node + "' answers with no port to connect to")
        .Node(peer.node);
  }
  return RankAddress{
      .host = dialled.host, .port = static_cast<uint16_t>(response.port()), .node = peer.node};
}

}  // namespace strata
