// GGUF files of architectures with keys, tensors and layouts of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/gguf_model.h"
#include "common/status.h"
#include "tests/common/checkpoint/config_testing.h"
#include "tests/common/checkpoint/gguf_testing.h"
#include "tests/common/checkpoint/made_gguf.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::ExpectTheSameModel;
using testing::FamilyConfig;
using testing::GoldenPath;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LittleEndian;
using testing::MadeGguf;
using testing::Parse;
using testing::TempFolder;
using testing::WindowsOf;

absl::StatusOr<ModelSpec> SpecOf(const MadeGguf& made) {
  TempFolder folder;
  folder.Write("m.gguf", made.File());
  const auto model = ReadGgufModel(folder.path(), {"m.gguf"});
  if (!model.ok()) {
    return model.status();
  }
  return ParseModelConfig(model->config_json, model->generation_config_json);
}

std::string Problem(const MadeGguf& made) { return std::string(SpecOf(made).status().message()); }

// The keys that the architecture needs, and an embedding.
MadeGguf Small(const std::string& architecture, uint32_t layers = 2) {
  MadeGguf made = MadeGguf::Keys(architecture, layers);
  made.Tensor("token_embd.weight", 0, {8, 64}, std::string(2048, 'e'));
  made.Float(architecture + ".rope.freq_base", 1e6f);
  if (architecture == "granite") {
    made.Float("granite.logit_scale", 2);
  }
  if (architecture == "qwen3moe" || architecture == "qwen3vlmoe" || architecture == "gpt-oss") {
    made.Uint(architecture + ".expert_count", 4)
        .Uint(architecture + ".expert_used_count", 2)
        .Uint(architecture + ".expert_feed_forward_length", 32);
  }
  return made;
}

std::string FloatBytes(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    bytes += LittleEndian(value);
  }
  return bytes;
}

MadeGguf& AddFactors(const std::string& name, float first, MadeGguf* made) {
  std::vector<float> factors(16, 2);
  factors[0] = first;
  return made->Tensor(name, 0, {16}, FloatBytes(factors));
}

// The name of a file, the model that it was made of, and what of its configuration was changed.
struct Pair {
  const char* gguf;
  const char* model;
  json changes = json::object();
};

TEST(GgufFamilies, GiveTheModelsThatConfigJsonGives) {
  const Pair pairs[] = {
      {"phi3-q4_0", "phi3"},
      {"phi3-longrope-bf16", "phi3-longrope"},
      {"phi4-mini-bf16", "phi4-mini"},
      {"mixtral-bf16", "mixtral"},
      {"mixtral-experts-q4_0", "mixtral"},
      {"qwen3-moe-q8_0", "qwen3-moe"},
      {"qwen3-yarn-q8_0",
       "qwen3",
       {{"max_position_embeddings", 256},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}}}}},
      {"smollm3-bf16", "smollm3"},
      {"granite-bf16", "granite"},
      {"olmo2-bf16", "olmo2"},
      {"gemma2-q8_0", "gemma2", {{"query_pre_attn_scalar", 24}}},
      {"gemma3-q8_0", "gemma3", {{"query_pre_attn_scalar", 24}}},
      {"gpt-oss-mxfp4", "gpt-oss", {{"swiglu_limit", 7}}},
      {"deepseek-v2-bf16", "deepseek-v2"},
      {"deepseek-v2-old-q8_0", "deepseek-v2"},
      {"deepseek-v3-q8_0", "deepseek-v3"},
      {"gemma-bf16", "gemma"},
      {"ministral3-bf16", "ministral3"},
      {"olmo3-bf16", "olmo3"},
      {"glm4-bf16", "glm4"},
      {"glm4-moe-bf16", "glm4-moe"},
      {"seed-oss-bf16", "seed-oss"},
      {"minimax-m2-bf16", "minimax-m2"},
      {"qwen25-vl-bf16", "qwen25-vl"},
      {"qwen3-vl-bf16", "qwen3-vl"},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.gguf);
    const auto gguf = OpenCheckpoint(GoldenPath("gguf/" + std::string(pair.gguf) + ".gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    json config = FamilyConfig(pair.model);
    config.update(pair.changes);
    const auto hf = Parse(config);
    ASSERT_TRUE(hf.ok()) << hf.status();
    ExpectTheSameModel(gguf->spec, *hf);
    EXPECT_THAT(gguf->notes, IsEmpty());
    const std::vector<float> a = MakeRotaryTables(gguf->spec, 200);
    const std::vector<float> b = MakeRotaryTables(*hf, 200);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-5) << i;
    }
  }
}

