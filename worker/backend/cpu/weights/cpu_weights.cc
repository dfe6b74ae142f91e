#include "worker/backend/cpu/weights/cpu_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/block_formats.h"
#include "common/model/quantized_weights.h"
#include "common/status.h"
#include "worker/backend/cpu/weights/packed_key.h"

namespace strata::cpu {
namespace {

uint64_t BytesOf(const Linear& linear) {
  return linear.weight.bytes() + linear.bias.size() * sizeof(float);
}

uint64_t BytesOf(const std::vector<Linear>& linears) {
  uint64_t bytes = 0;
  for (const Linear& linear : linears) {
    bytes += BytesOf(linear);
  }
  return bytes;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckBytes(const std::string& name, const TensorView& tensor) {
  const uint64_t wanted = TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  if (tensor.bytes != wanted) {
    return Error(
        absl::StatusCode::kInvalidArgument, "TENSOR_BYTES",
        absl::StrCat("tensor ", name, " has ", tensor.bytes, " bytes where ",
                     ShapeText(tensor.shape), " ", DtypeName(tensor.dtype), " takes ", wanted));
  }
  return absl::OkStatus();
}

// Cuts shape and bytes of a tensor of `all` rows down to those of the shape `wanted` from `first`
// on.
absl::Status TakeRows(const std::string& name, uint64_t first, const std::vector<uint64_t>& wanted,
                      uint64_t all, std::vector<uint64_t>* shape, size_t* bytes) {
  const uint64_t rows = wanted[0];
  if (shape->size() == wanted.size() + 1 && (*shape)[0] * (*shape)[1] == all) {
    shape->erase(shape->begin());  // One after another.
    (*shape)[0] = all;
  }
  if (shape->empty() || (*shape)[0] != all || first + rows > all || *bytes % all != 0) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", name, " has shape ", ShapeText(*shape),
                              " where config.json asks for ", all, " rows"));
  }
  (*shape)[0] = rows;
  *bytes = *bytes / all * rows;
  return absl::OkStatus();
}

}  // namespace

uint64_t StageWeights::StepReadBytes() const {
  uint64_t bytes = final_norm.size() * sizeof(float) + BytesOf(head);
  for (const LayerWeights& layer : layers) {
    for (const std::vector<float>* norm :
         {&layer.attention_norm, &layer.after_attention_norm, &layer.q_norm, &layer.k_norm,
          &layer.sinks, &layer.mlp_norm, &layer.after_mlp_norm, &layer.query_latent_norm,
          &layer.kv_latent_norm}) {
      bytes += norm->size() * sizeof(float);
    }
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down,
          &layer.mixture.router, &layer.query_latent, &layer.kv_latent}) {
      bytes += BytesOf(*linear);
    }
    bytes += BytesOf(layer.key_heads) + BytesOf(layer.value_heads);
    if (const MixtureWeights& mixture = layer.mixture; !mixture.experts.empty()) {
      bytes += mixture.ExpertBytes() / mixture.experts.size() * mixture.used;
    }
  }
  return bytes;
}

uint64_t StageWeights::Bytes() const {
  uint64_t bytes = StepReadBytes() + embedding.bytes() + embedding_panels.bytes();
  for (const LayerWeights& layer : layers) {
    if (const MixtureWeights& mixture = layer.mixture; !mixture.experts.empty()) {
      const uint64_t all = mixture.ExpertBytes();
      bytes += all - all / mixture.experts.size() * mixture.used;
    }
  }
  return bytes;
}

uint64_t MixtureWeights::ExpertBytes() const {
  uint64_t bytes = 0;
  for (const ExpertWeights& expert : experts) {
    bytes += BytesOf(expert.gate) + BytesOf(expert.up) + BytesOf(expert.down);
  }
  return bytes;
}

