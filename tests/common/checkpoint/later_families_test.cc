// The configurations of families whose text decoders differ in a field or two from those before,
// and of models with eyes, of which the decoder alone is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/config_testing.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FamilyConfig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeTensor;
using testing::MakeTensors;
using testing::Parse;
using testing::SafetensorsFile;
using testing::TempFolder;
using testing::WindowsOf;

std::string Problem(const json& config) {
  const auto spec = Parse(config);
  return spec.ok() ? "" : std::string(spec.status().message());
}

const AttentionSpec& Attention(const ModelSpec& spec, size_t layer = 0) {
  return spec.layers[layer].attention;
}

TEST(LaterFamilies, KimiK2IsDeepSeekV3UnderAnotherName) {
  json config = FamilyConfig("kimi-k2");
  const auto kimi = Parse(config);
  ASSERT_TRUE(kimi.ok()) << kimi.status();
  EXPECT_EQ(kimi->family, "kimi_k2");
  config["model_type"] = "deepseek_v3";
  const auto deepseek = Parse(config);
  ASSERT_TRUE(deepseek.ok()) << deepseek.status();
  EXPECT_EQ(deepseek->family, "deepseek_v3");
  EXPECT_EQ(Attention(*kimi).rope, Attention(*deepseek).rope);
  EXPECT_EQ(Attention(*kimi).scale, Attention(*deepseek).scale);
  EXPECT_EQ(kimi->layers[1].mlp.router.scale, deepseek->layers[1].mlp.router.scale);
  EXPECT_EQ(kimi->layers[1].mlp.shared_ffn, 16u);
  // By the architecture alone it is DeepSeek's.
  config.erase("model_type");
  EXPECT_EQ(Parse(config)->family, "deepseek_v3");
  config["model_type"] = "kimi_k2";
  config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_THAT(Problem(config), HasSubstr("of model_type \"kimi_k2\""));
}

// The fields of the text of a Qwen2.5-VL within text_config, as transformers 5 writes them.
json Nested(const json& flat) {
  json config = {{"architectures", flat["architectures"]},
                 {"model_type", flat["model_type"]},
                 {"vision_config", flat["vision_config"]}};
  json text = flat;
  for (const char* outside : {"architectures", "vision_config", "image_token_id"}) {
    text.erase(outside);
  }
  text["model_type"] = "qwen2_5_vl_text";
  config["text_config"] = text;
  return config;
}

TEST(LaterFamilies, QwenVlReadsItsTextWhereverItStands) {
  const json flat = FamilyConfig("qwen25-vl");
  for (const json& config : {flat, Nested(flat)}) {
    const auto spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->family, "qwen2_5_vl");
    EXPECT_EQ(spec->tensor_prefix, "language_model.");
    EXPECT_TRUE(Attention(*spec).qkv_bias);
    EXPECT_FALSE(Attention(*spec).out_bias);
    EXPECT_EQ(Attention(*spec).rope, (RopeSpec{.rotary_dim = 16, .theta = 1e6}));
    EXPECT_THAT(spec->eos_ids, ElementsAre(106));
  }
  json config = Nested(flat);
  config["text_config"]["use_sliding_window"] = true;
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(0, 0, 0));  // From layer 80 on.
  const auto qwen3 = Parse(FamilyConfig("qwen3-vl"));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status();
  EXPECT_EQ(Attention(*qwen3).qk_norm, QkNorm::kHead);
  EXPECT_EQ(Attention(*qwen3).rope, (RopeSpec{.rotary_dim = 24, .theta = 5e6}));
  EXPECT_TRUE(qwen3->tied_head);
}

