#include "coordinator/http/openai_answer.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/status.h"
#include "coordinator/http/http_errors.h"
#include "coordinator/http/json_body.h"
#include "tests/coordinator/http/answers.h"

namespace strata {
namespace {

using testing::FinishMessage;
using testing::Logprob;
using testing::StartedMessage;
using testing::TokenMessage;

OpenAiRequest Request(bool chat) {
  OpenAiRequest request;
  request.chat = chat;
  request.model = "m";
  request.prompts.resize(1);
  return request;
}

OpenAiContext Context() {
  OpenAiContext context;
  context.request_id = "x";
  context.unix_seconds = 1700000000;
  context.tokenizer = testing::MakeSmallTokenizer();
  return context;
}

// "ab" then "c", ended by a stop id.
void Play(HttpAnswer* answer, size_t choice, std::string* said = nullptr, float logprob = 0) {
  std::vector<v1::GenerateResponse> messages = {
      StartedMessage(3, 16), TokenMessage(256, "ab", logprob), TokenMessage('c', "c", logprob),
      FinishMessage("stop", 3, 2, 1)};
  for (const v1::GenerateResponse& message : messages) {
    const std::string piece = answer->OnMessage(choice, message);
    if (said != nullptr) *said += piece;
  }
}

TEST(OpenAiAnswer, ACompletionIsExactlyThis) {
  const auto answer = MakeOpenAiAnswer(Request(false), Context());
  Play(answer.get(), 0);
  EXPECT_EQ(answer->Whole().body,
            R"({"id":"cmpl-x","object":"text_completion","created":1700000000,"model":"m",)"
            R"("system_fingerprint":"cpu-2",)"
            R"("choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
            R"("prompt_tokens_details":{"cached_tokens":1}},"seed":7})");
}

TEST(OpenAiAnswer, TheFingerprintIsOfAllClassesThatTheTokensSoFarAreOf) {
  for (const bool chat : {false, true}) {
    OpenAiRequest request = Request(chat);
    request.stream = true;
    const auto stream = MakeOpenAiAnswer(request, Context());
    const auto whole = MakeOpenAiAnswer(Request(chat), Context());
    v1::GenerateResponse moved = TokenMessage('c', "c");
    moved.set_numerics_class("mlx-1");
    std::vector<std::string> prints;
    for (const v1::GenerateResponse& message :
         {StartedMessage(3, 16), TokenMessage(256, "ab"), moved, TokenMessage('d', "d"),
          FinishMessage("stop", 3, 3, 0)}) {
      whole->OnMessage(0, message);
      if (const std::string event = stream->OnMessage(0, message); !event.empty()) {
        prints.push_back(OrderedJson::parse(event.substr(6))["system_fingerprint"]);
      }
    }
    EXPECT_EQ(prints, (std::vector<std::string>{"cpu-2", "cpu-2 -> mlx-1", "cpu-2 -> mlx-1",
                                                "cpu-2 -> mlx-1"}));
    EXPECT_EQ(OrderedJson::parse(whole->Whole().body)["system_fingerprint"], "cpu-2 -> mlx-1");
  }
}

TEST(OpenAiAnswer, DraftedTokensAreCountedWhereThereAreAny) {
  for (const bool chat : {false, true}) {
    const auto answer = MakeOpenAiAnswer(Request(chat), Context());
    answer->OnMessage(0, StartedMessage(3, 16));
    v1::GenerateResponse end = FinishMessage("stop", 3, 9);
    end.mutable_finish()->set_drafted_tokens(7);
    end.mutable_finish()->set_accepted_tokens(5);
    answer->OnMessage(0, end);
    const auto usage =
        OrderedJson::parse(answer->Whole().body)["usage"]["completion_tokens_details"];
    EXPECT_EQ(usage["accepted_prediction_tokens"], 5);
    EXPECT_EQ(usage["rejected_prediction_tokens"], 2);
    EXPECT_EQ(usage.contains("reasoning_tokens"), chat);
  }
}

TEST(OpenAiAnswer, ANegativeSeedIsToldAsItWasSent) {
  const std::pair<const char*, const char*> seeds[] = {
      {"-1", "-1"},
      {"-9007199254740991", "-9007199254740991"},
      {"-7.0", "-7"},
      {"18446744073709551615", "18446744073709551615"},
      {"9007199254740993", "9007199254740993"}};
  for (const bool stream : {false, true}) {
    for (const auto& [sent, told] : seeds) {
      const auto request =
          ParseCompletion(R"({"model":"m","prompt":"a","seed":)" + std::string(sent) +
                          R"(,"stream":)" + (stream ? "true}" : "false}"));
      ASSERT_TRUE(request.ok()) << request.status();
      const auto answer = MakeOpenAiAnswer(*request, Context());
      v1::GenerateResponse started = StartedMessage(3, 16);
      started.mutable_started()->set_seed(request->prompts[0].sampling().seed());
      std::string said = answer->OnMessage(0, started);
      said += answer->OnMessage(0, FinishMessage("stop", 3, 0));
      if (!stream) said = answer->Whole().body;
      EXPECT_NE(said.find(R"("seed":)" + std::string(told)), std::string::npos) << said;
    }
  }
}

TEST(OpenAiAnswer, AChatCompletionIsExactlyThis) {
  const auto answer = MakeOpenAiAnswer(Request(true), Context());
  Play(answer.get(), 0);
  EXPECT_EQ(
      answer->Whole().body,
      R"({"id":"chatcmpl-x","object":"chat.completion","created":1700000000,"model":"m",)"
      R"("system_fingerprint":"cpu-2",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"abc"},"logprobs":null,)"
      R"("finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
      R"("prompt_tokens_details":{"cached_tokens":1},)"
      R"("completion_tokens_details":{"reasoning_tokens":0}},"seed":7})");
}

// A thought, and a call in two pieces.
std::vector<v1::GenerateResponse> CallMessages() {
  std::vector<v1::GenerateResponse> messages = {StartedMessage(3, 16)};
  messages.emplace_back().add_token_ids(1);
  messages.back().set_thought("Hm.");
  messages.emplace_back().add_token_ids(2);
  v1::ToolCallPiece* piece = messages.back().add_tool_calls();
  piece->set_id("call_1");
  piece->set_name("f");
  piece->set_arguments("{\"a\":");
  messages.emplace_back().add_token_ids(3);
  piece = messages.back().add_tool_calls();
  piece->set_arguments("1}");
  piece->set_done(true);
  messages.push_back(FinishMessage("tool_calls", 3, 3, 1));
  messages.back().mutable_finish()->set_reasoning_tokens(1);
  return messages;
}

TEST(OpenAiAnswer, ACallOfAToolIsExactlyThis) {
  const auto answer = MakeOpenAiAnswer(Request(true), Context());
  for (const v1::GenerateResponse& message : CallMessages()) answer->OnMessage(0, message);
  const auto json = nlohmann::ordered_json::parse(answer->Whole().body);
  EXPECT_EQ(json["choices"].dump(),
            R"([{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"Hm.",)"
            R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"a\":1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}])");
  EXPECT_EQ(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

TEST(OpenAiAnswer, AStreamedCallBeginsWithItsNameAndGoesOnWithArguments) {
  OpenAiRequest request = Request(true);
  request.stream = true;
  request.continuous_usage = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  std::vector<std::string> deltas;
  std::vector<uint64_t> made;
  for (const v1::GenerateResponse& message : CallMessages()) {
    const std::string said = answer->OnMessage(0, message);
    if (said.empty()) continue;
    const auto chunk = nlohmann::ordered_json::parse(said.substr(6));
    deltas.push_back(chunk["choices"][0]["delta"].dump());
    made.push_back(chunk["usage"]["completion_tokens"].get<uint64_t>());
    EXPECT_EQ(chunk["usage"]["prompt_tokens"], 3);
  }
  EXPECT_THAT(
      deltas,
      ::testing::ElementsAre(
          R"({"role":"assistant","content":null,"reasoning_content":"Hm."})",
          R"({"content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function",)"
          R"("function":{"name":"f","arguments":"{\"a\":"}}]})",
          R"({"content":null,"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})", "{}"));
  EXPECT_THAT(made, ::testing::ElementsAre(1, 2, 3, 3));
}

