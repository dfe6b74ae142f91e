#include "coordinator/service/request/request.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status Bad(const std::string& reason, const std::string& what, const std::string& limit) {
  return Error(absl::StatusCode::kInvalidArgument, reason, what).Limit(limit);
}

// The request's parameters over the model's, over the defaults.
v1::SamplingParams CompleteSampling(const v1::SamplingParams& params,
                                    const v1::SamplingParams& model, uint64_t seed) {
  v1::SamplingParams complete = PlainSampling(1.0f, seed);
  complete.MergeFrom(model);
  complete.MergeFrom(params);
  return complete;
}

absl::StatusOr<std::vector<uint32_t>> Tokenize(const v1::GenerateRequest& request,
                                               const ModelRuntime& model, int64_t now,
                                               const ModelRuntime::LimitFn& limit,
                                               std::optional<ChatAnswer>* chat) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return model.EncodePrompt(request.text(), true, limit);
    case v1::GenerateRequest::kTokens:
      return std::vector<uint32_t>(request.tokens().ids().begin(), request.tokens().ids().end());
    case v1::GenerateRequest::kChat: {
      ASSIGN_OR_RETURN(const std::string prompt, model.RenderChat(request.chat(), now));
      ASSIGN_OR_RETURN(*chat, ChatAnswerOf(request.chat(), model, prompt));
      // The template wrote what the model wants at the start.
      return model.EncodePrompt(prompt, false, limit);
    }
    default:
      return Error(absl::StatusCode::kInvalidArgument, "NO_PROMPT", "the request has no prompt")
          .Hint("give a text, token ids or chat messages");
  }
}

absl::Status CheckStops(const v1::GenerateRequest& request, const ModelRuntime& model) {
  if (request.stop_size() > static_cast<int>(kMaxStopStrings)) {
    return Bad("TOO_MANY_STOPS", std::to_string(request.stop_size()) + " stop strings",
               "stop_strings=" + std::to_string(kMaxStopStrings));
  }
  for (const std::string& stop : request.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Bad("BAD_STOP", "a stop string of " + std::to_string(stop.size()) + " bytes",
                 "stop_bytes=1.." + std::to_string(kMaxStopBytes));
    }
  }
  if (request.stop_size() > 0 && model.tokenizer == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
                 "stop strings need text, and model '" + model.name + "' has no tokenizer");
  }
  return absl::OkStatus();
}

absl::Status BadEmbeddings(const std::string& what, const std::string& limit) {
  return Error(absl::StatusCode::kInvalidArgument, "INPUT_EMBEDDINGS", what)
      .Limit(limit)
      .Fact("field", "input_embeddings");
}

// Positions are left to the engine.
absl::StatusOr<std::vector<InputEmbedding>> InputEmbeddings(const v1::GenerateRequest& request,
                                                            const ModelRuntime& model) {
  if (request.input_embeddings().empty()) {
    return std::vector<InputEmbedding>();
  }
  const size_t row_bytes = size_t{model.spec().hidden} * sizeof(float);
  const size_t most = kMaxInputEmbeddingBytes / row_bytes;
  if (static_cast<size_t>(request.input_embeddings_size()) > most) {
    return BadEmbeddings(std::to_string(request.input_embeddings_size()) +
                             " rows of input embeddings; a request has room for " +
                             std::to_string(most) + " of model '" + model.name + "'",
                         "input_embedding_bytes=" + std::to_string(kMaxInputEmbeddingBytes));
  }
  std::vector<InputEmbedding> rows;
  for (const v1::InputEmbedding& row : request.input_embeddings()) {
    const std::string where = "the input embeddings for position " + std::to_string(row.position());
    if (row.values().size() != row_bytes) {
      return BadEmbeddings(where + " have " + std::to_string(row.values().size()) +
                               " bytes; the model's rows are float32 [" +
                               std::to_string(model.spec().hidden) + "]",
                           "row_bytes=" + std::to_string(row_bytes));
    }
    for (size_t at = 0; at < row_bytes; at += sizeof(float)) {
      float value;
      std::memcpy(&value, row.values().data() + at, sizeof(value));
      if (!std::isfinite(value)) {
        return BadEmbeddings(where + " are not finite", "");
      }
    }
    rows.push_back({row.position(), row.values(), EmbeddingLink(row.values())});
  }
  return rows;
}

absl::Status CheckMinTokens(const v1::GenerateRequest& request) {
  // One beyond any context is refused with the numbers, by the engine.
  if (request.max_tokens() == 0 || request.min_tokens() <= request.max_tokens()) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "MIN_TOKENS",
               "min_tokens is " + std::to_string(request.min_tokens()) +
                   "; it must be at most max_tokens, " + std::to_string(request.max_tokens()))
      .Limit("max_tokens=" + std::to_string(request.max_tokens()))
      .Fact("field", "min_tokens");
}

}  // namespace

