#include "common/checkpoint/gguf_model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr char kRopeFreqs[] = "rope_freqs.weight";
constexpr uint64_t kMaxParts = 10'000;
constexpr double kMost = 1e30;

Error Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_MODEL",
               what + " is not supported yet");
}

Error Invalid(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

// How files of one architecture differ from the Hugging Face checkpoint.
struct Architecture {
  const char* name;  // general.architecture, and config.json's model_type.
  const char* model_class;
  bool pairs;  // Rows of q and k are stored for the rotation of neighbours.
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", true},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},
};

struct NamePair {
  const char* gguf;
  const char* name;
};
constexpr NamePair kTopNames[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

template <size_t kCount>
const char* Look(const NamePair (&names)[kCount], std::string_view gguf) {
  for (const NamePair& pair : names) {
    if (gguf == pair.gguf) {
      return pair.name;
    }
  }
  return nullptr;
}

// The checkpoint's name of a tensor, or "".
std::string CanonicalName(std::string_view gguf) {
  const size_t dot = gguf.rfind('.');
  if (dot == std::string_view::npos) {
    return "";
  }
  const std::string kind(gguf.substr(dot));
  std::string_view module = gguf.substr(0, dot);
  if (kind != ".weight" && kind != ".bias") {
    return "";
  }
  if (!module.starts_with("blk.")) {
    const char* name = Look(kTopNames, module);
    return name == nullptr ? "" : name + kind;
  }
  module.remove_prefix(4);
  const size_t end = module.find('.');
  uint32_t layer = 0;
  if (end == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(module.data(), end), &layer)) {
    return "";
  }
  const char* name = Look(kLayerNames, module.substr(end + 1));
  return name == nullptr ? "" : absl::StrCat("model.layers.", layer, ".", name, kind);
}

// "NAME-00002-of-00003.gguf".
struct Part {
  std::string name;
  uint32_t number = 0;
  uint32_t count = 0;
};
std::optional<Part> PartOf(std::string_view file) {
  constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
  if (file.size() <= kTail) {
    return std::nullopt;
  }
  const std::string tail(file.substr(file.size() - kTail));
  Part part{.name = std::string(file.substr(0, file.size() - kTail))};
  const bool digits = tail.substr(1, 5).find_first_not_of("0123456789") == std::string::npos &&
                      tail.substr(10, 5).find_first_not_of("0123456789") == std::string::npos;
  if (!digits || tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" ||
      !absl::SimpleAtoi(tail.substr(1, 5), &part.number) ||
      !absl::SimpleAtoi(tail.substr(10, 5), &part.count)) {
    return std::nullopt;
  }
  return part;
}

// What one model's header says, as config.json would.
class ConfigWriter {
 public:
  ConfigWriter(const GgufHeader& header, const std::vector<TensorEntry>& tensors)
      : reader_(&header), tensors_(tensors) {}

  absl::Status Write(const std::vector<float>& divisors) {
    const std::string name = reader_.String("general.architecture", "");
    RETURN_IF_ERROR(reader_.status());
    for (const Architecture& one : kArchitectures) {
      if (name == one.name) {
        architecture_ = &one;
      }
    }
    if (architecture_ == nullptr) {
      return Unsupported("general.architecture " + Quoted(name));
    }
    RETURN_IF_ERROR(CheckNothingElse());
    RETURN_IF_ERROR(WriteSizes());
    RETURN_IF_ERROR(WriteRotation(divisors));
    RETURN_IF_ERROR(WriteTokens());
    return reader_.status();
  }
  std::string config() const { return config_.dump(); }
  std::string generation() const { return generation_.dump(); }

 private:
  std::string Key(const char* name) const { return absl::StrCat(architecture_->name, ".", name); }

  const TensorEntry* Find(std::string_view name) const {
    for (const TensorEntry& tensor : tensors_) {
      if (tensor.name == name) {
        return &tensor;
      }
    }
    return nullptr;
  }

  // Keys that would change what is computed.
  absl::Status CheckNothingElse() {
    for (const char* name : {"expert_count", "expert_used_count", "attention.sliding_window"}) {
      if (reader_.Uint(Key(name), 0, UINT32_MAX, 0) != 0) {
        return Unsupported("key " + Quoted(Key(name)));
      }
    }
    for (const char* name : {"attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
                             "logit_scale", "residual_scale", "embedding_scale",
                             "attn_logit_softcapping", "final_logit_softcapping"}) {
      if (reader_.Number(Key(name), -kMost, kMost, 0) != 0) {
        return Unsupported("key " + Quoted(Key(name)));
      }
    }
    if (!reader_.Bool(Key("attention.causal"), true) ||
        reader_.Bool(Key("use_parallel_residual"), false)) {
      return Unsupported("key " + Quoted(Key("attention.causal")) + " or " +
                         Quoted(Key("use_parallel_residual")));
    }
    return reader_.status();
  }

  absl::Status WriteSizes() {
    const uint64_t heads = reader_.Uint(Key("attention.head_count"), 1, UINT32_MAX);
    const TensorEntry* queries = Find("model.layers.0.self_attn.q_proj.weight");
    const uint64_t rows = queries == nullptr ? 0 : queries->shape[0];
    const TensorEntry* embedding = Find("model.embed_tokens.weight");
    if (embedding == nullptr) {
      return Invalid("there is no tensor \"token_embd.weight\"");
    }
    const GgufValue* tokens = reader_.Find("tokenizer.ggml.tokens");
    if (tokens != nullptr && tokens->is_list && tokens->count != embedding->shape[0]) {
      return Invalid(absl::StrCat("tensor \"token_embd.weight\" is of ", embedding->shape[0],
                                  " tokens, key \"tokenizer.ggml.tokens\" of ", tokens->count));
    }
    head_dim_ = reader_.Uint(Key("attention.key_length"), 1, UINT32_MAX,
                             std::max<uint64_t>(1, rows / heads));
    const bool bias = Find("model.layers.0.self_attn.q_proj.bias") != nullptr;
    config_ = {
        {"model_type", architecture_->name},
        {"architectures", json::array({architecture_->model_class})},
        {"hidden_size", reader_.Uint(Key("embedding_length"), 1, UINT32_MAX)},
        {"num_hidden_layers", reader_.Uint(Key("block_count"), 1, kMaxLayers)},
        {"intermediate_size", reader_.Uint(Key("feed_forward_length"), 1, UINT32_MAX)},
        {"num_attention_heads", heads},
        {"num_key_value_heads", reader_.Uint(Key("attention.head_count_kv"), 1, UINT32_MAX, heads)},
        {"head_dim", head_dim_},
        {"rms_norm_eps", reader_.Number(Key("attention.layer_norm_rms_epsilon"), 0, 1)},
        {"max_position_embeddings", reader_.Uint(Key("context_length"), 1, UINT32_MAX)},
        {"vocab_size", embedding->shape[0]},
        {"tie_word_embeddings", Find("lm_head.weight") == nullptr}};
    if (architecture_->pairs) {
      config_["qk_rows_in_pairs"] = true;
      config_["attention_bias"] = bias;
    }
    const uint64_t values = reader_.Uint(Key("attention.value_length"), 1, UINT32_MAX, head_dim_);
    if (values != head_dim_) {
      return Unsupported(absl::StrCat("key ", Quoted(Key("attention.value_length")), " ", values,
                                      " with heads of ", head_dim_, ", by ",
                                      Quoted(Key("attention.head_count")), " and the tensors"));
    }
    return reader_.status();
  }

  absl::Status WriteRotation(const std::vector<float>& divisors) {
    config_["rope_theta"] = reader_.Number(Key("rope.freq_base"), 1, kMost, 10000.0);
    const uint64_t dimensions = reader_.Uint(Key("rope.dimension_count"), 0, UINT32_MAX, head_dim_);
    // The old name of a linear scaling's factor is still read by llama.cpp, whose default is
    // linear.
    const std::string scaling = reader_.String(Key("rope.scaling.type"), "linear");
    const double old_factor = reader_.Number(Key("rope.scale_linear"), 0, kMost, 1);
    const double factor = reader_.Number(Key("rope.scaling.factor"), 0, kMost, old_factor);
    const double attention = reader_.Number(Key("rope.scaling.attn_factor"), 0, kMost, 1);
    RETURN_IF_ERROR(reader_.status());
    if (dimensions != head_dim_) {
      return Unsupported(absl::StrCat("key ", Quoted(Key("rope.dimension_count")), " ", dimensions,
                                      " with heads of ", head_dim_, ", by ",
                                      Quoted(Key("attention.head_count")), " and the tensors"));
    }
    if (attention != 1) {
      return Unsupported("key " + Quoted(Key("rope.scaling.attn_factor")));
    }
    if (scaling != "none" && factor != 0 && factor != 1) {
      return Unsupported(absl::StrCat("key ", Quoted(Key("rope.scaling.type")), " ",
                                      Quoted(scaling), " with key ",
                                      Quoted(Key("rope.scaling.factor")), " ", factor));
    }
    if (!divisors.empty()) {
      config_["rope_scaling"] = {{"rope_type", "divisors"}, {"divisors", divisors}};
    }
    return absl::OkStatus();
  }

  // The model stops at each of the ends that the file names.
  absl::Status WriteTokens() {
    json ends = json::array();
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
      if (reader_.Find(key) != nullptr) {
        const uint64_t id = reader_.Uint(key, 0, UINT32_MAX, 0);
        if (id < config_["vocab_size"].get<uint64_t>() &&
            std::find(ends.begin(), ends.end(), json(id)) == ends.end()) {
          ends.push_back(id);
        }
      }
    }
    generation_ = json::object();
    if (!ends.empty()) {
      config_["eos_token_id"] = ends;
      generation_["eos_token_id"] = ends;
    }
    if (reader_.Find("tokenizer.ggml.bos_token_id") != nullptr) {
      config_["bos_token_id"] = reader_.Uint("tokenizer.ggml.bos_token_id", 0, UINT32_MAX, 0);
    }
    return reader_.status();
  }

  GgufReader reader_;
  const std::vector<TensorEntry>& tensors_;
  const Architecture* architecture_ = nullptr;
  uint64_t head_dim_ = 0;
  json config_;
  json generation_;
};