WeightLoader::WeightLoader(const StageSpec& spec, const TensorSource& source, PackedStore* store,
                           const WeightPlacer* placer, bool may_map, StageWeights* weights,
                           const RankWeights& rank)
    : spec_(spec),
      source_(source),
      store_(store),
      placer_(placer),
      may_map_(may_map),
      rank_(rank),
      panels_(&weights->panels),
      mapped_(&weights->mapped) {
  const ModelSpec& model = spec.model;
  const std::vector<uint64_t> embedding_shape = {model.vocab, model.hidden};
  const std::string embedding = model.tensor_prefix + "model.embed_tokens.weight";
  // A stage with both ends of a tied model keeps the panels only, where one rank has all of them.
  if (spec.embeds && rank.embeds && !(spec.heads && model.tied_head && rank.alone)) {
    slots_.push_back({.name = embedding,
                      .shape = embedding_shape,
                      .panels = &weights->embedding_panels,
                      .rows = &weights->embedding});
  }
  part_ends_.push_back(slots_.size());
  weights->layers.resize(spec.last_layer - spec.first_layer + 1);
  for (uint32_t i = 0; i < weights->layers.size(); ++i) {
    AddLayer(spec.first_layer + i, &weights->layers[i]);
    part_ends_.push_back(slots_.size());
  }
  if (spec.heads) {
    AddVector(model.tensor_prefix + "model.norm.weight", model.hidden, &weights->final_norm);
    slots_.push_back({.name = model.tied_head ? embedding : model.tensor_prefix + "lm_head.weight",
                      .shape = embedding_shape,
                      .panels = &weights->head.weight,
                      .product = &weights->head});
    if (rank.outputs != nullptr) {
      KeepRows(slots_.size() - 1, rank.outputs->vocab);
    }
  }
  part_ends_.push_back(slots_.size());
}

void WeightLoader::KeepRowsOf(Slot* slot, OutputRange rows) {
  if (rows.size() != slot->shape[0]) {
    slot->all_rows = slot->all_rows == 0 ? slot->shape[0] : slot->all_rows;
    slot->first_row += rows.begin;
    slot->shape[0] = rows.size();
  }
}

void WeightLoader::KeepRows(size_t since, OutputRange rows) {
  for (size_t i = since; i < slots_.size(); ++i) {
    KeepRowsOf(&slots_[i], rows);
  }
}

void WeightLoader::AddVector(std::string name, uint64_t size, std::vector<float>* to) {
  slots_.push_back({.name = std::move(name), .shape = {size}, .vector = to});
}

void WeightLoader::AddLinear(const std::string& name, uint64_t outputs, uint64_t inputs, bool bias,
                             Linear* to, const Linear* product, RowOrder order) {
  slots_.push_back({.name = name + ".weight",
                    .shape = {outputs, inputs},
                    .panels = &to->weight,
                    .in_layer = true,
                    .order = order,
                    .product = product != nullptr ? product : to});
  if (bias) {
    AddVector(name + ".bias", outputs, &to->bias);
    slots_.back().order = order;
  }
}

void WeightLoader::AddPart(const std::string& name, uint64_t outputs, uint64_t inputs, bool bias,
                           Linear* to, const Linear* product, std::pair<uint64_t, uint64_t> rows) {
  const size_t first = slots_.size();
  AddLinear(name, outputs, inputs, bias, to, product);
  for (size_t i = first; i < slots_.size(); ++i) {
    slots_[i].first_row = rows.first;
    slots_[i].all_rows = rows.second;
  }
}

void WeightLoader::AddNorm(const std::string& prefix, const char* name, std::vector<float>* to) {
  if (name != nullptr) {
    AddVector(absl::StrCat(prefix, name, ".weight"), spec_.model.hidden, to);
  }
}

