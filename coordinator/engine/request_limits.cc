#include "coordinator/engine/request_limits.h"

#include <algorithm>

#include "common/limits.h"
#include "common/shell_word.h"
#include "common/status.h"

namespace strata {
namespace {

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

absl::Status Refuse(const SessionRequest& request, absl::StatusCode code, std::string_view reason,
                    std::string_view message) {
  return Error(code, reason, message).RequestId(request.request_id);
}

// What to do about a request that is too long.
std::string ContextHint(const EngineConfig& config) {
  if (config.model_context != 0 && config.model_context <= config.context) {
    return "shorten the prompt or ask for fewer tokens: the model has no longer context";
  }
  std::string hint =
      "shorten the prompt, ask for fewer tokens, or load the model with a larger --context";
  if (config.model_context != 0) {
    hint += " (at most " + std::to_string(config.model_context) + ")";
  }
  return hint;
}

// "3 prompt tokens + 5 max_tokens".
std::string TokenSum(uint64_t prompt_tokens, uint64_t max_tokens) {
  return std::to_string(prompt_tokens) + " prompt tokens + " + std::to_string(max_tokens) +
         " max_tokens";
}

}  // namespace

absl::Status RequestLimits::Check(const SessionRequest& request, bool in_flight,
                                  uint64_t embedding_bytes, TimePoint now) const {
  if (!IsRequestId(request.request_id)) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_REQUEST_ID",
                  "a request id has 1 to 128 printable ASCII characters");
  }
  if (in_flight) {
    return Error(absl::StatusCode::kAlreadyExists, "REQUEST_IN_FLIGHT",
                 "request \"" + request.request_id + "\" is in flight")
        .RequestId(request.request_id)
        .Hint("wait for it, cancel it, or set replace (HTTP: X-Strata-Replace: true)");
  }
  if (request.prompt.empty()) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_PROMPT",
                  "the prompt has no tokens");
  }
  for (const std::vector<uint32_t>* ids : {&request.prompt, &request.stop_ids}) {
    for (uint32_t id : *ids) {
      if (id >= config_.vocab) {
        return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                     "token id " + std::to_string(id) + " is not in the vocabulary")
            .RequestId(request.request_id)
            .Limit("vocab=" + std::to_string(config_.vocab));
      }
    }
  }
  const auto next = request.constraint == nullptr ? nullptr : request.constraint->Next();
  const bool other_weights =
      !request.weights_digest.empty() && request.weights_digest != config_.weights_digest;
  if (other_weights || (next != nullptr && !IsOfVocabulary(*next, config_.vocab))) {
    return Refuse(request, absl::StatusCode::kUnavailable, "MODEL_LOADING",
                  "the model became another one while the request was prepared");
  }
  if (request.stop_ids.size() > kMaxStopIds) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                  "more than 1024 stop ids");
  }
  RETURN_IF_ERROR(CheckEmbeddings(request, embedding_bytes));
  if (request.deadline.has_value() && *request.deadline <= now) {
    return Refuse(request, absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                  "the deadline has passed before the request was accepted");
  }
  return absl::OkStatus();
}