// DeepSeek's: 4 heads of 16 + 8 dimensions and values of 16, latent vectors of 32.
MadeGguf Latent(bool in_one = true) {
  MadeGguf made;
  made.String("general.architecture", "deepseek2");
  for (const auto& [key, value] :
       std::map<std::string, uint32_t>{{"block_count", 3},
                                       {"context_length", 128},
                                       {"embedding_length", 64},
                                       {"feed_forward_length", 96},
                                       {"attention.head_count", 4},
                                       {"attention.kv_lora_rank", 32},
                                       {"rope.dimension_count", 8},
                                       {"attention.head_count_kv", in_one ? 1 : 4},
                                       {"attention.key_length", in_one ? 40 : 24},
                                       {"attention.value_length", in_one ? 32 : 16},
                                       {"expert_count", 8},
                                       {"expert_used_count", 2},
                                       {"expert_feed_forward_length", 32},
                                       {"expert_shared_count", 2},
                                       {"leading_dense_block_count", 1}}) {
    made.Uint("deepseek2." + key, value);
  }
  if (in_one) {
    made.Uint("deepseek2.attention.key_length_mla", 24)
        .Uint("deepseek2.attention.value_length_mla", 16);
  }
  made.Float("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  made.Tensor("token_embd.weight", 0, {8, 64}, std::string(2048, 'e'));
  return made;
}

TEST(GgufFamilies, LatentVectorsAreCountedAsOneHeadOrAsAllHeads) {
  for (const bool in_one : {false, true}) {
    const auto spec = SpecOf(Latent(in_one));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->family, "deepseek_v2");
    const AttentionSpec& attention = spec->layers[0].attention;
    EXPECT_EQ(attention.heads, 4);
    EXPECT_EQ(attention.head_dim, 24);
    EXPECT_EQ(attention.latent.rank, 32);
    EXPECT_EQ(attention.latent.query_rank, 0);
    EXPECT_EQ(attention.latent.nope_dim, 16);
    EXPECT_EQ(attention.latent.rope_dim, 8);
    EXPECT_EQ(attention.latent.value_dim, 16);
    EXPECT_EQ(spec->layers[0].mlp.experts, 0);
    EXPECT_EQ(spec->layers[0].mlp.ffn, 96);
    EXPECT_EQ(spec->layers[1].mlp.experts, 8);
    EXPECT_EQ(spec->layers[1].mlp.shared_ffn, 64);
    EXPECT_EQ(spec->layers[1].mlp.router.groups, 1);
    EXPECT_EQ(spec->layers[1].mlp.router.scale, 1);
  }
  const auto ranked = SpecOf(Latent().Uint("deepseek2.attention.q_lora_rank", 48));
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  EXPECT_EQ(ranked->layers[0].attention.latent.query_rank, 48);
}

TEST(GgufFamilies, TheGatingOfExpertsSaysWhichDeepSeekItIs) {
  const auto third = SpecOf(Latent()
                                .Uint("deepseek2.expert_gating_func", 2)
                                .Uint("deepseek2.expert_group_count", 4)
                                .Uint("deepseek2.expert_group_used_count", 2)
                                .Float("deepseek2.expert_weights_scale", 2.5f)
                                .Bool("deepseek2.expert_weights_norm", true));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->family, "deepseek_v3");
  const RouterSpec& router = third->layers[1].mlp.router;
  EXPECT_EQ(router.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(router.corrected);
  EXPECT_TRUE(router.renormalize);
  EXPECT_EQ(router.groups, 4);
  EXPECT_EQ(router.groups_used, 2);
  EXPECT_EQ(router.scale, 2.5f);
  EXPECT_FALSE(
      SpecOf(Latent().Uint("deepseek2.expert_gating_func", 2))->layers[1].mlp.router.renormalize);
  EXPECT_THAT(Problem(Latent().Uint("deepseek2.expert_gating_func", 3)),
              HasSubstr("\"deepseek2.expert_gating_func\" 3"));
  EXPECT_THAT(Problem(Latent().Bool("deepseek2.expert_weights_norm", true)),
              HasSubstr("\"deepseek2.expert_weights_norm\" true"));
}