void WeightLoader::AddLatentAttention(const AttentionSpec& attention, const std::string& prefix,
                                      OutputRange own, LayerWeights* to) {
  const LatentSpec& latent = attention.latent;
  const uint64_t hidden = spec_.model.hidden;
  const uint64_t heads = attention.heads;
  const uint64_t queries = heads * attention.head_dim;
  const OutputRange own_queries = {own.begin * attention.head_dim, own.end * attention.head_dim};
  if (latent.query_rank == 0) {
    AddLinear(prefix + "self_attn.q_proj", queries, hidden, false, &to->q);
    KeepRows(slots_.size() - 1, own_queries);
  } else {
    AddLinear(prefix + "self_attn.q_a_proj", latent.query_rank, hidden, false, &to->query_latent);
    AddVector(prefix + "self_attn.q_a_layernorm.weight", latent.query_rank, &to->query_latent_norm);
    AddLinear(prefix + "self_attn.q_b_proj", queries, latent.query_rank, false, &to->q);
    KeepRows(slots_.size() - 1, own_queries);
  }
  AddLinear(prefix + "self_attn.kv_a_proj_with_mqa", latent.kept(), hidden, false, &to->kv_latent,
            latent.query_rank == 0 ? &to->q : &to->query_latent);
  AddVector(prefix + "self_attn.kv_a_layernorm.weight", latent.rank, &to->kv_latent_norm);
  to->key_heads.resize(own.size());
  to->value_heads.resize(own.size());
  const std::string whole = prefix + "self_attn.kv_b_proj";
  const bool split = !source_.Describe(whole + ".weight").ok() &&
                     source_.Describe(prefix + "self_attn.k_b_proj.weight").ok();
  const uint64_t nope = latent.nope_dim;
  const uint64_t value = latent.value_dim;
  const uint64_t rank = latent.rank;
  const auto add = [&](const std::string& name, uint64_t outputs, uint64_t inputs, Linear* linear,
                       uint64_t first, uint64_t all) {
    AddPart(name, outputs, inputs, false, linear, nullptr, {first, heads * all});
    slots_.back().as_stored = true;
    slots_.back().product = nullptr;
  };
  for (uint64_t head = own.begin; head < own.end; ++head) {
    Linear* const keys = &to->key_heads[head - own.begin];
    if (split) {
      add(prefix + "self_attn.k_b_proj", rank, nope, keys, head * rank, rank);
      continue;
    }
    const uint64_t all = nope + value;
    add(whole, nope, rank, keys, head * all, all);
    slots_.back().transposed = true;
    add(whole, value, rank, &to->value_heads[head - own.begin], head * all + nope, all);
  }
  for (uint64_t head = own.begin; head < own.end && split; ++head) {
    add(prefix + "self_attn.v_b_proj", value, rank, &to->value_heads[head - own.begin],
        head * value, value);
  }
}

