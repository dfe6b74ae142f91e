#include <gmock/gmock.h>

#include <string>

#include "common/status.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/lorax_answer.h"
#include "coordinator/http/lorax_request.h"
#include "tests/coordinator/http/answers.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FinishMessage;
using testing::Logprob;
using testing::StartedMessage;
using testing::TokenMessage;

std::string FieldRefused(const std::string& body) {
  const auto parsed = ParseLoraxRequest(body);
  return parsed.ok() ? "accepted" : FieldOf(parsed.status());
}

LoraxContext Context(bool stream) {
  LoraxContext context;
  context.model = "m";
  context.stream = stream;
  context.tokenizer = testing::MakeSmallTokenizer();
  context.stop_ids = {10};
  return context;
}

TEST(LoraxRequest, ParametersReachTheRequest) {
  const auto parsed = ParseLoraxRequest(
      R"({"inputs":"a","stream":true,"parameters":{"max_new_tokens":4,"temperature":0.5,"top_k":3,
          "stop":["x"],"seed":5,"details":true,"return_full_text":true,"ignore_eos_token":true,
          "decoder_input_details":true,"return_k_alternatives":2,"unknown":1,"best_of":1}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->stream && parsed->details && parsed->prefill && parsed->full_text);
  const v1::GenerateRequest& request = parsed->request;
  EXPECT_EQ(request.text(), "a");
  EXPECT_EQ(request.max_tokens(), 4u);
  EXPECT_EQ(request.sampling().temperature(), 0.5f);
  EXPECT_EQ(request.sampling().top_k(), 3u);
  EXPECT_EQ(request.sampling().seed(), 5u);
  EXPECT_THAT(request.stop(), ElementsAre("x"));
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_EQ(request.logprobs(), 2u);
}

TEST(LoraxRequest, ItIsGreedyUnlessSamplingIsAskedFor) {
  const auto temperature = [](const std::string& parameters) {
    const auto parsed = ParseLoraxRequest(R"({"inputs":"a","parameters":)" + parameters + "}");
    return parsed->request.sampling().has_temperature()
               ? std::to_string(parsed->request.sampling().temperature())
               : "the model's";
  };
  EXPECT_EQ(temperature("{}"), "0.000000");
  EXPECT_EQ(temperature("null"), "0.000000");
  EXPECT_EQ(temperature(R"({"do_sample":true})"), "the model's");
  EXPECT_EQ(temperature(R"({"top_k":2})"), "the model's");
  EXPECT_EQ(temperature(R"({"temperature":0.5})"), "0.500000");
}

TEST(LoraxRequest, WhatIsNotSupportedOrWrongIsNamed) {
  EXPECT_EQ(FieldRefused(R"({"parameters":{}})"), "inputs");
  EXPECT_EQ(FieldRefused(R"({"inputs":""})"), "inputs");
  EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":[]})"), "parameters");
  for (const char* name : {"adapter_id", "merged_adapters", "response_format", "watermark",
                           "schema", "grammar", "tools"}) {
    EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{")" + std::string(name) + R"(":7}})"),
              "parameters." + std::string(name));
  }
  EXPECT_EQ(
      FieldRefused(
          R"({"inputs":"a","parameters":{"adapter_id":null,"watermark":false,"adapter_source":"hub"}})"),
      "accepted");
  EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{"max_new_tokens":0}})"),
            "parameters.max_new_tokens");
  for (const char* wrong : {"0", "129", "2"}) {
    EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{"best_of":)" + std::string(wrong) +
                           (wrong[0] == '2' ? "}}" : R"(,"do_sample":true}})")),
              "parameters.best_of");
  }
  EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{"truncate":0}})"), "parameters.truncate");
}