TEST(GgufFamilies, LayersThatGuessFurtherTokensAreLeftOut) {
  const auto spec = SpecOf(
      Latent()
          .Uint("deepseek2.nextn_predict_layers", 1)
          .Tensor("blk.2.nextn.eh_proj.weight", 0, {64, 128}, std::string(64 * 128 * 4, 'n')));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 2);
  EXPECT_THAT(Problem(Latent().Uint("deepseek2.nextn_predict_layers", 3)),
              HasSubstr("\"deepseek2.nextn_predict_layers\""));
  EXPECT_THAT(Problem(Latent()
                          .Uint("deepseek2.nextn_predict_layers", 1)
                          .Tensor("blk.2.attn_norm.weight", 0, {64}, std::string(256, 'n'))),
              HasSubstr("\"blk.2.nextn\""));
}

TEST(GgufFamilies, KeysOfLatentVectorsThatContradictAreRefused) {
  for (const auto& [key, value] :
       std::map<std::string, uint32_t>{{"attention.kv_lora_rank", 31},
                                       {"attention.head_count_kv", 4},
                                       {"rope.dimension_count", 10},
                                       {"attention.key_length_mla", 8}}) {
    std::string file = Latent().File();
    const size_t at = file.find("deepseek2." + key) + 10 + key.size() + 4;
    file.replace(at, 4, LittleEndian(value));
    TempFolder folder;
    folder.Write("m.gguf", file);
    const auto model = ReadGgufModel(folder.path(), {"m.gguf"});
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("key \"deepseek2.")) << key;
  }
}

TEST(GgufFamilies, YarnsLogMultiplierIsWhatScoresGrowBy) {
  const auto spec = SpecOf(Latent()
                               .Float("deepseek2.rope.freq_base", 10000)
                               .String("deepseek2.rope.scaling.type", "yarn")
                               .Float("deepseek2.rope.scaling.factor", 40)
                               .Uint("deepseek2.rope.scaling.original_context_length", 64)
                               .Float("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const double magnitude = 0.0707 * std::log(40.0) + 1;
  EXPECT_NEAR(spec->layers[0].attention.scale, magnitude * magnitude / std::sqrt(24.0), 1e-7);
  EXPECT_EQ(spec->layers[0].attention.rope.magnitude, 1);
  EXPECT_THAT(Problem(Small("qwen3").Float("qwen3.rope.scaling.yarn_log_multiplier", 0.1f)),
              HasSubstr("yarn_log_multiplier"));
}

TEST(GgufFamilies, NormsThatIncludeOneAreUsedAsTheyAre) {
  for (const char* name : {"gemma", "gemma2", "gemma3"}) {
    const auto spec = SpecOf(Small(name));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers[0].norm, NormKind::kRms);
    EXPECT_EQ(spec->final_norm, NormKind::kRms);
  }
}

// By a size that no other key tells.
TEST(GgufFamilies, GemmasLargestSizesDivideScoresByWhatAHeadHasOfHidden) {
  struct Size {
    const char* architecture;
    uint32_t layers;
    float scale;
  };
  for (const Size& size : {Size{"gemma2", 45, 0.25f}, Size{"gemma2", 46, std::sqrt(1 / 32.0f)},
                           Size{"gemma3", 46, 0.25f}, Size{"gemma3", 62, std::sqrt(1 / 32.0f)}}) {
    const auto spec =
        SpecOf(Small(size.architecture, size.layers)
                   .Uint(std::string(size.architecture) + ".attention.key_length", 16)
                   .Uint(std::string(size.architecture) + ".attention.value_length", 16));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, size.scale) << size.layers;
  }
}