void WeightLoader::AddLayer(uint32_t index, LayerWeights* to) {
  const LayerSpec& layer = spec_.model.layers[index];
  const AttentionSpec& attention = layer.attention;
  const uint64_t hidden = spec_.model.hidden;
  const uint64_t queries = uint64_t{attention.heads} * attention.head_dim;
  const uint64_t keys = uint64_t{attention.kv_heads} * attention.head_dim;
  const std::string prefix = absl::StrCat(spec_.model.tensor_prefix, "model.layers.", index, ".");
  const LayerNormNames norms = NormNames(layer.norm_places);
  const LayerOutputs* const own =
      rank_.outputs == nullptr ? nullptr : &rank_.outputs->layers[index];
  const OutputRange heads = own == nullptr ? OutputRange{0, attention.heads} : own->heads;
  AddNorm(prefix, norms.before_attention, &to->attention_norm);
  const size_t projections = slots_.size();
  if (attention.latent.rank != 0) {
    AddLatentAttention(attention, prefix, heads, to);
  } else if (attention.fused_qkv) {
    const std::string qkv = prefix + "self_attn.qkv_proj";
    const uint64_t all = queries + 2 * keys;
    const bool bias = attention.qkv_bias;
    AddPart(qkv, queries, hidden, bias, &to->q, nullptr, {0, all});
    AddPart(qkv, keys, hidden, bias, &to->k, &to->q, {queries, all});
    AddPart(qkv, keys, hidden, bias, &to->v, &to->q, {queries + keys, all});
  } else {
    const RowOrder order{attention.qk_rows_in_pairs ? attention.head_dim : 0};
    AddLinear(prefix + "self_attn.q_proj", queries, hidden, attention.qkv_bias, &to->q, nullptr,
              order);
    AddLinear(prefix + "self_attn.k_proj", keys, hidden, attention.qkv_bias, &to->k, &to->q, order);
    AddLinear(prefix + "self_attn.v_proj", keys, hidden, attention.qkv_bias, &to->v, &to->q);
  }
  if (own != nullptr && attention.latent.rank == 0) {
    // Of q, k and v as many each: a matrix, and perhaps a bias.
    const size_t each = (slots_.size() - projections) / 3;
    const uint32_t width = attention.head_dim;
    for (size_t i = projections; i < slots_.size(); ++i) {
      const OutputRange rows = i < projections + each ? own->heads : own->kv_heads;
      KeepRowsOf(&slots_[i], {rows.begin * width, rows.end * width});
    }
  }
  if (attention.qk_norm != QkNorm::kNone) {
    const bool head = attention.qk_norm == QkNorm::kHead;
    AddVector(prefix + "self_attn.q_norm.weight", head ? attention.head_dim : queries, &to->q_norm);
    AddVector(prefix + "self_attn.k_norm.weight", head ? attention.head_dim : keys, &to->k_norm);
  }
  if (attention.sinks) {
    AddVector(prefix + "self_attn.sinks", attention.heads, &to->sinks);
    KeepRows(slots_.size() - 1, heads);
  }
  const size_t output = slots_.size();
  AddLinear(prefix + "self_attn.o_proj", hidden, attention.OutputInputs(), attention.out_bias,
            &to->o);
  KeepRows(output, OwnHidden());
  AddNorm(prefix, norms.after_attention, &to->after_attention_norm);
  AddNorm(prefix, norms.before_mlp, &to->mlp_norm);
  AddMlp(layer, prefix, own, to);
  AddNorm(prefix, norms.after_mlp, &to->after_mlp_norm);
}

void WeightLoader::AddMlp(const LayerSpec& layer, const std::string& prefix,
                          const LayerOutputs* own, LayerWeights* to) {
  const MlpSpec& mlp = layer.mlp;
  const uint64_t hidden = spec_.model.hidden;
  if (mlp.experts != 0) {
    AddExperts(mlp, prefix, own, &to->mixture);
    if (mlp.shared_ffn != 0) {
      const ExpertPaths shared = SharedExpertPaths(prefix);
      const size_t since = slots_.size();
      AddLinear(shared.gate, mlp.shared_ffn, hidden, false, &to->gate);
      AddLinear(shared.up, mlp.shared_ffn, hidden, false, &to->up);
      KeepRows(since, own == nullptr ? OutputRange{0, mlp.shared_ffn} : own->shared_ffn);
      AddLinear(shared.down, hidden, mlp.shared_ffn, false, &to->down);
      KeepRows(slots_.size() - 1, OwnHidden());
    }
    return;
  }
  const size_t since = slots_.size();
  if (mlp.fused_gate_up) {
    const std::string both = prefix + "mlp.gate_up_proj";
    const uint64_t all = uint64_t{2} * mlp.ffn;
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->gate, nullptr, {0, all});
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->up, nullptr, {mlp.ffn, all});
  } else {
    AddLinear(prefix + "mlp.gate_proj", mlp.ffn, hidden, mlp.bias, &to->gate);
    AddLinear(prefix + "mlp.up_proj", mlp.ffn, hidden, mlp.bias, &to->up);
  }
  KeepRows(since, own == nullptr ? OutputRange{0, mlp.ffn} : own->ffn);
  const size_t down = slots_.size();
  AddLinear(prefix + "mlp.down_proj", hidden, mlp.ffn, mlp.bias, &to->down);
  KeepRows(down, OwnHidden());
}

