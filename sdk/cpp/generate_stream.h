// One completion over as many connections as it takes.
#ifndef STRATA_SDK_CPP_GENERATE_STREAM_H_
#define STRATA_SDK_CPP_GENERATE_STREAM_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "sdk/cpp/client_impl.h"
#include "sdk/cpp/strata.h"
#include "strata/v1/inference.pb.h"

namespace strata::sdk {

class GenerateStream::Impl {
 public:
  Impl(std::shared_ptr<Client::Impl> client, const GenerateRequest& request,
       const CallOptions& call);
  ~Impl();

  // Sends the request for the first time.
  absl::Status Start();
  absl::StatusOr<std::optional<Piece>> Next();
  const Generation& result() const { return result_; }
  void Cancel() { cancellation_.Cancel(); }

 private:
  // One sending of the request. What it has brought so far is counted, so that a replay knows
  // what was delivered before.
  struct Attempt {
    grpc::ClientContext context;
    std::unique_ptr<CancelScope> scope;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
    size_t tokens = 0;
    size_t text_bytes = 0;
    size_t thought_bytes = 0;
    std::vector<size_t> argument_bytes;  // By call.
    size_t logprobs = 0;
    size_t prompt_logprobs = 0;
    size_t logits_rows = 0;
  };

  absl::Status Open(std::chrono::nanoseconds patience, bool patient);
  // Ends the attempt; ok when the answer is complete or a replay has begun (attempt_ is set then).
  absl::Status OnAttemptEnd();
  // Sends the request again until it is taken or time is up; `lost` is why.
  absl::Status Replay(absl::Status lost);
  bool SleepBeforeRetry(SteadyTime give_up) const;

  // What of `response` is new goes to `piece` and result_. ABORTED on a difference.
  absl::Status Take(const v1::GenerateResponse& response, Piece* piece);
  absl::Status TakeStarted(const v1::GenerateResponse& response);
  absl::Status TakeTokens(const v1::GenerateResponse& response, Piece* piece);
  // Skips what `delivered` holds from byte `*seen` on, and appends the rest to it and to `piece`.
  absl::Status TakeText(const std::string& text, size_t* seen, std::string* delivered,
                        std::string* piece);
  absl::Status TakeCall(const v1::ToolCallPiece& wire, Piece* piece);
  absl::Status TakeLogits(const v1::FloatRows& rows, Piece* piece);
  absl::Status TakeFinish(const v1::Finish& finish);
  absl::Status Diverged(const std::string& what) const;
  absl::Status Fail(absl::Status status);

  const std::shared_ptr<Client::Impl> client_;
  const std::optional<SteadyTime> deadline_;
  const Cancellation cancellation_;
  const CancelScope callers_scope_;  // The caller's cancellation cancels ours.
  v1::GenerateRequest wire_;
  std::unique_ptr<Attempt> attempt_;
  Generation result_;
  std::vector<bool> calls_done_;  // By call: delivered.
  size_t logits_rows_ = 0;        // Delivered.
  SteadyTime last_progress_;
  bool ever_started_ = false;
  bool finished_ = false;
  absl::Status failure_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_CPP_GENERATE_STREAM_H_