TEST(GgufFamilies, SoftCapsAreTheFilesOrGemmas) {
  auto spec = SpecOf(Small("gemma2"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.soft_cap, 50);
  EXPECT_EQ(spec->final_soft_cap, 30);
  spec = SpecOf(Small("gemma2")
                    .Float("gemma2.attn_logit_softcapping", 20)
                    .Float("gemma2.final_logit_softcapping", 10));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.soft_cap, 20);
  EXPECT_EQ(spec->final_soft_cap, 10);
  spec = SpecOf(Small("gemma3"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.soft_cap, 0);
  EXPECT_EQ(spec->final_soft_cap, 0);
  EXPECT_THAT(Problem(Small("llama").Float("llama.final_logit_softcapping", 10)),
              HasSubstr("\"llama.final_logit_softcapping\""));
}

TEST(GgufFamilies, MultipliersAreGranites) {
  auto spec = SpecOf(Small("granite"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, std::sqrt(1 / 32.0f));
  EXPECT_EQ(spec->embedding_scale, 1);
  spec = SpecOf(Small("granite")
                    .Float("granite.attention.scale", 0.5f)
                    .Float("granite.embedding_scale", 3)
                    .Float("granite.residual_scale", 0.75f));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.scale, 0.5f);
  EXPECT_EQ(spec->embedding_scale, 3);
  EXPECT_EQ(spec->layers[0].branch_scale, 0.75f);
  EXPECT_EQ(spec->logits_divisor, 2);
  for (const char* key : {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"}) {
    EXPECT_THAT(Problem(Small("llama").Float(std::string("llama.") + key, 0.5f)), HasSubstr(key));
  }
  EXPECT_THAT(Problem(Small("granite").Bool("granite.rope.scaling.finetuned", false)),
              HasSubstr("\"granite.rope.scaling.finetuned\""));
}

// No key says which of the two it is but the window.
TEST(GgufFamilies, Olmo2WithWindowsIsOlmo3) {
  EXPECT_EQ(SpecOf(Small("olmo2"))->family, "olmo2");
  const auto third = SpecOf(Small("olmo2", 5)
                                .Uint("olmo2.attention.sliding_window", 20)
                                .String("olmo2.rope.scaling.type", "yarn")
                                .Float("olmo2.rope.scaling.factor", 4)
                                .Uint("olmo2.rope.scaling.original_context_length", 64));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->family, "olmo3");
  EXPECT_THAT(WindowsOf(*third), ElementsAre(20, 20, 20, 0, 20));
  EXPECT_EQ(third->layers[0].attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(third->layers[3].attention.rope.scaling, RopeScaling::kYarn);
}

TEST(GgufFamilies, QueriesOfMinistral3GrowWithPositions) {
  const auto made = [] {
    return Small("mistral3")
        .String("mistral3.rope.scaling.type", "yarn")
        .Float("mistral3.rope.scaling.factor", 4)
        .Uint("mistral3.rope.scaling.original_context_length", 64)
        .Float("mistral3.rope.scaling.yarn_log_multiplier", 1)
        .Float("mistral3.attention.temperature_scale", 0.1f);
  };
  const auto spec = SpecOf(made());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.query_growth, 0.1f);
  EXPECT_EQ(spec->layers[0].attention.query_growth_every, 64);
  EXPECT_EQ(spec->layers[0].attention.rope.magnitude, 1);
  EXPECT_EQ(SpecOf(Small("mistral3"))->layers[0].attention.query_growth, 0);
  for (const MadeGguf& other :
       {Small("mistral3").Float("mistral3.attention.temperature_scale", 0.1f),
        Small("llama").Float("llama.attention.temperature_scale", 0.1f)}) {
    EXPECT_THAT(Problem(other), HasSubstr("attention.temperature_scale\""));
  }
  EXPECT_THAT(Problem(made().Uint("mistral3.attention.temperature_length", 65)),
              HasSubstr("\"mistral3.attention.temperature_length\""));
}

// Positions of images, which a text has none of; GLM-4's with them have other rows of q and k.
TEST(GgufFamilies, SectionsOfPositionsAreOfQwensWithEyes) {
  for (const char* name : {"qwen2vl", "qwen3vl", "qwen3vlmoe"}) {
    const auto spec = SpecOf(Small(name).Uint(std::string(name) + ".rope.dimension_sections", 8));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers[0].attention.rope.rotary_dim, 32);
  }
  EXPECT_THAT(Problem(Small("glm4").Uint("glm4.rope.dimension_sections", 8)),
              HasSubstr("\"glm4.rope.dimension_sections\""));
}

