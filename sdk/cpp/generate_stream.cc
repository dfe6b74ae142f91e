#include "sdk/cpp/generate_stream.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <thread>
#include <utility>

#include "sdk/cpp/convert.h"

namespace strata::sdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRetryPause{200};

}  // namespace

GenerateStream::Impl::Impl(std::shared_ptr<Client::Impl> client, const GenerateRequest& request,
                           const CallOptions& call)
    : client_(std::move(client)),
      deadline_(DeadlineOf(call)),
      callers_scope_(call.cancellation, [this] { cancellation_.Cancel(); }),
      wire_(ToWire(request)),
      last_progress_(steady_clock::now()) {
  if (wire_.request_id().empty()) {
    wire_.set_request_id(MakeRequestId());
  }
  result_.request_id = wire_.request_id();
}

GenerateStream::Impl::~Impl() {
  if (attempt_ != nullptr) {
    attempt_->context.TryCancel();
    v1::GenerateResponse rest;
    while (attempt_->reader->Read(&rest)) {
    }
    attempt_->reader->Finish();
  }
}

absl::Status GenerateStream::Impl::Start() {
  return Open(client_->options().connect_timeout, /*patient=*/false);
}

absl::Status GenerateStream::Impl::Open(std::chrono::nanoseconds patience, bool patient) {
  RETURN_IF_ERROR(client_->WaitConnected(patience, deadline_, patient, cancellation_));
  auto attempt = std::make_unique<Attempt>();
  RETURN_IF_ERROR(client_->Prepare(&attempt->context, deadline_));
  attempt->scope = std::make_unique<CancelScope>(
      cancellation_, [context = &attempt->context] { context->TryCancel(); });
  attempt->reader = client_->inference().Generate(&attempt->context, wire_);
  attempt_ = std::move(attempt);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Piece>> GenerateStream::Impl::Next() {
  if (!failure_.ok()) {
    return failure_;
  }
  while (attempt_ != nullptr) {
    v1::GenerateResponse response;
    if (!attempt_->reader->Read(&response)) {
      RETURN_IF_ERROR(Fail(OnAttemptEnd()));
      continue;
    }
    Piece piece;
    RETURN_IF_ERROR(Fail(Take(response, &piece)));
    if (!piece.token_ids.empty() || !piece.text.empty() || !piece.prompt_logprobs.empty() ||
        !piece.logits.empty()) {
      last_progress_ = steady_clock::now();
      return std::optional<Piece>(std::move(piece));
    }
  }
  return std::optional<Piece>();
}

absl::Status GenerateStream::Impl::Fail(absl::Status status) {
  if (!status.ok()) {
    failure_ = status;
  }
  return status;
}

absl::Status GenerateStream::Impl::OnAttemptEnd() {
  const grpc::Status end = attempt_->reader->Finish();
  attempt_.reset();
  if (finished_) {
    return absl::OkStatus();  // Whatever became of the connection after the last message.
  }
  if (end.ok()) {
    return Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
                 "the coordinator ended the answer without saying why")
        .RequestId(wire_.request_id());
  }
  if (cancellation_.cancelled()) {
    return CancelledError();
  }
  const bool lost = IsConnectionLoss(end);
  // A coordinator that has just come back needs a while until its workers have joined.
  const bool not_yet = result_.replays > 0 && end.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (client_->options().resume_timeout.count() == 0 || (!lost && !not_yet)) {
    return client_->ToStatus(end);
  }
  return Replay(client_->ToStatus(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, end.error_message(), end.error_details())));
}

absl::Status GenerateStream::Impl::Replay(absl::Status lost) {
  // Without a first message nothing was delivered, and any seed will do.
  wire_.set_replace(true);
  if (ever_started_) {
    wire_.mutable_sampling()->set_seed(result_.seed);
    wire_.set_max_tokens(result_.max_tokens);
  }
  const SteadyTime give_up = last_progress_ + client_->options().resume_timeout;
  if (steady_clock::now() >= give_up || !SleepBeforeRetry(give_up)) {
    return cancellation_.cancelled() ? CancelledError() : std::move(lost);
  }
  ++result_.replays;
  return Open(give_up - steady_clock::now(), /*patient=*/true);
}