absl::StatusOr<TensorView> WeightLoader::Describe(const std::string& name, Slot* slot) {
  ASSIGN_OR_RETURN(TensorInfo info, source_.Describe(name));
  if (slot->all_rows != 0) {
    RETURN_IF_ERROR(
        TakeRows(name, slot->first_row, slot->shape, slot->all_rows, &info.shape, &info.bytes));
  }
  slot->names.push_back(name);
  slot->source_bytes += info.bytes;
  slot->digests.push_back(info.sha256);
  std::vector<std::string>& sources = slot->form.sources;
  if (info.sources.empty()) {
    sources.push_back(info.sha256);
  } else {
    sources.insert(sources.end(), info.sources.begin(), info.sources.end());
  }
  return TensorView{.dtype = info.dtype, .shape = std::move(info.shape), .bytes = info.bytes};
}

absl::StatusOr<TensorView> WeightLoader::FindRows(const std::string& name, const Slot& slot) const {
  ASSIGN_OR_RETURN(TensorView view, source_.Find(name));
  if (slot.all_rows != 0) {
    const size_t row_bytes = view.bytes / slot.all_rows;
    RETURN_IF_ERROR(
        TakeRows(name, slot.first_row, slot.shape, slot.all_rows, &view.shape, &view.bytes));
    view.data += slot.first_row * row_bytes;
  }
  return view;
}

void WeightLoader::ReleaseRows(const std::string& name, const Slot& slot, const TensorView& view,
                               size_t bytes) const {
  if (!rank_.alone) {
    return;  // Other ranks need other rows: LoadRanks does it.
  }
  // Parts are loaded in the order of their rows.
  const size_t before = slot.shape[0] == 0 ? 0 : view.bytes / slot.shape[0] * slot.first_row;
  source_.Release(name, before + bytes);
}

absl::Status WeightLoader::CheckSlot(Slot* slot) {
  if (slot->empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(slot->tensor, Describe(slot->name, slot));
  const bool affine = slot->is_matrix() && slot->tensor.dtype == Dtype::kU32;
  if (slot->as_stored && !PackedMatrix::CanPack(slot->tensor.dtype) &&
      !IsBlocks(slot->tensor.dtype)) {
    return Error(
        absl::StatusCode::kUnimplemented, "TENSOR_DTYPE",
        absl::StrCat("tensor ", slot->name, " is ", DtypeName(slot->tensor.dtype),
                     "; the cpu backend needs it as F32, F16, BF16 or a GGUF file's blocks"));
  }
  RETURN_IF_ERROR(affine ? CheckAffine(slot) : CheckFloats(slot));
  if (slot->is_matrix()) {
    LayOut(slot);
  } else {
    packed_bytes_ += slot->shape[0] * sizeof(float);
  }
  return absl::OkStatus();
}

absl::Status WeightLoader::CheckFloats(Slot* slot) {
  const TensorView& tensor = slot->tensor;
  if (tensor.shape != slot->shape) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", slot->name, " has shape ", ShapeText(tensor.shape),
                              " where config.json asks for ", ShapeText(slot->shape)));
  }
  if (!PackedMatrix::CanPack(tensor.dtype) && !(slot->is_matrix() && IsBlocks(tensor.dtype))) {
    return Error(absl::StatusCode::kUnimplemented, "TENSOR_DTYPE",
                 absl::StrCat("tensor ", slot->name, " is ", DtypeName(tensor.dtype),
                              ", which the cpu backend does not support yet"))
        .Hint(
            "use a checkpoint in F32, F16 or BF16, one in a quantized format that "
            "docs/internals/weights.md names, or a GGUF file");
  }
  RETURN_IF_ERROR(CheckBytes(slot->name, tensor));
  slot->blocks = slot->is_matrix() && IsBlocks(tensor.dtype) && !slot->as_stored;
  if (!slot->is_matrix() || slot->blocks || slot->as_stored || IsRouter(slot->name)) {
    return absl::OkStatus();
  }
  if (spec_.quantize == v1::QUANTIZE_INT4 && slot->in_layer) {
    slot->quantize = WeightFormat::kAffine4;
  } else if (spec_.quantize == v1::QUANTIZE_INT8 || spec_.quantize == v1::QUANTIZE_INT4) {
    slot->quantize = WeightFormat::kInt8;
  }
  return absl::OkStatus();
}