// Of each chunk of a chat's stream.
std::vector<std::string> Deltas(const std::vector<v1::GenerateResponse>& messages) {
  OpenAiRequest request = Request(true);
  request.stream = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  std::vector<std::string> deltas;
  for (const v1::GenerateResponse& message : messages) {
    const std::string events = answer->OnMessage(0, message);
    for (const std::string& event :
         std::vector<std::string>(absl::StrSplit(events, "\n\n", absl::SkipEmpty()))) {
      const OrderedJson chunk = OrderedJson::parse(event.substr(6));
      const OrderedJson& choice = chunk["choices"][0];
      deltas.push_back(choice["delta"].dump() + choice["finish_reason"].dump());
    }
  }
  return deltas;
}

TEST(OpenAiAnswer, EachChunkHasPiecesOfOneCallAtMost) {
  v1::GenerateResponse calls;
  calls.add_token_ids(1);
  calls.set_text("So");
  for (const char* id : {"c1", "c2"}) {
    v1::ToolCallPiece* piece = calls.add_tool_calls();
    piece->set_index(static_cast<uint32_t>(calls.tool_calls_size() - 1));
    piece->set_id(id);
    piece->set_name("f");
    piece->set_arguments("{}");
  }
  EXPECT_THAT(Deltas({StartedMessage(3, 16), calls, FinishMessage("tool_calls", 3, 1)}),
              ::testing::ElementsAre(
                  R"({"role":"assistant","content":"So","tool_calls":[{"index":0,"id":"c1",)"
                  R"("type":"function","function":{"name":"f","arguments":"{}"}}]}null)",
                  R"({"content":null,"tool_calls":[{"index":1,"id":"c2",)"
                  R"("type":"function","function":{"name":"f","arguments":"{}"}}]}null)",
                  R"({}"tool_calls")"));
}