absl::Status CheckRequestId(const std::string& id) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (id.empty() || id.size() > kMaxRequestIdBytes || !printable) {
    return Bad("BAD_REQUEST_ID", "a request id is 1 to 128 printable ASCII characters",
               "request_id_bytes=1.." + std::to_string(kMaxRequestIdBytes));
  }
  return absl::OkStatus();
}

SharedPrompt::SharedPrompt(v1::GenerateRequest* request) {
  switch (request->prompt_case()) {
    case v1::GenerateRequest::kText:
      *prompt_.mutable_text() = std::move(*request->mutable_text());
      break;
    case v1::GenerateRequest::kTokens:
      *prompt_.mutable_tokens() = std::move(*request->mutable_tokens());
      break;
    case v1::GenerateRequest::kChat:
      *prompt_.mutable_chat() = std::move(*request->mutable_chat());
      break;
    default:
      break;
  }
  request->clear_prompt();
}

absl::StatusOr<PromptIds> SharedPrompt::Ids(const ModelRuntime& model, int64_t now,
                                            const ModelRuntime::LimitFn& limit) {
  if (!ids_.has_value()) {
    auto ids = Tokenize(prompt_, model, now, limit, &chat_);
    if (ids.ok()) {
      ids_ = std::make_shared<const std::vector<uint32_t>>(*std::move(ids));
    } else {
      ids_ = ids.status();
    }
    prompt_ = {};
  }
  return *ids_;
}

absl::Status CheckMayRun(const v1::GenerateRequest& request,
                         const std::optional<TimePoint>& deadline, KeyUse* use, TimePoint now) {
  if (deadline.has_value() && now >= *deadline) {
    return Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                 "the deadline passed before the request was read")
        .Hint("give it longer, or send fewer at once: the coordinator is busy");
  }
  if (use == nullptr || use->caller() == nullptr) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(use->caller()->CheckClaims(request.priority(), request.guaranteed()));
  return use->Check(request.request_id(), request.replace(), now);
}

absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request,
                                               const ModelRuntime& model,
                                               const RequestContext& context) {
  ResolvedRequest resolved;
  SessionRequest& session = resolved.session;
  session.request_id =
      request.request_id().empty() ? context.drawn_request_id : request.request_id();
  RETURN_IF_ERROR(CheckRequestId(session.request_id));
  session.key = session.request_id;
  RETURN_IF_ERROR(ValidateSampling(request.sampling(), model.spec().vocab));
  RETURN_IF_ERROR(CheckStops(request, model));
  RETURN_IF_ERROR(CheckMinTokens(request));
  for (const uint32_t top : {request.logprobs(), request.prompt_logprobs()}) {
    if (top > kMaxTopLogprobs) {
      return Bad("TOO_MANY_LOGPROBS", "logprobs for the best " + std::to_string(top) + " tokens",
                 "logprobs=0.." + std::to_string(kMaxTopLogprobs));
    }
  }
  if (context.prompt != nullptr) {
    ASSIGN_OR_RETURN(resolved.prompt,
                     context.prompt->Ids(model, context.unix_seconds, context.limit));
    resolved.chat = context.prompt->chat();
  } else {
    ASSIGN_OR_RETURN(std::vector<uint32_t> ids,
                     Tokenize(request, model, context.unix_seconds, context.limit, &resolved.chat));
    resolved.prompt = std::make_shared<const std::vector<uint32_t>>(std::move(ids));
  }
  ASSIGN_OR_RETURN(session.embeddings, InputEmbeddings(request, model));
  session.max_tokens = request.max_tokens();
  session.default_max_tokens = context.default_max_tokens;
  *session.params.mutable_sampling() =
      CompleteSampling(request.sampling(), model.defaults, context.drawn_seed);
  session.params.set_logprobs(request.has_logprobs());
  session.params.set_top_logprobs(request.logprobs());
  session.params.set_prompt_top_logprobs(request.prompt_logprobs());
  session.stop_ids = model.spec().eos_ids;
  session.ignore_eos = request.ignore_eos();
  session.params.set_min_tokens(request.min_tokens());
  if (request.min_tokens() > 0 && !request.ignore_eos()) {
    session.params.mutable_stop_ids()->Assign(session.stop_ids.begin(), session.stop_ids.end());
  }
  session.priority = request.priority();
  session.guaranteed = request.guaranteed();
  if (!request.speculate().empty()) {
    ASSIGN_OR_RETURN(session.speculate, ParseSpeculate(request.speculate(), Speculate::kOff));
  }
  session.return_logits = request.return_logits();
  session.prompt_logprobs = request.has_prompt_logprobs();
  if (request.has_constraint()) {
    resolved.constraint = request.constraint();
  }
  const bool must_call = resolved.chat.has_value() && resolved.chat->must_call;
  if (!request.has_constraint() && !must_call) {
    resolved.stops.assign(request.stop().begin(), request.stop().end());
  }
  resolved.replace = request.replace();
  return resolved;
}

}  // namespace strata