TEST(LoraxRequest, AChatIsTheMessagesThatItsInputsAre) {
  const auto body = [](const std::string& inputs) {
    return Dump({{"inputs", inputs}, {"parameters", {{"apply_chat_template", true}}}});
  };
  const auto parsed =
      ParseLoraxRequest(body(R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->chat);
  EXPECT_EQ(parsed->request.chat().messages_size(), 2);
  EXPECT_EQ(parsed->request.chat().messages(1).content(), "u");
  EXPECT_EQ(FieldRefused(body(R"([{"content":"u"}])")), "messages[0].role");
  EXPECT_EQ(FieldRefused(body("{}")), "messages");
  const absl::Status plain = ParseLoraxRequest(body("Hello")).status();
  EXPECT_EQ(ReasonOf(plain), "BAD_JSON");
  EXPECT_NE(plain.message().find("inputs (parameters.apply_chat_template)"), std::string::npos);
}

TEST(LoraxAnswer, ANegativeSeedIsToldAsItWasSent) {
  const auto request =
      ParseLoraxRequest(R"({"inputs":"ab","parameters":{"details":true,"seed":-1}})");
  const auto answer = MakeLoraxAnswer(*request, Context(false));
  v1::GenerateResponse started = StartedMessage(2, 16);
  started.mutable_started()->set_seed(request->request.sampling().seed());
  answer->OnMessage(0, started);
  answer->OnMessage(0, FinishMessage("stop", 2, 0));
  EXPECT_NE(answer->Whole().body.find(R"("seed":-1)"), std::string::npos);
}

TEST(LoraxAnswer, AnAnswerIsExactlyThis) {
  const auto parsed = ParseLoraxRequest(
      R"({"inputs":"ab","parameters":{"details":true,"decoder_input_details":true,
          "return_full_text":true}})");
  LoraxContext context = Context(false);
  context.in_array = true;
  context.prompt_ids = {'a', 'b'};
  const auto answer = MakeLoraxAnswer(*parsed, std::move(context));
  answer->OnMessage(0, StartedMessage(2, 16));
  v1::GenerateResponse prompt;
  *prompt.add_prompt_logprobs() = Logprob('b', -0.25f);
  answer->OnMessage(0, prompt);
  answer->OnMessage(0, TokenMessage('c', "c", -0.5f));
  answer->OnMessage(0, TokenMessage(10, "", -1.5f));
  answer->OnMessage(0, FinishMessage("stop", 2, 2));
  const HttpResponse whole = answer->Whole();
  EXPECT_EQ(whole.body,
            R"([{"generated_text":"abc","details":{"finish_reason":"eos_token","prompt_tokens":2,)"
            R"("generated_tokens":2,"skipped_tokens":0,"seed":7,)"
            R"("prefill":[{"id":97,"text":"a","logprob":null},)"
            R"({"id":98,"text":"b","logprob":-0.25}],)"
            R"("tokens":[{"id":99,"text":"c","logprob":-0.5,"special":false,"skipped":false},)"
            R"({"id":10,"text":"\n","logprob":-1.5,"special":false,"skipped":false}]}}])");
  EXPECT_THAT(whole.headers,
              ::testing::Contains(std::pair<std::string, std::string>("x-generated-tokens", "2")));
}

TEST(LoraxAnswer, TheLikeliestOfSeveralIsShownAndTheOthersAreDetails) {
  const auto parsed = ParseLoraxRequest(
      R"({"inputs":"a","parameters":{"details":true,"best_of":3,"temperature":1,
          "decoder_input_details":true}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  LoraxContext context = Context(false);
  context.prompt_ids = {'a'};
  const auto answer = MakeLoraxAnswer(*parsed, std::move(context));
  const float logprobs[] = {-2, -0.5, -1};
  for (size_t i = 0; i < 3; ++i) {
    answer->OnMessage(i, StartedMessage(1, 1));
    answer->OnMessage(i, TokenMessage('b' + static_cast<uint32_t>(i),
                                      std::string(1, static_cast<char>('b' + i)), logprobs[i]));
    answer->OnMessage(i, FinishMessage("length", 1, 1));
  }
  const Json body = Json::parse(answer->Whole().body);
  EXPECT_EQ(body["generated_text"], "c");
  const Json& details = body["details"];
  EXPECT_EQ(details["tokens"][0]["id"], 'c');
  EXPECT_EQ(details["prefill"].size(), 1u);
  ASSERT_EQ(details["best_of_sequences"].size(), 2u);
  EXPECT_EQ(details["best_of_sequences"][0]["generated_text"], "b");
  EXPECT_EQ(details["best_of_sequences"][1]["generated_text"], "d");
  EXPECT_EQ(details["best_of_sequences"][1]["tokens"][0]["logprob"], -1);
  EXPECT_EQ(details["best_of_sequences"][1]["finish_reason"], "length");
  EXPECT_EQ(details["best_of_sequences"][1]["prefill"], details["prefill"]);
}

