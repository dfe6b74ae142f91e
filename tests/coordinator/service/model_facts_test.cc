#include "coordinator/service/request/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/registry/digest_checkpoint.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using testing::GoldenPath;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SourcePath;
using testing::TempFolder;

v1::ModelFacts FactsOf(ModelManifest manifest) {
  const auto model =
      MakeModelRuntime("m", std::make_shared<const ModelManifest>(std::move(manifest)));
  EXPECT_TRUE(model.ok()) << model.status();
  return strata::FactsOf(**model);
}

v1::ModelFacts FactsOf(const std::string& path) {
  const auto manifest = LookAtCheckpoint(path);
  EXPECT_TRUE(manifest.ok()) << path << ": " << manifest.status();
  return manifest.ok() ? FactsOf(*manifest) : v1::ModelFacts();
}

// "NAME TENSORS BYTES" of each.
std::vector<std::string> Formats(const v1::ModelFacts& facts) {
  std::vector<std::string> all;
  for (const v1::StoredFormat& format : facts.formats()) {
    all.push_back(format.name() + " " + std::to_string(format.tensors()) + " " +
                  std::to_string(format.bytes()));
  }
  return all;
}

TEST(ModelFacts, SaysWhatAFolderOfFloatsHas) {
  const v1::ModelFacts facts = FactsOf(SourcePath("models/recall"));
  EXPECT_EQ(facts.container(), "safetensors");
  ASSERT_EQ(facts.formats_size(), 1);
  EXPECT_EQ(facts.formats(0).name(), "BF16");
  EXPECT_EQ(facts.tokenizer(), "byte-level BPE (tokenizer.json)");
  EXPECT_GT(facts.tokenizer_ids(), 256);
  EXPECT_EQ(facts.chat_template(), "tokenizer_config.json");
  ASSERT_EQ(facts.layers_size(), 8);
  EXPECT_EQ(facts.layers(0).kv_group(), "full");
  EXPECT_EQ(facts.layers(0).experts(), 0);
  EXPECT_LT(facts.weight_bytes_int8(), facts.weight_bytes_none());
  EXPECT_LT(facts.weight_bytes_int4(), facts.weight_bytes_int8());
  EXPECT_LT(facts.layers(0).weight_bytes_int4(), facts.layers(0).weight_bytes());
  EXPECT_THAT(facts.cannot(), Each(AllOf(Not(HasSubstr("--quantize")), Not(HasSubstr("token ids")),
                                         Not(HasSubstr("template")))));
}

// Words of 32 bits and, for 64 inputs, a scale and a bias of 16; norms are what is left.
TEST(ModelFacts, CountsScalesWithTheMatricesThatTheyAreOf) {
  const v1::ModelFacts facts = FactsOf(GoldenPath("models/llama31-mlx4"));
  ASSERT_EQ(facts.formats_size(), 2);
  EXPECT_EQ(facts.formats(0).name(), "int4 affine, groups of 64");
  EXPECT_EQ(facts.formats(0).tensors() % 3, 0);
  EXPECT_EQ(facts.formats(1).name(), "BF16");
  EXPECT_EQ(facts.weight_bytes_int8(), 0);
  EXPECT_EQ(facts.layers(0).weight_bytes_int8(), 0);
  EXPECT_THAT(facts.cannot(), Contains(HasSubstr("--quantize int8 and int4 are refused")));
  EXPECT_THAT(facts.cannot(), Contains(HasSubstr("takes token ids only")));
  EXPECT_THAT(facts.cannot(), Contains(HasSubstr("no chat template")));
}