absl::Status RequestLimits::CheckEmbeddings(const SessionRequest& request,
                                            uint64_t embedding_bytes) const {
  uint64_t next = 0;
  for (const InputEmbedding& row : request.embeddings) {
    if (row.position < next || row.position >= request.prompt.size()) {
      return Error(absl::StatusCode::kInvalidArgument, "INPUT_EMBEDDINGS",
                   "input embeddings for position " + std::to_string(row.position) +
                       ": positions ascend, and are those of prompt tokens")
          .RequestId(request.request_id)
          .Limit("prompt_tokens=" + std::to_string(request.prompt.size()));
    }
    next = uint64_t{row.position} + 1;
  }
  if (const uint64_t bytes = BytesOf(request.embeddings);
      bytes > 0 && embedding_bytes + bytes > config_.max_input_embedding_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "INPUT_EMBEDDINGS_FULL",
                 std::to_string(bytes) + " bytes of input embeddings, and other requests hold " +
                     std::to_string(embedding_bytes))
        .RequestId(request.request_id)
        .Limit("max_input_embeddings=" + std::to_string(config_.max_input_embedding_bytes))
        .Hint("send it again later, or raise --max-input-embeddings");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> RequestLimits::MaxTokens(const SessionRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  const uint32_t least = request.params.min_tokens();
  const uint64_t asked = prompt + std::max<uint64_t>({1, request.max_tokens, least});
  const uint64_t pool = ledger_.capacity_tokens();
  const std::string sum =
      request.max_tokens > 0 ? TokenSum(prompt, request.max_tokens)
      : least > 0
          ? std::to_string(prompt) + " prompt tokens + " + std::to_string(least) + " min_tokens"
          : std::to_string(prompt) + " prompt tokens and one to generate";
  if (asked > config_.context) {
    return ContextExceeded(request.request_id, sum, asked);
  }
  if (asked > pool) {
    return NeverFits(request.request_id, sum, asked);
  }
  if (request.max_tokens > 0) {
    return request.max_tokens;
  }
  uint64_t room = std::min<uint64_t>(config_.context, pool) - prompt;
  if (asked <= config_.long_rotary_above) {
    // Nothing says that it is to be longer than the short factors serve.
    room = std::min<uint64_t>(room, config_.long_rotary_above - prompt);
  }
  return static_cast<uint32_t>(
      std::min<uint64_t>(room, std::max<uint32_t>({1, request.default_max_tokens, least})));
}

PromptLimit RequestLimits::LongestPrompt() const {
  const uint64_t longest = std::min<uint64_t>(config_.context, ledger_.capacity_tokens());
  const uint64_t prompt = longest - std::min<uint64_t>(longest, 1);
  const std::string sum =
      "more than " + std::to_string(prompt) + " prompt tokens and one to generate";
  return {prompt, longest < config_.context ? NeverFits("", sum, longest + 1)
                                            : ContextExceeded("", sum, longest + 1)};
}

absl::Status RequestLimits::ContextExceeded(const std::string& request_id, const std::string& sum,
                                            uint64_t asked) const {
  return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
               sum + " exceed the context of " + std::to_string(config_.context) + " tokens")
      .RequestId(request_id)
      .Limit("context_tokens=" + std::to_string(config_.context))
      .Hint(ContextHint(config_))
      .Fact("asked_tokens", asked)
      .Fact("limit_tokens", config_.context);
}

absl::Status RequestLimits::NeverFits(const std::string& request_id, const std::string& sum,
                                      uint64_t asked) const {
  const uint64_t pool = ledger_.capacity_tokens();
  const std::string& node = config_.stages[ledger_.limiting_stage()].node;
  return Error(absl::StatusCode::kInvalidArgument, "KV_NEVER_FITS",
               sum + " can never fit: the KV pool holds " + std::to_string(pool) +
                   " tokens, limited by node \"" + node + "\"")
      .RequestId(request_id)
      .Node(node)
      .Limit("kv_tokens=" + std::to_string(pool))
      .Hint("shorten the prompt, ask for fewer tokens, or give the model more --kv-tokens")
      .Fact("asked_tokens", asked)
      .Fact("limit_tokens", pool);
}

absl::Status RequestLimits::NeverFits(const LiveSession& session) const {
  return NeverFits(session.request.request_id, TokenSum(session.prompt_tokens, session.max_tokens),
                   session.most_tokens());
}

absl::Status RequestLimits::KvInUse(const LiveSession& session, const KvLedger& ledger,
                                    const std::vector<EngineStage>& stages) const {
  const std::string& request_id = session.request.request_id;
  const std::string& node = stages[ledger.limiting_stage()].node;
  const bool alone = session.most_tokens() > ledger.capacity_tokens();
  return Error(absl::StatusCode::kFailedPrecondition, "KV_IN_USE",
               "request \"" + request_id + "\" was promised " +
                   std::to_string(session.most_tokens()) + " tokens" +
                   (alone ? "" : " besides other guaranteed ones") +
                   ", and the KV pool would hold " + std::to_string(ledger.capacity_tokens()) +
                   ", limited by node \"" + node + "\"")
      .RequestId(request_id)
      .Node(node)
      .Limit("kv_tokens=" + std::to_string(ledger.capacity_tokens()))
      .Hint("wait for it, cancel it with `strata session cancel " + ShellArgument(request_id) +
            "`, or choose a larger --kv-tokens")
      .Fact("asked_tokens", session.most_tokens())
      .Fact("limit_tokens", ledger.capacity_tokens());
}

absl::Status RequestLimits::QueueFull(const SessionRequest& request, size_t queued) const {
  return Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
               std::to_string(queued) + " requests are queued already")
      .RequestId(request.request_id)
      .Limit("max_queued_requests=" + std::to_string(config_.max_queued_requests))
      .Hint("send it again later, or raise --max-queued-requests");
}

}  // namespace strata