TEST(GgufFamilies, WhatRotatesOfAHeadIsAllWhereNoKeySaysIt) {
  const auto whole = SpecOf(Small("glm4"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->layers[0].attention.rope.rotary_dim, 32);
  EXPECT_TRUE(whole->layers[0].attention.rotates_neighbours);
  EXPECT_EQ(SpecOf(Small("glm4").Uint("glm4.rope.dimension_count", 16))
                ->layers[0]
                .attention.rope.rotary_dim,
            16);
}

TEST(GgufFamilies, ScoresOfExpertsThatAreNotTheFamilysAreRefused) {
  for (const char* name : {"glm4moe", "minimax-m2"}) {
    const std::string prefix = name;
    const bool shared = prefix == "glm4moe";
    const auto made = [&] {
      MadeGguf file = Small(name);
      file.Uint(prefix + ".expert_count", 4)
          .Uint(prefix + ".expert_used_count", 2)
          .Uint(prefix + ".expert_feed_forward_length", 32);
      return shared ? file.Uint(prefix + ".expert_shared_count", 1) : file;
    };
    const std::string gating = prefix + ".expert_gating_func";
    const auto spec = SpecOf(made().Uint(gating, 2));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(spec->layers[1].mlp.router.corrected);
    EXPECT_THAT(Problem(made().Uint(gating, 1)), HasSubstr(gating + "\" 1"));
    // Files that do not say it are GLM's, to llama.cpp.
    EXPECT_EQ(SpecOf(made()).ok(), shared);
  }
}

TEST(GgufFamilies, WindowsAreOfTheLayersThatThePatternSays) {
  const auto windows = [](const MadeGguf& made) {
    const auto spec = SpecOf(made);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? WindowsOf(*spec) : std::vector<uint32_t>();
  };
  EXPECT_THAT(windows(Small("phi3").Uint("phi3.attention.sliding_window", 20)),
              ElementsAre(20, 20));
  EXPECT_THAT(windows(Small("phi3").Uint("phi3.attention.sliding_window", 0)), ElementsAre(0, 0));
  EXPECT_THAT(windows(Small("phi3")), ElementsAre(0, 0));
  EXPECT_THAT(windows(Small("gemma2", 3).Uint("gemma2.attention.sliding_window", 20)),
              ElementsAre(20, 0, 20));
  EXPECT_THAT(windows(Small("gpt-oss", 3).Uint("gpt-oss.attention.sliding_window", 20)),
              ElementsAre(20, 0, 20));
  EXPECT_THAT(windows(Small("gemma3", 7).Uint("gemma3.attention.sliding_window", 20)),
              ElementsAre(20, 20, 20, 20, 20, 0, 20));
  EXPECT_THAT(windows(Small("gemma3", 3)), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(Small("gemma3", 4)
                          .Uint("gemma3.attention.sliding_window", 20)
                          .Uint("gemma3.attention.sliding_window_pattern", 3)),
              ElementsAre(20, 20, 0, 20));
  EXPECT_THAT(windows(Small("gemma3", 3)
                          .Uint("gemma3.attention.sliding_window", 20)
                          .Bools("gemma3.attention.sliding_window_pattern", {false, true, false})),
              ElementsAre(0, 20, 0));
  EXPECT_THAT(Problem(Small("gemma3", 3)
                          .Uint("gemma3.attention.sliding_window", 20)
                          .Bools("gemma3.attention.sliding_window_pattern", {false, true})),
              HasSubstr("\"gemma3.attention.sliding_window_pattern\" is no list of 3 values"));
  EXPECT_THAT(Problem(Small("qwen3").Uint("qwen3.attention.sliding_window", 20)),
              HasSubstr("\"qwen3.attention.sliding_window\""));
}

TEST(GgufFamilies, WindowedLayersOfGemma3TurnByABaseOfTheirOwnAndUnscaled) {
  MadeGguf made = Small("gemma3", 6);
  made.Uint("gemma3.attention.sliding_window", 20)
      .String("gemma3.rope.scaling.type", "linear")
      .Float("gemma3.rope.scaling.factor", 8);
  auto spec = SpecOf(made);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 1e4);
  EXPECT_EQ(spec->layers[0].attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(spec->layers[5].attention.rope.theta, 1e6);
  EXPECT_EQ(spec->layers[5].attention.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec->layers[5].attention.rope.factor, 8);
  spec = SpecOf(made.Float("gemma3.rope.freq_base_swa", 5e4f));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 5e4);
  EXPECT_THAT(Problem(Small("gemma2").Float("gemma2.rope.freq_base_swa", 5e4f)),
              HasSubstr("\"gemma2.rope.freq_base_swa\""));
}