TEST(ModelFacts, TellsMixturesInFormatsOfTheirOwn) {
  const v1::ModelFacts oss = FactsOf(GoldenPath("models/gpt-oss-mxfp4"));
  ASSERT_EQ(oss.formats_size(), 2);
  EXPECT_EQ(oss.formats(0).name(), "BF16");
  EXPECT_EQ(oss.formats(1).name(), "MXFP4");
  // Blocks and scales of gate and up and of down, in each layer.
  EXPECT_EQ(oss.formats(1).tensors(), 4 * oss.layers_size());
  EXPECT_EQ(oss.layers(0).kv_group().substr(0, 7), "window-");
  EXPECT_EQ(oss.layers(1).kv_group(), "full");
  EXPECT_EQ(oss.layers(0).experts(), 4);
  EXPECT_EQ(oss.layers(0).experts_per_token(), 2);
  EXPECT_THAT(oss.cannot(), Contains(HasSubstr("change its matrices of floats alone")));
  EXPECT_THAT(oss.cannot(), Contains(HasSubstr("no cached prefixes")));

  const v1::ModelFacts deepseek = FactsOf(GoldenPath("models/deepseek-v3-fp8"));
  EXPECT_THAT(Formats(deepseek), Contains(HasSubstr("FP8 (E4M3), blocks of 8 x 16 ")));
  EXPECT_EQ(deepseek.layers(0).experts(), 0);
  EXPECT_EQ(deepseek.layers(1).experts(), 8);
  EXPECT_EQ(deepseek.layers(1).kv_group(), "mla");
  EXPECT_EQ(deepseek.layers(1).kv_bytes_per_token(), (32 + 8) * 2);
  EXPECT_THAT(deepseek.cannot(), Contains(AllOf(HasSubstr("FP8 (E4M3), blocks of 8 x 16"),
                                                HasSubstr("float32, 4 bytes a weight"),
                                                HasSubstr("--quantize int8"))));
}

TEST(ModelFacts, NamesTheFormatsOfOtherTools) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama31-awq", "AWQ int4, groups of 32 "},
      {"llama31-gptq8", "GPTQ int8, a scale for each output "},
      {"llama31-gptq4-actorder", "GPTQ int4, groups of 32, inputs in order of activation "},
      {"qwen3-packed4-zeros", "pack-quantized int4, groups of 64 "},
      {"llama31-fp8", "FP8 (E4M3), one scale "},
      {"qwen2-fp8-channel", "FP8 (E4M3), a scale for each output "},
      {"qwen3-moe-gptq4", "GPTQ int4, groups of 32 "},
      {"mixtral-gptq4", "GPTQ int4, a scale for each output "},
      {"deepseek-v2-awq", "AWQ int4, groups of 32 "}};
  for (const auto& [name, format] : cases) {
    EXPECT_THAT(Formats(FactsOf(GoldenPath(std::string("models/") + name))),
                Contains(HasSubstr(format)))
        << name;
  }
}

// Of experts' matrices, and of what is kept in another form than they are.
TEST(ModelFacts, TellsHowExpertsOfOtherToolsAreKept) {
  const v1::ModelFacts awq = FactsOf(GoldenPath("models/deepseek-v2-awq"));
  EXPECT_EQ(awq.layers(1).experts(), 4);
  EXPECT_THAT(awq.cannot(), Contains(HasSubstr("--quantize int8 and int4 are refused")));
  EXPECT_THAT(awq.cannot(), Each(Not(HasSubstr("float32"))));
  const v1::ModelFacts ordered = FactsOf(GoldenPath("models/mixtral-gptq4-actorder"));
  EXPECT_THAT(ordered.cannot(), Contains(AllOf(HasSubstr("inputs in order of activation are kept"),
                                               HasSubstr("float32, 4 bytes a weight"),
                                               HasSubstr("--quantize int8"))));
  EXPECT_LT(ordered.layers(0).weight_bytes_int4() * 5, ordered.layers(0).weight_bytes());
}

// Also those that their libraries round once more.
TEST(ModelFacts, SaysNothingOfFourBitCodesThatStayInFourBits) {
  for (const char* name : {"llama31-mxfp4", "mixtral-nvfp4", "llama31-nf4", "qwen3-fp4"}) {
    const v1::ModelFacts facts = FactsOf(GoldenPath(std::string("models/") + name));
    EXPECT_THAT(facts.cannot(), Each(Not(HasSubstr("are kept")))) << name;
    EXPECT_THAT(facts.cannot(), Contains(HasSubstr("--quantize int8 and int4 are refused")))
        << name;
  }
}

TEST(ModelFacts, SaysWhatAGgufFileHas) {
  const v1::ModelFacts facts = FactsOf(GoldenPath("gguf/llama-q4_0.gguf"));
  EXPECT_EQ(facts.container(), "gguf");
  EXPECT_THAT(Formats(facts), Contains(HasSubstr("Q4_0 ")));
  EXPECT_THAT(Formats(facts), Contains(HasSubstr("Q8_0 ")));
  EXPECT_THAT(facts.cannot(), Contains(HasSubstr("--quantize int8 and int4 are refused")));
}

