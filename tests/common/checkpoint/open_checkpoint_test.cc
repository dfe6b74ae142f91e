#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "common/random.h"
#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeTensor;
using testing::MakeTensors;
using testing::SafetensorsFile;
using testing::SmallConfig;
using testing::TempFolder;

constexpr char kIndex[] = "model.safetensors.index.json";

std::string Message(const std::string& path) {
  return std::string(OpenCheckpoint(path).status().message());
}

std::vector<MadeTensor> SmallTensors(std::string_view dtype = "F32") {
  return MakeTensors(*ParseModelConfig(SmallConfig(), ""), dtype);
}

TEST(OpenCheckpoint, OpensTheGoldenModelsAndTheBundledOne) {
  for (const std::string& path :
       {testing::GoldenPath("models/llama"), testing::GoldenPath("models/llama31"),
        testing::GoldenPath("models/llama2-mha-f32"), testing::SourcePath("models/recall")}) {
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const ModelSpec& spec = checkpoint->spec;
    EXPECT_EQ(checkpoint->tensors.size(), 9 * spec.layers.size() + (spec.tied_head ? 2 : 3));
    for (const StageTensor& tensor :
         TensorsOf(spec, 0, static_cast<uint32_t>(spec.layers.size() - 1), true, true)) {
      const TensorEntry* entry = checkpoint->Find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      EXPECT_EQ(entry->shape, tensor.shape);
    }
    EXPECT_EQ(checkpoint->Find("model.layers.99.mlp.up_proj.weight"), nullptr);
  }
  const auto sharded = OpenCheckpoint(testing::GoldenPath("models/llama"));
  EXPECT_THAT(sharded->weight_files,
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_EQ(sharded->Find("lm_head.weight")->file, "model-00002-of-00002.safetensors");
}

// Some files have the embedding twice; transformers computes with a head that differs from it.
TEST(OpenCheckpoint, AHeadBesideATiedEmbeddingIsACopyOfIt) {
  const std::string config = SmallConfig("\"tie_word_embeddings\": true,");
  std::vector<MadeTensor> tensors = MakeTensors(*ParseModelConfig(config, ""));
  const auto embedding = std::find_if(tensors.begin(), tensors.end(), [](const MadeTensor& tensor) {
    return tensor.name == "model.embed_tokens.weight";
  });
  ASSERT_NE(embedding, tensors.end());
  MadeTensor head = *embedding;
  head.name = "lm_head.weight";
  tensors.push_back(head);
  TempFolder folder;
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_TRUE(OpenCheckpoint(folder.path()).ok());
  tensors.back().bytes.back() ^= 1;
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(Message(folder.path()), HasSubstr("tie_word_embeddings true beside a tensor "
                                                "\"lm_head.weight\" that is no copy"));
}

TEST(OpenCheckpoint, OpensMadeUpFolders) {
  for (std::string_view dtype : {"F32", "F16", "BF16"}) {
    TempFolder folder;
    folder.Write("config.json", SmallConfig());
    folder.Write("model.safetensors", SafetensorsFile(SmallTensors(dtype)));
    const auto checkpoint = OpenCheckpoint(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_THAT(checkpoint->notes, IsEmpty());
    EXPECT_THAT(checkpoint->weight_files, ElementsAre("model.safetensors"));
  }
  for (int shards = 1; shards <= 4; ++shards) {
    TempFolder folder;
    testing::WriteShardedCheckpoint(folder, shards);
    const auto checkpoint = OpenCheckpoint(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->weight_files.size(), shards);
  }
}

// Older exports say how they quantized in a file of their own alone.
TEST(OpenCheckpoint, ReadsWhatModelOptSaysBesideTheConfiguration) {
  const auto opens = OpenCheckpoint(testing::GoldenPath("models/qwen2-modelopt-fp8"));
  ASSERT_TRUE(opens.ok()) << opens.status();
  ASSERT_TRUE(opens->spec.quantization.has_value());
  EXPECT_EQ(opens->spec.quantization->method, QuantizationMethod::kModelOpt);
  EXPECT_THAT(opens->config_json, HasSubstr("\"quant_method\":\"modelopt\""));
  EXPECT_THAT(opens->notes, Contains(HasSubstr("scales of a quantized KV cache are ignored")));

  const auto read = [](const std::string& config, const std::string& stored) {
    TempFolder folder;
    folder.Write("config.json", config);
    folder.Write("hf_quant_config.json", stored);
    folder.Write("model.safetensors", SafetensorsFile(SmallTensors()));
    return Message(folder.path());
  };
  const std::string fp8 = R"({"quantization": {"quant_algo": "FP8"}})";
  EXPECT_EQ(read(SmallConfig(), fp8), "");  // All was left out, as its tensors say.
  EXPECT_THAT(read(SmallConfig(), R"({"quantization": {"quant_algo": "W4A8_AWQ"}})"),
              HasSubstr("quantization_config.quant_algo \"W4A8_AWQ\""));
  EXPECT_THAT(read(SmallConfig(), "{}"),
              HasSubstr("hf_quant_config.json: quantization is missing"));
  EXPECT_THAT(read(SmallConfig(), "{"), HasSubstr("hf_quant_config.json"));
  const std::string both =
      SmallConfig(R"("quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},)");
  EXPECT_THAT(read(both, fp8),
              HasSubstr("quantization.quant_algo is \"FP8\", and "
                        "quantization_config.quant_algo of config.json \"NVFP4\""));
}

// Here without the scales.
TEST(OpenCheckpoint, SaysWhatAQuantizationConfigAsksForInVain) {
  TempFolder folder;
  const std::string config = SmallConfig(
      R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]},)");
  std::vector<MadeTensor> tensors = SmallTensors();
  const auto query = std::find_if(tensors.begin(), tensors.end(), [](const MadeTensor& tensor) {
    return tensor.name == "model.layers.0.self_attn.q_proj.weight";
  });
  ASSERT_NE(query, tensors.end());
  query->dtype = "F8_E4M3";
  query->bytes.resize(query->bytes.size() / 4);
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(
      Message(folder.path()),
      HasSubstr("q_proj.weight\" is not supported yet in the way that quantization_config"));
}