TEST(LaterFamilies, Qwen3VlsMixturesAlwaysDivideByTheSumOfTheScores) {
  json config = FamilyConfig("qwen3-vl-moe");
  json& text = config["text_config"];
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "qwen3_vl_moe");
  EXPECT_EQ(spec->layers[0].mlp.experts, 6u);
  EXPECT_EQ(spec->layers[1].mlp.experts, 0u) << "mlp_only_layers";
  EXPECT_EQ(Attention(*spec).rope, (RopeSpec{.rotary_dim = 24, .theta = 5e6}));
  text["norm_topk_prob"] = false;  // A field of Qwen3's mixtures, which this one does not read.
  EXPECT_TRUE(Parse(config)->layers[0].mlp.router.renormalize);
  text.erase("norm_topk_prob");
  text.erase("num_experts_per_tok");
  EXPECT_EQ(Parse(config)->layers[0].mlp.router.used, 4u);
  text["num_local_experts"] = 7;
  EXPECT_THAT(Problem(config), HasSubstr("num_experts is 6, and num_local_experts"));
}

TEST(LaterFamilies, SectionsOfPositionsSayNothingOfText) {
  json config = FamilyConfig("qwen25-vl");
  json& rope = config["rope_scaling"];
  rope["mrope_section"] = {2, 3, 2};
  EXPECT_THAT(Problem(config), HasSubstr("mrope_section [2,3,2] does not divide 8 pairs"));
  rope["mrope_section"] = "x";
  EXPECT_THAT(Problem(config), HasSubstr("mrope_section \"x\""));
  // As older files say it, and with YaRN, as its card does.
  rope = {{"type", "default"}, {"rope_type", "default"}, {"mrope_section", {2, 3, 3}}};
  EXPECT_EQ(Attention(*Parse(config)).rope.scaling, RopeScaling::kNone);
  rope = {{"type", "yarn"},
          {"factor", 4.0},
          {"original_max_position_embeddings", 64},
          {"mrope_section", {2, 3, 3}}};
  EXPECT_EQ(Attention(*Parse(config)).rope.scaling, RopeScaling::kYarn);
  // Others have none.
  config = FamilyConfig("qwen2");
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  EXPECT_THAT(Problem(config), HasSubstr("type \"mrope\""));
  config["rope_scaling"]["type"] = "default";
  EXPECT_THAT(Problem(config), HasSubstr("mrope_section"));
}

TEST(LaterFamilies, AModelOfPartsSaysItselfWhetherItsHeadIsTied) {
  json config = FamilyConfig("qwen3-vl");
  const auto tied = [&](const json& of_model, const json& of_text) {
    const auto set = [](json* object, const json& value) {
      object->erase("tie_word_embeddings");
      if (!value.is_null()) {
        (*object)["tie_word_embeddings"] = value;
      }
    };
    set(&config, of_model);
    set(&config["text_config"], of_text);
    return Parse(config)->tied_head;
  };
  EXPECT_TRUE(tied(true, nullptr));
  EXPECT_TRUE(tied(nullptr, true));
  EXPECT_TRUE(tied(true, false));
  EXPECT_FALSE(tied(false, true));
  EXPECT_FALSE(tied(nullptr, nullptr));
  config = Nested(FamilyConfig("qwen25-vl"));
  EXPECT_TRUE(tied(false, true));  // Either says so.
  EXPECT_TRUE(tied(true, false));
}

TEST(LaterFamilies, Ministral3sQueriesGrowWithTheirPositions) {
  json config = FamilyConfig("ministral3");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec, 2).query_growth, 0.3f);
  EXPECT_EQ(Attention(*spec, 2).query_growth_every, 32u);
  EXPECT_EQ(Attention(*spec).rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(Attention(*spec).rope.magnitude, 1.0);  // mscale over mscale_all_dim.
  json& rope = config["rope_parameters"];
  rope["llama_4_scaling_beta"] = 0;
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec).query_growth, 0.0f);
  rope["llama_4_scaling_beta"] = -1;
  EXPECT_THAT(Problem(config), HasSubstr("rope_parameters.llama_4_scaling_beta"));
  rope.erase("llama_4_scaling_beta");
  EXPECT_THAT(Problem(config), HasSubstr("rope_parameters.llama_4_scaling_beta is missing"));
  // It is no field of others.
  rope["llama_4_scaling_beta"] = 0.3;
  config["model_type"] = "llama";
  config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_THAT(Problem(config), HasSubstr("llama_4_scaling_beta"));
}