bool GenerateStream::Impl::SleepBeforeRetry(SteadyTime give_up) const {
  SteadyTime until = steady_clock::now() + kRetryPause;
  if (deadline_.has_value()) {
    until = std::min(until, *deadline_);
  }
  while (steady_clock::now() < until) {
    if (cancellation_.cancelled() || steady_clock::now() >= give_up) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return !cancellation_.cancelled();
}

absl::Status GenerateStream::Impl::Take(const v1::GenerateResponse& response, Piece* piece) {
  if (response.has_started()) {
    RETURN_IF_ERROR(TakeStarted(response));
  }
  RETURN_IF_ERROR(TakeTokens(response, piece));
  RETURN_IF_ERROR(TakeText(response.text(), &attempt_->text_bytes, &result_.text, &piece->text));
  RETURN_IF_ERROR(
      TakeText(response.thought(), &attempt_->thought_bytes, &result_.thought, &piece->thought));
  for (const v1::ToolCallPiece& wire : response.tool_calls()) {
    RETURN_IF_ERROR(TakeCall(wire, piece));
  }
  if (response.has_logits()) {
    RETURN_IF_ERROR(TakeLogits(response.logits(), piece));
  }
  if (response.has_finish()) {
    RETURN_IF_ERROR(TakeFinish(response.finish()));
  }
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::TakeStarted(const v1::GenerateResponse& response) {
  const v1::Started& started = response.started();
  if (ever_started_ && started.numerics_class() != result_.numerics_class) {
    return Diverged("the model now runs as " + started.numerics_class() + ", it was " +
                    result_.numerics_class);
  }
  if (ever_started_ &&
      (started.seed() != result_.seed || started.prompt_tokens() != result_.prompt_tokens)) {
    return Diverged("seed or prompt length changed");
  }
  ever_started_ = true;
  if (!response.request_id().empty()) {
    result_.request_id = response.request_id();
    wire_.set_request_id(response.request_id());
  }
  FromWire(started, &result_);
  return absl::OkStatus();
}

namespace {

// Skips what `delivered` holds, from entry `*seen` on, and appends the rest to it and to `piece`.
// False on a difference.
bool TakeLogprobs(const google::protobuf::RepeatedPtrField<v1::TokenLogprob>& from, size_t* seen,
                  std::vector<TokenLogprob>* delivered, std::vector<TokenLogprob>* piece) {
  for (const v1::TokenLogprob& wire : from) {
    if (*seen < delivered->size()) {
      const TokenLogprob& before = (*delivered)[*seen];
      // Bit for bit: the same numerics class gives the same values.
      if (before.token_id != wire.token_id() ||
          std::bit_cast<uint32_t>(before.logprob) != std::bit_cast<uint32_t>(wire.logprob())) {
        return false;
      }
    } else {
      delivered->push_back(FromWire(wire));
      piece->push_back(delivered->back());
    }
    ++*seen;
  }
  return true;
}

}  // namespace

absl::Status GenerateStream::Impl::TakeTokens(const v1::GenerateResponse& response, Piece* piece) {
  if (!response.numerics_class().empty() && attempt_->tokens >= result_.token_ids.size()) {
    result_.numerics_changes.push_back(
        {static_cast<uint32_t>(attempt_->tokens), response.numerics_class()});
  }
  for (const uint32_t id : response.token_ids()) {
    if (attempt_->tokens < result_.token_ids.size()) {
      if (id != result_.token_ids[attempt_->tokens]) {
        return Diverged("token " + std::to_string(attempt_->tokens) + " is " + std::to_string(id) +
                        ", it was " + std::to_string(result_.token_ids[attempt_->tokens]));
      }
    } else {
      result_.token_ids.push_back(id);
      piece->token_ids.push_back(id);
    }
    ++attempt_->tokens;
  }
  if (!TakeLogprobs(response.logprobs(), &attempt_->logprobs, &result_.logprobs,
                    &piece->logprobs) ||
      !TakeLogprobs(response.prompt_logprobs(), &attempt_->prompt_logprobs,
                    &result_.prompt_logprobs, &piece->prompt_logprobs)) {
    return Diverged("log-probabilities differ");
  }
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::TakeText(const std::string& text, size_t* seen,
                                            std::string* delivered, std::string* piece) {
  const size_t at = *seen;
  const size_t known = at < delivered->size() ? std::min(text.size(), delivered->size() - at) : 0;
  if (delivered->compare(std::min(at, delivered->size()), known, text, 0, known) != 0) {
    return Diverged("the text differs");
  }
  *piece += text.substr(known);
  *delivered += text.substr(known);
  *seen += text.size();
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::TakeCall(const v1::ToolCallPiece& wire, Piece* piece) {
  const size_t index = wire.index();
  if (index > result_.tool_calls.size()) {
    return Error(absl::StatusCode::kInternal, "BAD_CALLS",
                 "the coordinator sent a call of a tool before the one in front of it");
  }
  ToolCallPiece fresh;
  fresh.index = wire.index();
  if (index == result_.tool_calls.size()) {
    result_.tool_calls.push_back({wire.id(), wire.name(), ""});
    fresh.id = wire.id();
    fresh.name = wire.name();
  } else if (!wire.id().empty() && (wire.id() != result_.tool_calls[index].id ||
                                    wire.name() != result_.tool_calls[index].name)) {
    return Diverged("a call of a tool differs");
  }
  attempt_->argument_bytes.resize(std::max(attempt_->argument_bytes.size(), index + 1));
  RETURN_IF_ERROR(TakeText(wire.arguments(), &attempt_->argument_bytes[index],
                           &result_.tool_calls[index].arguments, &fresh.arguments));
  calls_done_.resize(result_.tool_calls.size());
  fresh.done = wire.done() && !calls_done_[index];
  calls_done_[index] = calls_done_[index] || wire.done();
  if (!fresh.id.empty() || !fresh.arguments.empty() || fresh.done) {
    piece->tool_calls.push_back(std::move(fresh));
  }
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::TakeLogits(const v1::FloatRows& rows, Piece* piece) {
  const size_t columns = rows.columns();
  if (rows.values().size() != rows.rows() * columns * sizeof(float) ||
      (result_.logits_columns != 0 && columns != result_.logits_columns)) {
    return Error(absl::StatusCode::kInternal, "BAD_LOGITS",
                 "the coordinator sent logits whose size is not rows x columns");
  }
  result_.logits_columns = rows.columns();
  const size_t before = attempt_->logits_rows;
  const size_t known =
      before < logits_rows_ ? std::min<size_t>(rows.rows(), logits_rows_ - before) : 0;
  const size_t fresh = rows.rows() - known;
  piece->logits_columns = rows.columns();
  piece->logits.resize(fresh * columns);
  if (fresh > 0 && columns > 0) {
    std::memcpy(piece->logits.data(), rows.values().data() + known * columns * sizeof(float),
                piece->logits.size() * sizeof(float));
  }
  attempt_->logits_rows += rows.rows();
  logits_rows_ += fresh;
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::TakeFinish(const v1::Finish& finish) {
  attempt_->argument_bytes.resize(result_.tool_calls.size());
  bool shorter = attempt_->tokens < result_.token_ids.size() ||
                 attempt_->text_bytes < result_.text.size() ||
                 attempt_->thought_bytes < result_.thought.size();
  for (size_t call = 0; call < result_.tool_calls.size(); ++call) {
    shorter = shorter || attempt_->argument_bytes[call] < result_.tool_calls[call].arguments.size();
  }
  if (shorter) {
    return Diverged("it is shorter than what was delivered");
  }
  finished_ = true;
  FromWire(finish, &result_);
  return absl::OkStatus();
}

absl::Status GenerateStream::Impl::Diverged(const std::string& what) const {
  return Error(absl::StatusCode::kAborted, "REPLAY_DIVERGED",
               "after a lost connection the answer could not be resumed: " + what)
      .RequestId(wire_.request_id())
      .Hint("send the request again");
}

GenerateStream::GenerateStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GenerateStream::~GenerateStream() = default;
GenerateStream::GenerateStream(GenerateStream&&) noexcept = default;
GenerateStream& GenerateStream::operator=(GenerateStream&&) noexcept = default;
absl::StatusOr<std::optional<Piece>> GenerateStream::Next() { return impl_->Next(); }
const Generation& GenerateStream::result() const { return impl_->result(); }
void GenerateStream::Cancel() { impl_->Cancel(); }

}  // namespace strata::sdk