TEST(GgufFamilies, WhatIsNotTheSameForAllFilesIsNotGuessed) {
  for (const char* architecture : {"gemma3", "gpt-oss", "smollm3", "granite"}) {
    MadeGguf made = MadeGguf::Keys(architecture, 2);
    made.Tensor("token_embd.weight", 0, {8, 64}, std::string(2048, 'e'));
    const char* key = std::string(architecture) == "granite" ? "logit_scale" : "rope.freq_base";
    if (std::string(architecture) == "gpt-oss") {
      made.Uint("gpt-oss.expert_count", 4)
          .Uint("gpt-oss.expert_used_count", 2)
          .Uint("gpt-oss.expert_feed_forward_length", 32);
    }
    EXPECT_THAT(Problem(made), HasSubstr(std::string(architecture) + "." + key));
  }
}

TEST(GgufFamilies, LinearScalingIsReadUnderBothNames) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const auto spec = SpecOf(Small("llama").Float(key, 4));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers[0].attention.rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(spec->layers[0].attention.rope.factor, 4);
    const auto none =
        SpecOf(Small("llama").Float(key, 4).String("llama.rope.scaling.type", "none"));
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ(none->layers[0].attention.rope.scaling, RopeScaling::kNone);
  }
  MadeGguf both = Small("llama").Float("llama.rope.scaling.factor", 4);
  EXPECT_THAT(Problem(AddFactors("rope_freqs.weight", 1, &both)),
              HasSubstr("\"llama.rope.scaling.factor\" beside tensor \"rope_freqs.weight\""));
  EXPECT_THAT(Problem(Small("llama").Float("llama.rope.scaling.factor", 0.5f)),
              HasSubstr("factor"));
  EXPECT_THAT(Problem(Small("llama")
                          .Float("llama.rope.scaling.factor", 4)
                          .String("llama.rope.scaling.type", "dynamic")),
              HasSubstr("\"llama.rope.scaling.type\" \"dynamic\""));
}