// The small tensor that scales the frequencies.
absl::StatusOr<std::vector<float>> ReadDivisors(const std::string& path, const GgufTensor& tensor) {
  if (tensor.dtype != Dtype::kF32 || tensor.shape.size() != 1 || tensor.shape[0] > kMaxHiddenSize) {
    return Unsupported(absl::StrCat("tensor ", kRopeFreqs, " of ", DtypeName(tensor.dtype),
                                    " or with several dimensions"));
  }
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  std::vector<float> divisors(tensor.shape[0]);
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, divisors.data(), tensor.bytes));
  return divisors;
}

// A part's split keys against its place among the files.
absl::Status CheckSplit(const std::string& file, size_t number, size_t count,
                        const GgufHeader& header) {
  GgufReader reader(&header);
  const uint64_t parts = reader.Uint("split.count", 0, kMaxParts, 1);
  const uint64_t part = reader.Uint("split.no", 0, kMaxParts, number);
  RETURN_IF_ERROR(reader.status());
  if (std::max<uint64_t>(parts, 1) != count || (count > 1 && part != number)) {
    return Invalid(absl::StrCat(file, ": its keys \"split.no\" and \"split.count\" say part ",
                                part + 1, " of ", parts, ", its name says part ", number + 1,
                                " of ", count));
  }
  return absl::OkStatus();
}

}  // namespace

