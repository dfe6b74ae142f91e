#include "coordinator/registry/chat_template_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"
#include "text/template/chat_template.h"
#include "text/template/template_jsonl.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TempFolder;

TEST(ChatTemplateSource, IsAString) {
  TempFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template":"{{ x }}","bos_token":"<s>","eos_token":{"content":"</s>"}})");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->source, "{{ x }}");
  EXPECT_THAT(source->origin, HasSubstr("tokenizer_config.json"));
  EXPECT_EQ(source->bos_token, "<s>");
  EXPECT_EQ(source->eos_token, "</s>");
  // A file of the folder stands for it.
  EXPECT_EQ(ReadChatTemplate(folder.File("tokenizer_config.json"))->source, "{{ x }}");
}

TEST(ChatTemplateSource, IsTheDefaultOfAList) {
  TempFolder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"},)"
                                        R"({"name":"default","template":"D"}]})");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->source, "D");
  EXPECT_THAT(source->others, ElementsAre(Pair("tool_use", "T")));
}

TEST(ChatTemplateSource, IsTheJinjaFileWhereThereIsOne) {
  TempFolder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template":"config","bos_token":"<s>"})");
  folder.Write("chat_template.jinja", "file");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->source, "file");
  EXPECT_EQ(source->bos_token, "<s>");
  folder.Write("other.jinja", "other");
  EXPECT_EQ(ReadChatTemplate(folder.File("other.jinja"))->source, "other");
  EXPECT_EQ(ReadChatTemplate(folder.File("other.jinja"))->bos_token, "<s>");
}

TEST(ChatTemplateSource, TakesTokensOfTheSpecialTokensMap) {
  TempFolder folder;
  folder.Write("chat_template.jinja", "x");
  folder.Write("special_tokens_map.json",
               R"({"bos_token":{"content":"<b>"},"eos_token":"<e>","pad_token":null})");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->bos_token, "<b>");
  EXPECT_EQ(source->eos_token, "<e>");
}

TEST(ChatTemplateSource, HasEveryNamedToken) {
  TempFolder folder;
  folder.Write("chat_template.jinja", "x");
  folder.Write("tokenizer_config.json",
               R"({"pad_token":"<p>","bos_token":"<b>","unk_token":null,"image_token":"<i>",)"
               R"("extra_special_tokens":{"boi":"<o>"},"image_token_id":5,"eos_token":"<e>"})");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(source->tokens, ElementsAre(Pair("bos_token", "<b>"), Pair("eos_token", "<e>"),
                                          Pair("pad_token", "<p>"), Pair("image_token", "<i>"),
                                          Pair("boi", "<o>")));
  EXPECT_EQ(source->eos_token, "<e>");
}

// tests/golden/chat_templates/conversations.jsonl.
TEST(ChatTemplateSource, GivesATemplateTheTokensAndMessagesThatTransformersGivesIt) {
  int cases = 0;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("chat_templates/conversations.jsonl"))) {
    const auto entry = nlohmann::ordered_json::parse(line);
    TempFolder folder;
    folder.Write("tokenizer_config.json", entry["config"].dump());
    folder.Write("chat_template.jinja", entry["template"].get<std::string>());
    const auto source = ReadChatTemplate(folder.path());
    ASSERT_TRUE(source.ok()) << source.status();
    const auto parsed = ParseChatTemplate(source->source);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto answer =
        nlohmann::json::parse(RenderLine(**parsed, line, /*default_now_s=*/0, &source->tokens));
    EXPECT_EQ(answer.value("output", answer.dump()), entry["output"].get<std::string>()) << line;
    ++cases;
  }
  EXPECT_GT(cases, 40);
}

TEST(ChatTemplateSource, TakesNamedOnesOfTheFolderBesideIt) {
  TempFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"bos_token":"<b>","chat_template":[{"name":"old","template":"O"},)"
               R"({"name":"default","template":"D"}]})");
  std::filesystem::create_directory(folder.File("additional_chat_templates"));
  folder.Write("additional_chat_templates/tool_use.jinja", "T");
  folder.Write("additional_chat_templates/notes.txt", "N");
  // As transformers does: files win over the list as a whole, also where none is the default.
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "NO_CHAT_TEMPLATE");
  EXPECT_THAT(Describe(ReadChatTemplate(folder.path()).status()), HasSubstr("tool_use"));
  folder.Write("chat_template.jinja", "F");
  const auto source = ReadChatTemplate(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->source, "F");
  EXPECT_THAT(source->others, ElementsAre(Pair("tool_use", "T")));
  const auto other = ReadChatTemplate(folder.File("additional_chat_templates/tool_use.jinja"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->source, "T");
  EXPECT_EQ(other->bos_token, "<b>");
}

TEST(ChatTemplateSource, ReadsTheBundledModels) {
  const auto source = ReadChatTemplate(testing::SourcePath("models/recall"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->bos_token, "<|begin_of_text|>");
}

TEST(ChatTemplateSource, SaysThatThereIsNone) {
  TempFolder folder;
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "NO_CHAT_TEMPLATE");
  EXPECT_TRUE(ReadFolderChatTemplate(folder.path()).ok());
  folder.Write("tokenizer_config.json", R"({"bos_token":null,"chat_template":null})");
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "NO_CHAT_TEMPLATE");
  EXPECT_EQ(ReadChatTemplate(folder.File("none")).status().code(), absl::StatusCode::kNotFound);
  folder.Write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"R"}]})");
  EXPECT_EQ(ReasonOf(ReadChatTemplate(folder.path()).status()), "NO_CHAT_TEMPLATE");
}

TEST(ChatTemplateSource, NamesTheFileAndFieldThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not valid JSON"},
      {"[]", "not a JSON object"},
      {R"({"chat_template":5})", "chat_template"},
      {R"({"chat_template":[5]})", "chat_template"},
      {R"({"chat_template":[{"name":"x"}]})", "chat_template"},
      {R"({"chat_template":[{"name":1,"template":"x"}]})", "chat_template"},
      {R"({"bos_token":5})", "bos_token"},
      {R"({"eos_token":{"content":5}})", "eos_token"},
      {R"({"eos_token":{}})", "eos_token"},
  };
  for (const auto& [text, says] : cases) {
    TempFolder folder;
    folder.Write("tokenizer_config.json", text);
    const auto source = ReadChatTemplate(folder.path());
    EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(source.status().message()), HasSubstr(says)) << text;
    EXPECT_THAT(std::string(source.status().message()), HasSubstr("tokenizer_config.json"));
  }
}

}  // namespace
}  // namespace strata