TEST(GgufFamilies, YarnIsReadByKey) {
  const auto yarn = [](const std::string& architecture) {
    return Small(architecture)
        .String(architecture + ".rope.scaling.type", "yarn")
        .Float(architecture + ".rope.scaling.factor", 4)
        .Uint(architecture + ".rope.scaling.original_context_length", 64);
  };
  json config = FamilyConfig("qwen3");
  config.update({{"head_dim", 32},
                 {"rope_scaling",
                  {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}}}});
  const auto hf = Parse(config);
  ASSERT_TRUE(hf.ok()) << hf.status();
  for (const char* architecture : {"llama", "qwen2", "qwen3", "qwen3moe"}) {
    const auto spec = SpecOf(yarn(architecture));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers[0].attention.rope, hf->layers[0].attention.rope) << architecture;
  }
  // gpt-oss does not cut its range to whole pairs.
  const auto oss = SpecOf(yarn("gpt-oss"));
  ASSERT_TRUE(oss.ok()) << oss.status();
  EXPECT_NE(oss->layers[0].attention.rope.yarn_high, hf->layers[0].attention.rope.yarn_high);
  const auto said = SpecOf(yarn("qwen3")
                               .Float("qwen3.rope.scaling.yarn_beta_fast", 16)
                               .Float("qwen3.rope.scaling.yarn_beta_slow", 0.1f)
                               .Float("qwen3.rope.scaling.yarn_attn_factor", 1.5f));
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->layers[0].attention.rope.magnitude, 1.5);
  EXPECT_GT(said->layers[0].attention.rope.yarn_high, hf->layers[0].attention.rope.yarn_high);
  EXPECT_THAT(Problem(yarn("qwen3").Float("qwen3.rope.scaling.yarn_ext_factor", 0.5f)),
              HasSubstr("\"qwen3.rope.scaling.yarn_ext_factor\""));
  EXPECT_THAT(Problem(yarn("qwen3").Float("qwen3.rope.scaling.yarn_log_multiplier", 0.1f)),
              HasSubstr("\"qwen3.rope.scaling.yarn_log_multiplier\""));
  for (const std::string other : {"phi3", "gemma3"}) {
    EXPECT_THAT(Problem(yarn(other)), HasSubstr(other + ".rope.scaling.type\" \"yarn\""));
  }
}

TEST(GgufFamilies, LongRopeTakesBothListsTheMagnitudeAndTheOriginalContext) {
  MadeGguf made = Small("phi3").Float("phi3.rope.scaling.attn_factor", 1.25f);
  made.Uint("phi3.rope.scaling.original_context_length", 32);
  AddFactors("rope_factors_long.weight", 3, &made);
  EXPECT_THAT(Problem(made), HasSubstr("\"rope_factors_long.weight\" without "
                                       "\"rope_factors_short.weight\""));
  AddFactors("rope_factors_short.weight", 1, &made);
  auto spec = SpecOf(made);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const RopeSpec& rope = spec->layers[0].attention.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.original_context, 32);
  EXPECT_EQ(rope.magnitude, 1.25);
  EXPECT_EQ(rope.long_factors[0], 3);
  EXPECT_EQ(rope.short_factors[0], 1);
  EXPECT_EQ(LongRotaryAbove(*spec), 32);
  EXPECT_THAT(Problem(made.Float("phi3.rope.scaling.factor", 4)),
              HasSubstr("\"phi3.rope.scaling.factor\" beside tensor \"rope_factors_long.weight\""));
  MadeGguf llama = Small("llama");
  EXPECT_THAT(Problem(AddFactors("rope_factors_long.weight", 1, &llama)),
              HasSubstr("of architecture \"llama\""));
  EXPECT_THAT(Problem(Small("phi3").Float("phi3.rope.scaling.attn_factor", 1.25f)),
              HasSubstr("\"phi3.rope.scaling.attn_factor\""));
  MadeGguf wrong = Small("phi3");
  wrong.Tensor("rope_factors_long.weight", 0, {3}, FloatBytes({1, 1, 1}));
  EXPECT_THAT(Problem(AddFactors("rope_factors_short.weight", 1, &wrong)),
              HasSubstr("\"rope_factors_long.weight\" has 3 values for the 32 dimensions"));
}

TEST(GgufFamilies, APartOfAHeadRotatesWhereTheFamilyMay) {
  for (uint32_t dims = 2; dims < 32; dims += 2) {
    const auto spec = SpecOf(Small("phi3").Uint("phi3.rope.dimension_count", dims));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers[0].attention.rope.rotary_dim, dims);
  }
  for (const uint32_t dims : {0u, 3u, 34u}) {
    EXPECT_THAT(Problem(Small("phi3").Uint("phi3.rope.dimension_count", dims)),
                HasSubstr("\"phi3.rope.dimension_count\" " + std::to_string(dims)));
  }
}

