// Names and shapes of the tensors of a decoder.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/block_formats.h"
#include "common/check.h"
#include "common/checkpoint/checkpoint.h"

namespace strata {
namespace {

AffineSpec AffineOf(const ModelSpec& spec, const std::string& path) {
  const auto found = spec.quantization->by_path.find(path);
  return found == spec.quantization->by_path.end() ? spec.quantization->by_default : found->second;
}

class TensorList {
 public:
  TensorList(const ModelSpec& spec, const TensorExists& exists) : spec_(spec), exists_(exists) {}

  void Add(std::string name, std::vector<uint64_t> shape, std::vector<Dtype> dtypes = {}) {
    tensors_.push_back({std::move(name), std::move(shape), std::move(dtypes)});
  }
  bool Exists(const std::string& name) const { return exists_ && exists_(name); }
  // PATH.weight, [out, in].
  void AddMatrix(const std::string& path, uint64_t out, uint64_t in) {
    const bool quantized = spec_.quantization.has_value() && exists_;
    if (quantized && spec_.quantization->method != QuantizationMethod::kMlx) {
      StoredMatrix matrix = StoredMatrixAt(*spec_.quantization, path, out, in, exists_);
      if (!matrix.codes.name.empty()) {
        matrix.as_floats = StaysAsStored(matrix.codes.name);
        AddStored(matrix);
        return;
      }
    } else if (quantized && exists_(path + ".scales")) {
      AddAffine(path, out, in);
      return;
    }
    Add(path + ".weight", {out, in});
  }
  void AddStored(const StoredMatrix& matrix) {
    for (const StoredPart* part : matrix.Parts()) {
      tensors_.push_back({part->name, part->shape, part->dtypes});
      StageTensor& tensor = tensors_.back();
      tensor.part = part != &matrix.codes;
      if (!tensor.part) {
        tensor.matrix = matrix;
      }
    }
  }
  void AddAffine(const std::string& path, uint64_t out, uint64_t in) {
    const AffineSpec affine = AffineOf(spec_, path);
    tensors_.push_back({path + ".weight", {out, in * affine.bits / 32}, {Dtype::kU32}});
    Add(path + ".scales", {out, in / affine.group});
    Add(path + ".biases", {out, in / affine.group});
  }
  // The same of all experts in one tensor, [experts, out, in], and their biases, [experts, out].
  void AddStacked(const std::string& path, uint64_t experts, uint64_t out, uint64_t in, bool bias) {
    const size_t first = tensors_.size();
    AddMatrix(path, out, in);
    for (size_t i = first; i < tensors_.size(); ++i) {
      tensors_[i].shape.insert(tensors_[i].shape.begin(), experts);
    }
    if (bias) {
      Add(path + ".bias", {experts, out}, {Dtype::kF32, Dtype::kF16, Dtype::kBF16});
    }
  }
  // A projection, and its bias [out].
  void AddLinear(const std::string& path, uint64_t out, uint64_t in, bool bias) {
    AddMatrix(path, out, in);
    if (bias) {
      Add(path + ".bias", {out});
    }
  }
  std::vector<StageTensor> Take() { return std::move(tensors_); }

