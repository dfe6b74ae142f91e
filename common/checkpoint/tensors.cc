// Names and shapes of the tensors of a decoder.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/block_formats.h"
#include "common/model/gpt_oss_experts.h"

namespace strata {
namespace {

class TensorList {
 public:
  TensorList(const ModelSpec& spec, const TensorExists& exists) : spec_(spec), exists_(exists) {}

  void Add(std::string name, std::vector<uint64_t> shape, std::vector<Dtype> dtypes = {}) {
    tensors_.push_back({std::move(name), std::move(shape), std::move(dtypes)});
  }
  bool Exists(const std::string& name) const { return exists_ && exists_(name); }
  // PATH.weight, [out, in]; of `matrices` others than 0 [matrices, out, in].
  void AddMatrix(const std::string& path, uint64_t out, uint64_t in, uint64_t matrices = 0) {
    const bool embedding = path.ends_with("embed_tokens");
    const StoredScheme* const scheme = spec_.quantization.has_value() && exists_
                                           ? spec_.quantization->At(path, embedding)
                                           : nullptr;
    if (scheme != nullptr && IsPlainAffine(*scheme) && KeepsPlainAffine(path)) {
      if (exists_(path + ".scales")) {
        AddAffine(path, scheme->integers, out, in, matrices);
        return;
      }
    } else if (scheme != nullptr) {
      StoredMatrix matrix = StoredMatrixAt(*scheme, path, out, in, exists_, matrices);
      if (!matrix.codes.name.empty()) {
        matrix.as_floats = StaysAsStored(matrix.name);
        AddStored(matrix);
        return;
      }
    }
    AddShaped(path + ".weight", {out, in}, matrices);
  }
  // Fused experts, which may lie inputs first: floats, or 8-bit floats. The outputs are `parts`
  // matrices one after another.
  void AddFused(const std::string& name, uint64_t experts, uint64_t outputs, uint64_t inputs,
                uint64_t parts) {
    const size_t first = tensors_.size();
    const StoredMatrix matrix = FusedFloat8(name, experts, outputs, inputs, parts);
    if (matrix.codes.name.empty()) {
      Add(name, {experts, outputs, inputs});
    } else {
      AddStored(matrix);
    }
    for (size_t i = first; i < tensors_.size(); ++i) {
      tensors_[i].may_be_transposed = true;
    }
  }
  // The same of all experts, and their biases, [experts, out].
  void AddStacked(const std::string& path, uint64_t experts, uint64_t out, uint64_t in, bool bias) {
    AddMatrix(path, out, in, experts);
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
  StageTensor* Last() { return &tensors_.back(); }
  std::vector<StageTensor> Take() { return std::move(tensors_); }

 private:
  // Routers stay as integers; what is used a head at a time does not.
  static bool KeepsPlainAffine(const std::string& path) {
    return !StaysAsStored(path + ".weight") || IsRouter(path + ".weight");
  }
  void AddShaped(std::string name, std::vector<uint64_t> shape, uint64_t matrices,
                 std::vector<Dtype> dtypes = {}) {
    if (matrices != 0) {
      shape.insert(shape.begin(), matrices);
    }
    Add(std::move(name), std::move(shape), std::move(dtypes));
  }
  void AddAffine(const std::string& path, const AffineSpec& affine, uint64_t out, uint64_t in,
                 uint64_t matrices) {
    AddShaped(path + ".weight", {out, in * affine.bits / 32}, matrices, {Dtype::kU32});
    AddShaped(path + ".scales", {out, in / affine.group}, matrices);
    AddShaped(path + ".biases", {out, in / affine.group}, matrices);
  }
  // As transformers 5 writes them, and Qwen3-VL's are published: "gate_up_proj_scale_inv" beside
  // "gate_up_proj", a scale for each block. Blocks are square, since either may lie inputs first,
  // and none is of two parts. No name of codes where it is not so.
  StoredMatrix FusedFloat8(const std::string& name, uint64_t experts, uint64_t outputs,
                           uint64_t inputs, uint64_t parts) const {
    const StoredScheme* const scheme =
        spec_.quantization.has_value() ? spec_.quantization->At(name, false) : nullptr;
    const std::string scales = name + "_scale_inv";
    if (scheme == nullptr || scheme->method != QuantizationMethod::kFloat8 || !Exists(scales)) {
      return {};
    }
    const uint64_t block = scheme->block_outputs;
    if (block == 0 || block != scheme->block_inputs || outputs / parts % block != 0) {
      return {};
    }
    StoredMatrix matrix;
    matrix.scheme = *scheme;
    matrix.name = name;
    matrix.matrices = experts;
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    matrix.kind = StoredCodes::kFloat8;
    matrix.bits = 8;
    matrix.exponents = true;
    matrix.group = block;
    matrix.per_scale = block;
    matrix.codes = {name, {experts, outputs, inputs}, {Dtype::kF8E4M3}};
    matrix.scales = {scales,
                     {experts, (outputs + block - 1) / block, matrix.groups()},
                     {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kF8E8M0}};
    return matrix;
  }
  void AddStored(const StoredMatrix& matrix) {
    for (const StoredPart* part : matrix.Parts()) {
      StageTensor& tensor = tensors_.emplace_back();
      tensor.name = part->name;
      tensor.shape = part->shape;
      tensor.dtypes = part->dtypes;
      tensor.any_shape = part == &matrix.state;
      tensor.part = part != &matrix.codes;
      if (!tensor.part) {
        tensor.matrix = matrix;
      }
    }
  }

  const ModelSpec& spec_;
  const TensorExists& exists_;
  std::vector<StageTensor> tensors_;
};

// See common/model/gpt_oss_experts.h.
void AddGptOssExperts(const MlpSpec& mlp, uint64_t hidden, const std::string& folder,
                      TensorList* list) {
  const auto add = [&](const std::string& path, uint64_t outputs, uint64_t inputs) {
    if (list->Exists(path + "_blocks") && inputs % 32 == 0) {
      list->Add(path + "_blocks", {mlp.experts, outputs, inputs / 32, 16}, {Dtype::kU8});
      list->Add(path + "_scales", {mlp.experts, outputs, inputs / 32}, {Dtype::kU8});
    } else {
      list->Add(path, {mlp.experts, inputs, outputs});
      list->Last()->inputs_first = true;
    }
    list->Add(path + "_bias", {mlp.experts, outputs});
  };
  add(folder + "gate_up_proj", uint64_t{2} * mlp.ffn, hidden);
  add(folder + "down_proj", hidden, mlp.ffn);
}

// The tensors of all experts, each for itself or one after another.
void AddEachExpert(const MlpSpec& mlp, uint64_t hidden, const std::string& prefix,
                   TensorList* list) {
  const bool gpt_oss = mlp.expert_names == ExpertNames::kGptOss;
  for (const ExpertPaths& stacked :
       {StackedExpertPaths(mlp.expert_names, prefix), MlxGptOssPaths(prefix)}) {
    if (list->Exists(stacked.gate + ".weight")) {
      list->AddStacked(stacked.gate, mlp.experts, mlp.ffn, hidden, mlp.bias);
      list->AddStacked(stacked.up, mlp.experts, mlp.ffn, hidden, mlp.bias);
      list->AddStacked(stacked.down, mlp.experts, hidden, mlp.ffn, mlp.bias);
      return;
    }
    if (!gpt_oss) {
      break;
    }
  }
  if (gpt_oss) {
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

void AddExperts(const MlpSpec& mlp, uint64_t hidden, const std::string& prefix, TensorList* list) {
  const FusedPaths fused_paths = FusedExpertPaths(mlp.expert_names, prefix);
  const bool fused = mlp.expert_names != ExpertNames::kGptOss && list->Exists(fused_paths.gate_up);
  const std::string router = fused ? fused_paths.router : RouterPath(mlp.expert_names, prefix);
  list->AddLinear(router, mlp.experts, hidden, mlp.router.bias);
  if (mlp.router.corrected) {
    list->Add(fused ? fused_paths.correction : CorrectionName(mlp.expert_names, prefix),
              {mlp.experts});
  }
  if (mlp.shared_ffn != 0) {
    const ExpertPaths shared = SharedExpertPaths(prefix);
    list->AddMatrix(shared.gate, mlp.shared_ffn, hidden);
    list->AddMatrix(shared.up, mlp.shared_ffn, hidden);
    list->AddMatrix(shared.down, hidden, mlp.shared_ffn);
  }
  if (fused) {
    list->AddFused(fused_paths.gate_up, mlp.experts, uint64_t{2} * mlp.ffn, hidden, 2);
    list->AddFused(fused_paths.down, mlp.experts, hidden, mlp.ffn, 1);
  } else {
    AddEachExpert(mlp, hidden, prefix, list);
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
  // MLX has it in two tensors (worker/backend/latent_tensors.h).
  if (list->Exists(prefix + "self_attn.embed_q.weight")) {
    list->AddMatrix(prefix + "self_attn.embed_q", latent.rank, latent.nope_dim, heads);
    list->AddMatrix(prefix + "self_attn.unembed_out", latent.value_dim, latent.rank, heads);
    return;
  }
  // In GGUF files, a matrix a head of each, what makes keys transposed.
  if (list->Exists(prefix + "self_attn.k_b_proj.weight") &&
      !list->Exists(prefix + "self_attn.kv_b_proj.weight")) {
    list->Add(prefix + "self_attn.k_b_proj.weight", {heads, latent.rank, latent.nope_dim});
    list->Add(prefix + "self_attn.v_b_proj.weight", {heads, latent.value_dim, latent.rank});
    return;
  }
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
  if (any_shape) {
    return true;
  }
  const auto one = [](std::span<const uint64_t> dimensions) {
    return std::all_of(dimensions.begin(), dimensions.end(), [](uint64_t n) { return n == 1; });
  };
  if (may_be_transposed && shape.size() == 3 && other.size() == 3 && other[0] == shape[0] &&
      other[1] == shape[2] && other[2] == shape[1]) {
    return true;
  }
  return std::equal(shape.begin(), shape.end(), other.begin(), other.end()) ||
         (one(shape) && one(other));
}

bool HoldsWeights(std::string_view name) { return !PathOfWeights(name).empty(); }

bool KeepsIntegers(const StageTensor& tensor, Dtype dtype) {
  return tensor.matrix.has_value() ? tensor.matrix->Kept().kind != KeptForm::Kind::kFloats
                                   : dtype == Dtype::kU32 || IsBlocks(dtype);
}

std::string StoredFormat(const ModelSpec& spec, const StageTensor& tensor, Dtype dtype) {
  if (tensor.matrix.has_value()) {
    return StoredFormatName(*tensor.matrix);
  }
  if (dtype == Dtype::kU32 && spec.quantization.has_value()) {
    const std::string path = tensor.name.substr(0, tensor.name.rfind('.'));
    const StoredScheme* const scheme = spec.quantization->At(path, path.ends_with("embed_tokens"));
    if (scheme != nullptr) {
      return StoredFormatName(*scheme);
    }
  }
  std::string format = DtypeName(dtype);
  for (char& c : format) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return format;
}

}  // namespace strata