TEST(GgufFamilies, MixturesAreRefusedWhereTheyWouldBeOthers) {
  EXPECT_THAT(Problem(Small("qwen2").Uint("qwen2.expert_count", 8)),
              HasSubstr("\"qwen2.expert_count\" 8 is not supported"));
  EXPECT_THAT(Problem(MadeGguf::Keys("qwen3moe", 1)),
              HasSubstr("\"qwen3moe.expert_count\" 0 is not supported"));
  EXPECT_THAT(Problem(Small("llama").Uint("llama.expert_count", 8)),
              HasSubstr("\"llama.expert_used_count\" is missing"));
  EXPECT_THAT(
      Problem(Small("llama").Uint("llama.expert_count", 2).Uint("llama.expert_used_count", 3)),
      HasSubstr("num_experts_per_tok 3 is above num_local_experts 2"));
  for (const char* key : {"expert_shared_count", "expert_group_count", "expert_gating_func",
                          "leading_dense_block_count", "nextn_predict_layers"}) {
    EXPECT_THAT(Problem(Small("qwen3moe").Uint(std::string("qwen3moe.") + key, 2)), HasSubstr(key));
    EXPECT_EQ(Problem(Small("qwen3moe").Uint(std::string("qwen3moe.") + key, 0)), "");
  }
  EXPECT_THAT(Problem(Small("qwen3moe").Float("qwen3moe.expert_weights_scale", 2.5f)),
              HasSubstr("\"qwen3moe.expert_weights_scale\""));
  EXPECT_EQ(Problem(Small("qwen3moe").Float("qwen3moe.expert_weights_scale", 1)), "");
  EXPECT_THAT(Problem(Small("qwen3moe").Bool("qwen3moe.expert_weights_norm", false)),
              HasSubstr("\"qwen3moe.expert_weights_norm\""));
}

TEST(GgufFamilies, NumbersOfEachLayerAreReadWhereTheyAreAllTheSame) {
  constexpr char kKey[] = "granite.attention.head_count_kv";
  const auto spec = SpecOf(Small("granite").Ints(kKey, {1, 1}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[1].attention.kv_heads, 1);
  EXPECT_THAT(Problem(Small("granite").Ints(kKey, {1, 2})),
              HasSubstr("\"granite.attention.head_count_kv\" is a list of numbers that are not"));
}

TEST(GgufFamilies, SharedExpertsOfDenseModelsSayNothing) {
  EXPECT_EQ(Problem(Small("granite").Uint("granite.expert_shared_feed_forward_length", 96)), "");
}

TEST(GgufFamilies, TensorsThatAnArchitectureDoesNotHaveAreRefused) {
  const auto with = [](const std::string& architecture, const std::string& tensor) {
    return Problem(Small(architecture).Tensor(tensor, 0, {1}, "1234"));
  };
  const std::pair<const char*, const char*> wrong[] = {
      {"llama", "blk.0.attn_qkv.weight"},
      {"llama", "blk.0.post_ffw_norm.weight"},
      {"phi3", "blk.0.attn_q.weight"},
      {"phi3", "blk.0.ffn_gate.weight"},
      {"qwen3moe", "blk.0.ffn_gate.weight"},
      {"qwen3moe", "blk.0.ffn_gate_shexp.weight"},
      {"qwen3moe", "blk.0.ffn_gate_up_exps.weight"},
      {"qwen3moe", "blk.0.ffn_gate.x.weight"},
      {"gpt-oss", "blk.0.ffn_gate.0.weight"},
      {"gpt-oss", "blk.0.ffn_norm.weight"},
      {"qwen3", "blk.0.attn_sinks.weight"},
      {"gpt-oss", "blk.0.attn_sinks.bias"},
      {"gemma3", "blk.0.layer_output_scale.weight"},
  };
  for (const auto& [architecture, tensor] : wrong) {
    EXPECT_EQ(with(architecture, tensor),
              "m.gguf: tensor \"" + std::string(tensor) + "\" is not supported yet")
        << architecture;
  }
  for (const char* tensor :
       {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate.0.weight"}) {
    EXPECT_EQ(with("llama", tensor), "m.gguf: tensor \"" + std::string(tensor) +
                                         "\" without experts by key \"llama.expert_count\" is not "
                                         "supported yet");
  }
}

}  // namespace
}  // namespace strata
