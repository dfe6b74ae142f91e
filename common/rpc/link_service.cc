#include "common/rpc/link_service.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/io_unary.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/shard.grpc.pb.h"

namespace strata {
namespace {

constexpr size_t kMaxProbeBytes = 1 << 20;
// How long a stream that is refused may take to take its error, before it is cancelled.
constexpr std::chrono::seconds kTakeRefusal{10};

std::string Who(const std::string& node, uint64_t incarnation) {
  return (node.empty() ? "the coordinator" : node) + ", incarnation " + std::to_string(incarnation);
}

absl::Status WrongNode(const LinkHandler::Identity& is, const std::string& node,
                       uint64_t incarnation) {
  return Error(absl::StatusCode::kFailedPrecondition, "WRONG_NODE",
               "this is " + Who(is.node, is.incarnation) + ", not " + Who(node, incarnation))
      .Node(is.node)
      .Hint(is.node == node ? "it restarted or its lease lapsed; wait until it has joined again"
                            : "check --advertise: the address leads to another process");
}

absl::Status NotOpened(std::chrono::milliseconds limit) {
  return Error(absl::StatusCode::kDeadlineExceeded, "LINK_NOT_OPENED",
               "the stream of a link did not begin with LinkOpen in time")
      .Limit("open_timeout_ms=" + std::to_string(limit.count()))
      .Hint("a sender of ours says LinkOpen first thing: look at the network between both ends");
}

class Inbound : public InboundLink {
 public:
  // `refuse` ends the stream with an error, while nothing was heard of it yet.
  Inbound(grpc::ServerContext* context, std::function<void(const absl::Status&)> refuse)
      : since_(std::chrono::steady_clock::now()), refuse_(std::move(refuse)), context_(context) {}

  void Break(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    if (context_ == nullptr || !status_.ok()) {
      return;
    }
    status_ = status.ok() ? absl::CancelledError("the receiver ended the link") : status;
    context_->TryCancel();
  }

  // The stream ends: its context goes away. What Break was given, or ok.
  absl::Status Detach() {
    MutexLock lock(&mutex_);
    context_ = nullptr;
    return status_;
  }

  absl::Status broken() {
    MutexLock lock(&mutex_);
    return status_;
  }

  // The first message came, or the stream ended. False if the stream was refused before.
  bool Heard() {
    MutexLock lock(&mutex_);
    heard_ = true;
    return !refused_;
  }

  // Refuses a stream of which nothing was heard for `limit`.
  void RefuseIfLate(std::chrono::milliseconds limit) {
    const auto now = std::chrono::steady_clock::now();
    MutexLock lock(&mutex_);
    if (context_ == nullptr || heard_ || now - since_ <= limit) {
      return;
    }
    if (refused_) {
      if (now - since_ > limit + kTakeRefusal) context_->TryCancel();
    } else if (status_.ok()) {
      refused_ = true;
      status_ = NotOpened(limit);
      refuse_(status_);
    }
  }

 private:
  const std::chrono::steady_clock::time_point since_;
  const std::function<void(const absl::Status&)> refuse_;
  Mutex mutex_;
  grpc::ServerContext* context_ STRATA_GUARDED_BY(mutex_);
  bool heard_ STRATA_GUARDED_BY(mutex_) = false;
  bool refused_ STRATA_GUARDED_BY(mutex_) = false;
  absl::Status status_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

// By value for those who override them and keep what came.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::Status LinkSink::OnStep(StepMessage) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FRAME", "this link takes no steps");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::Status LinkSink::OnResult(ResultMessage) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FRAME", "this link takes no results");
}

class LinkService::Impl {
 public:
  Impl(LinkHandler* handler, const LinkServiceOptions& options)
      : handler_(handler), options_(options), reaper_([this] { ReapLoop(); }) {}

  ~Impl() {
    Shutdown();
    reaper_.join();
  }

  grpc::Service* NewService() {
    service_ = std::make_unique<v1::ShardService::AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    new Stream(this, loop);
    IoUnaryCall<v1::ProbeRequest, v1::ProbeResponse>::Serve(
        loop, {.request =
                   [this, loop](auto* context, auto* request, auto* writer, void* tag) {
                     service_->RequestProbe(context, request, writer, loop->queue(),
                                            loop->server_queue(), tag);
                   },
               .answer = [this](const auto& request,
                                auto* response) { return ToGrpc(Answer(request, response)); }});
  }

