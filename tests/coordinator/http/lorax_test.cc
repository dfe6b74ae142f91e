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
  EXPECT_TRUE(request.has_prompt_logprobs());
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
  for (const char* name :
       {"adapter_id", "merged_adapters", "response_format", "watermark", "truncate"}) {
    EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{")" + std::string(name) + R"(":7}})"),
              "parameters." + std::string(name));
  }
  EXPECT_EQ(
      FieldRefused(
          R"({"inputs":"a","parameters":{"adapter_id":null,"watermark":false,"adapter_source":"hub"}})"),
      "accepted");
  EXPECT_EQ(FieldRefused(R"({"inputs":"a","parameters":{"max_new_tokens":0}})"),
            "parameters.max_new_tokens");
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
            R"("generated_tokens":2,"seed":7,)"
            R"("prefill":[{"id":97,"text":"a","logprob":null},)"
            R"({"id":98,"text":"b","logprob":-0.25}],)"
            R"("tokens":[{"id":99,"text":"c","logprob":-0.5,"special":false},)"
            R"({"id":10,"text":"\n","logprob":-1.5,"special":false}]}}])");
  EXPECT_THAT(whole.headers,
              ::testing::Contains(std::pair<std::string, std::string>("x-generated-tokens", "2")));
}

TEST(LoraxAnswer, AStreamHasAnEventForEachTokenAndTheLastHasTheText) {
  const auto parsed = ParseLoraxRequest(R"({"inputs":"a"})");
  const auto answer = MakeLoraxAnswer(*parsed, Context(true));
  EXPECT_EQ(answer->OnMessage(0, StartedMessage(1, 2)), "");
  EXPECT_EQ(answer->OnMessage(0, TokenMessage('b', "b", -0.5f)),
            R"(data:{"token":{"id":98,"text":"b","logprob":-0.5,"special":false},)"
            R"("generated_text":null,"details":null})"
            "\n\n");
  // The last that there may be.
  EXPECT_EQ(answer->OnMessage(0, TokenMessage('c', "c", -1.5f)), "");
  EXPECT_EQ(answer->OnMessage(0, FinishMessage("length", 1, 2)),
            R"(data:{"token":{"id":99,"text":"c","logprob":-1.5,"special":false},)"
            R"("generated_text":"bc","details":{"finish_reason":"length","prompt_tokens":1,)"
            R"("generated_tokens":2,"seed":7}})"
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

TEST(LoraxAnswer, ErrorsAreFlatAndOfItsTypes) {
  const auto answer = MakeLoraxAnswer(*ParseLoraxRequest(R"({"inputs":"a"})"), Context(false));
  const std::tuple<absl::StatusCode, int, const char*> cases[] = {
      {absl::StatusCode::kInvalidArgument, 422, "validation"},
      {absl::StatusCode::kNotFound, 404, "validation"},
      {absl::StatusCode::kResourceExhausted, 429, "overloaded"},
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