TEST(OpenAiAnswer, AStreamWithoutATextSaysAnEmptyOne) {
  EXPECT_THAT(Deltas({StartedMessage(3, 16), FinishMessage("stop", 3, 0)}),
              ::testing::ElementsAre(R"({"role":"assistant","content":""}"stop")"));
}

TEST(OpenAiAnswer, AChatStreamIsExactlyThis) {
  OpenAiRequest request = Request(true);
  request.stream = true;
  request.include_usage = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  std::string said;
  Play(answer.get(), 0, &said);
  said += answer->EndOfStream();
  const std::string head =
      R"(data: {"id":"chatcmpl-x","object":"chat.completion.chunk","created":1700000000,)"
      R"("model":"m","system_fingerprint":"cpu-2",)";
  EXPECT_EQ(said, head +
                      R"("choices":[{"index":0,"delta":{"role":"assistant","content":"ab"},)"
                      R"("logprobs":null,"finish_reason":null}],"usage":null})"
                      "\n\n" +
                      head +
                      R"("choices":[{"index":0,"delta":{"content":"c"},)"
                      R"("logprobs":null,"finish_reason":null}],"usage":null})"
                      "\n\n" +
                      head +
                      R"("choices":[{"index":0,"delta":{},)"
                      R"("logprobs":null,"finish_reason":"stop"}],"seed":7,"usage":null})"
                      "\n\n" +
                      head +
                      R"("choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,)"
                      R"("total_tokens":5,"prompt_tokens_details":{"cached_tokens":1},)"
                      R"("completion_tokens_details":{"reasoning_tokens":0}}})"
                      "\n\ndata: [DONE]\n\n");
}

