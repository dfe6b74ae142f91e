// Generate requests: any bytes, or drawn fields (too many tokens, ids out of the vocabulary, NaN
// parameters, many and long stop strings, constraints, tools). What is accepted goes to an engine
// and is answered; what it is to be held to is a constraint that can be read, or is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "coordinator/service/constraints/answer_rules.h"
#include "coordinator/service/constraints/constraint_reading.h"
#include "coordinator/service/request/calls_wanted.h"
#include "coordinator/service/request/request.h"
#include "coordinator/service/request/text_stream.h"
#include "tests/coordinator/engine/sim_cluster.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/text/tokenizer/small_tokenizer.h"
#include "text/tools/offered_tools.h"

namespace strata {
namespace {

constexpr uint32_t kVocab = 97;  // The cluster's, less than the tokenizer's.
const RequestContext kContext{77, "made-up", 1'700'000'000};

std::shared_ptr<const ModelRuntime> MakeModel(bool with_text) {
  auto manifest = std::make_shared<ModelManifest>();
  manifest->spec.vocab = kVocab;
  manifest->spec.eos_ids = {3, 5};
  auto model = std::make_shared<ModelRuntime>();
  model->name = "m";
  model->manifest = manifest;
  model->tokenizer_problem = Error(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER", "none");
  model->template_problem =
      Error(absl::StatusCode::kFailedPrecondition, "NO_CHAT_TEMPLATE", "none");
  if (with_text) {
    auto tokenizer = ParseTokenizer(testing::SmallTokenizer().dump());
    auto chat =
        ParseChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}");
    manifest->chat_template = "{{ tools }}<tool_call><think></think>";
    STRATA_CHECK(tokenizer.ok() && chat.ok());
    model->tokenizer = *std::move(tokenizer);
    model->chat_template = *std::move(chat);
  }
  return model;
}

void DrawTools(fuzz::Input* input, v1::ChatInput* chat) {
  for (uint32_t i = input->Below(4); i > 0; --i) {
    chat->add_tools(input->Bool()
                        ? R"({"type": "function", "function": {"name": "f", "strict": true}})"
                        : input->Text());
  }
  if (input->Bool()) {
    constexpr const char* kChoices[] = {"auto", "none", "required", "tool"};
    chat->set_tool_choice(kChoices[input->Below(4)]);
    chat->set_tool_name(input->Bool() ? "f" : input->Text());
    chat->set_one_tool_call(input->Bool());
  }
  if (input->Bool()) chat->set_thought_budget_tokens(static_cast<uint32_t>(input->Number()));
}

void DrawConstraint(fuzz::Input* input, v1::Constraint* constraint) {
  constraint->set_strict(input->Bool());
  switch (input->Below(6)) {
    case 0:
      return constraint->set_json_schema(input->Text());
    case 1:
      return constraint->set_json_object(input->Bool());
    case 2:
      return constraint->set_regex(input->Text());
    case 3:
      return constraint->set_grammar(input->Text());
    case 4:
      constraint->mutable_choices();
      for (uint32_t i = input->Below(4); i > 0; --i) {
        constraint->mutable_choices()->add_texts(input->Text());
      }
      return;
    default:
      return;  // Of no kind.
  }
}

void DrawPrompt(fuzz::Input* input, v1::GenerateRequest* request) {
  switch (input->Below(4)) {
    case 0:
      return request->set_text(input->Text());
    case 1:
      for (uint32_t i = input->Below(4); i > 0; --i) {
        v1::ChatMessage* message = request->mutable_chat()->add_messages();
        message->set_role(input->Text());
        message->set_content(input->Text());
      }
      return DrawTools(input, request->mutable_chat());
    case 2:
      return request->set_text(
          std::string(input->Byte() * 100u, static_cast<char>('a' + input->Byte() % 4)));
    default: {
      const auto id = static_cast<uint32_t>(input->Number());
      for (uint32_t i = input->Byte() * (1u + input->Below(8)); i > 0; --i) {
        request->mutable_tokens()->add_ids(input->Below(4) == 0 ? id : i % kVocab);
      }
    }
  }
}

v1::GenerateRequest DrawRequest(fuzz::Input* input) {
  v1::GenerateRequest request;
  DrawPrompt(input, &request);
  request.set_max_tokens(static_cast<uint32_t>(input->Number()));
  v1::SamplingParams* sampling = request.mutable_sampling();
  for (uint32_t i = input->Below(4); i > 0; --i) {
    switch (input->Below(11)) {
      case 0:
        sampling->set_temperature(input->Float());
        break;
      case 1:
        sampling->set_top_k(static_cast<uint32_t>(input->Number()));
        break;
      case 2:
        sampling->set_top_p(input->Float());
        break;
      case 3:
        sampling->set_min_p(input->Float());
        break;
      case 4:
        sampling->set_repetition_penalty(input->Float());
        break;
      case 5:
        for (uint32_t id = input->Byte() * 20; id > 0; --id) {
          (*sampling->mutable_logit_bias())[id] = 1;
        }
        (*sampling->mutable_logit_bias())[static_cast<uint32_t>(input->Number())] = input->Float();
        break;
      case 6:
        for (uint32_t stop = input->Byte() % 32; stop > 0; --stop) {
          request.add_stop(input->Text());
        }
        break;
      case 7:
        request.add_stop(std::string(input->Byte() * 8u, 's'));
        break;
      case 8:
        request.set_logprobs(static_cast<uint32_t>(input->Number()));
        request.set_prompt_logprobs(static_cast<uint32_t>(input->Number()));
        break;
      case 9:
        DrawConstraint(input, request.mutable_constraint());
        break;
      default:
        request.set_request_id(input->Text());
    }
  }
  return request;
}

// What the answer is to be held to is read, or refused by a reason.
void Hold(const ResolvedRequest& resolved, const ModelRuntime& model) {
  const auto check = [](const absl::Status& status) {
    STRATA_CHECK(status.ok() || !ReasonOf(status).empty());
  };
  constexpr size_t kMaxSourceBytes = 64;  // So that a run is short.
  const std::optional<v1::Constraint>& constraint = resolved.constraint;
  if (constraint.has_value()) {
    const absl::Status seen = CheckConstraint(*constraint, kMaxSourceBytes);
    check(seen);
    if (!seen.ok()) return;
  }
  if (!resolved.chat.has_value() || model.tokenizer == nullptr) {
    if (constraint.has_value()) check(EbnfOfConstraint(*constraint, kMaxSourceBytes).status());
    return;
  }
  const auto calls = CallsWantedOf(model, {}, *resolved.chat, constraint.has_value());
  check(calls.status());
  if (!calls.ok()) return;
  check(ThoughtRuleOf(model, {}, *resolved.chat, *calls, resolved.chat->thought_budget_tokens)
            .status());
  if (calls->has_value() && (*calls)->offered->source().size() < 256) {
    check(EbnfOfCalls(**calls, constraint, *model.tokenizer, 259, kMaxSourceBytes).status());
  } else if (constraint.has_value()) {
    check(EbnfOfConstraint(*constraint, kMaxSourceBytes).status());
  }
}

void Answer(const ResolvedRequest& resolved, const ModelRuntime& model) {
  SimCluster cluster(MakeConfig(1, 16));
  cluster.record_frames = false;
  cluster.Start();
  cluster.Settle();
  auto sink = std::make_shared<SinkRecord>();
  SessionRequest session = resolved.session;
  session.prompt = *resolved.prompt;
  const absl::Status status = cluster.TrySubmit(std::move(session), sink);
  if (!status.ok()) {
    STRATA_CHECK(!ReasonOf(status).empty() && !sink->ended());
    return;
  }
  cluster.RunToEnd();
  STRATA_CHECK(sink->ended());
  for (const uint32_t token : sink->tokens) {
    STRATA_CHECK(token < kVocab);
  }
  TextStream text(
      model.tokenizer == nullptr ? nullptr : model.tokenizer->NewStream(*resolved.prompt, true),
      resolved.stops);
  for (const uint32_t token : sink->tokens) {
    text.Add(token);
  }
  text.Finish();
  cluster.Settle();
  cluster.ExpectEmpty();
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  GTEST_FLAG_SET(break_on_failure, true);
  static const std::shared_ptr<const ModelRuntime> models[] = {MakeModel(false), MakeModel(true)};
  fuzz::Input input(data, size);
  const ModelRuntime& model = *models[input.Below(8) == 0 ? 0 : 1];
  v1::GenerateRequest request;
  if (!input.Bool()) {
    request = DrawRequest(&input);
  } else if (!request.ParseFromString(input.Bytes(size))) {
    return 0;
  }
  const auto resolved = ResolveRequest(request, model, kContext);
  if (!resolved.ok()) {
    STRATA_CHECK(!ReasonOf(resolved.status()).empty());
    return 0;
  }
  const v1::SamplingParams& sampling = resolved->session.params.sampling();
  STRATA_CHECK(CheckSamplingComplete(sampling).ok());
  STRATA_CHECK(ValidateSampling(sampling, kVocab).ok());
  STRATA_CHECK(resolved->stops.size() <= kMaxStopStrings);
  Hold(*resolved, model);
  Answer(*resolved, model);
  return 0;
}
