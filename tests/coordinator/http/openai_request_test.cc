#include "coordinator/http/openai_request.h"

#include <gmock/gmock.h>

#include <string>

#include "common/status.h"
#include "coordinator/http/json_body.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

std::string FieldRefused(const std::string& body, bool chat = false) {
  const auto parsed = chat ? ParseChatCompletion(body) : ParseCompletion(body);
  if (parsed.ok()) {
    return "accepted";
  }
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << parsed.status();
  return FieldOf(parsed.status());
}

std::string Completion(const std::string& fields) {
  return R"({"model":"m","prompt":"a")" + (fields.empty() ? "" : "," + fields) + "}";
}

std::string Chat(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"a"}])" +
         (fields.empty() ? "" : "," + fields) + "}";
}

TEST(OpenAiRequest, EveryParameterReachesTheRequest) {
  const auto parsed = ParseCompletion(Completion(
      R"("max_tokens":5,"temperature":0.5,"top_p":0.25,"top_k":4,"min_p":0.125,"typical_p":0.75,
         "repetition_penalty":1.5,"frequency_penalty":-1,"presence_penalty":2,"seed":9,
         "logit_bias":{"3":-100,"4":0.5},"stop":["x","y"],"ignore_eos":true,"logprobs":2,
         "n":2,"best_of":3,"echo":true,"add_special_tokens":false)"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->add_special_tokens);
  EXPECT_EQ(parsed->n, 2u);
  EXPECT_EQ(parsed->best_of, 3u);
  EXPECT_TRUE(parsed->echo);
  EXPECT_FALSE(parsed->stream);
  ASSERT_EQ(parsed->prompts.size(), 1u);
  const v1::GenerateRequest& request = parsed->prompts[0];
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.text(), "a");
  EXPECT_EQ(request.max_tokens(), 5u);
  EXPECT_THAT(request.stop(), ElementsAre("x", "y"));
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_EQ(request.logprobs(), 2u);
  EXPECT_EQ(request.prompt_logprobs(), 2u);
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_EQ(sampling.top_k(), 4u);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.typical_p(), 0.75f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.frequency_penalty(), -1.0f);
  EXPECT_EQ(sampling.presence_penalty(), 2.0f);
  EXPECT_EQ(sampling.seed(), 9u);
  EXPECT_EQ(sampling.logit_bias().at(3), -100.0f);
  EXPECT_EQ(sampling.logit_bias().at(4), 0.5f);
}

TEST(OpenAiRequest, WhatIsNotGivenIsLeftToTheModel) {
  const auto parsed = ParseCompletion(Completion(R"("temperature":null,"unknown":{"a":[1]})"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->default_max_tokens, 16u);
  const v1::GenerateRequest& request = parsed->prompts[0];
  EXPECT_EQ(request.max_tokens(), 0u);
  EXPECT_FALSE(request.has_logprobs());
  EXPECT_FALSE(request.has_prompt_logprobs());
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.sampling().has_seed());
  EXPECT_EQ(ParseChatCompletion(Chat(""))->default_max_tokens, 512u);
}

TEST(OpenAiRequest, APromptIsATextOrIdsOrAListOfEither) {
  const auto prompts = [](const std::string& prompt) {
    auto parsed = ParseCompletion(R"({"model":"m","prompt":)" + prompt + "}");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? parsed->prompts : std::vector<v1::GenerateRequest>();
  };
  EXPECT_EQ(prompts(R"("x")").at(0).text(), "x");
  EXPECT_THAT(prompts("[1,2]").at(0).tokens().ids(), ElementsAre(1, 2));
  EXPECT_EQ(prompts(R"(["x","y"])").at(1).text(), "y");
  EXPECT_THAT(prompts("[[1],[2,3]]").at(1).tokens().ids(), ElementsAre(2, 3));
  for (const char* wrong : {"[]", "1", "{}", "[[]]", "[-1]", "[1.5]", R"([1,"x"])", "[true]"}) {
    EXPECT_EQ(FieldRefused(R"({"model":"m","prompt":)" + std::string(wrong) + "}"), "prompt")
        << wrong;
  }
  EXPECT_EQ(FieldRefused(R"({"model":"m"})"), "prompt");
}

