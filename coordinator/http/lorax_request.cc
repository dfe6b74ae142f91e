#include "coordinator/http/lorax_request.h"

#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "coordinator/http/chat_messages.h"
#include "coordinator/http/constraint_fields.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/sampling_fields.h"

namespace strata {
namespace {

void RefuseUnsupportedOfLorax(Fields* fields) {
  for (const char* name :
       {"adapter_id", "adapter_parameters", "merged_adapters", "watermark", "tools"}) {
    fields->Refuse(name);
  }
  fields->Refuse("tool_choice", "none");
}

void ReadBestOf(bool samples, Fields* fields, LoraxRequest* out) {
  out->best_of = static_cast<uint32_t>(fields->Int("best_of", 1, kMaxChoices).value_or(1));
  if (out->best_of > 1 && !samples) {
    fields->Fail(BadField(fields->Name("best_of"), "1 without sampling: all would be the same"));
  }
}

void ReadParameters(Fields* fields, OrderedBody* body, LoraxRequest* out) {
  v1::GenerateRequest& request = out->request;
  RefuseUnsupportedOfLorax(fields);
  ReadSampling(fields, &request);
  ReadLoraxConstraint(fields, body, &request);
  if (request.has_constraint()) request.clear_stop();  // It says where the answer ends.
  out->negative_seed = HasNegativeSeed(*fields);
  // Greedy unless something asks for sampling, as LoRAX has it.
  const v1::SamplingParams& sampling = request.sampling();
  const bool samples = fields->BoolOr("do_sample", false) || sampling.has_temperature() ||
                       sampling.has_top_k() || sampling.has_top_p() || sampling.has_typical_p() ||
                       sampling.has_min_p();
  if (!samples) {
    request.mutable_sampling()->set_temperature(0);
  }
  ReadBestOf(samples, fields, out);
  if (const auto most = fields->Int("max_new_tokens", 1, kMaxContextTokens)) {
    request.set_max_tokens(static_cast<uint32_t>(*most));
  }
  out->truncate = static_cast<uint32_t>(fields->Int("truncate", 1, kMaxContextTokens).value_or(0));
  out->chat = fields->BoolOr("apply_chat_template", false);
  out->details = fields->BoolOr("details", false);
  out->prefill = fields->BoolOr("decoder_input_details", false);
  out->full_text = fields->BoolOr("return_full_text", false);
  out->alternatives =
      static_cast<uint32_t>(fields->Int("return_k_alternatives", 0, kMaxTopLogprobs).value_or(0));
}

// Messages, written as JSON in the text `inputs`.
absl::Status ReadChat(const std::string& inputs, v1::ChatInput* chat) {
  ASSIGN_OR_RETURN(Json messages, ParseJson(inputs, "inputs (parameters.apply_chat_template)"));
  const Json object = {{"messages", std::move(messages)}};
  Fields fields(object, "inputs.");
  const std::string text = "{\"messages\": " + inputs + "}";
  OrderedBody body(text, MessageMembers());
  ReadMessages(&fields, &body, chat);
  return fields.status();
}

}  // namespace

absl::StatusOr<LoraxRequest> ParseLoraxRequest(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json);
  LoraxRequest out;
  out.model = fields.Text("model").value_or("");
  out.stream = fields.BoolOr("stream", false);
  const auto inputs = fields.Text("inputs");
  if (!inputs.has_value() || inputs->empty()) {
    fields.Fail(BadField("inputs", "a string, and not empty"));
  } else {
    out.inputs = *inputs;
  }
  static const Json kNone = Json::object();
  const Json* given = fields.Object("parameters");
  OrderedBody ordered(body, ConstraintMembers());
  Fields parameters(given != nullptr ? *given : kNone, "parameters.");
  ReadParameters(&parameters, &ordered, &out);
  fields.Fail(parameters.status());
  RETURN_IF_ERROR(fields.status());
  if (out.chat) {
    RETURN_IF_ERROR(ReadChat(out.inputs, out.request.mutable_chat()));
  } else {
    out.request.set_text(out.inputs);
  }
  out.request.set_logprobs(out.alternatives);
  return out;
}

}  // namespace strata
