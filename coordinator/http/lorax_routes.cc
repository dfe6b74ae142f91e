// LoRAX's /, /generate, /generate_stream and /info.
#include <ctime>
#include <utility>

#include "common/app/flags.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/lorax_answer.h"
#include "coordinator/http/sampling_fields.h"

namespace strata {
namespace {

// The prompt's ids. Of a longer one than `truncate` says, what the tokenizer puts in front of every
// text, and the last ids.
absl::StatusOr<std::vector<uint32_t>> TokenizePrompt(const ModelRuntime& model,
                                                     const LoraxRequest& request,
                                                     ModelRuntime::LimitFn limit) {
  std::string text = request.inputs;
  if (request.chat) {
    ASSIGN_OR_RETURN(text, model.RenderChat(request.request.chat(), std::time(nullptr)));
  }
  // What is left of it has to fit, not all of it.
  ASSIGN_OR_RETURN(std::vector<uint32_t> ids, request.truncate > 0
                                                  ? model.EncodeAny(text, !request.chat)
                                                  : model.EncodePrompt(text, !request.chat, limit));
  if (request.truncate == 0 || ids.size() <= request.truncate) {
    return ids;
  }
  std::vector<uint32_t> front;
  if (!request.chat) {
    ASSIGN_OR_RETURN(front, model.Encode("", true));
  }
  size_t kept = 0;
  while (kept < front.size() && kept + 1 < request.truncate && front[kept] == ids[kept]) {
    ++kept;
  }
  const size_t cut = ids.size() - request.truncate;
  ids.erase(ids.begin() + static_cast<ptrdiff_t>(kept),
            ids.begin() + static_cast<ptrdiff_t>(kept + cut));
  return ids;
}

}  // namespace

absl::Status HttpApi::ServeLorax(Call* call, LoraxRequest request, bool stream, bool in_array) {
  if (stream && request.best_of > 1) {
    return BadField("parameters.best_of", "1 in a stream");
  }
  if (stream && request.prefill) {
    return BadField("parameters.decoder_input_details",
                    "false in a stream, which does not show it");
  }
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(*call, request.best_of));
  ASSIGN_OR_RETURN(const auto model, ModelOf(request.model));
  request.request.set_model(model->name);
  LoraxContext context;
  context.model = model->name;
  context.stream = stream;
  context.in_array = in_array;
  context.tokenizer = std::shared_ptr<const Tokenizer>(model, model->tokenizer.get());
  context.stop_ids = model->spec().eos_ids;
  context.elapsed_ms = [backend = backend_, arrived = call->times.arrived] {
    return ToMs(backend->Now() - arrived);
  };
  // LoRAX's answers are all that is written, thoughts and calls too, as those to tokens are.
  if (request.prefill || request.truncate > 0 || request.request.has_chat()) {
    RETURN_IF_ERROR(CheckMayRun(*call, options));
    ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, TokenizePrompt(*model, request, [&] {
                       return backend_->LongestPrompt(model->name);
                     }));
    request.request.mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
    if (request.prefill) context.prompt_ids = ids;  // Only ids can be named.
  }
  std::vector<ChoiceRequest> requests;
  AddChoices(request.request, request.best_of, call->request_id, backend_->DrawSeed(), &requests);
  if (request.prefill) requests[0].request.set_prompt_logprobs(0);
  RunChoices(call, options, RunOptions().default_max_tokens, std::move(requests),
             MakeLoraxAnswer(request, std::move(context)));
  return absl::OkStatus();
}

absl::Status HttpApi::LoraxRoot(Call* call) {
  ASSIGN_OR_RETURN(LoraxRequest request, ParseLoraxRequest(call->request.body));
  const bool stream = request.stream;
  return ServeLorax(call, std::move(request), stream, /*in_array=*/true);
}

absl::Status HttpApi::LoraxGenerate(Call* call) {
  ASSIGN_OR_RETURN(LoraxRequest request, ParseLoraxRequest(call->request.body));
  return ServeLorax(call, std::move(request), /*stream=*/false, /*in_array=*/false);
}

absl::Status HttpApi::LoraxGenerateStream(Call* call) {
  ASSIGN_OR_RETURN(LoraxRequest request, ParseLoraxRequest(call->request.body));
  return ServeLorax(call, std::move(request), /*stream=*/true, /*in_array=*/false);
}

absl::Status HttpApi::LoraxInfo(Call* call) {
  ASSIGN_OR_RETURN(const auto model, ModelOf(call->request.Query("model")));
  ASSIGN_OR_RETURN(const uint64_t longest, MaxTokensOf(model->name));
  ASSIGN_OR_RETURN(const v1::Model described, backend_->GetModel(model->name));
  const OrderedJson info{{"model_id", model->name},
                         {"model_sha", described.digest()},
                         {"model_dtype", described.dtype()},
                         {"model_device_type", "cpu"},
                         {"model_pipeline_tag", "text-generation"},
                         {"max_best_of", kMaxChoices},
                         {"max_stop_sequences", kMaxStopStrings},
                         {"max_input_length", longest == 0 ? 0 : longest - 1},
                         {"max_total_tokens", longest},
                         {"version", kVersion},
                         {"router", "strata"}};
  HttpResponse response;
  response.body = Dump(info);
  call->responder->Answer(std::move(response));
  return absl::OkStatus();
}

}  // namespace strata