TEST(OpenAiAnswer, TextThatIsHeldBackMakesNoChunk) {
  OpenAiRequest request = Request(false);
  request.stream = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  EXPECT_EQ(answer->OnMessage(0, StartedMessage(1, 4)), "");
  EXPECT_EQ(answer->OnMessage(0, TokenMessage('a', "")), "");
  EXPECT_NE(answer->OnMessage(0, TokenMessage('b', "ab")).find(R"("text":"ab")"),
            std::string::npos);
}

TEST(OpenAiAnswer, CompletionLogprobsAreListsByToken) {
  OpenAiRequest request = Request(false);
  request.logprobs = true;
  request.top_logprobs = 2;
  const auto answer = MakeOpenAiAnswer(request, Context());
  answer->OnMessage(0, StartedMessage(1, 4));
  v1::GenerateResponse token = TokenMessage(256, "ab", -2.5f);
  for (const auto& [id, logprob] : {std::pair('x', -0.5f), std::pair('y', -1.5f)}) {
    token.mutable_logprobs(0)->add_top()->set_token_id(static_cast<uint32_t>(id));
    token.mutable_logprobs(0)->mutable_top()->rbegin()->set_logprob(logprob);
  }
  answer->OnMessage(0, token);
  answer->OnMessage(0, TokenMessage('c', "c", -0.1f));
  answer->OnMessage(0, FinishMessage("length", 1, 2));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(),
            R"({"tokens":["ab","c"],"token_logprobs":[-2.5,-0.1],)"
            R"("top_logprobs":[{"x":-0.5,"y":-1.5,"ab":-2.5},{"c":-0.1}],"text_offset":[0,2]})");
}

TEST(OpenAiAnswer, ChatLogprobsHaveTheBytesOfHalfACharacterToo) {
  OpenAiRequest request = Request(true);
  request.logprobs = true;
  request.top_logprobs = 1;
  const auto answer = MakeOpenAiAnswer(request, Context());
  answer->OnMessage(0, StartedMessage(1, 4));
  v1::GenerateResponse token = TokenMessage('a', "a", -1);
  token.mutable_logprobs(0)->add_top()->set_token_id(0xc3);
  answer->OnMessage(0, token);
  answer->OnMessage(0, FinishMessage("length", 1, 1));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(),
            R"({"content":[{"token":"a","logprob":-1.0,"bytes":[97],)"
            "\"top_logprobs\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":0.0,\"bytes\":[195]}]}],"
            R"("refusal":null})");
}

// What the ids of "日" and of "本", in bytes that end in another token than they begin in, are
// called.
TEST(OpenAiAnswer, BytesOfAllTokensMakeTheText) {
  OpenAiRequest request = Request(true);
  request.logprobs = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  answer->OnMessage(0, StartedMessage(1, 8));
  const std::string text = "a\u65e5ab\u672c";
  for (const uint32_t id : {uint32_t{'a'}, 0xe6u, 0x97u, 0xa5u, 256u, 0xe6u, 0x9cu, 0xacu}) {
    answer->OnMessage(0, TokenMessage(id, "", -1));
  }
  answer->OnMessage(0, FinishMessage("length", 1, 8));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  std::string joined;
  for (const OrderedJson& token : json["choices"][0]["logprobs"]["content"]) {
    for (const OrderedJson& byte : token["bytes"]) joined.push_back(byte.get<char>());
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][1]["token"], "\ufffd");
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][3]["token"], "\u65e5");
  EXPECT_EQ(json["choices"][0]["logprobs"]["content"][4]["token"], "ab");
}