TEST(LaterFamilies, Mistral3IsWhatItsTextSays) {
  auto spec = Parse(FamilyConfig("mistral3"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "mistral");
  EXPECT_EQ(Attention(*spec).rope.theta, 1e9);
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(0, 0, 0));
  json config = FamilyConfig("devstral");
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "ministral3");
  EXPECT_EQ(Attention(*spec).query_growth_every, 40u);
  config["text_config"].erase("model_type");
  EXPECT_THAT(Problem(config), HasSubstr("model_type"));
}

TEST(LaterFamilies, Olmo3ScalesTheRotationOfItsFullLayersAlone) {
  json config = FamilyConfig("olmo3");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(WindowsOf(*spec), ElementsAre(20, 20, 20, 0));
  const RopeSpec plain{.rotary_dim = 16, .theta = 5e5};
  EXPECT_EQ(Attention(*spec, 0).rope, plain);
  EXPECT_EQ(Attention(*spec, 3).rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(Attention(*spec, 3).rope.theta, 5e5);
  const RopeSpec scaled = Attention(*spec, 3).rope;
  config["rope_theta"] = 3e4;  // To transformers 5 that of full layers, to 4 of all.
  EXPECT_THAT(Problem(config), HasSubstr("rope_theta 30000 without rope_parameters"));
  config["rope_theta"] = 5e5;
  config.erase("layer_types");  // Every fourth is full.
  EXPECT_THAT(WindowsOf(*Parse(config)), ElementsAre(20, 20, 20, 0));
  // As transformers 5 writes it.
  json full = config["rope_scaling"];
  full["rope_theta"] = 5e5;
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"full_attention", full},
                               {"sliding_attention", {{"rope_theta", 3e4}}}};
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec, 0).rope, (RopeSpec{.rotary_dim = 16, .theta = 3e4}));
  EXPECT_EQ(Attention(*spec, 3).rope, scaled);
  config["rope_parameters"]["full_attention"]["truncate"] = false;
  EXPECT_THAT(Problem(config), HasSubstr("rope_parameters.\"full_attention\".truncate false"));
  config["rope_parameters"]["full_attention"].erase("truncate");
  // With what transformers 5.24 was given flat, writes beside them, and does not read.
  config["rope_parameters"]["rope_type"] = "yarn";
  config["rope_parameters"]["factor"] = 2;
  config["rope_parameters"]["rope_theta"] = 77;
  spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec, 0).rope, (RopeSpec{.rotary_dim = 16, .theta = 3e4}));
  EXPECT_EQ(Attention(*spec, 3).rope, scaled);
  config["rope_parameters"].erase("sliding_attention");
  EXPECT_THAT(Problem(config), HasSubstr("rope_parameters"));
}

TEST(LaterFamilies, OneRotationForAllOfOlmo3sLayersIsTakenWhereAllReleasesAgree) {
  json config = FamilyConfig("olmo3");
  config.erase("rope_scaling");
  config.erase("rope_theta");
  const RopeSpec plain{.rotary_dim = 16, .theta = 5e5};
  for (const json& same : {json::object(), json({{"rope_type", "default"}}),
                           json({{"rope_type", "default"}, {"rope_theta", 5e5}})}) {
    config["rope_parameters"] = same;
    const auto spec = Parse(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(Attention(*spec, 0).rope, plain);
    EXPECT_EQ(Attention(*spec, 3).rope, plain);
  }
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  EXPECT_THAT(Problem(config), AllOf(HasSubstr("rope_parameters {\"rope_theta\":10000.0"),
                                     HasSubstr("without one object for each kind of layer")));
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 8.0}, {"rope_theta", 5e5}};
  EXPECT_THAT(Problem(config), HasSubstr("without one object for each kind of layer"));
}

