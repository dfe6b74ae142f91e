#include "coordinator/service/calls/membership_service.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "common/app/flags.h"
#include "common/app/log.h"
#include "common/layer_weights.h"
#include "common/limits.h"
#include "common/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/calls/version_skew.h"
#include "coordinator/service/loop/errors.h"
#include "coordinator/service/nodes/worker_claims.h"
#include "strata/v1/membership.grpc.pb.h"

namespace strata {
namespace {

// How long a stream that is refused may take to take its error, before it is cancelled.
constexpr std::chrono::seconds kTakeRefusal{10};
// Who does not want a blob from more nodes than that is sent it.
constexpr int kMostNotFrom = 256;

absl::Status BadInfo(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_NODE_INFO", what);
}

absl::Status NotRegistered(std::chrono::milliseconds limit) {
  return Error(absl::StatusCode::kDeadlineExceeded, "NOT_REGISTERED",
               "the control stream did not register within " + FormatDuration(limit))
      .Limit("register_timeout_ms=" + std::to_string(limit.count()))
      .Hint(
          "a worker sends Register first thing; --register-timeout of strata-coordinator is the "
          "limit");
}

}  // namespace

class MembershipService::Impl {
 public:
  Impl(MembershipOptions options, MembershipHandler* handler, const BlobStore* blobs,
       WeightHolders* holders, const Transport* transport)
      : options_(options),
        handler_(handler),
        blobs_(blobs),
        holders_(holders),
        transport_(transport),
        transfers_(
            {.threads = options.max_transfers,
             .waiting = options.max_waiting_transfers,
             .name = "transfers",
             .hint = "it is tried again; --max-transfers of strata-coordinator is the limit"}),
        reaper_([this] { ReapLoop(); }) {}

  ~Impl() {
    Shutdown();
    reaper_.join();
  }

  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    handler_->OnServing(loop);
    ControlCall::Await(this, loop);
    BlockingMethods(service_.get(), loop, &transfers_)
        .Serve(&AsyncService::RequestFetchBlob, std::bind_front(&Impl::FetchBlob, this));
  }

  void Shutdown() {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (ControlCall* call : calls_) {
      call->Cancel();
    }
    changed_.NotifyAll();
  }

 private:
  using AsyncService = v1::MembershipService::AsyncService;

  // One control stream, from when the server may take it. Holds itself until it has ended.
  class ControlCall : public IoCall, public std::enable_shared_from_this<ControlCall> {
   public:
    static void Await(Impl* service, IoLoop* loop) {
      auto call = std::make_shared<ControlCall>(service, loop);
      call->self_ = call;
      (void)call->Begin();
      service->service_->RequestControl(&call->context_, &call->stream_, loop->queue(),
                                        loop->server_queue(), call->accepted_.tag());
    }

    ControlCall(Impl* service, IoLoop* loop) : IoCall(loop, Side::kServer), service_(service) {}

    void Cancel() { context_.TryCancel(); }
    // Ends a stream of which nothing was heard yet. The read under way comes back all the same.
    void Refuse(const absl::Status& why) {
      LogWarn({{"address", peer_}}, "a control stream was refused: " + Describe(why));
      Finish(why);
    }

    // Guarded by the service's mutex.
    std::chrono::steady_clock::time_point since;  // Its start; once it is refused, that.
    bool registered = false;                      // Register, or something else, came in time.
    bool late = false;                            // It did not: the stream was refused.
    bool member = false;

   private:
    void OnAccepted(bool ok) {
      if (!ok) {
        End();  // The server ends.
        return;
      }
      Await(service_, loop());
      served_.Accepted();
      peer_ = context_.peer();  // Not known once the stream has ended.
      absl::Status status = CheckPeerRole(context_, CallFor::kMembers);
      if (status.ok()) {
        status = service_->Enter(this);
      } else {
        service_->TellRefusedCall(context_, "Control", status);
      }
      if (!status.ok()) {
        Finish(status);
        return;
      }
      Read();
    }

    void Read() {
      if (Begin()) {
        stream_.Read(&message_, read_.tag());
      }
    }

    void OnRead(bool ok) {
      if (joined_) {
        if (ok) {
          service_->handler_->OnMessage(info_.name(), info_.incarnation(), std::move(message_),
                                        [self = shared_from_this()] { self->Read(); });
        } else {
          channel_->Close();
          service_->handler_->OnLeave(info_.name(), info_.incarnation(), channel_);
          Leave(absl::OkStatus());
        }
        return;
      }
      if (!service_->Heard(this)) {
        service_->Exit(this);  // Its end is under way.
        return;
      }
      if (!ok || !message_.has_register_()) {
        Leave(BadInfo("a control stream begins with Register"));
        return;
      }
      if (absl::Status named = CheckPeerIsNode(context_, message_.register_().name());
          !named.ok()) {
        service_->TellRefused(message_.register_(), named);
        service_->TellRefusedCall(context_, "Control", named);
        Leave(named);
        return;
      }
      info_ = message_.register_();
      joining_ = std::thread([this] { Join(); });  // It waits, which the loop must not.
    }