  void Shutdown() {
    std::vector<std::shared_ptr<Inbound>> links;
    {
      MutexLock lock(&mutex_);
      closing_ = true;
      links = links_;
      changed_.NotifyAll();
    }
    for (const auto& link : links) {
      link->Break(Error(absl::StatusCode::kUnavailable, "SHUTTING_DOWN", "the process is ending"));
    }
  }

  uint32_t links() {
    MutexLock lock(&mutex_);
    return static_cast<uint32_t>(links_.size());
  }

 private:
  // One link, from when the server may take it. Deletes itself.
  class Stream : public IoCall {
   public:
    Stream(Impl* service, IoLoop* loop)
        : IoCall(loop, Side::kServer),
          service_(service),
          assembler_(service->options_.max_frame_bytes) {
      reply_.set_opened(true);
      (void)Begin();
      service_->service_->RequestLink(&context_, &stream_, loop->queue(), loop->server_queue(),
                                      accepted_.tag());
    }

   private:
    void OnAccepted(bool ok) {
      if (!ok) {
        End();  // The server ends.
        return;
      }
      new Stream(service_, loop());
      served_.Accepted();
      link_ = std::make_shared<Inbound>(&context_, [this](const absl::Status& why) {
        stream_.Finish(ToGrpc(why), finished_.tag());  // The read comes back all the same.
      });
      if (absl::Status status = service_->Admit(link_); !status.ok()) {
        stream_.Finish(ToGrpc(status), finished_.tag());
        return;
      }
      Read();
    }

    void Read() {
      (void)Begin();
      stream_.Read(&part_, read_.tag());
    }

    void OnRead(bool ok) {
      if (sink_ != nullptr) {
        if (absl::Status status = ok ? Take() : absl::OkStatus(); !ok || !status.ok()) {
          EndOpened(std::move(status));
        } else {
          Read();
        }
        return;
      }
      if (!link_->Heard()) {
        service_->Forget(link_);  // Its end is under way.
        return;
      }
      if (!ok || !part_.has_open()) {
        absl::Status status = link_->broken();
        EndLink(status.ok() ? Error(absl::StatusCode::kInvalidArgument, "BAD_LINK",
                                    "a link begins with LinkOpen")
                            : status);
        return;
      }
      // The handler may wait, which the loop must not.
      opening_ = std::thread([this] { Open(part_.open()); });
    }

    void OnEnd() override {
      if (opening_.joinable()) {
        opening_.join();
      }
      delete this;
    }

    absl::StatusOr<std::shared_ptr<LinkSink>> OpenAsPeer(const v1::LinkOpen& open) {
      absl::Status may = CheckPeerRole(context_, CallFor::kMembers);
      if (may.ok() && !open.from_node().empty()) {
        may = CheckPeerIsNode(context_, open.from_node());
      }
      if (!may.ok()) {
        if (service_->options_.on_refused) service_->options_.on_refused(context_, "Link", may);
        return may;
      }
      return service_->Open(open, context_.peer(), link_);
    }

    void Open(const v1::LinkOpen& open) {
      from_ = "link from " + (open.from_node().empty() ? "the coordinator" : open.from_node());
      auto sink = OpenAsPeer(open);
      if (!sink.ok()) {
        EndLink(sink.status());
        return;
      }
      sink_ = *std::move(sink);
      (void)Begin();
      stream_.Write(reply_, written_.tag());  // Frames follow the answer.
    }

    // One part; an error ends the link.
    absl::Status Take() {
      if (!part_.has_frame()) {
        return Error(absl::StatusCode::kInvalidArgument, "BAD_FRAME", "no frame part");
      }
      ASSIGN_OR_RETURN(const bool whole, assembler_.Add(part_.frame()));
      if (!whole) {
        return absl::OkStatus();
      }
      if (service_->options_.results) {
        ASSIGN_OR_RETURN(ResultMessage message, assembler_.TakeResult());
        return sink_->OnResult(std::move(message));
      }
      ASSIGN_OR_RETURN(StepMessage message, assembler_.TakeStep());
      return sink_->OnStep(std::move(message));
    }