TEST(OpenAiRequest, ChatMessagesMayBeInTextParts) {
  const auto parsed = ParseChatCompletion(
      R"({"model":"m","messages":[{"role":"developer","content":"s","name":"n"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
          "max_completion_tokens":3,"max_tokens":9,"min_tokens":2,"logprobs":true,"top_logprobs":2,"stop":"x"})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const v1::GenerateRequest& request = parsed->prompts.at(0);
  EXPECT_EQ(request.chat().messages(0).role(), "system");
  EXPECT_EQ(request.chat().messages(1).content(), "ab");
  EXPECT_EQ(request.max_tokens(), 3u);
  EXPECT_EQ(request.min_tokens(), 2u);
  EXPECT_EQ(request.logprobs(), 2u);
  EXPECT_THAT(request.stop(), ElementsAre("x"));
}

TEST(OpenAiRequest, WhatTheAssistantThoughtReachesTheTemplateByEachOfItsNames) {
  const auto parsed = ParseChatCompletion(
      R"({"model":"m","messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"b","reasoning_content":"r"},
          {"role":"assistant","content":null,"thinking":"t","reasoning":null},
          {"role":"assistant","reasoning":"x"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const v1::ChatInput& chat = parsed->prompts.at(0).chat();
  EXPECT_FALSE(chat.messages(0).has_reasoning_content());
  EXPECT_EQ(chat.messages(1).reasoning_content(), "r");
  EXPECT_FALSE(chat.messages(1).without_content());
  EXPECT_EQ(chat.messages(2).thinking(), "t");
  EXPECT_FALSE(chat.messages(2).has_reasoning());
  EXPECT_TRUE(chat.messages(2).without_content());
  EXPECT_EQ(chat.messages(3).reasoning(), "x");
  EXPECT_TRUE(chat.messages(3).without_content());
}

TEST(OpenAiRequest, WhatIsWrongInMessagesIsNamed) {
  const auto refused = [](const std::string& message) {
    return FieldRefused(R"({"model":"m","messages":[)" + message + "]}", true);
  };
  EXPECT_EQ(refused(""), "messages");
  EXPECT_EQ(refused("1"), "messages[0]");
  EXPECT_EQ(refused(R"({"content":"a"})"), "messages[0].role");
  EXPECT_EQ(refused(R"({"role":"user"})"), "messages[0].content");
  EXPECT_EQ(refused(R"({"role":"user","reasoning":"x"})"), "messages[0].content");
  EXPECT_EQ(refused(R"({"role":"assistant","content":"a","thinking":[]})"), "messages[0].thinking");
  EXPECT_EQ(refused(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})"),
            "messages[0].content[0].type");
  EXPECT_EQ(refused(R"({"role":"assistant","tool_calls":[{"id":"x"}]})"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(refused(R"({"role":"assistant","tool_calls":[{"function":{}}]})"),
            "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(
      refused(R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]})"),
      "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(refused(R"({"role":"assistant","tool_calls":{}})"), "messages[0].tool_calls");
  EXPECT_EQ(refused(R"({"role":"tool","tool_call_id":"x"})"), "messages[0].content");
}

// As clients send back what was a thought alone, which they do not keep.
TEST(OpenAiRequest, AnAssistantsContentMayBeMissingAndIsEmptyThen) {
  const auto parsed = ParseChatCompletion(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":null},
          {"role":"assistant","tool_calls":[]},{"role":"assistant"},{"role":"user","content":"b"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (const int i : {0, 1, 2}) {
    const v1::ChatMessage& message = parsed->prompts.at(0).chat().messages(i);
    EXPECT_EQ(message.content(), "");
    EXPECT_FALSE(message.without_content());
  }
}

TEST(OpenAiRequest, CallsOfToolsAndTheirResultsReachTheRequest) {
  const auto parsed = ParseChatCompletion(
      R"({"messages":[{"role":"user","content":[{"type":"input_text","text":"a"}],"name":"Al"},
          {"role":"assistant","content":null,"tool_calls":[
            {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\":1}"}},
            {"function":{"name":"g","arguments":{"z":1,"a":2}}}]},
          {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"r"}]},
          {"role":"assistant","content":null,"refusal":"No."},
          {"role":"assistant","content":[{"type":"output_text","text":"b"},
                                         {"type":"refusal","refusal":"c"}]}],
          "tools":[{"type":"function","function":{"name":"f","parameters":{"z":{},"a":{}}}}],
          "tool_choice":"auto","parallel_tool_calls":false,"reasoning_effort":"none",
          "chat_template_kwargs":{"z":1,"enable_thinking":true},"continue_final_message":true})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->model, "");
  const v1::ChatInput& chat = parsed->prompts.at(0).chat();
  EXPECT_EQ(chat.messages(0).content(), "a");
  EXPECT_EQ(chat.messages(0).name(), "Al");
  EXPECT_TRUE(chat.messages(1).without_content());
  EXPECT_EQ(chat.messages(1).tool_calls(0).id(), "c1");
  EXPECT_EQ(chat.messages(1).tool_calls(0).arguments(), R"({"z":1})");
  EXPECT_EQ(chat.messages(1).tool_calls(1).arguments(), R"({"z":1,"a":2})");
  EXPECT_EQ(chat.messages(2).tool_call_id(), "c1");
  EXPECT_EQ(chat.messages(2).content(), "r");
  EXPECT_EQ(chat.messages(3).content(), "No.");
  EXPECT_EQ(chat.messages(4).content(), "bc");
  EXPECT_THAT(
      chat.tools(),
      ElementsAre(R"({"type":"function","function":{"name":"f","parameters":{"z":{},"a":{}}}})"));
  EXPECT_TRUE(chat.one_tool_call());
  EXPECT_EQ(chat.template_arguments(),
            R"({"reasoning_effort":"none","enable_thinking":true,"thinking":false,"z":1})");
  EXPECT_TRUE(chat.continue_final_message());
}

