// Which tensors a stage's arrays are made of.
#include "worker/backend/mlx/array_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

}  // namespace

ArrayLoader::ArrayLoader(const StageSpec& spec, const TensorSource& source, PackedStore* store,
                         StageArrays* arrays)
    : spec_(spec), source_(source), store_(store), arrays_(arrays) {
  const ModelSpec& model = spec.model;
  const std::string embedding = model.tensor_prefix + "model.embed_tokens.weight";
  // A stage with both ends of a tied model keeps one of them.
  if (spec.embeds && !(spec.heads && model.tied_head)) {
    AddMatrix(embedding, model.vocab, model.hidden, false, &arrays->embedding);
    slots_.back().read_share = 0;
  }
  arrays->layers.resize(spec.last_layer - spec.first_layer + 1);
  for (uint32_t i = 0; i < arrays->layers.size(); ++i) {
    AddLayer(spec.first_layer + i, &arrays->layers[i]);
  }
  if (spec.heads) {
    AddNorm(model.tensor_prefix, "model.norm", model.final_norm, &arrays->final_norm);
    AddMatrix(model.tied_head ? embedding : model.tensor_prefix + "lm_head.weight", model.vocab,
              model.hidden, false, &arrays->head.matrix);
  }
}

void ArrayLoader::AddVector(std::string name, uint64_t size, std::optional<mx::array>* to) {
  Slot& slot = slots_.emplace_back();
  slot.sources.push_back({.name = std::move(name)});
  slot.layout.outputs = size;
  slot.layout.inputs = 1;
  slot.vector = to;
}

void ArrayLoader::AddNorm(const std::string& prefix, const char* name, NormKind kind,
                          std::optional<mx::array>* to) {
  if (name != nullptr) {
    AddVector(absl::StrCat(prefix, name, ".weight"), spec_.model.hidden, to);
    slots_.back().plus_one = kind == NormKind::kRmsOnePlus;
  }
}

void ArrayLoader::AddMatrix(std::string name, uint64_t outputs, uint64_t inputs, bool in_layer,
                            MatrixArrays* to) {
  Slot& slot = slots_.emplace_back();
  slot.sources.push_back({.name = std::move(name)});
  slot.layout.outputs = outputs;
  slot.layout.inputs = inputs;
  slot.in_layer = in_layer;
  slot.matrix = to;
}

void ArrayLoader::AddLinear(const std::string& path, uint64_t outputs, uint64_t inputs, bool bias,
                            Linear* to, uint64_t pairs_of) {
  AddMatrix(path + ".weight", outputs, inputs, true, &to->matrix);
  slots_.back().pairs_of = pairs_of;
  if (bias) {
    AddVector(path + ".bias", outputs, &to->bias);
    slots_.back().pairs_of = pairs_of;
  }
}

void ArrayLoader::AddPart(const std::string& path, uint64_t outputs, uint64_t inputs, bool bias,
                          Linear* to, uint64_t first, uint64_t all) {
  const size_t added = slots_.size();
  AddLinear(path, outputs, inputs, bias, to);
  for (size_t i = added; i < slots_.size(); ++i) {
    slots_[i].first_row = first;
    slots_[i].all_rows = all;
  }
}

void ArrayLoader::AddLatentAttention(const AttentionSpec& attention, const std::string& prefix,
                                     LayerArrays* to) {
  const LatentSpec& latent = attention.latent;
  const uint64_t hidden = spec_.model.hidden;
  const uint64_t heads = attention.heads;
  const uint64_t queries = heads * attention.head_dim;
  if (latent.query_rank == 0) {
    AddLinear(prefix + "self_attn.q_proj", queries, hidden, false, &to->q);
  } else {
    AddLinear(prefix + "self_attn.q_a_proj", latent.query_rank, hidden, false, &to->query_latent);
    AddVector(prefix + "self_attn.q_a_layernorm.weight", latent.query_rank, &to->query_latent_norm);
    AddLinear(prefix + "self_attn.q_b_proj", queries, latent.query_rank, false, &to->q);
  }
  AddLinear(prefix + "self_attn.kv_a_proj_with_mqa", latent.kept(), hidden, false, &to->kv_latent);
  AddVector(prefix + "self_attn.kv_a_layernorm.weight", latent.rank, &to->kv_latent_norm);
  const std::string whole = prefix + "self_attn.kv_b_proj.weight";
  const std::string keys = prefix + "self_attn.k_b_proj.weight";
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t inputs,
                       MatrixArrays* matrix) {
    AddMatrix(name, rows, inputs, true, matrix);
    slots_.back().layout.matrices = heads;
    slots_.back().as_floats = true;
  };
  if (!source_.Describe(whole).ok() && source_.Describe(keys).ok()) {
    add(keys, latent.rank, latent.nope_dim, &to->stored_key_heads);
    add(prefix + "self_attn.v_b_proj.weight", latent.value_dim, latent.rank,
        &to->stored_value_heads);
  } else {
    add(whole, latent.nope_dim + latent.value_dim, latent.rank, &to->stored_value_heads);
  }
}

