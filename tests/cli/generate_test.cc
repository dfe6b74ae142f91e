// What `generate` and `chat` send and print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "strata/v1/inference.pb.h"
#include "tests/cli/command_fixture.h"
#include "tests/eventually.h"
#include "tests/golden.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using strata::testing::CliResult;
using strata::testing::FakeText;
using strata::testing::Mishap;
using ::testing::HasSubstr;
using Args = std::vector<std::string>;

class CliGenerate : public CommandTest {};

std::string AnswerText(uint64_t seed, uint32_t count) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) text += FakeText(seed, i);
  return text;
}

Args WithJson(Args args) {
  args.emplace_back("--json");
  return args;
}

// The keys of an object, in the order in which they were printed.
std::vector<std::string> Keys(const std::string& text) {
  const auto document = nlohmann::ordered_json::parse(text);
  std::vector<std::string> keys;
  for (const auto& item : document.items()) keys.push_back(item.key());
  return keys;
}

TEST_F(CliGenerate, GenerateStreamsTheTextAlone) {
  const CliResult result = Run({"generate", "recall", "once", "--seed", "4", "--max-tokens", "3"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_EQ(result.out, AnswerText(4, 3) + "\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(coordinator_.generate_requests().at(0).text(), "once");
}

TEST_F(CliGenerate, GenerateDocumentHasThePublicShape) {
  const Args args{"generate",     "recall", "--token-ids",       "1,2,3",
                  "--seed",       "4",      "--max-tokens",      "2",
                  "--logprobs",   "2",      "--prompt-logprobs", "0",
                  "--request-id", "r"};
  const json document = Document(args);
  EXPECT_EQ(document, json::parse(R"({
    "request_id": "r", "text": "t127 t134 ", "token_ids": [127, 134], "finish_reason": "length",
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0},
    "seed": 4, "numerics_class": "fake-1/w=f32,head=f32,act=f32/kv=f16", "plan_epoch": 3,
    "logprobs": [
      {"token_id": 127, "logprob": -0.227, "top": [[0, -1], [1, -1.1]]},
      {"token_id": 134, "logprob": -0.234, "top": [[0, -1], [1, -1.1]]}],
    "prompt_logprobs": [null, {"token_id": 1, "logprob": -0.25, "top": []},
                              {"token_id": 2, "logprob": -0.5, "top": []}]})"));
  const v1::GenerateRequest request = coordinator_.generate_requests().at(0);
  EXPECT_EQ(request.tokens().ids_size(), 3);
  EXPECT_EQ(request.logprobs(), 2u);
  EXPECT_EQ(Keys(Run(WithJson(args)).out).front(), "request_id");
}

TEST_F(CliGenerate, FloatsArePrintedShortestForFloat32) {
  const CliResult result =
      Run({"generate", "recall", "x", "--max-tokens", "1", "--logprobs", "2", "--json"});
  EXPECT_THAT(result.out, HasSubstr("[1,-1.1]")) << "not -1.10000002384";
}

TEST_F(CliGenerate, LogprobsAreLeftOutUnlessAskedFor) {
  const json document = Document({"generate", "recall", "x"});
  EXPECT_FALSE(document.contains("logprobs"));
  EXPECT_FALSE(document.contains("prompt_logprobs"));
}

TEST_F(CliGenerate, GeneratePassesEveryParameter) {
  Run({"generate",
       "recall",
       "x",
       "--temperature",
       "0.5",
       "--top-k",
       "3",
       "--top-p",
       "0.9",
       "--min-p",
       "0.1",
       "--typical-p",
       "0.8",
       "--repetition-penalty",
       "1.1",
       "--frequency-penalty",
       "0.2",
       "--presence-penalty",
       "-0.3",
       "--logit-bias",
       "7:-100,8:2.5",
       "--seed",
       "18446744073709551615",
       "--stop",
       "a",
       "--stop",
       "b",
       "--ignore-eos",
       "--max-tokens",
       "5",
       "--min-tokens",
       "4",
       "--replace",
       "--guaranteed",
       "--priority",
       "-3",
       "--request-id",
       "mine"});
  const v1::GenerateRequest wire = coordinator_.generate_requests().at(0);
  EXPECT_EQ(wire.sampling().temperature(), 0.5f);
  EXPECT_EQ(wire.sampling().top_k(), 3u);
  EXPECT_EQ(wire.sampling().top_p(), 0.9f);
  EXPECT_EQ(wire.sampling().min_p(), 0.1f);
  EXPECT_EQ(wire.sampling().typical_p(), 0.8f);
  EXPECT_EQ(wire.sampling().repetition_penalty(), 1.1f);
  EXPECT_EQ(wire.sampling().frequency_penalty(), 0.2f);
  EXPECT_EQ(wire.sampling().presence_penalty(), -0.3f);
  EXPECT_EQ(wire.sampling().logit_bias().at(7), -100.0f);
  EXPECT_EQ(wire.sampling().logit_bias().at(8), 2.5f);
  EXPECT_EQ(wire.sampling().seed(), 18446744073709551615u);
  EXPECT_THAT(wire.stop(), ::testing::ElementsAre("a", "b"));
  EXPECT_TRUE(wire.ignore_eos());
  EXPECT_TRUE(wire.replace());
  EXPECT_TRUE(wire.guaranteed());
  EXPECT_EQ(wire.priority(), -3);
  EXPECT_EQ(wire.max_tokens(), 5u);
  EXPECT_EQ(wire.min_tokens(), 4u);
  EXPECT_EQ(wire.request_id(), "mine");
  EXPECT_EQ(wire.text(), "x") << "--stop takes one text, not the prompt too";
}

TEST_F(CliGenerate, AnswersAreHeldToWhatIsGiven) {
  const std::string file = TempPath("held.json");
  std::ofstream(file) << "{\"type\": \"object\"}";
  Run({"generate", "recall", "x", "--json-schema", file, "--strict"});
  Run({"generate", "recall", "x", "--json-object"});
  Run({"generate", "recall", "x", "--regex", "[a-c]+"});
  Run({"generate", "recall", "x", "--choice", "yes", "--choice", "no"});
  Run({"chat", "recall", "x", "--grammar", file, "--thought-budget", "7"});
  const auto requests = coordinator_.generate_requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(requests[0].constraint().json_schema(), "{\"type\": \"object\"}");
  EXPECT_TRUE(requests[0].constraint().strict());
  EXPECT_TRUE(requests[1].constraint().json_object());
  EXPECT_EQ(requests[2].constraint().regex(), "[a-c]+");
  EXPECT_THAT(requests[3].constraint().choices().texts(), ::testing::ElementsAre("yes", "no"));
  EXPECT_EQ(requests[3].text(), "x");
  EXPECT_EQ(requests[4].constraint().grammar(), "{\"type\": \"object\"}");
  EXPECT_EQ(requests[4].chat().thought_budget_tokens(), 7u);
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--json-object", "--regex", "a"},
        {"--strict", "--regex", "a"},
        {"--json-schema", "/nowhere/schema.json"}}) {
    std::vector<std::string> args = {"generate", "recall", "x"};
    args.insert(args.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(Run(args).code, 2) << wrong[0];
  }
  EXPECT_EQ(coordinator_.generate_requests().size(), 5u);
}

TEST_F(CliGenerate, AToolThatIsToBeCalledIsNamed) {
  Run({"chat", "recall", "x", "--tool-choice", "weather"});
  Run({"chat", "recall", "x", "--tool-choice", "required"});
  const auto wire = coordinator_.generate_requests();
  EXPECT_EQ(wire.at(0).chat().tool_choice(), "tool");
  EXPECT_EQ(wire.at(0).chat().tool_name(), "weather");
  EXPECT_EQ(wire.at(1).chat().tool_choice(), "required");
  EXPECT_EQ(wire.at(1).chat().tool_name(), "");
}

TEST_F(CliGenerate, PromptsComeFromStdinAndMayBeginWithADash) {
  Run({"generate", "recall", "-"}, "line one\nline two\n");
  Run({"generate", "recall", "--", "--not-an-option"});
  EXPECT_EQ(coordinator_.generate_requests().at(0).text(), "line one\nline two\n");
  EXPECT_EQ(coordinator_.generate_requests().at(1).text(), "--not-an-option");
}

TEST_F(CliGenerate, AModelWithoutTextPrintsIds) {
  EXPECT_EQ(Text({"generate", "textless", "--token-ids", "1", "--seed", "0", "--max-tokens", "3"}),
            "3,10,17\n");
}

TEST_F(CliGenerate, LogitsBecomeASafetensorsFile) {
  const std::string path = TempPath("logits.safetensors");
  // A broken connection in between must not double a row.
  coordinator_.Plan({{Mishap::kBreak, 2}});
  const CliResult result =
      Run({"generate", "recall", "--token-ids", "1,2,3", "--max-tokens", "4", "--logits", path});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  const std::string data = strata::testing::ReadFileOrFail(path);
  uint64_t header_bytes = 0;
  ASSERT_GT(data.size(), sizeof(header_bytes));
  std::memcpy(&header_bytes, data.data(), sizeof(header_bytes));
  ASSERT_EQ(header_bytes % 8, 0u);
  const json header = json::parse(data.substr(8, header_bytes));
  constexpr size_t kRows = 3 + 4 - 1;
  EXPECT_EQ(header["logits"]["dtype"], "F32");
  EXPECT_EQ(header["logits"]["shape"], json::parse("[6,5]"));
  EXPECT_EQ(header["logits"]["data_offsets"], json::parse("[0,120]"));
  ASSERT_EQ(data.size(), 8 + header_bytes + kRows * strata::testing::kFakeVocab * 4);
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t column = 0; column < strata::testing::kFakeVocab; ++column) {
      float value = 0;
      std::memcpy(&value,
                  data.data() + 8 + header_bytes + (row * strata::testing::kFakeVocab + column) * 4,
                  sizeof(value));
      EXPECT_EQ(value, strata::testing::FakeLogit(row, column));
    }
  }
}

