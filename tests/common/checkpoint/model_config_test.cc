// Llama's configurations, and what holds for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "common/random.h"
#include "common/status.h"
#include "tests/common/checkpoint/config_testing.h"
#include "tests/golden.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using testing::Change;
using ::testing::ElementsAre;
using testing::FamilyConfig;
using testing::GoldenPath;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Parse;
using testing::ReadFileOrFail;
using testing::Small;
using testing::SmallConfig;
using testing::SourcePath;

absl::StatusOr<ModelSpec> ParseFolder(const std::string& folder) {
  return ParseModelConfig(ReadFileOrFail(folder + "/config.json"),
                          ReadFileOrFail(folder + "/generation_config.json"));
}

TEST(ModelConfig, ReadsGroupedQueriesUntied) {
  const auto spec = ParseFolder(GoldenPath("models/llama"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "llama");
  EXPECT_EQ(spec->hidden, 64);
  EXPECT_EQ(spec->vocab, 259);
  EXPECT_EQ(spec->context, 8192);
  EXPECT_FALSE(spec->tied_head);
  EXPECT_EQ(spec->final_norm_eps, 1e-3f);
  ASSERT_EQ(spec->layers.size(), 3);
  const LayerSpec& layer = spec->layers[2];
  EXPECT_EQ(layer.norm_eps, 1e-3f);
  EXPECT_EQ(layer.attention.heads, 8);
  EXPECT_EQ(layer.attention.kv_heads, 2);
  EXPECT_EQ(layer.attention.head_dim, 8);
  EXPECT_EQ(layer.attention.scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(layer.attention.rope.rotary_dim, 8);
  EXPECT_EQ(layer.attention.rope.theta, 500000);
  EXPECT_EQ(layer.attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(layer.mlp.ffn, 96);
  EXPECT_EQ(spec->kv_groups.size(), 1);
  EXPECT_EQ(spec->kv_groups[0].kind, KvKind::kFull);
  EXPECT_EQ(spec->bos_id, 1);
  EXPECT_THAT(spec->eos_ids, ElementsAre(2));
}

TEST(ModelConfig, ReadsLlama31) {
  const auto spec = ParseFolder(GoldenPath("models/llama31"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_head);
  const AttentionSpec& attention = spec->layers[0].attention;
  EXPECT_EQ(attention.heads, 2);
  EXPECT_EQ(attention.kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 32);
  const RopeSpec want{.rotary_dim = 32,
                      .theta = 500000,
                      .scaling = RopeScaling::kLlama3,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_context = 64};
  EXPECT_EQ(attention.rope, want);
  EXPECT_THAT(spec->eos_ids, ElementsAre(257, 258, 259));
}

TEST(ModelConfig, ReadsLlama2WithoutKvHeadsAndTheta) {
  const auto spec = ParseFolder(GoldenPath("models/llama2-mha-f32"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.kv_heads, 4);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 16);
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 10000);
}

TEST(ModelConfig, ReadsTheBundledModel) {
  const auto spec = ParseFolder(SourcePath("models/recall"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 8);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 32);
  EXPECT_THAT(spec->eos_ids, ElementsAre(1009, 1012));
}

TEST(ModelConfig, ReadsExplicitHeadDim) {
  json config = Small();
  config["head_dim"] = 6;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.head_dim, 6);
  EXPECT_EQ(spec->layers[0].attention.rope.rotary_dim, 6);
  config["head_dim"] = nullptr;
  EXPECT_EQ(Parse(config)->layers[0].attention.head_dim, 4);
  // Heads need not divide the hidden size then.
  config["hidden_size"] = 9;
  EXPECT_FALSE(Parse(config).ok());
  config["head_dim"] = 4;
  EXPECT_TRUE(Parse(config).ok());
}

TEST(ModelConfig, ReadsBothStylesOfRotation) {
  const json llama3 = {{"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  json old_style = Small();
  old_style["rope_theta"] = 500000;
  old_style["rope_scaling"] = llama3;
  old_style["rope_scaling"]["type"] = "llama3";
  json new_style = Small();
  new_style.erase("rope_theta");
  new_style["rope_parameters"] = llama3;
  new_style["rope_parameters"]["rope_type"] = "llama3";
  new_style["rope_parameters"]["rope_theta"] = 500000.0;
  const auto old_spec = Parse(old_style);
  const auto new_spec = Parse(new_style);
  ASSERT_TRUE(old_spec.ok()) << old_spec.status();
  ASSERT_TRUE(new_spec.ok()) << new_spec.status();
  EXPECT_EQ(old_spec->layers[0].attention.rope, new_spec->layers[0].attention.rope);
  EXPECT_EQ(new_spec->layers[0].attention.rope.theta, 500000);
  EXPECT_EQ(new_spec->layers[0].attention.rope.factor, 32);

  json plain = Small();
  plain.erase("rope_theta");
  plain["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 20000.0}};
  const auto spec = Parse(plain);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.theta, 20000);
  EXPECT_EQ(spec->layers[0].attention.rope.scaling, RopeScaling::kNone);
  plain["rope_parameters"] = {{"rope_theta", 30000.0}};
  EXPECT_EQ(Parse(plain)->layers[0].attention.rope.theta, 30000);
  plain["rope_scaling"] = nullptr;
  EXPECT_TRUE(Parse(plain).ok());
  plain["rope_scaling"] = json::object();
  EXPECT_TRUE(Parse(plain).ok());
}

TEST(ModelConfig, TakesTheOriginalContextFromTheTopLevel) {
  json config = Small();
  config["original_max_position_embeddings"] = 32;
  config["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope.original_context, 32);
}

TEST(ModelConfig, PrefersTheGenerationConfigsEos) {
  json config = Small();
  EXPECT_THAT(Parse(config)->eos_ids, ElementsAre(2));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":[7,8]})")->eos_ids, ElementsAre(7, 8));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":9})")->eos_ids, ElementsAre(9));
  EXPECT_THAT(Parse(config, R"({"eos_token_id":null})")->eos_ids, ElementsAre(2));
  EXPECT_THAT(Parse(config, "{}")->eos_ids, ElementsAre(2));
  config["eos_token_id"] = {4, 5};
  EXPECT_THAT(Parse(config)->eos_ids, ElementsAre(4, 5));
  config.erase("eos_token_id");
  EXPECT_THAT(Parse(config)->eos_ids, IsEmpty());
  config.erase("bos_token_id");
  EXPECT_FALSE(Parse(config)->bos_id.has_value());
  EXPECT_EQ(Parse(config, R"({"bos_token_id":3})")->bos_id, 3);
}

TEST(ModelConfig, ListsBiases) {
  json config = Small();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<std::string> names;
  for (const StageTensor& tensor : TensorsOf(*spec, 1, 1, false, false)) {
    names.push_back(tensor.name);
  }
  const std::string p = "model.layers.1.";
  EXPECT_THAT(names, ElementsAre(p + "input_layernorm.weight", p + "self_attn.q_proj.weight",
                                 p + "self_attn.q_proj.bias", p + "self_attn.k_proj.weight",
                                 p + "self_attn.k_proj.bias", p + "self_attn.v_proj.weight",
                                 p + "self_attn.v_proj.bias", p + "self_attn.o_proj.weight",
                                 p + "self_attn.o_proj.bias", p + "post_attention_layernorm.weight",
                                 p + "mlp.gate_proj.weight", p + "mlp.gate_proj.bias",
                                 p + "mlp.up_proj.weight", p + "mlp.up_proj.bias",
                                 p + "mlp.down_proj.weight", p + "mlp.down_proj.bias"));
}

TEST(TensorsOf, GivesEachStageWhatItNeeds) {
  auto spec = Parse(Small());
  ASSERT_TRUE(spec.ok());
  const auto names = [&](uint32_t first, uint32_t last, bool embeds, bool heads) {
    std::vector<std::string> out;
    for (const StageTensor& tensor : TensorsOf(*spec, first, last, embeds, heads)) {
      if (tensor.name.find("layers") == std::string::npos) {
        out.push_back(tensor.name);
      }
    }
    return out;
  };
  EXPECT_THAT(names(0, 0, true, false), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(names(0, 1, false, false), IsEmpty());
  EXPECT_THAT(names(1, 1, false, true), ElementsAre("model.norm.weight", "lm_head.weight"));
  spec->tied_head = true;
  EXPECT_THAT(names(1, 1, false, true),
              ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  EXPECT_THAT(names(0, 1, true, true),
              ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  const auto tensors = TensorsOf(*spec, 0, 0, false, false);
  EXPECT_EQ(tensors[2].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(tensors[2].shape, ElementsAre(4, 8));
}

TEST(ModelConfig, TakesSettingsThatMeanNothingSpecial) {
  json config = Small();
  config.update(json{{"sliding_window", nullptr},
                     {"partial_rotary_factor", 1.0},
                     {"hidden_act", "silu"},
                     {"layer_types", {"full_attention", "full_attention"}},
                     {"quantization_config", nullptr},
                     {"attn_logit_softcapping", nullptr},
                     {"embedding_multiplier", 1},
                     {"num_local_experts", 0},
                     {"use_qk_norm", false},
                     {"pretraining_tp", 1},
                     {"auto_map", {{"AutoTokenizer", "x.Y"}, {"AutoModel", "x.LlamaModel"}}},
                     {"_name_or_path", "somewhere"},
                     {"anything_else", {1, 2}}});
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
}

TEST(ModelConfig, RefusesContradictions) {
  const Change cases[] = {
      {"num_key_value_heads", 3, "num_key_value_heads 3 does not divide num_attention_heads 2"},
      {"num_attention_heads", 3, "num_attention_heads 3"},
      {"head_dim", 5, "head_dim 5"},
      {"rope_parameters", {{"rope_theta", 77.0}}, "rope_theta"},
      {"rope_scaling", {{"factor", 2.0}}, "rope_scaling has neither rope_type nor type"},
      {"rope_scaling",
       {{"rope_type", "default"}, {"type", "llama3"}},
       "rope_scaling has rope_type"},
      {"rope_scaling", {{"rope_type", "llama3"}}, "rope_scaling.factor is missing"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 8}},
       "high_freq_factor"},
      {"rope_scaling", 3, "rope_scaling 3 is not an object"},
      {"architectures", json::array(), "architectures"},
      {"head_dim", 4095, "head_dim"},
  };
  for (const Change& change : cases) {
    json config = Small();
    config[change.field] = change.value;
    const auto spec = Parse(config);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << change.field;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says));
    EXPECT_EQ(ReasonOf(spec.status()), "INVALID_CONFIG");
  }
}

TEST(ModelConfig, NamesTheFieldOfEveryBadValue) {
  const json bad[] = {"x",
                      -1,
                      1.5,
                      true,
                      json::array(),
                      json::object(),
                      "",
                      1e300,
                      -0.5,
                      json(UINT64_MAX),
                      json(INT64_MIN),
                      json::array({-1})};
  const char* integers[] = {
      "hidden_size",         "vocab_size", "num_hidden_layers", "num_attention_heads",
      "num_key_value_heads", "head_dim",   "intermediate_size", "max_position_embeddings"};
  int tried = 0;
  for (const char* field : integers) {
    for (const json& value : bad) {
      json config = Small();
      config[field] = value;
      const auto spec = Parse(config);
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << field << " " << value;
      EXPECT_THAT(std::string(spec.status().message()), HasSubstr(field)) << value;
      ++tried;
    }
    json config = Small();
    config[field] = 0;
    EXPECT_THAT(std::string(Parse(config).status().message()), HasSubstr(field));
  }
  EXPECT_EQ(tried, 96);
  for (const char* field : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size"}) {
    json config = Small();
    config.erase(field);
    EXPECT_THAT(std::string(Parse(config).status().message()),
                HasSubstr(std::string(field) + " is missing"));
  }
  const Change others[] = {
      {"rms_norm_eps", "x", "rms_norm_eps"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps"},
      {"rope_theta", 0, "rope_theta"},
      {"rope_theta", "x", "rope_theta"},
      {"rope_theta", 1e300, "rope_theta"},
      {"tie_word_embeddings", 1, "tie_word"},
      {"attention_bias", "no", "attention_bias"},
      {"mlp_bias", 0, "mlp_bias"},
      {"model_type", 5, "model_type"},
      {"eos_token_id", -1, "eos_token_id"},
      {"eos_token_id", {1, "2"}, "eos_token_id"},
      {"bos_token_id", 1.5, "bos_token_id"},
      {"hidden_act", 5, "hidden_act"},
      {"architectures", "x", "architectures"},
      {"eos_token_id", 1u << 30, "eos_token_id"},
      {"use_sliding_window", {1}, nullptr},
  };
  for (const Change& change : others) {
    json config = Small();
    config[change.field] = change.value;
    const auto spec = Parse(config);
    if (change.says == nullptr) {
      EXPECT_TRUE(spec.ok()) << spec.status();  // Read only where there is a window.
      continue;
    }
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << change.field;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(change.says)) << change.field;
  }
}

TEST(ModelConfig, RefusesAGenerationConfigThatIsWrong) {
  for (const char* text : {"{", "[]", R"({"eos_token_id":"x"})", R"({"eos_token_id":[-1]})"}) {
    const auto spec = Parse(Small(), text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("generation_config.json")) << text;
  }
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "{", "[]", "null", "{\"a\":1,\"a\":2}", "\xff", "{\"a\":\"\xff\"}"}) {
    const auto spec = ParseModelConfig(text, "");
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr("config.json")) << text;
  }
  EXPECT_THAT(std::string(ParseModelConfig("{}", "").status().message()), HasSubstr("model_type"));
  std::string deep = "{\"a\":";
  deep.append(2000000, '[');
  EXPECT_FALSE(ParseModelConfig(deep, "").ok());
  EXPECT_FALSE(ParseModelConfig(std::string(kMaxSafetensorsHeaderBytes, ' '), "").ok());
}