TEST(LoraxAnswer, AStreamHasAnEventForEachTokenAndTheLastHasTheText) {
  const auto parsed = ParseLoraxRequest(R"({"inputs":"a"})");
  const auto answer = MakeLoraxAnswer(*parsed, Context(true));
  EXPECT_EQ(answer->OnMessage(0, StartedMessage(1, 2)), "");
  EXPECT_EQ(answer->OnMessage(0, TokenMessage('b', "b", -0.5f)),
            R"(data:{"token":{"id":98,"text":"b","logprob":-0.5,"special":false,"skipped":false},)"
            R"("generated_text":null,"details":null})"
            "\n\n");
  // The last that there may be.
  EXPECT_EQ(answer->OnMessage(0, TokenMessage('c', "c", -1.5f)), "");
  EXPECT_EQ(answer->OnMessage(0, FinishMessage("length", 1, 2)),
            R"(data:{"token":{"id":99,"text":"c","logprob":-1.5,"special":false,"skipped":false},)"
            R"("generated_text":"bc","details":{"finish_reason":"length","prompt_tokens":1,)"
            R"("generated_tokens":2,"skipped_tokens":0,"seed":7}})"
            "\n\n");
  EXPECT_EQ(answer->EndOfStream(), "");
}

TEST(LoraxAnswer, WithStopStringsTheEventOfTheTokenThatEndsItHasTheText) {
  const auto parsed = ParseLoraxRequest(R"({"inputs":"a","parameters":{"stop":["c"]}})");
  const auto answer = MakeLoraxAnswer(*parsed, Context(true));
  std::string said = answer->OnMessage(0, StartedMessage(1, 9));
  said += answer->OnMessage(0, TokenMessage('b', "b", -0.5f));
  EXPECT_EQ(said, "");
  said = answer->OnMessage(0, TokenMessage('c', "", -0.5f));
  EXPECT_NE(said.find(R"("id":98)"), std::string::npos);
  EXPECT_EQ(said.find(R"("id":99)"), std::string::npos);
  said = answer->OnMessage(0, FinishMessage("stop", 1, 2));
  EXPECT_NE(said.find(R"("id":99)"), std::string::npos);
  EXPECT_NE(said.find(R"("generated_text":"b")"), std::string::npos);
  EXPECT_NE(said.find("stop_sequence"), std::string::npos);
}

TEST(LoraxAnswer, WithAConstraintTheEventOfTheLastTokenHasTheText) {
  const auto parsed =
      ParseLoraxRequest(R"({"inputs":"a","parameters":{"grammar":{"type":"regex","value":"c"}}})");
  const auto answer = MakeLoraxAnswer(*parsed, Context(true));
  std::string said = answer->OnMessage(0, StartedMessage(1, 9));
  said += answer->OnMessage(0, TokenMessage('b', "b", -0.5f));
  EXPECT_EQ(said, "");
  said = answer->OnMessage(0, TokenMessage('c', "", -0.5f));
  EXPECT_NE(said.find(R"("id":98)"), std::string::npos);
  EXPECT_EQ(said.find(R"("id":99)"), std::string::npos);
  said = answer->OnMessage(0, FinishMessage("stop", 1, 2));
  EXPECT_NE(said.find(R"("id":99)"), std::string::npos);
  EXPECT_NE(said.find(R"("generated_text":"b")"), std::string::npos);
  EXPECT_NE(said.find("eos_token"), std::string::npos);
}

TEST(LoraxAnswer, ErrorsAreFlatAndOfItsTypes) {
  const auto answer = MakeLoraxAnswer(*ParseLoraxRequest(R"({"inputs":"a"})"), Context(false));
  const std::tuple<absl::StatusCode, int, const char*> cases[] = {
      {absl::StatusCode::kInvalidArgument, 422, "validation"},
      {absl::StatusCode::kNotFound, 404, "validation"},
      {absl::StatusCode::kResourceExhausted, 503, "unhealthy"},
      {absl::StatusCode::kUnavailable, 503, "unhealthy"},
      {absl::StatusCode::kDeadlineExceeded, 424, "generation"},
      {absl::StatusCode::kInternal, 500, "incomplete_generation"},
  };
  for (const auto& [code, status, type] : cases) {
    const HttpResponse refusal = answer->Refusal(Error(code, "R", "what"));
    EXPECT_EQ(refusal.status, status);
    EXPECT_EQ(refusal.body, R"({"error":"what","error_type":")" + std::string(type) + R"("})");
  }
}

}  // namespace
}  // namespace strata
