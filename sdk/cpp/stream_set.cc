#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/check.h"
#include "sdk/cpp/client_impl.h"
#include "sdk/cpp/convert.h"
#include "sdk/cpp/strata.h"

namespace strata::sdk {

class StreamSet::Impl {
 public:
  explicit Impl(std::shared_ptr<Client::Impl> client) : client_(std::move(client)) {}

  ~Impl() {
    CancelAll();
    while (!calls_.empty()) {
      Next(std::chrono::steady_clock::now() + std::chrono::hours(1));
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Start(uint64_t id, const GenerateRequest& request, const CallOptions& options);
  std::optional<Event> Next(SteadyTime until);
  void CancelAll() {
    for (const auto& [id, call] : calls_) {
      call->context.TryCancel();
    }
  }
  size_t in_flight() const { return calls_.size(); }

 private:
  // One of gRPC's operations at a time is under way, with the call's address as its tag.
  enum class Waits { kForStart, kForMessage, kForEnd };
  struct Call {
    uint64_t id = 0;
    grpc::ClientContext context;
    std::unique_ptr<CancelScope> scope;
    std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader;
    Waits waits = Waits::kForStart;
    v1::GenerateResponse response;
    grpc::Status end;
    Generation result;
    uint32_t tokens = 0;  // That came.
  };

  // What the operation that ended brings to tell, if anything; the next one is under way then.
  std::optional<Event> OnDone(Call* call, bool ok);
  static Event Take(Call* call);
  static Event End(uint64_t id, absl::Status status, Generation result);

  const std::shared_ptr<Client::Impl> client_;
  grpc::CompletionQueue queue_;
  std::unordered_map<uint64_t, std::unique_ptr<Call>> calls_;
  std::vector<Event> refused_;  // Calls that could not begin.
};

void StreamSet::Impl::Start(uint64_t id, const GenerateRequest& request,
                            const CallOptions& options) {
  auto call = std::make_unique<Call>();
  call->id = id;
  v1::GenerateRequest wire = ToWire(request);
  if (wire.request_id().empty()) {
    wire.set_request_id(MakeRequestId());
  }
  call->result.request_id = wire.request_id();
  absl::Status prepared = client_->Prepare(&call->context, DeadlineOf(options));
  if (options.cancellation.has_value() && options.cancellation->cancelled()) {
    prepared = CancelledError();
  }
  if (!prepared.ok()) {
    refused_.push_back(End(id, std::move(prepared), std::move(call->result)));
    return;
  }
  call->scope = std::make_unique<CancelScope>(options.cancellation,
                                              [context = &call->context] { context->TryCancel(); });
  call->reader = client_->inference().PrepareAsyncGenerate(&call->context, wire, &queue_);
  call->reader->StartCall(call.get());
  const bool fresh = calls_.try_emplace(id, std::move(call)).second;
  STRATA_CHECK(fresh);
}

std::optional<StreamSet::Event> StreamSet::Impl::Next(SteadyTime until) {
  if (!refused_.empty()) {
    Event event = std::move(refused_.back());
    refused_.pop_back();
    return event;
  }
  if (calls_.empty()) {
    std::this_thread::sleep_until(until);
    return std::nullopt;
  }
  const auto deadline =
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::max(until - std::chrono::steady_clock::now(), SteadyTime::duration::zero()));
  void* tag = nullptr;
  bool ok = false;
  while (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
    if (auto event = OnDone(static_cast<Call*>(tag), ok)) {
      return event;
    }
  }
  return std::nullopt;
}

std::optional<StreamSet::Event> StreamSet::Impl::OnDone(Call* call, bool ok) {
  if (call->waits == Waits::kForEnd) {
    // Once the last message is there, it does not matter what became of the connection.
    const bool finished = !call->result.finish_reason.empty();
    absl::Status status = finished ? absl::OkStatus() : client_->ToStatus(call->end);
    if (status.ok() && !finished) {
      status = Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
                     "the coordinator ended the answer without saying why")
                   .RequestId(call->result.request_id);
    }
    const auto own = calls_.extract(call->id);
    return End(call->id, std::move(status), std::move(call->result));
  }
  std::optional<Event> event;
  if (ok && call->waits == Waits::kForMessage) {
    event = Take(call);
  }
  if (ok) {
    call->waits = Waits::kForMessage;
    call->response.Clear();
    call->reader->Read(&call->response, call);
  } else {
    call->waits = Waits::kForEnd;
    call->reader->Finish(&call->end, call);
  }
  if (event.has_value() && event->piece.token_ids.empty() && event->piece.text.empty() &&
      event->piece.prompt_logprobs.empty() && event->piece.logits.empty()) {
    return std::nullopt;
  }
  return event;
}

StreamSet::Event StreamSet::Impl::Take(Call* call) {
  v1::GenerateResponse& response = call->response;
  if (response.has_started()) {
    FromWire(response.started(), &call->result);
  }
  call->tokens += static_cast<uint32_t>(response.token_ids_size());
  if (!response.numerics_class().empty()) {
    call->result.numerics_changes.push_back(
        {call->tokens - static_cast<uint32_t>(response.token_ids_size()),
         response.numerics_class()});
  }
  Event event;
  event.id = call->id;
  event.piece.token_ids.assign(response.token_ids().begin(), response.token_ids().end());
  event.piece.text = std::move(*response.mutable_text());
  for (const v1::TokenLogprob& logprob : response.logprobs()) {
    event.piece.logprobs.push_back(FromWire(logprob));
  }
  for (const v1::TokenLogprob& logprob : response.prompt_logprobs()) {
    event.piece.prompt_logprobs.push_back(FromWire(logprob));
  }
  const std::string& logits = response.logits().values();
  event.piece.logits_columns = response.logits().columns();
  event.piece.logits.resize(logits.size() / sizeof(float));
  if (!event.piece.logits.empty()) {
    std::memcpy(event.piece.logits.data(), logits.data(),
                event.piece.logits.size() * sizeof(float));
  }
  if (response.has_finish()) {
    FromWire(response.finish(), &call->result);
  }
  return event;
}

StreamSet::Event StreamSet::Impl::End(uint64_t id, absl::Status status, Generation result) {
  Event event;
  event.id = id;
  event.ended = true;
  event.status = std::move(status);
  event.result = std::move(result);
  return event;
}

StreamSet::StreamSet(const Client& client) : impl_(std::make_unique<Impl>(client.impl_)) {}
StreamSet::~StreamSet() = default;
void StreamSet::Start(uint64_t id, const GenerateRequest& request, const CallOptions& call) {
  impl_->Start(id, request, call);
}
std::optional<StreamSet::Event> StreamSet::Next(std::chrono::steady_clock::time_point until) {
  return impl_->Next(until);
}
void StreamSet::CancelAll() { impl_->CancelAll(); }
size_t StreamSet::in_flight() const { return impl_->in_flight(); }

}  // namespace strata::sdk