void ArrayLoader::AddExperts(const MlpSpec& mlp, const std::string& prefix, MixtureArrays* to) {
  const uint64_t hidden = spec_.model.hidden;
  AddLinear(RouterPath(mlp.expert_names, prefix), mlp.experts, hidden, mlp.router.bias,
            &to->router);
  if (mlp.router.corrected) {
    AddVector(CorrectionName(mlp.expert_names, prefix), mlp.experts, &to->corrections);
  }
  const ExpertPaths stacked = StackedExpertPaths(mlp.expert_names, prefix);
  const bool in_one = source_.Describe(stacked.gate + ".weight").ok();
  // All experts' matrices of a kind, or their biases; from one tensor, or from each one's own.
  const auto add = [&](const std::string ExpertPaths::*path, const char* part, uint64_t outputs,
                       uint64_t inputs, Linear* linear) {
    const bool matrix = inputs != 1;
    if (matrix) {
      AddMatrix(stacked.*path + part, outputs, inputs, true, &linear->matrix);
    } else {
      AddVector(stacked.*path + part, outputs, &linear->bias);
    }
    Slot& slot = slots_.back();
    slot.layout.matrices = mlp.experts;
    slot.read_share = mlp.experts / mlp.router.used;
    if (!in_one) {
      slot.sources.clear();
      for (uint32_t e = 0; e < mlp.experts; ++e) {
        const ExpertPaths own = ExpertPathsOf(mlp.expert_names, prefix, e);
        slot.sources.push_back({.name = own.*path + part});
      }
    }
  };
  const auto add_all = [&](const char* part, uint64_t ffn_inputs, uint64_t hidden_inputs) {
    add(&ExpertPaths::gate, part, mlp.ffn, hidden_inputs, &to->gate);
    add(&ExpertPaths::up, part, mlp.ffn, hidden_inputs, &to->up);
    add(&ExpertPaths::down, part, hidden, ffn_inputs, &to->down);
  };
  add_all(".weight", mlp.ffn, hidden);
  if (mlp.bias) {
    add_all(".bias", 1, 1);
  }
}

void ArrayLoader::AddMlp(const MlpSpec& mlp, const std::string& prefix, LayerArrays* to) {
  const uint64_t hidden = spec_.model.hidden;
  if (mlp.experts != 0) {
    AddExperts(mlp, prefix, &to->mixture);
    if (mlp.shared_ffn != 0) {
      const ExpertPaths shared = SharedExpertPaths(prefix);
      AddLinear(shared.gate, mlp.shared_ffn, hidden, false, &to->gate);
      AddLinear(shared.up, mlp.shared_ffn, hidden, false, &to->up);
      AddLinear(shared.down, hidden, mlp.shared_ffn, false, &to->down);
    }
    return;
  }
  if (mlp.fused_gate_up) {
    const std::string both = prefix + "mlp.gate_up_proj";
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->gate, 0, uint64_t{2} * mlp.ffn);
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->up, mlp.ffn, uint64_t{2} * mlp.ffn);
  } else {
    AddLinear(prefix + "mlp.gate_proj", mlp.ffn, hidden, mlp.bias, &to->gate);
    AddLinear(prefix + "mlp.up_proj", mlp.ffn, hidden, mlp.bias, &to->up);
  }
  AddLinear(prefix + "mlp.down_proj", hidden, mlp.ffn, mlp.bias, &to->down);
}

void ArrayLoader::AddAttention(const LayerSpec& layer, const std::string& prefix, LayerArrays* to) {
  const AttentionSpec& attention = layer.attention;
  const uint64_t hidden = spec_.model.hidden;
  const uint64_t queries = uint64_t{attention.heads} * attention.head_dim;
  const uint64_t keys = uint64_t{attention.kv_heads} * attention.head_dim;
  const bool bias = attention.qkv_bias;
  if (attention.fused_qkv) {
    const std::string qkv = prefix + "self_attn.qkv_proj";
    const uint64_t all = queries + 2 * keys;
    AddPart(qkv, queries, hidden, bias, &to->q, 0, all);
    AddPart(qkv, keys, hidden, bias, &to->k, queries, all);
    AddPart(qkv, keys, hidden, bias, &to->v, queries + keys, all);
  } else {
    const uint64_t pairs_of = attention.qk_rows_in_pairs ? attention.head_dim : 0;
    AddLinear(prefix + "self_attn.q_proj", queries, hidden, bias, &to->q, pairs_of);
    AddLinear(prefix + "self_attn.k_proj", keys, hidden, bias, &to->k, pairs_of);
    AddLinear(prefix + "self_attn.v_proj", keys, hidden, bias, &to->v);
  }
  if (attention.qk_norm != QkNorm::kNone) {
    const bool head = attention.qk_norm == QkNorm::kHead;
    const bool plus_one = layer.norm == NormKind::kRmsOnePlus;
    AddVector(prefix + "self_attn.q_norm.weight", head ? attention.head_dim : queries, &to->q_norm);
    slots_.back().plus_one = plus_one;
    AddVector(prefix + "self_attn.k_norm.weight", head ? attention.head_dim : keys, &to->k_norm);
    slots_.back().plus_one = plus_one;
  }
}

void ArrayLoader::AddLayer(uint32_t index, LayerArrays* to) {
  const LayerSpec& layer = spec_.model.layers[index];
  const AttentionSpec& attention = layer.attention;
  const std::string prefix = absl::StrCat(spec_.model.tensor_prefix, "model.layers.", index, ".");
  const LayerNormNames norms = NormNames(layer.norm_places);
  AddNorm(prefix, norms.before_attention, layer.norm, &to->attention_norm);
  if (attention.latent.rank != 0) {
    AddLatentAttention(attention, prefix, to);
  } else {
    AddAttention(layer, prefix, to);
  }
  if (attention.sinks) {
    AddVector(prefix + "self_attn.sinks", attention.heads, &to->sinks);
  }
  AddLinear(prefix + "self_attn.o_proj", spec_.model.hidden, attention.OutputInputs(),
            attention.out_bias, &to->o);
  AddNorm(prefix, norms.after_attention, layer.norm, &to->after_attention_norm);
  AddNorm(prefix, norms.before_mlp, layer.norm, &to->mlp_norm);
  AddMlp(layer.mlp, prefix, to);
  AddNorm(prefix, norms.after_mlp, layer.norm, &to->after_mlp_norm);
}

}  // namespace strata::mlx