TEST(OpenAiRequest, NumbersOfAToolKeepEveryDigit) {
  const auto parsed = ParseChatCompletion(Chat(
      R"("tools":[ {"a" : 12345678901234567890123}, {"b": [1.50, 0.1000000000000000055511151231257827]} ])"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->prompts.at(0).chat().tools(),
              ElementsAre(R"({"a":12345678901234567890123})",
                          R"({"b":[1.50,0.1000000000000000055511151231257827]})"));
}

TEST(OpenAiRequest, AChoiceOfAToolReachesTheRequest) {
  const auto choice = [](const std::string& json) {
    const auto parsed =
        ParseChatCompletion(Chat(R"("stop":"x","tools":[{}],"tool_choice":)" + json));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (!parsed.ok()) return std::string();
    const v1::GenerateRequest& request = parsed->prompts.at(0);
    return request.chat().tool_choice() + " " + request.chat().tool_name() +
           (request.stop().empty() ? "" : " with stops");
  };
  EXPECT_EQ(choice(R"("auto")"), "auto  with stops");
  EXPECT_EQ(choice(R"("required")"), "required ");
  EXPECT_EQ(choice(R"("any")"), "required ");
  EXPECT_EQ(choice(R"({"type":"function","function":{"name":"f"}})"), "tool f");
  EXPECT_EQ(choice(R"({"type":"function","name":"f"})"), "tool f");
  EXPECT_EQ(FieldRefused(Chat(R"("tool_choice":"sometimes")"), true), "tool_choice");
  EXPECT_EQ(FieldRefused(Chat(R"("tool_choice":{"type":"custom"})"), true), "tool_choice.type");
  EXPECT_EQ(FieldRefused(Chat(R"("tool_choice":{"type":"function"})"), true),
            "tool_choice.function.name");
  EXPECT_EQ(FieldRefused(Chat(R"("tool_choice":"auto")"), true), "accepted");
  EXPECT_EQ(FieldRefused(Chat(R"("tool_choice":"none","tools":[{}])"), true), "accepted");
  EXPECT_EQ(FieldRefused(Chat(R"("tools":{})"), true), "tools");
  EXPECT_EQ(FieldRefused(Chat(R"("chat_template_kwargs":{"messages":[]})"), true),
            "chat_template_kwargs");
  EXPECT_EQ(
      FieldRefused(Chat(R"("continue_final_message":true,"add_generation_prompt":true)"), true),
      "add_generation_prompt");
}

TEST(OpenAiRequest, OfToolsThatAreNotAllowedNothingIsLeft) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}},)"
      R"({"type":"function","function":{"name":"h"}}],"tool_choice":)";
  const auto left = [&](const std::string& choice) {
    const auto parsed = ParseChatCompletion(Chat(tools + choice));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (!parsed.ok()) return std::string();
    const v1::ChatInput& chat = parsed->prompts.at(0).chat();
    std::string said = chat.tool_choice();
    for (const std::string& tool : chat.tools())
      said += " " + tool.substr(tool.find("name") + 7, 1);
    return said;
  };
  EXPECT_EQ(left(R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
                 R"({"type":"function","function":{"name":"h"}},)"
                 R"({"type":"function","function":{"name":"f"}}]}})"),
            "required f h");
  EXPECT_EQ(
      left(R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]})"),
      "auto g");
  for (const auto& [allowed, field] : {
           std::pair(R"({})", "tool_choice.allowed_tools.mode"),
           std::pair(R"({"mode":"none","tools":[{"name":"f"}]})", "tool_choice.allowed_tools.mode"),
           std::pair(R"({"mode":"auto"})", "tool_choice.allowed_tools.tools"),
           std::pair(R"({"mode":"auto","tools":[]})", "tool_choice.allowed_tools.tools"),
           std::pair(R"({"mode":"auto","tools":[{"name":"x"}]})",
                     "tool_choice.allowed_tools.tools"),
           std::pair(R"({"mode":"auto","tools":[7]})", "tool_choice.allowed_tools.tools"),
       }) {
    EXPECT_EQ(
        FieldRefused(Chat(tools + R"({"type":"allowed_tools","allowed_tools":)" + allowed + "}"),
                     true),
        field)
        << allowed;
  }
}