TEST(OpenAiAnswer, BytesOfACharacterThatIsNeverCompleteAreItsOwn) {
  OpenAiRequest request = Request(true);
  request.logprobs = true;
  const auto answer = MakeOpenAiAnswer(request, Context());
  answer->OnMessage(0, StartedMessage(1, 8));
  for (const uint32_t id : {0xe6u, 0x97u, uint32_t{'a'}}) {
    answer->OnMessage(0, TokenMessage(id, "", -1));
  }
  answer->OnMessage(0, FinishMessage("length", 1, 3));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  const OrderedJson& content = json["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["bytes"].dump(), "[230]");
  EXPECT_EQ(content[1]["bytes"].dump(), "[151]");
  EXPECT_EQ(content[2]["bytes"].dump(), "[97]");
  EXPECT_EQ(content[2]["token"], "a");
}

// Byte tokens beside pieces whose blank in front belongs to them behind a prompt.
TEST(OpenAiAnswer, BytesOfByteFallbackMakeTheTextBehindAPrompt) {
  OpenAiRequest request = Request(true);
  request.logprobs = true;
  OpenAiContext context = Context();
  context.tokenizer = testing::MakeByteFallbackTokenizer();
  const auto answer = MakeOpenAiAnswer(request, std::move(context));
  answer->OnMessage(0, StartedMessage(1, 8));
  for (const uint32_t id : {257u, 0xe6u, 0x97u, 0xa5u, 256u}) {
    answer->OnMessage(0, TokenMessage(id, "", -1));
  }
  answer->OnMessage(0, FinishMessage("length", 1, 5));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  std::string joined;
  for (const OrderedJson& token : json["choices"][0]["logprobs"]["content"]) {
    for (const OrderedJson& byte : token["bytes"]) joined.push_back(byte.get<char>());
  }
  EXPECT_EQ(joined, " a\u65e5a");
}

// A begin token that the text does not have, one that it has, and a character in three tokens.
TEST(OpenAiAnswer, OffsetsCountWhatTheTextHasAndACharacterOnce) {
  for (const bool spelled : {false, true}) {
    OpenAiRequest request = Request(false);
    request.echo = true;
    request.logprobs = true;
    OpenAiContext context = Context();
    nlohmann::json json = testing::SmallTokenizer();
    json["added_tokens"].push_back(testing::Added("<s>", {{"id", 259}}));
    context.tokenizer = *ParseTokenizer(json.dump());
    context.prompt_texts = {spelled ? "<s>\u65e5c" : "\u65e5c"};
    context.prompt_ids = {{259, 0xe6, 0x97, 0xa5, 'c'}};
    const auto answer = MakeOpenAiAnswer(request, std::move(context));
    answer->OnMessage(0, StartedMessage(5, 8));
    v1::GenerateResponse prompt;
    for (const uint32_t id : {0xe6u, 0x97u, 0xa5u, uint32_t{'c'}}) {
      *prompt.add_prompt_logprobs() = Logprob(id, -1);
    }
    answer->OnMessage(0, prompt);
    for (const uint32_t id : {256u, 0xe6u, 0x9cu, 0xacu, 259u, uint32_t{'d'}}) {
      answer->OnMessage(0, TokenMessage(id, "", -1));
    }
    answer->OnMessage(0, FinishMessage("length", 5, 6));
    const OrderedJson shown = OrderedJson::parse(answer->Whole().body);
    EXPECT_EQ(shown["choices"][0]["logprobs"]["text_offset"].dump(),
              spelled ? "[0,3,3,3,4,5,7,7,7,8,8]" : "[0,0,0,0,1,2,4,4,4,5,5]");
  }
}

TEST(OpenAiAnswer, EchoShowsThePromptAndItsLogprobs) {
  for (const bool stream : {false, true}) {
    OpenAiRequest request = Request(false);
    request.stream = stream;
    request.echo = true;
    request.logprobs = true;
    OpenAiContext context = Context();
    context.prompt_texts = {"abc"};
    context.prompt_ids = {{256, 'c'}};
    const auto answer = MakeOpenAiAnswer(request, std::move(context));
    EXPECT_EQ(answer->OnMessage(0, StartedMessage(2, 1)), "");
    v1::GenerateResponse prompt;
    *prompt.add_prompt_logprobs() = Logprob('c', -0.25f);
    EXPECT_EQ(answer->OnMessage(0, prompt), "");
    std::string body = answer->OnMessage(0, TokenMessage('d', "d", -0.5f));
    answer->OnMessage(0, FinishMessage("length", 2, 1));
    if (!stream) body = "data: " + answer->Whole().body;
    const OrderedJson json = OrderedJson::parse(body.substr(6));
    EXPECT_EQ(json["choices"][0]["text"], "abcd");
    EXPECT_EQ(json["choices"][0]["logprobs"].dump(),
              R"({"tokens":["ab","c","d"],"token_logprobs":[null,-0.25,-0.5],)"
              R"("top_logprobs":[null,null,null],"text_offset":[0,2,3]})");
  }
}

TEST(OpenAiAnswer, WithoutTokensAskedForOnlyThePromptIsShown) {
  OpenAiRequest request = Request(false);
  request.echo = true;
  request.no_answer = true;
  OpenAiContext context = Context();
  context.prompt_texts = {"abc"};
  context.prompt_ids = {{}};
  const auto answer = MakeOpenAiAnswer(request, std::move(context));
  answer->OnMessage(0, StartedMessage(2, 1));
  answer->OnMessage(0, TokenMessage('d', "d"));
  answer->OnMessage(0, FinishMessage("stop", 2, 1));
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  EXPECT_EQ(json["choices"][0]["text"], "abc");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
}

TEST(OpenAiAnswer, TheLikeliestOfBestOfAreShownAndAllAreCounted) {
  OpenAiRequest request = Request(false);
  request.n = 2;
  request.best_of = 3;
  request.prompts.resize(2);
  const auto answer = MakeOpenAiAnswer(request, Context());
  for (size_t choice = 0; choice < 6; ++choice) {
    answer->OnMessage(choice, StartedMessage(4, 1));
    const std::string text(1, static_cast<char>('a' + choice));
    // Of each prompt the last choice is the likeliest, and the first the least.
    answer->OnMessage(choice, TokenMessage('a' + static_cast<uint32_t>(choice), text,
                                           -4.0f + static_cast<float>(choice % 3)));
    answer->OnMessage(choice, FinishMessage("length", 4, 1));
  }
  const OrderedJson json = OrderedJson::parse(answer->Whole().body);
  std::string shown;
  for (const OrderedJson& choice : json["choices"]) {
    shown += choice["text"].get<std::string>() + std::to_string(choice["index"].get<int>());
    EXPECT_TRUE(choice["logprobs"].is_null());
  }
  EXPECT_EQ(shown, "c0b1f2e3");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
}

TEST(OpenAiAnswer, ErrorsAreInTheShapeThatClientsReadAlsoInAStream) {
  const auto answer = MakeOpenAiAnswer(Request(false), Context());
  const absl::Status full =
      Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "too many wait").Limit("queued=1");
  const HttpResponse refusal = answer->Refusal(full);
  EXPECT_EQ(refusal.status, 429);
  EXPECT_EQ(refusal.headers, (HttpHeaders{{"Retry-After", "1"}}));
  EXPECT_EQ(refusal.body,
            R"({"error":{"message":"too many wait [queued=1]","type":"rate_limit_error",)"
            R"("param":null,"code":"queue_full"}})");
  EXPECT_EQ(answer->StreamError(full), "data: " + refusal.body + "\n\n");
}

TEST(OpenAiAnswer, WhatIsTooLongIsSaidInTheWordsThatClientsLookFor) {
  for (const char* reason : {"CONTEXT_EXCEEDED", "KV_NEVER_FITS"}) {
    const OrderedJson error =
        OpenAiError(Error(absl::StatusCode::kInvalidArgument, reason, "600 tokens do not fit")
                        .Fact("limit_tokens", uint64_t{512}))["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["message"],
              "This model's maximum context length is 512 tokens: 600 tokens do not fit");
  }
}

}  // namespace
}  // namespace strata