    // `status` is an error of the frames, or ok when the sender ended the stream.
    void EndOpened(absl::Status status) {
      // Why it really ended: what Break was given, else an error of the frames, else the sender.
      if (absl::Status broken = link_->Detach(); !broken.ok()) {
        status = broken;
      }
      sink_->OnClosed(status.ok() ? Error(absl::StatusCode::kUnavailable, "LINK_BROKEN",
                                          from_ + " was ended by the sender")
                                  : Annotate(status, from_));
      EndLink(status);
    }

    void EndLink(const absl::Status& status) {
      service_->Forget(link_);
      stream_.Finish(ToGrpc(status), finished_.tag());  // The last operation.
    }

    Impl* const service_;
    grpc::ServerContext context_;
    ServedContext served_{loop(), &context_};
    grpc::ServerAsyncReaderWriter<v1::LinkReply, v1::LinkPart> stream_{&context_};
    std::shared_ptr<Inbound> link_;  // Once accepted.
    FrameAssembler assembler_;
    v1::LinkReply reply_;
    v1::LinkPart part_;
    std::string from_;                // Once the handler was asked.
    std::shared_ptr<LinkSink> sink_;  // Once it accepted.
    std::thread opening_;
    Op accepted_{this, [this](bool ok) { OnAccepted(ok); }};
    Op read_{this, [this](bool ok) { OnRead(ok); }};
    Op written_{this, [this](bool) { Read(); }};
    Op finished_{this, [](bool) {}};
  };

  absl::Status Answer(const v1::ProbeRequest& request, v1::ProbeResponse* response) {
    const LinkHandler::Identity is = handler_->identity();
    if (request.padding().size() > kMaxProbeBytes) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBE", "padding is too long")
          .Limit("padding_bytes=" + std::to_string(kMaxProbeBytes));
    }
    if ((!request.expected_node().empty() && request.expected_node() != is.node) ||
        (request.expected_incarnation() != 0 && request.expected_incarnation() != is.incarnation)) {
      return WrongNode(is, request.expected_node(), request.expected_incarnation());
    }
    response->set_node(is.node);
    response->set_incarnation(is.incarnation);
    response->set_bytes_received(request.padding().size());
    return absl::OkStatus();
  }

  absl::Status Admit(const std::shared_ptr<Inbound>& link) {
    MutexLock lock(&mutex_);
    if (closing_) {
      return Error(absl::StatusCode::kUnavailable, "SHUTTING_DOWN", "the process is ending");
    }
    if (links_.size() >= options_.max_links) {
      return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_LINKS", "too many links")
          .Limit("links=" + std::to_string(options_.max_links))
          .Hint("unload a model, or raise --max-links of the process that was dialled");
    }
    links_.push_back(link);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<LinkSink>> Open(const v1::LinkOpen& open, const std::string& peer,
                                                 const std::shared_ptr<Inbound>& link) {
    const LinkHandler::Identity is = handler_->identity();
    if (open.to_node() != is.node || open.to_incarnation() != is.incarnation) {
      return WrongNode(is, open.to_node(), open.to_incarnation());
    }
    return handler_->OnOpen(open, peer, link);
  }

  void Forget(const std::shared_ptr<Inbound>& link) {
    (void)link->Detach();
    MutexLock lock(&mutex_);
    links_.erase(std::remove(links_.begin(), links_.end(), link), links_.end());
  }

  // Streams that never say LinkOpen would be held for ever.
  void ReapLoop() {
    MutexLock lock(&mutex_);
    while (!closing_) {
      if (links_.empty()) {
        changed_.Wait(&mutex_);
        continue;
      }
      changed_.WaitFor(&mutex_, std::max(options_.open_timeout / 4, std::chrono::milliseconds(20)));
      for (const auto& link : links_) {
        link->RefuseIfLate(options_.open_timeout);
      }
    }
  }

  LinkHandler* const handler_;
  const LinkServiceOptions options_;
  std::unique_ptr<v1::ShardService::AsyncService> service_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Inbound>> links_ STRATA_GUARDED_BY(mutex_);
  bool closing_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread reaper_;  // Last: it uses the others.
};

LinkService::LinkService(LinkHandler* handler, const LinkServiceOptions& options)
    : impl_(std::make_unique<Impl>(handler, options)) {}
LinkService::~LinkService() = default;
grpc::Service* LinkService::NewService() { return impl_->NewService(); }
void LinkService::Serve(IoLoop* loop) { impl_->Serve(loop); }
void LinkService::Shutdown() { impl_->Shutdown(); }
uint32_t LinkService::links() const { return impl_->links(); }

}  // namespace strata