TEST(ModelFacts, SaysWhatLimitsAModel) {
  EXPECT_THAT(FactsOf(GoldenPath("models/phi3-longrope")).cannot(),
              Contains(HasSubstr("a request without max_tokens ends at 64 tokens")));
  EXPECT_THAT(FactsOf(GoldenPath("models/minicpm-o")).cannot(),
              Contains(HasSubstr("no images and no sound")));
  EXPECT_THAT(FactsOf(GoldenPath("models/llama")).cannot(),
              Contains(HasSubstr("tokens at most, its answer included")));
}

// A small checkpoint with the bundled model's tokenizer and this template.
v1::ModelFacts WithTemplate(const std::string& source) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  folder.Write("tokenizer.json",
               testing::ReadFileOrFail(SourcePath("models/recall/tokenizer.json")));
  folder.Write("chat_template.jinja", source);
  return FactsOf(folder.path());
}

TEST(ModelFacts, TriesTheChatTemplate) {
  const std::string loop = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const v1::ModelFacts good = WithTemplate(loop);
  EXPECT_EQ(good.chat_template(), "chat_template.jinja");
  EXPECT_THAT(good.cannot(), Each(Not(HasSubstr("chat template"))));
  EXPECT_THAT(good.cannot(), Contains(HasSubstr("ids and its weights have 10")));
  EXPECT_THAT(WithTemplate("{% if messages[0].role == 'system' %}"
                           "{{ raise_exception('System role\\nnot supported') }}{% endif %}" +
                           loop)
                  .cannot(),
              Contains(HasSubstr("refuses a system message: System role\\nnot supported")));
  EXPECT_THAT(WithTemplate("{{ messages[-1].content }}").cannot(),
              ::testing::IsSupersetOf({HasSubstr("leaves system messages out"),
                                       HasSubstr("leaves earlier answers out")}));
  EXPECT_THAT(WithTemplate("{{ raise_exception('no') }}").cannot(),
              Contains(HasSubstr("refuses a message of a user: no")));
  const v1::ModelFacts bad = WithTemplate("{% if %}");
  EXPECT_EQ(bad.chat_template(), "");
  EXPECT_THAT(bad.cannot(), Contains(HasSubstr("chat template of model 'm' cannot be used")));
}

TEST(ModelRuntime, TakesTokensAndMessagesOfTheWholeFolder) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  folder.Write("tokenizer.json",
               testing::ReadFileOrFail(SourcePath("models/recall/tokenizer.json")));
  folder.Write("tokenizer_config.json",
               R"({"pad_token":"<pad>","image_token":"<i>","added_tokens_decoder":{}})");
  folder.Write("chat_template.jinja",
               "{{ pad_token }}{{ image_token }}{{ bos_token is defined }}"
               "{% for m in messages %}{{ m | tojson }}{% endfor %}");
  const auto manifest = LookAtCheckpoint(folder.path());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  // As after a restart.
  const auto again = ManifestFromJson(ManifestToJson(*DigestCheckpoint(folder.path(), nullptr)));
  ASSERT_TRUE(again.ok()) << again.status();
  for (const ModelManifest& one : {*manifest, *again}) {
    const auto model = MakeModelRuntime("m", std::make_shared<const ModelManifest>(one));
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_NE((*model)->tokenizer, nullptr) << (*model)->tokenizer_problem;
    const auto ids = (*model)->Encode("<i>", false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(ids->size(), 1u);
    v1::ChatInput chat;
    v1::ChatMessage* message = chat.add_messages();
    message->set_role("assistant");
    message->set_without_content(true);
    message->set_reasoning("hm");
    const auto prompt = (*model)->RenderChat(chat, 0);
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    EXPECT_EQ(*prompt, R"(<pad><i>False{"thinking": "hm", "role": "assistant", "reasoning": "hm", )"
                       R"("reasoning_content": "hm"})");
  }
}

// A look has no digests of weights, a stored manifest has all, and one that was stored before
// templates had files still loads.
TEST(ModelFacts, AreTheSameAfterARestart) {
  for (const std::string& path : {SourcePath("models/recall"), GoldenPath("models/deepseek-v3"),
                                  GoldenPath("gguf/qwen2-q8_0.gguf")}) {
    const std::string looked = FactsOf(path).SerializeAsString();
    const auto manifest = DigestCheckpoint(path, nullptr);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(FactsOf(*manifest).SerializeAsString(), looked) << path;
    nlohmann::json stored = nlohmann::json::parse(ManifestToJson(*manifest));
    stored.erase("chat_template_file");
    const auto again = ManifestFromJson(stored.dump());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(FactsOf(*again).SerializeAsString(), looked) << path;
  }
}

}  // namespace
}  // namespace strata