// As repositories have a decoder within another model, by now and from transformers 5 on.
TEST(OpenCheckpoint, FindsADecoderWithinAnotherModelByBothOfItsPrefixes) {
  json config = json::parse(SmallConfig());
  config = {{"model_type", "gemma3"}, {"text_config", config}};
  config["text_config"]["model_type"] = "gemma3_text";
  config["text_config"]["vocab_size"] = 10;
  config["text_config"]["head_dim"] = 4;
  config["text_config"]["num_key_value_heads"] = 1;
  config["text_config"]["tie_word_embeddings"] = false;
  config["text_config"].erase("architectures");
  config["text_config"].erase("hidden_act");
  const auto spec = ParseModelConfig(config.dump(), "");
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<MadeTensor> tensors = MakeTensors(*spec);
  std::vector<MadeTensor> renamed = tensors;
  for (MadeTensor& tensor : renamed) {
    const std::string name = tensor.name.substr(std::string("language_model.").size());
    tensor.name = name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
  }
  EXPECT_EQ(renamed.back().name, "lm_head.weight");
  for (const std::vector<MadeTensor>& named : {tensors, renamed}) {
    TempFolder folder;
    folder.Write("config.json", config.dump());
    folder.Write("model.safetensors", SafetensorsFile(named));
    const auto checkpoint = OpenCheckpoint(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_THAT(checkpoint->notes, IsEmpty());
    const std::string file = folder.Read("model.safetensors");
    for (const MadeTensor& tensor : tensors) {
      const TensorEntry* entry = checkpoint->Find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      EXPECT_EQ(file.substr(entry->offset, entry->bytes), tensor.bytes) << tensor.name;
    }
  }
}

TEST(OpenCheckpoint, OpensBiasesAndFollowsSymlinks) {
  TempFolder real;
  testing::WriteSmallCheckpoint(real, R"("attention_bias": true, "mlp_bias": true,)");
  TempFolder folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    ASSERT_EQ(symlink(real.File(name).c_str(), folder.File(name).c_str()), 0);
  }
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_NE(checkpoint->Find("model.layers.0.self_attn.o_proj.bias"), nullptr);
}