    void Join() {
      channel_ = std::make_shared<NodeChannel>([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->WriteNext();
      });
      const auto registered = service_->Admit(this, info_, peer_, channel_);
      if (!registered.ok()) {
        LogWarn({{"node", info_.name()}}, "a node was refused: " + Describe(registered.status()));
        service_->TellRefused(info_, registered.status());
        Leave(registered.status());
        return;
      }
      *sending_.mutable_registered() = *registered;
      joined_ = true;
      Read();
      (void)Begin();
      stream_.Write(sending_, written_.tag());
    }

    // The next message to the worker, unless one is being written. Any thread.
    void WriteNext() {
      MutexLock lock(&write_mutex_);
      if (writing_) {
        return;
      }
      if (channel_->closed()) {
        context_.TryCancel();
        return;
      }
      if (auto next = channel_->TryNext()) {
        sending_ = *std::move(next);
        writing_ = Begin();
        if (writing_) stream_.Write(sending_, written_.tag());
      }
    }

    void OnWritten(bool ok) {
      bool finish = false;
      {
        MutexLock lock(&write_mutex_);
        writing_ = false;
        finish = leaving_;
      }
      if (finish) {
        Finish(status_);
      } else if (ok) {
        WriteNext();
      } else {
        channel_->Close();  // A read that fails follows.
      }
    }

    // No read is under way, nor comes.
    void Leave(const absl::Status& status) {
      service_->Exit(this);
      {
        MutexLock lock(&write_mutex_);
        status_ = status;
        leaving_ = true;
        if (joined_ && writing_) {
          return;  // The write's end goes on.
        }
        writing_ = true;  // No more writes.
      }
      Finish(status);
    }

    void Finish(const absl::Status& status) { stream_.Finish(ToGrpc(status), finished_.tag()); }

    void OnEnd() override {
      if (joining_.joinable()) {
        joining_.join();
      }
      self_ = nullptr;  // May delete this.
    }

    Impl* const service_;
    std::shared_ptr<ControlCall> self_;
    grpc::ServerContext context_;
    ServedContext served_{loop(), &context_};
    grpc::ServerAsyncReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage> stream_{&context_};
    std::string peer_;
    v1::WorkerMessage message_;  // Being read.
    v1::NodeInfo info_;          // Once registered.
    std::shared_ptr<NodeChannel> channel_;
    std::thread joining_;
    bool joined_ = false;  // Before the read that may bring its first message.
    Mutex write_mutex_;
    bool writing_ STRATA_GUARDED_BY(write_mutex_) = true;  // Of `sending_`; first Registered.
    bool leaving_ STRATA_GUARDED_BY(write_mutex_) = false;
    v1::CoordinatorMessage sending_;
    absl::Status status_;  // Once leaving.
    Op accepted_{this, [this](bool ok) { OnAccepted(ok); }};
    Op read_{this, [this](bool ok) { OnRead(ok); }};
    Op written_{this, [this](bool ok) { OnWritten(ok); }};
    Op finished_{this, [](bool) {}};
  };

  grpc::Status FetchBlob(CallContext* context, const v1::FetchBlobRequest* request,
                         CallWriter<v1::FetchBlobChunk>* writer);

  absl::StatusOr<LinkSpeed> DialBack(const v1::NodeInfo& info, const std::string& peer) {
    auto speed = MeasureLink(*transport_, info.address(), info.name(), info.incarnation(),
                             options_.dial_back_timeout);
    if (speed.ok()) {
      return speed;
    }
    const v1::ErrorDetail cause = DetailOf(speed.status());
    const auto of = cause.facts().find("cause");
    const bool tls = of != cause.facts().end() && of->second.find("TLS") != std::string::npos;
    return Error(absl::StatusCode::kFailedPrecondition, "ADVERTISED_ADDRESS",
                 "the coordinator cannot reach node '" + info.name() + "' at " + info.address() +
                     " (it called from " + peer + "): " + std::string(speed.status().message()))
        .Node(info.name())
        .Fact("cause", of != cause.facts().end() ? of->second : cause.reason())
        .Hint(tls ? cause.hint()
                  : "open that port in the firewall of '" + info.name() +
                        "', or start its worker with --advertise HOST:PORT that the coordinator "
                        "can dial");
  }

  absl::StatusOr<v1::Registered> Admit(ControlCall* call, const v1::NodeInfo& info,
                                       const std::string& peer,
                                       std::shared_ptr<NodeChannel> channel) {
    RETURN_IF_ERROR(CheckNodeInfo(info));
    RETURN_IF_ERROR(CheckVersionSkew(kVersion, info.version(), info.name()));
    RETURN_IF_ERROR(handler_->MayJoin(info));
    ASSIGN_OR_RETURN(const LinkSpeed speed, DialBack(info, peer));
    ASSIGN_OR_RETURN(v1::Registered registered, handler_->Join(info, speed, std::move(channel)));
    MutexLock lock(&mutex_);
    call->member = true;
    --joining_;
    return registered;
  }

