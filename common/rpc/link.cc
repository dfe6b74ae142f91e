#include "common/rpc/link.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/connection_probe.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/io_stream.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/shard.grpc.pb.h"

namespace strata {
namespace {

using std::chrono::steady_clock;

// Keeps what the receiver said, and puts both ends in front.
absl::Status NameEnds(const absl::Status& status, std::string_view reason, std::string_view what,
                      const LinkOptions& options) {
  const std::string ends = "link from " + LinkEndName(options.open.from_node()) + " to " +
                           LinkEndName(options.open.to_node()) + " at " + options.address + " " +
                           std::string(what);
  v1::ErrorDetail detail = DetailOf(status);
  detail.set_message(ends + ": " + detail.message());
  if (detail.node().empty()) {
    detail.set_node(options.open.to_node());
  }
  // A word of the transport's own says less than ours.
  if (detail.reason().empty() || detail.reason() == absl::StatusCodeToString(status.code())) {
    detail.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    detail.set_reason(std::string(reason));
  }
  return StatusOf(detail);
}

// How long it may take to find out why a connection does not come about.
constexpr std::chrono::milliseconds kWhyTimeout{500};

absl::Status WhyUnreachable(const Transport& transport, const std::string& address) {
  absl::Status cause = transport.Probe(address, kWhyTimeout);
  return cause.ok() ? Error(absl::StatusCode::kUnavailable, "SAYS_NOTHING", "nobody answers")
                    : cause;
}

}  // namespace

std::string LinkEndName(const std::string& node) { return node.empty() ? "the coordinator" : node; }

// A frame leaves on the thread that hands it over unless another is being written, so that a hop
// wakes no thread of ours. Holds itself while the stream is under way.
class LinkSender::Impl : public IoClientStream<v1::LinkPart, v1::LinkReply>,
                         public std::enable_shared_from_this<LinkSender::Impl> {
 public:
  using Message = std::variant<StepMessage, ResultMessage>;

  Impl(IoLoop* loop, const Transport& transport, LinkOptions options, OnBroken on_broken)
      : IoClientStream(loop),
        options_(std::move(options)),
        on_broken_(std::move(on_broken)),
        transport_(transport),
        channel_(transport.MakeChannel(options_.address)),
        stub_(v1::ShardService::NewStub(channel_)) {}

  absl::Status Open() {
    const auto deadline = std::chrono::system_clock::now() + options_.open_timeout;
    if (!channel_->WaitForConnected(deadline)) {
      const absl::Status why = WhyUnreachable(transport_, options_.address);
      const v1::ErrorDetail cause = DetailOf(why);
      const bool tls = IsOfTls(why);
      return Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
                   "link from " + LinkEndName(options_.open.from_node()) + " to " +
                       LinkEndName(options_.open.to_node()) + " at " + options_.address +
                       " cannot be opened: " +
                       (tls ? cause.message()
                            : "nobody answers within " +
                                  std::to_string(options_.open_timeout.count()) + " ms"))
          .Node(options_.open.to_node())
          .Hint(tls ? cause.hint()
                    : "check that the process runs, the firewall between both ends, and "
                      "--advertise");
    }
    {
      MutexLock lock(&mutex_);
      self_ = shared_from_this();
    }
    Start(stub_->PrepareAsyncLink(context(), loop()->queue()));
    // The stream itself has no deadline; until it is open, this thread watches the clock.
    MutexLock lock(&mutex_);
    while (!opened_ && !ended_) {
      const auto left = deadline - std::chrono::system_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        break;
      }
      changed_.WaitFor(&mutex_, left);
    }
    if (opened_ && !ended_) {
      return absl::OkStatus();
    }
    closing_ = true;  // The caller learns it from here, not from the callback.
    if (ended_) {
      return status_;
    }
    return NameEnds(Error(absl::StatusCode::kDeadlineExceeded, "", "it was not accepted in time"),
                    "LINK_NOT_OPENED", "cannot be opened", options_);
  }

  absl::Status Send(Message message) {
    {
      MutexLock lock(&mutex_);
      if (broken_ || ended_ || closing_) {
        return status_.ok() ? Error(absl::StatusCode::kUnavailable, "LINK_CLOSED", "link is closed")
                            : status_;
      }
      if (writing_ && queue_.size() >= options_.max_queued_frames) {
        status_ =
            NameEnds(Error(absl::StatusCode::kResourceExhausted, "LINK_QUEUE_FULL",
                           "the receiver takes no frames")
                         .Limit("frames_in_flight=" + std::to_string(options_.max_queued_frames)),
                     "LINK_BROKEN", "broke", options_);
        broken_ = true;
        context()->TryCancel();
        return status_;
      }
      if (writing_) {
        queue_.push_back(std::move(message));
        return absl::OkStatus();
      }
      writing_ = true;
    }
    WriteFrame(message);
    return absl::OkStatus();
  }

  void Close() {
    MutexLock lock(&mutex_);
    closing_ = true;
    context()->TryCancel();
    while (self_ != nullptr && !loop()->OnThread()) {
      changed_.Wait(&mutex_);
    }
  }

 private:
  void OnStarted() override {
    *part_.mutable_open() = options_.open;
    Write(part_);
    Read(&reply_);
  }

  void OnRead(bool ok) override {
    if (!ok) {
      MutexLock lock(&mutex_);
      broken_ = true;  // Sends fail from here on.
      return;
    }
    if (!reply_.opened()) {
      context()->TryCancel();  // It speaks another protocol; the next read fails.
    } else if (OpeningStep(/*accepted=*/true)) {
      WriteNext();
    }
    Read(&reply_);
  }

  void OnWritten(bool ok) override {
    if (!ok) {
      return;  // A read that fails follows, and OnDone says why.
    }
    if (!open_written_) {
      open_written_ = true;
      if (OpeningStep(/*accepted=*/false)) {
        WriteNext();
      }
    } else if (next_part_ < parts_.size()) {
      WritePart();
    } else {
      WriteNext();
    }
  }

  void OnDone(const grpc::Status& grpc_status) override {
    absl::Status status = FromGrpc(grpc_status);
    if (status.ok()) {
      status = Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "the receiver ended it");
    }
    bool report = false;
    {
      MutexLock lock(&mutex_);
      if (status_.ok()) {
        status_ = opened_ ? NameEnds(status, "LINK_BROKEN", "broke", options_)
                          : NameEnds(status, "LINK_NOT_OPENED", "cannot be opened", options_);
      }
      status = status_;
      ended_ = true;
      queue_.clear();
      report = opened_ && !closing_;
      changed_.NotifyAll();
    }
    if (report && on_broken_) {
      on_broken_(status);
    }
    std::shared_ptr<Impl> self;  // This object may go at the end.
    MutexLock lock(&mutex_);
    self = std::move(self_);
    self_ = nullptr;
    changed_.NotifyAll();
  }

  // LinkOpen has been written, or answered. True for the later one: frames may follow.
  bool OpeningStep(bool accepted) {
    MutexLock lock(&mutex_);
    if (accepted) {
      if (opened_) {
        return false;
      }
      opened_ = true;
      changed_.NotifyAll();
    }
    return --opening_steps_left_ == 0;
  }

  // What follows is called by whoever holds the right to write (`writing_`), one after the other.

  void WriteFrame(const Message& message) {
    parts_ = std::visit([](const auto& m) { return ToParts(m); }, message);
    next_part_ = 0;
    WritePart();
  }

  void WritePart() {
    part_.mutable_frame()->Swap(&parts_[next_part_]);
    ++next_part_;
    Write(part_);
  }

  // The next frame; none gives the right to write back.
  void WriteNext() {
    Message message;
    {
      MutexLock lock(&mutex_);
      if (broken_ || closing_ || queue_.empty()) {
        writing_ = false;
        return;
      }
      message = std::move(queue_.front());
      queue_.pop_front();
    }
    WriteFrame(message);
  }

  const LinkOptions options_;
  const OnBroken on_broken_;
  const Transport transport_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ShardService::Stub> stub_;
  v1::LinkReply reply_;  // Of the reads.

  // Of who may write.
  bool open_written_ = false;
  v1::LinkPart part_;  // Being written.
  std::vector<v1::FramePart> parts_;
  size_t next_part_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Message> queue_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Impl> self_ STRATA_GUARDED_BY(mutex_);  // From Start until OnDone.
  bool writing_ STRATA_GUARDED_BY(mutex_) = true;         // First LinkOpen.
  int opening_steps_left_ STRATA_GUARDED_BY(mutex_) = 2;
  bool opened_ STRATA_GUARDED_BY(mutex_) = false;
  bool broken_ STRATA_GUARDED_BY(mutex_) = false;   // Takes no more frames.
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;    // `status_` is final.
  bool closing_ STRATA_GUARDED_BY(mutex_) = false;  // By us: no callback.
  absl::Status status_ STRATA_GUARDED_BY(mutex_);
};

