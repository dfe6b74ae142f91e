#include "common/rpc/link_service.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/shard.grpc.pb.h"

namespace strata {
namespace {

constexpr size_t kMaxProbeBytes = 1 << 20;

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

class Inbound : public InboundLink {
 public:
  explicit Inbound(grpc::ServerContext* context)
      : since_(std::chrono::steady_clock::now()), context_(context) {}

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

  void set_opened() {
    MutexLock lock(&mutex_);
    opened_ = true;
  }

  bool LateToOpen(std::chrono::milliseconds timeout) {
    MutexLock lock(&mutex_);
    return !opened_ && std::chrono::steady_clock::now() - since_ > timeout;
  }

 private:
  const std::chrono::steady_clock::time_point since_;
  Mutex mutex_;
  grpc::ServerContext* context_ STRATA_GUARDED_BY(mutex_);
  bool opened_ STRATA_GUARDED_BY(mutex_) = false;
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

class LinkService::Impl : public v1::ShardService::Service {
 public:
  Impl(LinkHandler* handler, const LinkServiceOptions& options)
      : handler_(handler), options_(options), reaper_([this] { ReapLoop(); }) {}

  ~Impl() override {
    Shutdown();
    reaper_.join();
  }

  using Stream = grpc::ServerReaderWriter<v1::LinkReply, v1::LinkPart>;

  grpc::Status Link(grpc::ServerContext* context, Stream* stream) override {
    auto link = std::make_shared<Inbound>(context);
    if (absl::Status status = Admit(link); !status.ok()) {
      return ToGrpc(status);
    }
    absl::Status status = Serve(context, stream, link);
    Forget(link);
    return ToGrpc(status);
  }

  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest* request,
                     v1::ProbeResponse* response) override {
    const LinkHandler::Identity is = handler_->identity();
    if (request->padding().size() > kMaxProbeBytes) {
      return ToGrpc(Error(absl::StatusCode::kInvalidArgument, "BAD_PROBE", "padding is too long")
                        .Limit("padding_bytes=" + std::to_string(kMaxProbeBytes)));
    }
    if ((!request->expected_node().empty() && request->expected_node() != is.node) ||
        (request->expected_incarnation() != 0 &&
         request->expected_incarnation() != is.incarnation)) {
      return ToGrpc(WrongNode(is, request->expected_node(), request->expected_incarnation()));
    }
    response->set_node(is.node);
    response->set_incarnation(is.incarnation);
    response->set_bytes_received(request->padding().size());
    return grpc::Status::OK;
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
  absl::Status Admit(const std::shared_ptr<Inbound>& link) {
    MutexLock lock(&mutex_);
    if (closing_) {
      return Error(absl::StatusCode::kUnavailable, "SHUTTING_DOWN", "the process is ending");
    }
    if (links_.size() >= options_.max_links) {
      return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_LINKS", "too many links")
          .Limit("links=" + std::to_string(options_.max_links));
    }
    links_.push_back(link);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  void Forget(const std::shared_ptr<Inbound>& link) {
    (void)link->Detach();
    MutexLock lock(&mutex_);
    links_.erase(std::remove(links_.begin(), links_.end(), link), links_.end());
  }

  absl::Status Serve(grpc::ServerContext* context, Stream* stream,
                     const std::shared_ptr<Inbound>& link) {
    v1::LinkPart part;
    if (!stream->Read(&part) || !part.has_open()) {
      absl::Status status = link->broken();
      return status.ok() ? Error(absl::StatusCode::kInvalidArgument, "BAD_LINK",
                                 "a link begins with LinkOpen")
                         : status;
    }
    link->set_opened();
    const v1::LinkOpen open = part.open();
    const LinkHandler::Identity is = handler_->identity();
    if (open.to_node() != is.node || open.to_incarnation() != is.incarnation) {
      return WrongNode(is, open.to_node(), open.to_incarnation());
    }
    ASSIGN_OR_RETURN(const std::shared_ptr<LinkSink> sink,
                     handler_->OnOpen(open, context->peer(), link));
    absl::Status status = Receive(stream, sink.get(), &part);
    // Why it really ended: what Break was given, else an error of the frames, else the sender.
    if (absl::Status broken = link->Detach(); !broken.ok()) {
      status = broken;
    }
    if (status.ok()) {
      sink->OnClosed(Error(
          context->IsCancelled() ? absl::StatusCode::kCancelled : absl::StatusCode::kUnavailable,
          "LINK_BROKEN", "link from " + FromName(open) + " was ended by the sender"));
    } else {
      sink->OnClosed(Annotate(status, "link from " + FromName(open)));
    }
    return status;
  }

  static std::string FromName(const v1::LinkOpen& open) {
    return open.from_node().empty() ? "the coordinator" : open.from_node();
  }

  // Ok when the sender ended the stream between frames or the stream was cancelled.
  absl::Status Receive(Stream* stream, LinkSink* sink, v1::LinkPart* part) {
    v1::LinkReply reply;
    reply.set_opened(true);
    if (!stream->Write(reply)) {
      return absl::OkStatus();
    }
    FrameAssembler assembler(options_.max_frame_bytes);
    while (stream->Read(part)) {
      if (!part->has_frame()) {
        return Error(absl::StatusCode::kInvalidArgument, "BAD_FRAME", "no frame part");
      }
      ASSIGN_OR_RETURN(const bool whole, assembler.Add(part->frame()));
      if (!whole) {
        continue;
      }
      if (options_.results) {
        ASSIGN_OR_RETURN(ResultMessage message, assembler.TakeResult());
        RETURN_IF_ERROR(sink->OnResult(std::move(message)));
      } else {
        ASSIGN_OR_RETURN(StepMessage message, assembler.TakeStep());
        RETURN_IF_ERROR(sink->OnStep(std::move(message)));
      }
    }
    return absl::OkStatus();
  }

  // Streams that never say LinkOpen would hold a thread each for ever.
  void ReapLoop() {
    MutexLock lock(&mutex_);
    while (!closing_) {
      if (links_.empty()) {
        changed_.Wait(&mutex_);
        continue;
      }
      changed_.WaitFor(&mutex_, std::max(options_.open_timeout / 4, std::chrono::milliseconds(20)));
      for (const auto& link : links_) {
        if (link->LateToOpen(options_.open_timeout)) {
          link->Break(
              Error(absl::StatusCode::kDeadlineExceeded, "LINK_NOT_OPENED", "no LinkOpen in time"));
        }
      }
    }
  }

  LinkHandler* const handler_;
  const LinkServiceOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Inbound>> links_ STRATA_GUARDED_BY(mutex_);
  bool closing_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread reaper_;  // Last: it uses the others.
};

LinkService::LinkService(LinkHandler* handler, const LinkServiceOptions& options)
    : impl_(std::make_unique<Impl>(handler, options)) {}
LinkService::~LinkService() = default;
grpc::Service* LinkService::service() { return impl_.get(); }
void LinkService::Shutdown() { impl_->Shutdown(); }
uint32_t LinkService::links() const { return impl_->links(); }

}  // namespace strata
