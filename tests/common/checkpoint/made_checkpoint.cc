#include "tests/common/checkpoint/made_checkpoint.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/check.h"

namespace strata::testing {

using nlohmann::json;

TempFolder::TempFolder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "strata-checkpoint-XXXXXX").string();
  STRATA_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempFolder::Write(std::string_view name, std::string_view contents) const {
  std::ofstream out(File(name), std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  STRATA_CHECK(out.good());
}

std::string TempFolder::Read(std::string_view name) const {
  std::ifstream in(File(name), std::ios::binary);
  STRATA_CHECK(in.good());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void TempFolder::Remove(std::string_view name) const { std::filesystem::remove(File(name)); }

std::string SafetensorsFile(const std::vector<MadeTensor>& tensors) {
  json header = json::object();
  std::string data;
  for (const MadeTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  header["__metadata__"] = {{"format", "pt"}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return SafetensorsFile(text, 0) + data;
}

std::string SafetensorsFile(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) {
    file[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i) & 255);
  }
  file += header;
  file.resize(file.size() + data_bytes, '\1');
  return file;
}

std::string SmallConfig(std::string_view more) {
  return "{" + std::string(more) + R"(
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 10, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2})";
}

std::vector<MadeTensor> MakeTensors(const ModelSpec& spec, std::string_view dtype) {
  const size_t element = dtype == "F32" ? 4 : 2;
  std::vector<MadeTensor> tensors;
  const auto last = static_cast<uint32_t>(spec.layers.size() - 1);
  for (const StageTensor& wanted : TensorsOf(spec, 0, last, true, true)) {
    size_t bytes = element;
    for (uint64_t dimension : wanted.shape) {
      bytes *= dimension;
    }
    std::string data(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      data[i] = static_cast<char>((i * 7 + tensors.size() * 31) % 64);
    }
    tensors.push_back({wanted.name, std::string(dtype), wanted.shape, std::move(data)});
  }
  return tensors;
}

void WriteSmallCheckpoint(const TempFolder& folder, std::string_view more_config) {
  const std::string config = SmallConfig(more_config);
  const auto spec = ParseModelConfig(config, "");
  STRATA_CHECK(spec.ok());
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsFile(MakeTensors(*spec)));
}

void WriteShardedCheckpoint(const TempFolder& folder, int shards) {
  const std::string config = SmallConfig();
  const auto spec = ParseModelConfig(config, "");
  STRATA_CHECK(spec.ok());
  folder.Write("config.json", config);
  std::vector<std::vector<MadeTensor>> parts(shards);
  std::vector<MadeTensor> tensors = MakeTensors(*spec);
  json map = json::object();
  const auto name = [&](size_t part) {
    return "model-0000" + std::to_string(part + 1) + "-of-0000" + std::to_string(shards) +
           ".safetensors";
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t part = i * shards / tensors.size();
    map[tensors[i].name] = name(part);
    parts[part].push_back(std::move(tensors[i]));
  }
  for (size_t part = 0; part < parts.size(); ++part) {
    folder.Write(name(part), SafetensorsFile(parts[part]));
  }
  folder.Write("model.safetensors.index.json",
               json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

}  // namespace strata::testing