std::string GgufModelName(std::string_view file) {
  const std::optional<Part> part = PartOf(file);
  if (part.has_value()) {
    return part->name;
  }
  return std::string(file.ends_with(".gguf") ? file.substr(0, file.size() - 5) : file);
}

absl::StatusOr<std::vector<std::string>> GgufPartsOf(const std::string& file,
                                                     const std::vector<std::string>& names) {
  const std::optional<Part> part = PartOf(file);
  if (!part.has_value()) {
    return std::vector<std::string>{file};
  }
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const std::optional<Part> other = PartOf(name);
    if (other.has_value() && other->name == part->name && other->count == part->count) {
      parts.push_back(name);
    }
  }
  std::sort(parts.begin(), parts.end());
  if (part->count == 0 || parts.size() != part->count || PartOf(parts.front())->number != 1 ||
      PartOf(parts.back())->number != part->count) {
    return Error(absl::StatusCode::kNotFound, "MISSING_FILE",
                 absl::StrCat(file, " is one of ", part->count, " parts, and ", parts.size(),
                              " of them are there"))
        .Hint("fetch the others into the same folder");
  }
  return parts;
}

absl::StatusOr<std::vector<std::string>> GgufFilesOf(const std::vector<std::string>& names) {
  std::set<std::string> models;
  std::string first;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".gguf") && !absl::StartsWith(name, "mmproj")) {
      models.insert(GgufModelName(name));
      first = first.empty() ? name : first;
    }
  }
  if (models.empty()) {
    return std::vector<std::string>();
  }
  if (models.size() > 1) {
    return Error(absl::StatusCode::kInvalidArgument, "SEVERAL_MODELS",
                 absl::StrCat("the folder has .gguf files of ", models.size(), " models"))
        .Hint("give the path of one of them, such as " + first);
  }
  return GgufPartsOf(first, names);
}

absl::StatusOr<GgufModel> ReadGgufModel(const std::string& folder,
                                        const std::vector<std::string>& files) {
  GgufModel model;
  std::vector<float> divisors;
  GgufFile first;
  uint64_t tensors = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = folder + "/" + files[i];
    ASSIGN_OR_RETURN(GgufFile file, ReadGgufFile(path));
    RETURN_IF_ERROR(CheckSplit(files[i], i, files.size(), file.header));
    tensors += file.header.tensors.size();
    for (GgufTensor& tensor : file.header.tensors) {
      if (tensor.name == kRopeFreqs) {
        ASSIGN_OR_RETURN(divisors, ReadDivisors(path, tensor));
        continue;
      }
      std::string name = CanonicalName(tensor.name);
      if (name.empty()) {
        return Unsupported(absl::StrCat(files[i], ": tensor ", Quoted(tensor.name)));
      }
      model.tensors.push_back({std::move(name), tensor.dtype, std::move(tensor.shape), files[i],
                               tensor.offset, tensor.bytes});
    }
    if (i == 0) {
      first = std::move(file);
    }
  }
  GgufReader reader(&first.header);
  const uint64_t all = reader.Uint("split.tensors.count", 0, UINT32_MAX, tensors);
  RETURN_IF_ERROR(Annotate(reader.status(), files[0]));
  if (files.size() > 1 && all != tensors) {
    return Invalid(absl::StrCat(files[0], ": key \"split.tensors.count\" is ", all,
                                ", and the parts have ", tensors, " tensors"));
  }
  ConfigWriter writer(first.header, model.tensors);
  RETURN_IF_ERROR(Annotate(writer.Write(divisors), files[0]));
  model.config_json = writer.config();
  model.generation_config_json = writer.generation();
  return model;
}

}  // namespace strata