TEST(OpenCheckpoint, SaysWhatIsNotThere) {
  TempFolder folder;
  EXPECT_EQ(OpenCheckpoint(folder.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(folder.File("none")), HasSubstr(folder.File("none")));
  EXPECT_THAT(Message(folder.path()), HasSubstr("config.json"));
  folder.Write("config.json", SmallConfig());
  EXPECT_THAT(Message(folder.path()), HasSubstr("neither model.safetensors nor"));
  EXPECT_EQ(OpenCheckpoint(folder.File("config.json")).status().code(),
            absl::StatusCode::kInvalidArgument);
  folder.Write("pytorch_model.bin", "x");
  EXPECT_EQ(OpenCheckpoint(folder.path()).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(folder.path()), HasSubstr("pytorch_model.bin"));
}

TEST(OpenCheckpoint, RefusesFewerLayersThanTheWeightsHave) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  std::string config = SmallConfig();
  const std::string layers = "\"num_hidden_layers\": 2";
  folder.Write("config.json",
               config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 1"));
  EXPECT_EQ(ReasonOf(OpenCheckpoint(folder.path()).status()), "MORE_LAYERS");
  EXPECT_THAT(Message(folder.path()), HasSubstr("num_hidden_layers is 1"));
}

TEST(OpenCheckpoint, NamesMissingTensorsTenAtMost) {
  TempFolder folder;
  folder.Write("config.json", SmallConfig());
  std::vector<MadeTensor> tensors = SmallTensors();
  tensors.erase(tensors.begin());
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(Message(folder.path()), HasSubstr("\"model.embed_tokens.weight\""));
  EXPECT_EQ(ReasonOf(OpenCheckpoint(folder.path()).status()), "MISSING_TENSORS");
  tensors.resize(5);
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(Message(folder.path()), HasSubstr("16 tensors are missing"));
  EXPECT_THAT(Message(folder.path()), HasSubstr("and 6 more"));
}

TEST(OpenCheckpoint, NamesTheFieldsThatAskForMissingTensors) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const auto said = [&](const std::string& field, const json& value) {
    json config = json::parse(SmallConfig());
    config[field] = value;
    folder.Write("config.json", config.dump());
    return Message(folder.path());
  };
  EXPECT_THAT(said("attention_bias", true), HasSubstr("are missing (by attention_bias): "));
  EXPECT_THAT(said("mlp_bias", true), HasSubstr("are missing (by mlp_bias): "));
  EXPECT_THAT(said("num_hidden_layers", 3), HasSubstr("are missing (by num_hidden_layers): "));
  // And by which those that are there would not be.
  testing::WriteSmallCheckpoint(folder, "\"attention_bias\": true, \"tie_word_embeddings\": true,");
  EXPECT_THAT(said("attention_bias", false),
              HasSubstr("are missing (by tie_word_embeddings): \"lm_head.weight\""));
  EXPECT_THAT(said("tie_word_embeddings", true),
              HasSubstr("does not know (by attention_bias) are not supported yet: "));
}

TEST(OpenCheckpoint, NamesTheFieldsOfASizeThatATensorContradicts) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const auto said = [&](const std::string& field, const json& value) {
    json config = json::parse(SmallConfig());
    config[field] = value;
    folder.Write("config.json", config.dump());
    return Message(folder.path());
  };
  EXPECT_THAT(said("vocab_size", 1000),
              HasSubstr("embed_tokens.weight\" has shape [10, 8]; the configuration needs "
                        "[1000, 8] (by hidden_size, vocab_size)"));
  EXPECT_THAT(said("head_dim", 16), HasSubstr("needs [32, 8] (by head_dim, hidden_size, "
                                              "num_attention_heads)"));
  EXPECT_THAT(said("num_key_value_heads", 2),
              HasSubstr("(by head_dim, hidden_size, num_attention_heads, num_key_value_heads)"));
  EXPECT_THAT(said("intermediate_size", 5), HasSubstr("(by hidden_size, intermediate_size)"));
}