// Bits and group follow from the shapes, so that paths that differ need no word of config.json.
absl::Status WeightLoader::CheckAffine(Slot* slot) {
  const std::string base = slot->name.substr(0, slot->name.rfind('.'));
  AffineTensor affine;
  affine.weight = slot->tensor;
  ASSIGN_OR_RETURN(affine.scales, Describe(base + ".scales", slot));
  ASSIGN_OR_RETURN(affine.biases, Describe(base + ".biases", slot));
  const uint64_t outputs = slot->shape[0];
  const uint64_t inputs = slot->shape[1];
  const auto is_matrix = [&](const TensorView& tensor) {
    return tensor.shape.size() == 2 && tensor.shape[0] == outputs && tensor.shape[1] > 0;
  };
  const bool matrices = is_matrix(affine.weight) && is_matrix(affine.scales) &&
                        affine.biases.shape == affine.scales.shape &&
                        affine.biases.dtype == affine.scales.dtype &&
                        PackedMatrix::CanPack(affine.scales.dtype);
  const uint64_t groups = matrices ? affine.scales.shape[1] : 1;
  const uint64_t words = matrices ? affine.weight.shape[1] : 0;
  affine.bits = static_cast<uint32_t>(words * 32 / std::max<uint64_t>(1, inputs));
  affine.group = static_cast<uint32_t>(inputs / groups);
  const bool whole =
      words * 32 == uint64_t{affine.bits} * inputs && uint64_t{affine.group} * groups == inputs;
  if (!matrices || !whole || !IsAffineBits(affine.bits) || !IsAffineGroup(affine.group)) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", slot->name, " ", ShapeText(affine.weight.shape),
                              " with scales ", ShapeText(affine.scales.shape), " is no matrix ",
                              ShapeText(slot->shape), " of 4 or 8 bits in groups of 32, 64 or 128"))
        .Hint("quantize the checkpoint with one of those");
  }
  for (const TensorView* tensor : {&affine.weight, &affine.scales, &affine.biases}) {
    RETURN_IF_ERROR(CheckBytes(slot->name, *tensor));
  }
  slot->affine = affine;
  return absl::OkStatus();
}

void WeightLoader::LayOut(Slot* slot) {
  const size_t outputs = slot->shape[slot->transposed ? 1 : 0];
  const size_t inputs = slot->shape[slot->transposed ? 0 : 1];
  // What is never quantized here and is stored in blocks becomes floats.
  const Dtype stored = slot->tensor.dtype;
  const Dtype dtype = slot->as_stored && IsBlocks(stored) ? Dtype::kF32 : stored;
  slot->layout = slot->affine     ? PackedMatrix::AffineShape(*slot->affine)
                 : slot->blocks   ? PackedMatrix::BlockShape(dtype, outputs, inputs)
                 : slot->quantize ? PackedMatrix::QuantizedShape(*slot->quantize, outputs, inputs)
                                  : PackedMatrix::FloatShape(dtype, outputs, inputs);
  PackedForm& form = slot->form;
  form.bytes = slot->in_rows() ? RowMatrix::Bytes(dtype, outputs, inputs)
                               : PackedMatrix::PackedBytes(slot->layout);
  packed_bytes_ += form.bytes;
  std::vector<Dtype> dtypes = {stored};
  if (slot->affine) {
    dtypes.insert(dtypes.end(), {slot->affine->scales.dtype, slot->affine->biases.dtype});
  }
  form.key = slot->in_rows() ? RowsKey(slot->layout, dtypes, slot->digests)
                             : PanelsKey(slot->layout, dtypes, slot->digests, slot->first_row,
                                         slot->order.head_rows, slot->transposed);
  slot->kept = !slot->stacked && store_ != nullptr && !form.key.empty() && store_->Has(form);
}

absl::Status WeightLoader::Check() {
  for (Slot& slot : slots_) {
    RETURN_IF_ERROR(CheckSlot(&slot));
    total_bytes_ += slot.source_bytes;
  }
  for (Stack& stack : stacks_) {
    RETURN_IF_ERROR(LayOutStack(&stack));
  }
  return absl::OkStatus();
}

}  // namespace strata::cpu