TEST(LaterFamilies, SeedOssHasABiasOfItsOwnBehindAttention) {
  json config = FamilyConfig("seed-oss");
  EXPECT_TRUE(Attention(*Parse(config)).qkv_bias);
  EXPECT_FALSE(Attention(*Parse(config)).out_bias);
  config["attention_out_bias"] = true;
  EXPECT_TRUE(Attention(*Parse(config)).out_bias);
  config.erase("attention_bias");
  EXPECT_TRUE(Attention(*Parse(config)).qkv_bias);
  config["mlp_bias"] = true;
  EXPECT_TRUE(Parse(config)->layers[0].mlp.bias);
}

TEST(LaterFamilies, Glm4RotatesNeighboursOfHalfAHead) {
  json config = FamilyConfig("glm4");
  config.erase("partial_rotary_factor");
  const auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(Attention(*spec).rotates_neighbours);
  EXPECT_EQ(Attention(*spec).rope.rotary_dim, 12u);
  EXPECT_TRUE(Attention(*spec).qkv_bias);
  EXPECT_FALSE(Attention(*spec).out_bias);
  EXPECT_FALSE(Attention(*spec).fused_qkv);
  EXPECT_TRUE(spec->layers[0].mlp.fused_gate_up);
  const LayerNormNames names = NormNames(spec->layers[0].norm_places);
  EXPECT_STREQ(names.after_attention, "post_self_attn_layernorm");
  EXPECT_STREQ(names.before_mlp, "post_attention_layernorm");
  config["partial_rotary_factor"] = nullptr;
  EXPECT_THAT(Problem(config), HasSubstr("partial_rotary_factor null"));
  config["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(Attention(*Parse(config)).rope.rotary_dim, 24u);
}

TEST(LaterFamilies, Glm4MoeIsReadByItsFlags) {
  json config = FamilyConfig("glm4-moe");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec).qk_norm, QkNorm::kHead);
  EXPECT_EQ(Attention(*spec).rope.rotary_dim, 8u);
  EXPECT_FALSE(Attention(*spec).rotates_neighbours);
  EXPECT_FALSE(Attention(*spec).out_bias);
  EXPECT_EQ(spec->layers[0].mlp.experts, 0u);
  const RouterSpec& router = spec->layers[1].mlp.router;
  EXPECT_EQ(router.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(router.corrected && router.renormalize);
  EXPECT_EQ(router.scale, 2.5f);
  config.erase("use_qk_norm");
  EXPECT_EQ(Attention(*Parse(config)).qk_norm, QkNorm::kNone);
}

TEST(LaterFamilies, Glm4MoeLiteListsItsDenseLayers) {
  json config = FamilyConfig("glm4-moe-lite");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].mlp.experts, 0u);
  EXPECT_EQ(spec->layers[1].mlp.experts, 8u);
  config["mlp_layer_types"] = {"dense", "dense", "sparse"};
  EXPECT_EQ(Parse(config)->layers[1].mlp.experts, 0u);
  config["first_k_dense_replace"] = 1;
  EXPECT_THAT(Problem(config), HasSubstr("mlp_layer_types has 2 dense layers"));
  config["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_THAT(Problem(config), HasSubstr("mlp_layer_types"));
  config.erase("mlp_layer_types");
  EXPECT_TRUE(Parse(config).ok());
  config.erase("first_k_dense_replace");
  EXPECT_EQ(Parse(config)->layers[0].mlp.experts, 0u);
  EXPECT_NE(Parse(config)->layers[1].mlp.experts, 0u);
}