TEST(OpenAiRequest, HowMuchIsThoughtHasManyNames) {
  const auto read = [](const std::string& fields) {
    const auto parsed = ParseChatCompletion(Chat(fields));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (!parsed.ok()) return std::string();
    const v1::ChatInput& chat = parsed->prompts.at(0).chat();
    return (chat.has_thought_budget_tokens() ? std::to_string(chat.thought_budget_tokens())
                                             : "any") +
           " " + chat.template_arguments();
  };
  EXPECT_EQ(read(R"("max_thinking_tokens":10)"), "10 ");
  EXPECT_EQ(read(R"("thinking_token_budget":0)"), "0 ");
  EXPECT_EQ(read(R"("thinking_budget":7,"reasoning":{"max_tokens":7,"effort":"low"})"),
            R"(7 {"reasoning_effort":"low"})");
  EXPECT_EQ(read(R"("thinking":{"type":"enabled","budget_tokens":9})"),
            R"(9 {"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(read(R"("thinking":{"type":"disabled"})"),
            R"(any {"enable_thinking":false,"thinking":false})");
  EXPECT_EQ(read(R"("enable_thinking":false)"),
            R"(any {"enable_thinking":false,"thinking":false})");
  EXPECT_EQ(FieldRefused(Chat(R"("thinking_budget":7,"max_thinking_tokens":8)"), true),
            "thinking_budget");
  EXPECT_EQ(FieldRefused(Chat(R"("thinking_budget":-1)"), true), "thinking_budget");
}

TEST(OpenAiRequest, WhatIsKnownAndNotSupportedIsRefusedByName) {
  for (const char* body :
       {R"("functions":[{}])", R"("guided_whitespace_pattern":"x")", R"("suffix":"x")",
        R"("adapter_id":"x")", R"("structural_tag":{"a":1})", R"("stop_token_ids":[1])",
        R"("skip_special_tokens":false)", R"("use_beam_search":true)", R"("return_token_ids":true)",
        R"("lora_path":"x")", R"("cache_salt":"x")", R"("verbosity":"high")",
        R"("web_search_options":{})"}) {
    const std::string name = std::string(body).substr(1, std::string(body).find('"', 1) - 1);
    EXPECT_EQ(FieldRefused(Completion(body)), name);
    EXPECT_EQ(FieldRefused(Chat(body), true), name);
  }
  // Of conversations alone.
  for (const char* body : {R"("tools":[{}])", R"("tool_choice":"auto")",
                           R"("reasoning_effort":"low")", R"("chat_template_kwargs":{"a":1})"}) {
    const std::string name = std::string(body).substr(1, std::string(body).find('"', 1) - 1);
    EXPECT_EQ(FieldRefused(Completion(body)), name);
  }
  // What asks for nothing is no reason to refuse.
  for (const char* body :
       {R"("tools":[],"tool_choice":"none","response_format":{"type":"text"},"suffix":"")",
        R"("tools":null,"functions":null,"min_tokens":0,"skip_special_tokens":true)",
        R"("reasoning_effort":null,"verbosity":"medium","web_search_options":null)"}) {
    EXPECT_EQ(FieldRefused(Completion(body)), "accepted");
    EXPECT_EQ(FieldRefused(Chat(body), true), "accepted");
  }
}

TEST(OpenAiRequest, ValuesOfTheWrongKindAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("n":3,"best_of":2)", "best_of"},
      {R"("best_of":2,"stream":true)", "best_of"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":2})", "stream_options.include_usage"},
      {R"("stop":[1])", "stop"},
      {R"("stop":[""])", "stop"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("logprobs":101)", "logprobs"},
      {R"("seed":1.5)", "seed"},
      {R"("echo":"yes")", "echo"},
      {R"("model":7)", "model"},
  };
  for (const auto& [body, field] : cases) {
    EXPECT_EQ(FieldRefused(Completion(body)), field) << body;
  }
  EXPECT_EQ(FieldRefused(Chat(R"("top_logprobs":2)"), true), "top_logprobs");
  EXPECT_EQ(FieldRefused(Chat(R"("add_special_tokens":true)"), true), "add_special_tokens");
  EXPECT_EQ(FieldRefused(Chat(R"("logprobs":2)"), true), "logprobs");
  EXPECT_EQ(FieldRefused(Chat(R"("max_tokens":0)"), true), "max_tokens");
  EXPECT_EQ(FieldRefused(R"({"prompt":"a"})"), "accepted");  // The model that is loaded.
  // As many choices as there may be, over all prompts.
  EXPECT_EQ(FieldRefused(R"({"model":"m","prompt":["a","b","c"],"n":50})"), "best_of");
}

TEST(OpenAiRequest, AChatHasChoicesBesideABestOfOfOne) {
  const auto parsed = ParseChatCompletion(Chat(R"("n":3,"best_of":1)"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->n, 3u);
  EXPECT_EQ(parsed->best_of, 3u);
  EXPECT_EQ(FieldRefused(Chat(R"("n":1,"best_of":3)"), true), "best_of");
}

// Answers say the seed as a number without a sign: it can be sent again.
TEST(OpenAiRequest, ASeedIsAnythingThat64BitsHold) {
  const std::pair<const char*, uint64_t> seeds[] = {{"0", 0},
                                                    {"-1", UINT64_MAX},
                                                    {"18446744073709551615", UINT64_MAX},
                                                    {"-9223372036854775808", uint64_t{1} << 63},
                                                    {"7.0", 7}};
  for (const auto& [text, seed] : seeds) {
    const auto parsed = ParseCompletion(Completion(R"("seed":)" + std::string(text)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->prompts[0].sampling().seed(), seed) << text;
  }
  for (const char* seed : {"18446744073709551616", "-9223372036854775809", "1e300", "0.5"}) {
    const auto refused = ParseCompletion(Completion(R"("seed":)" + std::string(seed)));
    EXPECT_EQ(FieldOf(refused.status()), "seed") << seed;
    EXPECT_NE(Describe(refused.status()).find("18446744073709551615"), std::string::npos) << seed;
  }
}

TEST(OpenAiRequest, NoTokensAskedForAreOneThatIsNotShown) {
  const auto parsed = ParseCompletion(Completion(R"("max_tokens":0,"echo":true)"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->no_answer);
  EXPECT_EQ(parsed->prompts[0].max_tokens(), 1u);
}

TEST(OpenAiRequest, BestOfRanksByLogprobsThatAreNotShown) {
  const auto parsed = ParseCompletion(Completion(R"("n":1,"best_of":2)"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->logprobs);
  EXPECT_TRUE(parsed->prompts[0].has_logprobs());
}

TEST(JsonBody, WhatIsNoJsonIsRefusedWithItsPlace) {
  const auto message = [](const std::string& body) {
    return std::string(ParseBody(body).status().message());
  };
  EXPECT_EQ(message(R"({"a":)"), "the body is no JSON in UTF-8 at byte 6");
  EXPECT_EQ(message("{\"a\":\"\xff\"}"), "the body is no JSON in UTF-8 at byte 7");
  EXPECT_EQ(message("[1]"), "the body must be a JSON object, and is of type array");
  EXPECT_EQ(message("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"),
            "the body's arrays and objects are nested too deeply at byte 68");
  EXPECT_TRUE(ParseBody("{\"a\":\"" + std::string(100, '[') + "\\\"[\"}").ok());
  EXPECT_FALSE(ParseBody(R"({"a":1e999})").ok());
  EXPECT_FALSE(ParseBody("").ok());
}

}  // namespace
}  // namespace strata