// Any one or two values replaced: an error with a message, or a spec within the limits.
TEST(ModelConfig, SurvivesRandomValues) {
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         1,
                         2,
                         3,
                         -1,
                         7.5,
                         1e308,
                         "",
                         "a",
                         "llama",
                         "default",
                         json::array(),
                         json::object(),
                         json::array({1, "x", nullptr}),
                         {{"rope_type", "llama3"}},
                         {{"factor", -1}},
                         json(UINT64_MAX),
                         65536,
                         1 << 24};
  std::vector<std::string> bases = {SmallConfig(),
                                    ReadFileOrFail(GoldenPath("models/llama31/config.json")),
                                    ReadFileOrFail(SourcePath("models/recall/config.json"))};
  for (const char* family : {"mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2", "phi3",
                             "phi4-mini", "gemma2", "gemma3"}) {
    bases.push_back(FamilyConfig(family).dump());
  }
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) { return Philox(5, 0, draw++) % below; };
  int refused = 0;
  for (int i = 0; i < 8000; ++i) {
    json config = json::parse(bases[random(bases.size())]);
    for (uint64_t edits = 1 + random(2); edits > 0; --edits) {
      auto field = config.begin();
      std::advance(field, random(config.size()));
      json* target = &*field;
      if (target->is_object() && !target->empty() && random(2) == 0) {
        auto inner = target->begin();
        std::advance(inner, random(target->size()));
        target = &*inner;
      }
      *target = values[random(std::size(values))];
    }
    const auto spec = Parse(config);
    if (!spec.ok()) {
      ++refused;
      EXPECT_THAT(spec.status().code(),
                  AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented));
      // Some field is named.
      const std::string said(spec.status().message());
      bool named = said.find("architecture") != std::string::npos;
      for (const auto& [field, value] : config.items()) {
        named = named || said.find(field) != std::string::npos;
      }
      EXPECT_TRUE(named) << said;
      continue;
    }
    EXPECT_LE(spec->hidden, kMaxHiddenSize);
    EXPECT_LE(spec->layers.size(), kMaxLayers);
    for (const LayerSpec& layer : spec->layers) {
      const AttentionSpec& attention = layer.attention;
      ASSERT_LT(attention.kv_group, spec->kv_groups.size());
      ASSERT_EQ(attention.heads % attention.kv_heads, 0);
      ASSERT_EQ(attention.head_dim % 2, 0);
      ASSERT_GE(attention.rope.theta, 1);
      ASSERT_LE(attention.rope.rotary_dim, attention.head_dim);
      ASSERT_GT(attention.scale, 0);
      ASSERT_GT(layer.branch_scale, 0);
      for (const auto* factors : {&attention.rope.short_factors, &attention.rope.long_factors}) {
        ASSERT_TRUE(factors->empty() || factors->size() == attention.rope.rotary_dim / 2);
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

// Qwen's model cards leave max_position_embeddings at what the model was trained for; DeepSeek's
// files have the product there.
TEST(ModelConfig, TheContextIsWhatTheScalingSays) {
  const auto context = [](const json& rope, uint64_t positions, const char* outside = nullptr) {
    json config = Small();
    config["max_position_embeddings"] = positions;
    config["rope_scaling"] = rope;
    if (outside != nullptr) {
      config["original_max_position_embeddings"] = std::stoull(outside);
    }
    const auto spec = Parse(config);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? spec->context : 0;
  };
  const json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  json with_original = yarn;
  with_original["original_max_position_embeddings"] = 32768;
  EXPECT_EQ(context(with_original, 32768), 131072u);
  EXPECT_EQ(context(with_original, 131072), 131072u);
  EXPECT_EQ(context(with_original, 262144), 262144u);
  EXPECT_EQ(context(yarn, 1000), 4000u);
  EXPECT_EQ(context(yarn, 131072, "8192"), 131072u);
  EXPECT_EQ(context({{"type", "yarn"}, {"factor", 1e6}}, kMaxContextTokens), kMaxContextTokens);
  EXPECT_EQ(context({{"type", "dynamic"}, {"factor", 2.5}}, 1000), 2500u);
  // Files have either number there.
  EXPECT_EQ(context({{"type", "linear"}, {"factor", 4.0}}, 1000), 1000u);
  EXPECT_EQ(context({{"type", "llama3"},
                     {"factor", 32.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}},
                    131072),
            131072u);
}

// Where it stands, and where it does not.
TEST(ModelConfig, YarnTakesItsOriginalContextFromEitherPlace) {
  json config = Small();
  config["max_position_embeddings"] = 512;
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(Parse(config)->layers[0].attention.rope.original_context, 512);
  config["original_max_position_embeddings"] = 256;
  EXPECT_EQ(Parse(config)->layers[0].attention.rope.original_context, 256);
  config["rope_scaling"]["original_max_position_embeddings"] = 256;
  EXPECT_TRUE(Parse(config).ok());
  config["rope_scaling"]["original_max_position_embeddings"] = 128;
  EXPECT_THAT(std::string(Parse(config).status().message()),
              HasSubstr("original_max_position_embeddings is 256, and in rope_scaling 128"));
}

TEST(ModelConfig, KeysOfYarnThatOtherLibrariesReadMayNotDisagree) {
  json config = Small();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"finetuned", true}};
  EXPECT_TRUE(Parse(config).ok());
  config["rope_scaling"]["apply_yarn_scaling"] = true;
  EXPECT_TRUE(Parse(config).ok());
  config["rope_scaling"]["apply_yarn_scaling"] = false;
  EXPECT_THAT(std::string(Parse(config).status().message()), HasSubstr("apply_yarn_scaling"));
  config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"] = 1.0;
  EXPECT_TRUE(Parse(config).ok());
}

}  // namespace
}  // namespace strata