  void TellRefused(const v1::NodeInfo& info, const absl::Status& why) const {
    if (options_.on_refused) options_.on_refused(info, why);
  }
  void TellRefusedCall(const grpc::ServerContext& context, std::string_view call,
                       const absl::Status& why) const {
    if (options_.on_refused_call) options_.on_refused_call(context, call, why);
  }

  absl::Status Enter(ControlCall* call) {
    MutexLock lock(&mutex_);
    if (stopping_) {
      return Stopping();
    }
    if (joining_ >= options_.max_joining) {
      return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_JOINING",
                   std::to_string(joining_) + " workers are joining already")
          .Limit("joining=" + std::to_string(options_.max_joining))
          .Hint("it is tried again in a moment; --max-joining of strata-coordinator is the limit");
    }
    ++joining_;
    call->since = std::chrono::steady_clock::now();
    calls_.insert(call);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // The first message came, or the stream ended. False if the stream was refused before.
  bool Heard(ControlCall* call) {
    MutexLock lock(&mutex_);
    call->registered = true;
    return !call->late;
  }

  void Exit(ControlCall* call) {
    MutexLock lock(&mutex_);
    if (!call->member) --joining_;
    calls_.erase(call);
  }

  // Refuses what never says Register.
  void ReapLoop() {
    const auto look_every = std::max(options_.register_timeout / 4, std::chrono::milliseconds(20));
    MutexLock lock(&mutex_);
    while (!stopping_) {
      if (joining_ == 0) {
        changed_.Wait(&mutex_);
        continue;
      }
      changed_.WaitFor(&mutex_, look_every);
      const auto now = std::chrono::steady_clock::now();
      for (ControlCall* call : calls_) {
        if (call->registered) continue;
        if (call->late) {
          if (now - call->since > kTakeRefusal) call->Cancel();
        } else if (now - call->since > options_.register_timeout) {
          call->late = true;
          call->since = now;
          call->Refuse(NotRegistered(options_.register_timeout));
        }
      }
    }
  }

  const MembershipOptions options_;
  MembershipHandler* const handler_;
  const BlobStore* const blobs_;
  WeightHolders* const holders_;
  const Transport* const transport_;
  std::unique_ptr<AsyncService> service_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::set<ControlCall*> calls_ STRATA_GUARDED_BY(mutex_);
  uint32_t joining_ STRATA_GUARDED_BY(mutex_) = 0;  // Those of `calls_` that are no members.
  CallThreads transfers_;
  std::thread reaper_;  // Last: it uses the others.
};

grpc::Status MembershipService::Impl::FetchBlob(CallContext* context,
                                                const v1::FetchBlobRequest* request,
                                                CallWriter<v1::FetchBlobChunk>* writer) {
  if (const absl::Status may = CheckPeerRole(context->grpc(), CallFor::kMembers); !may.ok()) {
    TellRefusedCall(context->grpc(), "FetchBlob", may);
    return ToGrpc(may);
  }
  const auto blob = blobs_->Find(request->sha256());
  if (!blob.ok()) {
    return ToGrpc(blob.status());
  }
  if (request->offset() > blob->bytes) {
    return ToGrpc(Error(absl::StatusCode::kOutOfRange, "BAD_OFFSET",
                        "offset " + std::to_string(request->offset()) + " in a blob of " +
                            std::to_string(blob->bytes) + " bytes"));
  }
  WeightHolders::Sending sending(
      holders_, {.node = request->node(),
                 .incarnation = request->incarnation(),
                 .blob = DigestPrefix(request->sha256()),
                 .may_name = request->may_name_sources() && !request->node().empty() &&
                             request->not_from_size() <= kMostNotFrom,
                 .not_from = {request->not_from().begin(), request->not_from().end()}});
  v1::FetchBlobChunk chunk;
  if (!sending.sources().empty()) {
    chunk.mutable_sources()->Add(sending.sources().begin(), sending.sources().end());
    writer->Write(chunk);
    return grpc::Status::OK;
  }
  for (uint64_t offset = request->offset(); offset < blob->bytes;) {
    const uint64_t n = std::min<uint64_t>(kBlobChunkBytes, blob->bytes - offset);
    const absl::Status read = blobs_->Read(*blob, offset, n, chunk.mutable_data());
    if (!read.ok()) {
      return ToGrpc(read);
    }
    if (!writer->Write(chunk)) {
      return grpc::Status::OK;  // The worker went away.
    }
    holders_->CountSent(n);
    offset += n;
  }
  sending.SentAll();
  return grpc::Status::OK;
}

MembershipService::MembershipService(MembershipOptions options, MembershipHandler* handler,
                                     const BlobStore* blobs, WeightHolders* holders,
                                     const Transport* transport)
    : impl_(std::make_unique<Impl>(options, handler, blobs, holders, transport)) {}
MembershipService::~MembershipService() = default;
grpc::Service* MembershipService::NewService() { return impl_->NewService(); }
void MembershipService::Serve(IoLoop* loop) { impl_->Serve(loop); }
void MembershipService::Shutdown() { impl_->Shutdown(); }

}  // namespace strata