LinkSender::LinkSender(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

LinkSender::~LinkSender() { impl_->Close(); }

absl::StatusOr<std::unique_ptr<LinkSender>> LinkSender::Open(IoLoop* loop,
                                                             const Transport& transport,
                                                             LinkOptions options,
                                                             OnBroken on_broken) {
  auto link = std::unique_ptr<LinkSender>(new LinkSender(
      std::make_shared<Impl>(loop, transport, std::move(options), std::move(on_broken))));
  RETURN_IF_ERROR(link->impl_->Open());
  return link;
}

absl::Status LinkSender::Send(StepMessage message) { return impl_->Send(std::move(message)); }
absl::Status LinkSender::Send(ResultMessage message) { return impl_->Send(std::move(message)); }
void LinkSender::Close() { impl_->Close(); }

namespace {

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Prober {
 public:
  Prober(const Transport& transport, const std::string& address, const std::string& node,
         uint64_t incarnation, std::chrono::milliseconds timeout)
      : channel_(transport.MakeChannel(address)),
        stub_(v1::ShardService::NewStub(channel_)),
        deadline_(std::chrono::system_clock::now() + timeout) {
    request_.set_expected_node(node);
    request_.set_expected_incarnation(incarnation);
  }

  bool Connect() { return channel_->WaitForConnected(deadline_); }

  // Seconds of one round trip.
  absl::StatusOr<double> Probe(size_t padding_bytes) {
    request_.mutable_padding()->assign(padding_bytes, '\x5a');
    grpc::ClientContext context;
    context.set_deadline(deadline_);
    v1::ProbeResponse response;
    const auto start = steady_clock::now();
    RETURN_IF_ERROR(FromGrpc(stub_->Probe(&context, request_, &response)));
    if (certificate_.not_after_s == 0) {
      LookAtCertificate(context);
    }
    if (response.bytes_received() != padding_bytes) {
      return Error(absl::StatusCode::kDataLoss, "BAD_PROBE", "the peer received other bytes");
    }
    return std::chrono::duration<double>(steady_clock::now() - start).count();
  }

  const CertificateTimes& certificate() const { return certificate_; }

 private:
  void LookAtCertificate(const grpc::ClientContext& context) {
    const auto authenticated = context.auth_context();
    if (authenticated == nullptr) {
      return;
    }
    for (const grpc::string_ref& pem :
         authenticated->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
      if (auto times = TimesOf(std::string_view(pem.data(), pem.size())); times.ok()) {
        certificate_ = *std::move(times);
      }
    }
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ShardService::Stub> stub_;
  const std::chrono::system_clock::time_point deadline_;
  CertificateTimes certificate_;
  v1::ProbeRequest request_;
};

absl::StatusOr<LinkSpeed> Measure(Prober* prober) {
  RETURN_IF_ERROR(prober->Probe(0).status());  // Warms the connection.
  std::vector<double> empty_s;
  for (int i = 0; i < 11; ++i) {
    ASSIGN_OR_RETURN(const double seconds, prober->Probe(0));
    empty_s.push_back(seconds);
  }
  const double round_trip_s = Median(empty_s);
  // Grows until one probe takes long enough to be measured, then takes the median of a few.
  size_t bytes = 64 << 10;
  std::vector<double> full_s;
  double spent_s = 0;
  while (full_s.size() < 5 && (full_s.empty() || spent_s < 0.4)) {
    ASSIGN_OR_RETURN(const double seconds, prober->Probe(bytes));
    spent_s += seconds;
    if (bytes < (1 << 20) && seconds < 0.05) {
      bytes *= 4;
      full_s.clear();
      continue;
    }
    full_s.push_back(seconds);
  }
  LinkSpeed speed;
  speed.certificate = prober->certificate();
  speed.latency_ms = round_trip_s / 2 * 1000;
  speed.bytes_per_s = static_cast<double>(bytes) / std::max(Median(full_s) - round_trip_s, 1e-6);
  return speed;
}

}  // namespace

absl::StatusOr<LinkSpeed> MeasureLink(const Transport& transport, const std::string& address,
                                      const std::string& node, uint64_t incarnation,
                                      std::chrono::milliseconds timeout) {
  Prober prober(transport, address, node, incarnation, timeout);
  const std::string who = node + " at " + address;
  if (!prober.Connect()) {
    const absl::Status why = WhyUnreachable(transport, address);
    const v1::ErrorDetail cause = DetailOf(why);
    return Error(absl::StatusCode::kUnavailable, "PEER_UNREACHABLE",
                 who + " cannot be reached within " + std::to_string(timeout.count()) +
                     " ms: " + cause.message())
        .Node(node)
        .Fact("cause", cause.reason())
        .Hint(IsOfTls(why) ? cause.hint()
                           : "check the firewall between both ends, and --advertise of " + node);
  }
  absl::StatusOr<LinkSpeed> speed = Measure(&prober);
  if (!speed.ok() && ReasonOf(speed.status()) == absl::StatusCodeToString(speed.status().code())) {
    return Error(absl::StatusCode::kUnavailable, "PEER_UNREACHABLE",
                 who + " cannot be reached: " + DetailOf(speed.status()).message())
        .Node(node)
        .Hint("check the firewall between both ends, and --advertise of " + node);
  }
  return speed;
}

}  // namespace strata