TEST(LaterFamilies, MiniMaxM2SaysHowManyDimensionsRotate) {
  json config = FamilyConfig("minimax-m2");
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Attention(*spec).rope.rotary_dim, 16u);
  EXPECT_EQ(Attention(*spec).qk_norm, QkNorm::kProjection);
  EXPECT_TRUE(spec->layers[0].mlp.router.corrected);
  EXPECT_EQ(spec->layers[0].mlp.router.groups, 1u);
  config["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(Problem(config), HasSubstr("rotary_dim is 16, and partial_rotary_factor 0.5"));
  config.erase("rotary_dim");
  EXPECT_EQ(Attention(*Parse(config)).rope.rotary_dim, 12u);
  for (const auto& [field, value] :
       {std::pair("use_qk_norm", json(false)), std::pair("qk_norm_type", json("per_head")),
        std::pair("scoring_func", json("softmax")), std::pair("use_routing_bias", json(false)),
        std::pair("shared_intermediate_size", json(64)),
        std::pair("attn_type_list", json({1, 0, 1}))}) {
    json changed = config;
    changed[field] = value;
    EXPECT_THAT(Problem(changed), HasSubstr(field));
  }
}

// `layout` gives a tensor of the decoder, "model.layers.0..." or "lm_head.weight", its name.
template <typename Layout>
void ExpectOpens(const std::string& model, std::vector<std::string> others, const Layout& layout) {
  const json config = FamilyConfig(model);
  auto spec = Parse(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<MadeTensor> tensors = MakeTensors(*spec);
  const std::string prefix = spec->tensor_prefix;
  for (MadeTensor& tensor : tensors) {
    tensor.name = layout(tensor.name.substr(prefix.size()));
  }
  for (const std::string& name : others) {
    tensors.push_back({name, "F32", {1}, std::string(4, '\1')});
  }
  TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ(checkpoint->notes.size(), others.empty() ? 0u : 1u);
  if (!others.empty()) {
    EXPECT_THAT(checkpoint->notes[0], HasSubstr("only the language model is loaded"));
  }
}

// As their first files had them, as transformers 5 holds them, and as it writes them.
TEST(LaterFamilies, DecodersOfModelsOfPartsAreFoundUnderEachOfTheirNames) {
  const auto flat = [](const std::string& name) { return name; };
  const auto inner = [](const std::string& name) {
    return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
  };
  const auto whole = [](const std::string& name) { return "language_model." + name; };
  const auto whole_but_head = [&](const std::string& name) {
    return name.starts_with("model.") ? whole(name) : name;
  };
  for (const char* model : {"qwen25-vl", "qwen3-vl", "qwen3-vl-moe", "mistral3", "devstral"}) {
    SCOPED_TRACE(model);
    ExpectOpens(model, {}, flat);
    ExpectOpens(model, {"visual.patch_embed.proj.weight"}, flat);
    ExpectOpens(model, {"model.visual.blocks.0.norm1.weight", "model.visual.blocks.0.norm1.bias"},
                inner);
    ExpectOpens(model, {"vision_tower.ln_pre.weight", "multi_modal_projector.norm.weight"}, whole);
    ExpectOpens(model, {"model.vision_tower.ln_pre.weight"}, whole_but_head);
  }
}

TEST(LaterFamilies, PartsThatAreLeftOutAreNamed) {
  const auto notes = [](const char* model) {
    const auto checkpoint = OpenCheckpoint(testing::GoldenPath(std::string("models/") + model));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<std::string> of_tensors;
    for (const std::string& note : checkpoint.ok() ? checkpoint->notes : of_tensors) {
      if (!note.starts_with("file ")) {
        of_tensors.push_back(note);
      }
    }
    return of_tensors;
  };
  EXPECT_THAT(notes("qwen25-vl"), ElementsAre(HasSubstr("tensors are left out, of \"visual\" (")));
  EXPECT_THAT(notes("mistral3"), ElementsAre(AllOf(HasSubstr("\"multi_modal_projector\" ("),
                                                   HasSubstr("\"vision_tower\" ("))));
  EXPECT_THAT(notes("ministral3"), IsEmpty());
  // The layer that guesses further tokens.
  EXPECT_THAT(notes("glm4-moe"), ElementsAre(HasSubstr("model.layers.3.enorm.weight")));
}

}  // namespace
}  // namespace strata