 private:
  const ModelSpec& spec_;
  const TensorExists& exists_;
  std::vector<StageTensor> tensors_;
};

// See common/gpt_oss_experts.h.
void AddGptOssExperts(const MlpSpec& mlp, uint64_t hidden, const std::string& folder,
                      TensorList* list) {
  const auto add = [&](const std::string& path, uint64_t outputs, uint64_t inputs) {
    if (list->Exists(path + "_blocks") && inputs % 32 == 0) {
      list->Add(path + "_blocks", {mlp.experts, outputs, inputs / 32, 16}, {Dtype::kU8});
      list->Add(path + "_scales", {mlp.experts, outputs, inputs / 32}, {Dtype::kU8});
    } else {
      list->Add(path, {mlp.experts, inputs, outputs});
    }
    list->Add(path + "_bias", {mlp.experts, outputs});
  };
  add(folder + "gate_up_proj", uint64_t{2} * mlp.ffn, hidden);
  add(folder + "down_proj", hidden, mlp.ffn);
}

void AddExperts(const MlpSpec& mlp, uint64_t hidden, const std::string& prefix, TensorList* list) {
  const std::string router = RouterPath(mlp.expert_names, prefix);
  list->AddLinear(router, mlp.experts, hidden, mlp.router.bias);
  if (mlp.router.corrected) {
    list->Add(router + ".e_score_correction_bias", {mlp.experts});
  }
  if (mlp.shared_ffn != 0) {
    const ExpertPaths shared = SharedExpertPaths(prefix);
    list->AddMatrix(shared.gate, mlp.shared_ffn, hidden);
    list->AddMatrix(shared.up, mlp.shared_ffn, hidden);
    list->AddMatrix(shared.down, hidden, mlp.shared_ffn);
  }
  const ExpertPaths stacked = StackedExpertPaths(mlp.expert_names, prefix);
  if (list->Exists(stacked.gate + ".weight")) {
    list->AddStacked(stacked.gate, mlp.experts, mlp.ffn, hidden, mlp.bias);
    list->AddStacked(stacked.up, mlp.experts, mlp.ffn, hidden, mlp.bias);
    list->AddStacked(stacked.down, mlp.experts, hidden, mlp.ffn, mlp.bias);
    return;
  }
  if (mlp.expert_names == ExpertNames::kGptOss) {
    AddGptOssExperts(mlp, hidden, prefix + "mlp.experts.", list);
    return;
  }
  for (uint32_t e = 0; e < mlp.experts; ++e) {
    const ExpertPaths paths = ExpertPathsOf(mlp.expert_names, prefix, e);
    list->AddLinear(paths.gate, mlp.ffn, hidden, mlp.bias);
    list->AddLinear(paths.up, mlp.ffn, hidden, mlp.bias);
    list->AddLinear(paths.down, hidden, mlp.ffn, mlp.bias);
  }
}

void AddMlp(const MlpSpec& mlp, uint64_t hidden, const std::string& prefix, TensorList* list) {
  if (mlp.experts != 0) {
    AddExperts(mlp, hidden, prefix, list);
    return;
  }
  if (mlp.fused_gate_up) {
    list->AddLinear(prefix + "mlp.gate_up_proj", uint64_t{2} * mlp.ffn, hidden, mlp.bias);
  } else {
    list->AddLinear(prefix + "mlp.gate_proj", mlp.ffn, hidden, mlp.bias);
    list->AddLinear(prefix + "mlp.up_proj", mlp.ffn, hidden, mlp.bias);
  }
  list->AddLinear(prefix + "mlp.down_proj", hidden, mlp.ffn, mlp.bias);
}

void AddLatentAttention(const AttentionSpec& attention, uint64_t hidden, const std::string& prefix,
                        TensorList* list) {
  const LatentSpec& latent = attention.latent;
  const uint64_t heads = attention.heads;
  const uint64_t queries = heads * attention.head_dim;
  if (latent.query_rank == 0) {
    list->AddMatrix(prefix + "self_attn.q_proj", queries, hidden);
  } else {
    list->AddMatrix(prefix + "self_attn.q_a_proj", latent.query_rank, hidden);
    list->Add(prefix + "self_attn.q_a_layernorm.weight", {latent.query_rank});
    list->AddMatrix(prefix + "self_attn.q_b_proj", queries, latent.query_rank);
  }
  list->AddMatrix(prefix + "self_attn.kv_a_proj_with_mqa", latent.kept(), hidden);
  list->Add(prefix + "self_attn.kv_a_layernorm.weight", {latent.rank});
  list->AddMatrix(prefix + "self_attn.kv_b_proj", heads * (latent.nope_dim + latent.value_dim),
                  latent.rank);
}

void AddLayer(const ModelSpec& spec, uint32_t index, TensorList* list) {
  const LayerSpec& layer = spec.layers[index];
  const AttentionSpec& attention = layer.attention;
  const uint64_t hidden = spec.hidden;
  const uint64_t queries = uint64_t{attention.heads} * attention.head_dim;
  const uint64_t keys = uint64_t{attention.kv_heads} * attention.head_dim;
  const std::string prefix = absl::StrCat(spec.tensor_prefix, "model.layers.", index, ".");
  const LayerNormNames norms = NormNames(layer.norm_places);
  const auto add_norm = [&](const char* name) {
    if (name != nullptr) {
      list->Add(absl::StrCat(prefix, name, ".weight"), {hidden});
    }
  };
  add_norm(norms.before_attention);
  if (attention.latent.rank != 0) {
    AddLatentAttention(attention, hidden, prefix, list);
  } else if (attention.fused_qkv) {
    list->AddLinear(prefix + "self_attn.qkv_proj", queries + 2 * keys, hidden, attention.qkv_bias);
  } else {
    list->AddLinear(prefix + "self_attn.q_proj", queries, hidden, attention.qkv_bias);
    list->AddLinear(prefix + "self_attn.k_proj", keys, hidden, attention.qkv_bias);
    list->AddLinear(prefix + "self_attn.v_proj", keys, hidden, attention.qkv_bias);
  }
  if (attention.qk_norm != QkNorm::kNone) {
    const bool head = attention.qk_norm == QkNorm::kHead;
    list->Add(prefix + "self_attn.q_norm.weight", {head ? attention.head_dim : queries});
    list->Add(prefix + "self_attn.k_norm.weight", {head ? attention.head_dim : keys});
  }
  if (attention.sinks) {
    list->Add(prefix + "self_attn.sinks", {attention.heads});
  }
  list->AddLinear(prefix + "self_attn.o_proj", hidden, attention.OutputInputs(),
                  attention.out_bias);
  add_norm(norms.after_attention);
  add_norm(norms.before_mlp);
  AddMlp(layer.mlp, hidden, prefix, list);
  add_norm(norms.after_mlp);
}

}  // namespace

std::vector<StageTensor> TensorsOf(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                                   bool embeds, bool heads, const TensorExists& exists) {
  STRATA_CHECK(first_layer <= last_layer && last_layer < spec.layers.size());
  TensorList list(spec, exists);
  if (embeds || (heads && spec.tied_head)) {
    list.AddMatrix(spec.tensor_prefix + "model.embed_tokens", spec.vocab, spec.hidden);
  }
  for (uint32_t i = first_layer; i <= last_layer; ++i) {
    AddLayer(spec, i, &list);
  }
  if (heads) {
    list.Add(spec.tensor_prefix + "model.norm.weight", {spec.hidden});
    if (!spec.tied_head) {
      list.AddMatrix(spec.tensor_prefix + "lm_head", spec.vocab, spec.hidden);
    }
  }
  return list.Take();
}

bool StageTensor::Fits(std::span<const uint64_t> other) const {
  const auto one = [](std::span<const uint64_t> dimensions) {
    return std::all_of(dimensions.begin(), dimensions.end(), [](uint64_t n) { return n == 1; });
  };
  return std::equal(shape.begin(), shape.end(), other.begin(), other.end()) ||
         (one(shape) && one(other));
}

bool HoldsWeights(std::string_view name) { return !PathOfWeights(name).empty(); }

bool KeepsIntegers(const ModelSpec& spec, Dtype dtype) {
  const bool ordered = spec.quantization.has_value() && spec.quantization->has_order;
  return dtype == Dtype::kU32 || (dtype == Dtype::kI32 && !ordered) || IsBlocks(dtype);
}

std::string StoredFormat(const ModelSpec& spec, const std::string& name, Dtype dtype) {
  if ((dtype == Dtype::kI32 || dtype == Dtype::kF8E4M3) && spec.quantization.has_value()) {
    return StoredFormatName(*spec.quantization);
  }
  if (dtype == Dtype::kU32 && spec.quantization.has_value()) {
    const AffineSpec affine = AffineOf(spec, name.substr(0, name.rfind('.')));
    return absl::StrCat("affine", affine.bits, "g", affine.group);
  }
  std::string format = DtypeName(dtype);
  for (char& c : format) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return format;
}

}  // namespace strata