// A safetensors file: its header, then the bytes.
void WriteSafetensors(const std::string& path, const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::ofstream(path, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&size), sizeof(size)) << header << data;
}

TEST_F(CliGenerate, InputEmbeddingsAreReadFromASafetensorsFile) {
  const std::string path = TempPath("embeddings.safetensors");
  const Args args{"generate", "recall", "--token-ids", "1,2,3", "--input-embeds", path};
  const std::string rows = R"("embeddings":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]})";
  const std::string values("\x80\x3f\0\x40\x40\x40\x80\x40", 8);  // 1, 2, 3, 4 as bfloat16.
  WriteSafetensors(
      path, "{" + rows + R"(,"positions":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}})",
      values + std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(Run(args).code, kExitDone);
  WriteSafetensors(path, "{" + rows + "}", values);
  EXPECT_EQ(Run(args).code, kExitDone);
  const std::vector<v1::GenerateRequest> requests = coordinator_.generate_requests();
  ASSERT_EQ(requests.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(requests[i].input_embeddings_size(), 2);
    const v1::InputEmbedding& row = requests[i].input_embeddings(1);
    EXPECT_EQ(row.position(), i == 0 ? 2u : 1u) << "without positions they are the first ones";
    EXPECT_EQ(row.values(), std::string("\0\0\x40\x40\0\0\x80\x40", 8));
  }
}

TEST_F(CliGenerate, AFileWithoutInputEmbeddingsIsRefusedWithWhatItMustHave) {
  const std::string path = TempPath("embeddings.safetensors");
  const std::string row(8, '\0');
  const std::string rows = R"("embeddings":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]})";
  for (const auto& [header, data] : std::vector<std::pair<std::string, std::string>>{
           {"{}", ""},
           {R"({"embeddings":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", row},
           {R"({"embeddings":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}})", row},
           {R"({"embeddings":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]}})", ""},
           {"{" + rows + R"(,"positions":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}})",
            row + row},
           {"{" + rows + R"(,"positions":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})",
            row + "\xff\xff\xff\xff"},
           {"{" + rows + R"(,"positions":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
            row + std::string(4, '\0')}}) {
    WriteSafetensors(path, header, data);
    const CliResult result =
        Run({"generate", "recall", "--token-ids", "1", "--input-embeds", path});
    EXPECT_EQ(result.code, kExitFailed) << header;
    EXPECT_THAT(result.err, HasSubstr(path));
    EXPECT_THAT(result.err, HasSubstr("`embeddings`")) << header;
  }
  EXPECT_EQ(Run({"generate", "recall", "x", "--input-embeds", "/nonexistent"}).code, kExitFailed);
  EXPECT_TRUE(coordinator_.generate_requests().empty());
}

TEST_F(CliGenerate, LogitsThatCannotBeWrittenAreRefusedBeforeTheRequest) {
  const CliResult result = Run({"generate", "recall", "x", "--logits", "/nonexistent/file"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/file"));
  EXPECT_TRUE(coordinator_.generate_requests().empty());
}

TEST_F(CliGenerate, AFailedAnswerLeavesNoLogitsFile) {
  const std::string path = TempPath("logits.safetensors");
  coordinator_.Plan({{Mishap::kNoFinish, 2}});
  EXPECT_EQ(Run({"generate", "recall", "x", "--logits", path}).code, kExitFailed);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST_F(CliGenerate, ErrorsAreOneLineWithLimitAndHint) {
  coordinator_.Plan({{Mishap::kFail, 0}});
  const CliResult result = Run({"generate", "recall", "x"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.err,
            "strata: prompt + max_tokens is 9000 tokens (node a) [kv_tokens=8192]; lower "
            "--max-tokens\n");
}

TEST_F(CliGenerate, ABrokenConnectionDoesNotShowInTheAnswer) {
  coordinator_.Plan({{Mishap::kBreak, 2}});
  const CliResult result = Run({"generate", "recall", "x", "--seed", "4", "--max-tokens", "6"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_EQ(result.out, AnswerText(4, 6) + "\n");
  EXPECT_THAT(result.err, HasSubstr("connection was lost"));
}

TEST_F(CliGenerate, ADeadlineEndsTheRequest) {
  coordinator_.Plan({{Mishap::kHang, 1}});
  const CliResult result = Run({"generate", "recall", "x", "--deadline", "200ms"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("deadline"));
}

TEST_F(CliGenerate, CtrlCCancelsTheRequestOnTheCluster) {
  coordinator_.Plan({{Mishap::kHang, 2}});
  std::thread person([&] {
    while (coordinator_.generate_requests().empty() || !cli_.interrupts.Fire()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const CliResult result = Run({"generate", "recall", "x"});
  person.join();
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("cancelled after"));
  EXPECT_TRUE(Eventually([&] { return coordinator_.cancelled_calls() == 1; }));
}

TEST_F(CliGenerate, ARequestCancelledElsewhereSaysSo) {
  coordinator_.Plan({{Mishap::kCancelled, 2}});
  const CliResult result = Run({"generate", "recall", "x", "--json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.Json()["finish_reason"], "cancelled");
  EXPECT_THAT(result.err, HasSubstr("was cancelled after 2 tokens"));
}

TEST_F(CliGenerate, ChatSendsMessages) {
  EXPECT_EQ(
      Text({"chat", "recall", "hello", "--system", "be brief", "--seed", "4", "--max-tokens", "2"}),
      AnswerText(4, 2) + "\n");
  const v1::GenerateRequest request = coordinator_.generate_requests().at(0);
  ASSERT_EQ(request.chat().messages_size(), 2);
  EXPECT_EQ(request.chat().messages(0).role(), "system");
  EXPECT_EQ(request.chat().messages(0).content(), "be brief");
  EXPECT_EQ(request.chat().messages(1).content(), "hello");
}

TEST_F(CliGenerate, AConversationRemembers) {
  const CliResult result =
      Run({"chat", "recall", "--seed", "4", "--max-tokens", "1", "--json"}, "one\n\ntwo\n");
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << "a document a line";
  const v1::GenerateRequest second = coordinator_.generate_requests().at(1);
  ASSERT_EQ(second.chat().messages_size(), 3);
  EXPECT_EQ(second.chat().messages(1).role(), "assistant");
  EXPECT_EQ(second.chat().messages(1).content(), AnswerText(4, 1));
  EXPECT_EQ(second.chat().messages(2).content(), "two");
}

TEST_F(CliGenerate, AConversationCanBeginAnew) {
  Run({"chat", "recall", "--system", "s"}, "one\n/reset\ntwo\n/quit\nthree\n");
  const auto requests = coordinator_.generate_requests();
  ASSERT_EQ(requests.size(), 2u);
  ASSERT_EQ(requests[1].chat().messages_size(), 2);
  EXPECT_EQ(requests[1].chat().messages(1).content(), "two");
}

TEST_F(CliGenerate, APersonsConversationSurvivesAnError) {
  cli_.terminal = true;
  coordinator_.Plan({{Mishap::kFail, 0}});
  const CliResult result = Run({"chat", "recall"}, "one\ntwo\n");
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.err, HasSubstr("kv_tokens=8192"));
  EXPECT_EQ(coordinator_.generate_requests().at(1).chat().messages_size(), 1)
      << "the question that failed is forgotten";
  cli_.terminal = false;
  coordinator_.Plan({{Mishap::kFail, 0}});
  EXPECT_EQ(Run({"chat", "recall"}, "one\ntwo\n").code, kExitFailed) << "a script stops";
}

}  // namespace
}  // namespace strata::cli