TEST(OpenCheckpoint, NotesUnexpectedTensorsAndFiles) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  std::vector<MadeTensor> tensors = SmallTensors();
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, "12345678"});
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  folder.Write("consolidated.safetensors", "whatever");
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ(checkpoint->notes.size(), 2);
  EXPECT_THAT(checkpoint->notes[0], HasSubstr("consolidated.safetensors"));
  EXPECT_THAT(checkpoint->notes[1], HasSubstr("rotary_emb.inv_freq"));
}

// A small model of GPTQ's, whose matrices take 32 inputs.
std::vector<MadeTensor> GptqTensors(const std::string& config) {
  std::vector<MadeTensor> tensors;
  const auto spec = ParseModelConfig(config, "");
  EXPECT_TRUE(spec.ok()) << spec.status();
  for (const StageTensor& wanted : TensorsOf(*spec, 0, 1, true, true, [](const std::string& name) {
         return name.find("layers.") != std::string::npos;
       })) {
    const Dtype dtype = wanted.dtypes.empty() ? Dtype::kF16 : wanted.dtypes[0];
    size_t bytes = DtypeBytes(dtype);
    for (const uint64_t dimension : wanted.shape) {
      bytes *= dimension;
    }
    tensors.push_back({wanted.name, DtypeName(dtype), wanted.shape, std::string(bytes, '\1')});
  }
  return tensors;
}

TEST(OpenCheckpoint, OpensGptqAndItsBiasesOfZerosAlone) {
  json config = json::parse(SmallConfig());
  config.update(json{{"hidden_size", 32}, {"intermediate_size", 64}});
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  TempFolder folder;
  folder.Write("config.json", config.dump());
  std::vector<MadeTensor> tensors = GptqTensors(config.dump());
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->notes, IsEmpty());
  EXPECT_NE(checkpoint->Find("model.layers.1.mlp.up_proj.g_idx"), nullptr);

  const std::string bias = "model.layers.0.mlp.up_proj.bias";
  tensors.push_back({bias, "F16", {64}, std::string(128, '\0')});
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->notes, ElementsAre(HasSubstr(bias)));
  tensors.back().bytes[77] = 1;
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_EQ(ReasonOf(OpenCheckpoint(folder.path()).status()), "UNEXPECTED_TENSORS");

  tensors.pop_back();
  for (MadeTensor& tensor : tensors) {
    if (tensor.name == "model.layers.1.mlp.up_proj.scales") {
      tensor = {tensor.name, "F16", {2, 64}, std::string(256, '\0')};
    }
  }
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(Message(folder.path()), HasSubstr("\"model.layers.1.mlp.up_proj.scales\" has shape"));
}

TEST(OpenCheckpoint, RefusesTensorsThatWouldChangeALayer) {
  for (const char* name :
       {"model.layers.1.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.mlp.up_proj.weight_scale"}) {
    TempFolder folder;
    folder.Write("config.json", SmallConfig());
    std::vector<MadeTensor> tensors = SmallTensors();
    tensors.push_back({name, "F32", {1}, "1234"});
    folder.Write("model.safetensors", SafetensorsFile(tensors));
    const auto checkpoint = OpenCheckpoint(folder.path());
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(name));
  }
}

TEST(OpenCheckpoint, RefusesWrongShapesAndDtypes) {
  TempFolder folder;
  folder.Write("config.json", SmallConfig());
  std::vector<MadeTensor> tensors = SmallTensors();
  tensors[2].shape = {4, 16};
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_THAT(Message(folder.path()),
              HasSubstr("has shape [4, 16]; the configuration needs [8, 8]"));
  EXPECT_THAT(Message(folder.path()), HasSubstr(tensors[2].name));
  tensors = SmallTensors();
  tensors[2].dtype = "I32";
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  EXPECT_EQ(OpenCheckpoint(folder.path()).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(folder.path()), HasSubstr("dtype \"I32\" of tensor"));
}

