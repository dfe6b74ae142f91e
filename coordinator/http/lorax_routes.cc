// LoRAX's /, /generate, /generate_stream and /info.
#include <utility>

#include "common/app/flags.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/lorax_answer.h"

namespace strata {

absl::Status HttpApi::ServeLorax(Call* call, LoraxRequest request, bool stream, bool in_array) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(*call));
  ASSIGN_OR_RETURN(const auto model, ModelOf(request.model));
  request.request.set_model(model->name);
  request.request.set_request_id(options.request_id);
  LoraxContext context;
  context.model = model->name;
  context.stream = stream;
  context.in_array = in_array;
  context.tokenizer = std::shared_ptr<const Tokenizer>(model, model->tokenizer.get());
  context.stop_ids = model->spec().eos_ids;
  std::vector<v1::GenerateRequest> requests(1, request.request);
  if (request.prefill) {
    // Only ids can be named.
    ASSIGN_OR_RETURN(context.prompt_ids, model->Encode(request.request.text(), true));
    requests[0].mutable_tokens()->mutable_ids()->Assign(context.prompt_ids.begin(),
                                                        context.prompt_ids.end());
  }
  RunOptions run;
  run.deadline = options.deadline;
  run.headers = {{"X-Strata-Request-Id", options.request_id}};
  RunGenerations(coordinator_, std::move(requests), std::move(run),
                 MakeLoraxAnswer(request, std::move(context)), call->responder);
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
  ASSIGN_OR_RETURN(const auto model, ModelOf(""));
  ASSIGN_OR_RETURN(const uint64_t longest, MaxTokensOf(model->name));
  const v1::Model described = DescribeModel(*model);
  const OrderedJson info{{"model_id", model->name},
                         {"model_sha", described.digest()},
                         {"model_dtype", described.dtype()},
                         {"model_device_type", "cpu"},
                         {"model_pipeline_tag", "text-generation"},
                         {"max_best_of", 1},
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
