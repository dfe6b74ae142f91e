#include "tests/worker/backend/models/golden_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "common/model/block_formats.h"
#include "common/model/gpt_oss_experts.h"
#include "nlohmann/json.hpp"
#include "tests/golden.h"

namespace strata::testing {
namespace {

// Of the tensor with a matrix's weights.
std::string Format(const GoldenModel& model, const StageTensor& tensor) {
  const auto view = model.weights.FindStored(tensor.name);
  EXPECT_TRUE(view.ok()) << view.status();
  return view.ok() ? StoredFormat(model.spec, tensor, LoadedDtype(tensor.name, view->dtype)) : "";
}

// Of the head's matrix.
std::string HeadFormat(const GoldenModel& model) {
  const auto last = static_cast<uint32_t>(model.spec.layers.size() - 1);
  const bool tied = model.spec.tied_head;
  const std::string path = model.spec.tensor_prefix + (tied ? "model.embed_tokens." : "lm_head.");
  for (const StageTensor& tensor :
       TensorsOf(model.spec, last, last, false, true,
                 [&](const std::string& name) { return model.weights.Has(name); })) {
    if (tensor.name.starts_with(path)) {
      return Format(model, tensor);
    }
  }
  return "";
}

// What a tensor's matrices take once they are loaded.
uint64_t LoadedBytes(const TensorView& tensor) {
  if (!IsBlocks(tensor.dtype)) {
    return tensor.bytes;
  }
  uint64_t matrices = 1;
  for (size_t i = 0; i + 2 < tensor.shape.size(); ++i) {
    matrices *= tensor.shape[i];
  }
  const size_t last = tensor.shape.size() - 1;
  return matrices * BlockMatrixBytes(tensor.dtype, tensor.shape[last - 1], tensor.shape[last]);
}

// Of the layers' matrices but routers, joined by '+', that of the most bytes first.
std::string LayersFormat(const GoldenModel& model) {
  const auto last = static_cast<uint32_t>(model.spec.layers.size() - 1);
  std::map<std::string, uint64_t> bytes;
  for (const StageTensor& tensor :
       TensorsOf(model.spec, 0, last, false, false,
                 [&](const std::string& name) { return model.weights.Has(name); })) {
    if (tensor.part || StaysAsStored(tensor.name)) {
      continue;
    }
    if (tensor.matrix.has_value()) {
      bytes[Format(model, tensor)] += tensor.matrix->KeptBytes();
    } else if (MatrixShapeOf(tensor.name, tensor.shape, tensor.inputs_first).matrices != 0) {
      bytes[Format(model, tensor)] += LoadedBytes(*model.weights.FindStored(tensor.name));
    }
  }
  std::vector<std::pair<std::string, uint64_t>> order(bytes.begin(), bytes.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [format, count] : order) {
    text += (text.empty() ? "" : "+") + format;
  }
  return text;
}

// What the names of a model's cases and of their logits begin with. A GGUF file that has the
// weights of the model it was made of has none of its own.
std::string ResultsOf(const std::string& name, const std::string& folder) {
  constexpr std::string_view kGguf = "gguf/";
  if (!name.starts_with(kGguf)) {
    return folder + "/";
  }
  const std::string own = GoldenPath(name + ".");
  if (std::ifstream(own + "cases.json").good()) {
    return own;
  }
  return GoldenPath("models/" + name.substr(kGguf.size(), name.rfind('-') - kGguf.size()) + "/");
}

}  // namespace

void FileTensors::AddFile(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  std::string& bytes = files_[path];
  bytes = ReadFileOrFail(path);
  uint64_t header = 0;
  ASSERT_GE(bytes.size(), sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  ASSERT_LE(header, bytes.size() - sizeof(header));
  const uint64_t start = sizeof(header) + header;
  auto entries = ParseSafetensorsHeader(std::string_view(bytes).substr(sizeof(header), header),
                                        bytes.size() - start, start, path);
  ASSERT_TRUE(entries.ok()) << entries.status();
  for (TensorEntry& entry : *entries) {
    entry.file = path;
    const std::string name = entry.name;
    entries_[name] = std::move(entry);
  }
}

void FileTensors::AddCheckpoint(const Checkpoint& checkpoint) {
  for (TensorEntry entry : checkpoint.tensors) {
    entry.file = checkpoint.path + "/" + entry.file;
    if (std::string& bytes = files_[entry.file]; bytes.empty()) {
      bytes = ReadFileOrFail(entry.file);
    }
    const std::string name = entry.name;
    entries_[name] = std::move(entry);
  }
}

void FileTensors::Unpack(const std::vector<StageTensor>& tensors) {
  packed_ = std::make_shared<const FileTensors>(*this);
  unpacked_ = std::make_shared<const StoredTensors>(tensors, *packed_);
}

absl::StatusOr<TensorView> FileTensors::Find(std::string_view name) const {
  return unpacked_ != nullptr ? unpacked_->Find(name) : FindStored(name);
}

absl::StatusOr<TensorView> FileTensors::FindStored(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError("no tensor " + std::string(name));
  }
  const TensorEntry& entry = found->second;
  const std::string& bytes = files_.at(entry.file);
  return TensorView{entry.dtype, entry.shape,
                    reinterpret_cast<const uint8_t*>(bytes.data()) + entry.offset, entry.bytes};
}

std::vector<float> FileTensors::Floats(const std::string& name) const {
  const auto view = Find(name);
  if (!view.ok() || view->dtype != Dtype::kF32) {
    ADD_FAILURE() << "no float32 tensor " << name;
    return {};
  }
  std::vector<float> values(view->bytes / sizeof(float));
  std::memcpy(values.data(), view->data, view->bytes);
  return values;
}

std::vector<uint32_t> GoldenCase::AllIds() const {
  std::vector<uint32_t> ids = prompt_ids;
  ids.insert(ids.end(), greedy_ids.begin(), greedy_ids.end() - 1);
  return ids;
}

std::vector<std::string> GoldenModelNames() {
  return {"llama",
          "llama31",
          "llama2-mha-f32",
          "llama31-mlx4",
          "llama31-mlx8",
          "recall",
          "mistral",
          "qwen2",
          "qwen3",
          "qwen3-mlx4",
          "qwen3-mlx4-g32",
          "smollm3",
          "granite",
          "olmo2",
          "phi3",
          "phi3-longrope",
          "phi4-mini",
          "gemma",
          "gemma2",
          "gemma3",
          "gguf/llama-f32",
          "gguf/llama-f16",
          "gguf/llama-q8_0",
          "gguf/llama-q4_0",
          "gguf/llama31-q8_0",
          "gguf/qwen2-f32",
          "gguf/qwen2-f16",
          "gguf/qwen2-q8_0",
          "gguf/qwen2-q4_0",
          "gguf/llama-q4_1",
          "gguf/llama-q5_0",
          "gguf/llama-q5_1",
          "gguf/llama-kquants",
          "gguf/llama-lowbits",
          "gguf/phi3-q4_0",
          "gguf/phi3-longrope-bf16",
          "gguf/phi4-mini-bf16",
          "gguf/mixtral-bf16",
          "gguf/mixtral-experts-q4_0",
          "gguf/qwen3-moe-q8_0",
          "gguf/qwen3-yarn-q8_0",
          "gguf/smollm3-bf16",
          "gguf/granite-bf16",
          "gguf/olmo2-bf16",
          "gguf/gemma2-q8_0",
          "gguf/gemma3-q8_0",
          "gguf/gpt-oss-mxfp4",
          "gguf/deepseek-v2-bf16",
          "gguf/deepseek-v2-old-q8_0",
          "gguf/deepseek-v3-q8_0",
          "gguf/gemma-bf16",
          "gguf/ministral3-bf16",
          "gguf/olmo3-bf16",
          "gguf/glm4-bf16",
          "gguf/glm4-moe-bf16",
          "gguf/seed-oss-bf16",
          "gguf/minimax-m2-bf16",
          "gguf/qwen25-vl-bf16",
          "gguf/qwen3-vl-bf16",
          "minicpm-o",
          "mixtral",
          "mixtral-mlx4",
          "mixtral-mlx4-mixed",
          "qwen3-moe",
          "qwen3-moe-nonorm",
          "gpt-oss",
          "gpt-oss-mxfp4",
          "deepseek-v2",
          "deepseek-v3",
          "qwen3-moe-local",
          "gpt-oss-alpha",
          "qwen2-yarn",
          "mistral-yarn",
          "llama-dynamic",
          "kimi-k2",
          "glm4-moe-lite",
          "qwen2-vl",
          "qwen25-vl",
          "qwen3-vl",
          "qwen3-vl-moe",
          "mistral3",
          "ministral3",
          "devstral",
          "olmo3",
          "seed-oss",
          "glm",
          "glm4",
          "glm4-moe",
          "minimax-m2",
          "llama31-awq",
          "phi3-awq",
          "qwen2-gptq4",
          "qwen3-gptq4-v2",
          "llama31-gptq4-sym",
          "llama31-gptq8",
          "llama31-gptq4-actorder",
          "qwen2-packed4",
          "qwen3-packed4-zeros",
          "llama31-packed8",
          "llama31-packed8-zeros",
          "qwen3-packed4-actorder",
          "llama31-fp8",
          "qwen2-fp8-channel",
          "qwen3-fp8-block",
          "deepseek-v3-fp8",
          "mixtral-awq",
          "qwen3-moe-awq",
          "mixtral-gptq4",
          "mixtral-gptq4-actorder",
          "qwen3-moe-gptq4",
          "qwen3-moe-gptq8",
          "mixtral-packed8",
          "qwen3-moe-packed4",
          "deepseek-v2-awq",
          "deepseek-v2-packed4",
          "mixtral-fused",
          "deepseek-v3-fused",
          "minimax-m2-fused",
          "qwen3-mlx-modes",
          "qwen2-mlx-mixed",
          "llama31-mlx-mxfp4",
          "mixtral-mlx-nvfp4",
          "gpt-oss-mlx-mxfp4",
          "deepseek-v3-mlx4",
          "llama31-w8a8",
          "qwen3-w4a8",
          "llama31-mxfp4",
          "qwen2-mxfp8",
          "qwen3-packed-bits",
          "qwen2-fp8-nvfp4",
          "mixtral-nvfp4",
          "qwen3-fp8-exponents",
          "llama31-nf4",
          "qwen3-fp4",
          "qwen2-bnb8",
          "qwen3-vl-moe-fp8",
          "mixtral-modelopt-nvfp4",
          "qwen2-modelopt-fp8",
          "llama31-modelopt-mxfp8"};
}

std::string GoldenFormat::Name() const {
  std::string name = model;
  if (quantize != v1::QUANTIZE_NONE) {
    name += quantize == v1::QUANTIZE_INT8 ? "-int8" : "-int4";
    name += activations == v1::ACTIVATIONS_F32 ? "-f32" : "";
  } else if (activations == v1::ACTIVATIONS_INT8) {
    name += "-a8";
  }
  return name;
}

bool GoldenFormat::IsReference() const {
  return quantize == v1::QUANTIZE_NONE && activations == v1::ACTIVATIONS_F32;
}

std::vector<GoldenFormat> GoldenFormats() {
  std::vector<GoldenFormat> formats;
  for (const std::string& name : GoldenModelNames()) {
    formats.push_back({name});
  }
  for (const char* name : {"llama31-mlx4",        "llama31-mlx8",       "gguf/llama-q8_0",
                           "gguf/llama-q4_0",     "gguf/qwen2-q8_0",    "gguf/qwen2-q4_0",
                           "gguf/llama-q4_1",     "gguf/llama-q5_0",    "gguf/llama-q5_1",
                           "gguf/llama-kquants",  "gguf/llama-lowbits", "gpt-oss-mxfp4",
                           "mixtral-mlx4",        "mixtral-mlx4-mixed", "phi3-awq",
                           "qwen2-gptq4",         "llama31-gptq8",      "qwen3-packed4-zeros",
                           "mixtral-awq",         "qwen3-moe-gptq4",    "mixtral-packed8",
                           "deepseek-v2-awq",     "gguf/phi3-q4_0",     "gguf/mixtral-experts-q4_0",
                           "gguf/qwen3-moe-q8_0", "gguf/gemma3-q8_0",   "gguf/gpt-oss-mxfp4",
                           "qwen3-mlx-modes",     "gpt-oss-mlx-mxfp4",  "llama31-w8a8",
                           "llama31-mxfp4",       "qwen3-packed-bits",  "mixtral-nvfp4",
                           "llama31-nf4",         "qwen3-fp4"}) {
    formats.push_back({name, v1::QUANTIZE_NONE, v1::ACTIVATIONS_INT8});
  }
  for (const char* name : {"llama", "recall"}) {
    formats.push_back({name, v1::QUANTIZE_INT8, v1::ACTIVATIONS_INT8});
    formats.push_back({name, v1::QUANTIZE_INT4, v1::ACTIVATIONS_INT8});
  }
  for (const char* name :
       {"qwen2",         "olmo2",       "phi3",       "gemma3",      "qwen3-moe", "gpt-oss",
        "deepseek-v2",   "deepseek-v3", "mistral",    "qwen3",       "smollm3",   "granite",
        "phi3-longrope", "phi4-mini",   "gemma2",     "minicpm-o",   "mixtral",   "ministral3",
        "glm4",          "glm4-moe",    "minimax-m2", "qwen3-vl-moe"}) {
    formats.push_back({name, v1::QUANTIZE_INT8, v1::ACTIVATIONS_INT8});
    formats.push_back({name, v1::QUANTIZE_INT4, v1::ACTIVATIONS_INT8});
  }
  formats.push_back({"llama", v1::QUANTIZE_INT4, v1::ACTIVATIONS_F32});
  formats.push_back({"llama", v1::QUANTIZE_INT8, v1::ACTIVATIONS_F32});
  return formats;
}

GoldenModel LoadGoldenModel(const std::string& name) {
  GoldenModel model;
  model.name = name;
  const bool gguf = name.starts_with("gguf/");
  const std::string folder = name == "recall" ? SourcePath("models/recall")
                             : gguf           ? GoldenPath("gguf")
                                              : GoldenPath("models/" + name);
  auto checkpoint = OpenCheckpoint(gguf ? GoldenPath(name + ".gguf") : folder);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.status();
    return model;
  }
  model.spec = checkpoint->spec;
  model.weights.AddCheckpoint(*checkpoint);
  if (!gguf) {
    const auto last = static_cast<uint32_t>(model.spec.layers.size()) - 1;
    model.weights.Unpack(TensorsOf(model.spec, 0, last, true, true, [&](const std::string& tensor) {
      return model.weights.Has(tensor);
    }));
  }
  const std::string results = ResultsOf(name, folder);
  model.expected.AddFile(results.substr(0, results.rfind('/')),
                         results.substr(results.rfind('/') + 1) + "expected.safetensors");
  const auto cases = nlohmann::json::parse(ReadFileOrFail(results + "cases.json"), nullptr, false);
  EXPECT_TRUE(cases.is_array());
  for (const auto& json : cases) {
    GoldenCase one;
    one.name = json.value("name", "");
    one.prompt_ids = json.at("prompt_ids").get<std::vector<uint32_t>>();
    one.greedy_ids = json.at("greedy_ids").get<std::vector<uint32_t>>();
    one.rotary_variant = json.value("rope_factors", "") == "long" ? 1 : 0;
    one.embedding_scale = json.value("embed_scale", 0.0f);
    if (json.contains("embed_positions")) {
      const std::vector<float> rows = model.expected.Floats(one.name + ".input_embeds");
      auto from = rows.begin();
      for (const auto& position : json.at("embed_positions")) {
        one.embeddings[position.get<uint32_t>()].assign(from, from + model.spec.hidden);
        from += model.spec.hidden;
      }
      EXPECT_EQ(from, rows.end());
    }
    model.all_cases.push_back(one);
    if (model.expected.Has(one.name + ".logits") && one.embedding_scale == 0) {
      model.cases.push_back(std::move(one));
    }
  }
  EXPECT_FALSE(model.cases.empty());
  model.weights_dtype = LayersFormat(model);
  model.head_dtype = HeadFormat(model);
  return model;
}

}  // namespace strata::testing