TEST(OpenCheckpoint, RefusesBrokenFiles) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const std::string good = folder.Read("model.safetensors");
  const auto expect = [&](std::string_view contents, const char* says) {
    folder.Write("model.safetensors", contents);
    const auto checkpoint = OpenCheckpoint(folder.path());
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr("model.safetensors"));
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(says));
  };
  expect("", "too few");
  expect("1234567", "too few");
  expect(std::string(8, '\0'), "does not begin with {");
  expect(std::string(8, '\xff'), "too large");
  expect(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}", "too large");
  expect(std::string("\x00\xe1\xf5\x05\0\0\0\0", 8) + "{}", "past the end");
  expect(good.substr(0, good.size() - 1), "past the end");
  expect(good + "x", "belong to no tensor");
  expect(good.substr(0, 100), "past the end");
}

json ReadIndex(const TempFolder& folder) { return json::parse(folder.Read(kIndex)); }

TEST(OpenCheckpoint, RefusesAnIndexThatContradictsTheFiles) {
  TempFolder folder;
  testing::WriteShardedCheckpoint(folder, 2);
  const json good = ReadIndex(folder);
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  const auto expect = [&](const json& index, const std::string& says) {
    folder.Write(kIndex, index.dump());
    const auto checkpoint = OpenCheckpoint(folder.path());
    EXPECT_FALSE(checkpoint.ok()) << says;
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(says));
  };
  json index = good;
  index["weight_map"]["model.extra.weight"] = first;
  expect(index, "\"model.extra.weight\"");
  index = good;
  index["weight_map"].erase("model.norm.weight");
  expect(index, "does not name: \"model.norm.weight\"");
  index = good;
  index["weight_map"]["model.norm.weight"] = first;
  expect(index, "says that tensor \"model.norm.weight\" is in \"" + first + "\", but it is in \"" +
                    second + "\"");
  index = good;
  index["weight_map"]["model.norm.weight"] = "model-00003-of-00003.safetensors";
  expect(index, "model-00003-of-00003.safetensors");
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "x.bin", "", ".."}) {
    index = good;
    index["weight_map"]["model.norm.weight"] = name;
    expect(index, "not a safetensors file of the folder");
  }
  index = good;
  index["weight_map"]["model.norm.weight"] = 3;
  expect(index, "model.norm.weight");
  expect(json::object(), "weight_map");
  expect(json{{"weight_map", json::array()}}, "weight_map");
  expect(json::array(), "not a JSON object");
  folder.Write(kIndex, "{");
  EXPECT_THAT(Message(folder.path()), HasSubstr(kIndex));
}

TEST(OpenCheckpoint, RefusesATensorInTwoFiles) {
  TempFolder folder;
  testing::WriteShardedCheckpoint(folder, 2);
  folder.Write("model-00002-of-00002.safetensors", folder.Read("model-00001-of-00002.safetensors"));
  EXPECT_THAT(Message(folder.path()),
              HasSubstr("is in \"model-00001-of-00002.safetensors\" and in"));
}

TEST(OpenCheckpoint, RefusesAMissingShard) {
  TempFolder folder;
  testing::WriteShardedCheckpoint(folder, 3);
  folder.Remove("model-00002-of-00003.safetensors");
  EXPECT_EQ(OpenCheckpoint(folder.path()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(folder.path()), HasSubstr("model-00002-of-00003.safetensors"));
}

// Damage anywhere in the header of a file: an error or a checkpoint that still adds up.
TEST(OpenCheckpoint, SurvivesRandomDamage) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const std::string good = folder.Read("model.safetensors");
  const size_t header = 8 + static_cast<uint8_t>(good[0]) + 256 * static_cast<uint8_t>(good[1]);
  uint32_t draw = 0;
  const auto random = [&](uint64_t below) { return Philox(13, 0, draw++) % below; };
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = good;
    damaged[random(i % 4 == 0 ? 8 : header)] = static_cast<char>(random(256));
    if (random(5) == 0) {
      damaged.resize(random(damaged.size()));
    }
    folder.Write("model.safetensors", damaged);
    const auto checkpoint = OpenCheckpoint(folder.path());
    if (!checkpoint.ok()) {
      ++refused;
      EXPECT_FALSE(checkpoint.status().message().empty());
      continue;
    }
    for (const TensorEntry& tensor : checkpoint->tensors) {
      EXPECT_LE(tensor.offset + tensor.bytes, damaged.size());
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace strata
