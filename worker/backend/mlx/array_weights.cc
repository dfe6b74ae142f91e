#include "worker/backend/mlx/array_weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/model/block_formats.h"
#include "common/status.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "worker/backend/mlx/guard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Counts up whenever other bytes are made of the same tensors: files of the version before are then
// never read again, and evicted in time.
constexpr char kArraysVersion[] = "mlx-arrays-1";

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

mx::Shape ShapeOf(const ArrayLayout& layout, uint64_t last) {
  mx::Shape shape;
  if (layout.matrices != 0) {
    shape.push_back(static_cast<int>(layout.matrices));
  }
  shape.push_back(static_cast<int>(layout.outputs));
  shape.push_back(static_cast<int>(last));
  return shape;
}

// Row `row` as it is stored where heads have their rows in pairs.
uint64_t StoredRow(uint64_t row, uint64_t head_rows) {
  if (head_rows == 0) {
    return row;
  }
  const uint64_t half = head_rows / 2;
  const uint64_t within = row % head_rows;
  return row - within + within % half * 2 + within / half;
}

absl::Status WrongShape(const std::string& name, const std::vector<uint64_t>& shape,
                        const ArrayLayout& layout) {
  return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
               absl::StrCat("tensor ", name, " has shape ", ShapeText(shape),
                            " where config.json asks for [", layout.outputs,
                            layout.inputs == 1 ? "" : absl::StrCat(", ", layout.inputs), "]"));
}

absl::Status CheckBytes(const std::string& name, const TensorInfo& tensor) {
  const uint64_t wanted = TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  if (tensor.bytes == wanted) {
    return absl::OkStatus();
  }
  return Error(
      absl::StatusCode::kInvalidArgument, "TENSOR_BYTES",
      absl::StrCat("tensor ", name, " has ", tensor.bytes, " bytes where ", ShapeText(tensor.shape),
                   " ", DtypeName(tensor.dtype), " takes ", wanted));
}

}  // namespace

std::vector<std::string> ArrayLoader::Slot::Names() const {
  if (scales.shape.empty()) {
    return {name};
  }
  return {name, Sibling(".scales"), Sibling(".biases")};
}

ArrayLoader::ArrayLoader(const StageSpec& spec, const TensorSource& source, PackedStore* store,
                         StageArrays* arrays)
    : spec_(spec), source_(source), store_(store), arrays_(arrays) {
  const ModelSpec& model = spec.model;
  const std::string embedding = model.tensor_prefix + "model.embed_tokens.weight";
  // A stage with both ends of a tied model keeps one of them.
  if (spec.embeds && !(spec.heads && model.tied_head)) {
    AddMatrix(embedding, model.vocab, model.hidden, false, &arrays->embedding);
    slots_.back().looked_up = true;
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
  slot.name = std::move(name);
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
  slot.name = std::move(name);
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

void ArrayLoader::AddLayer(uint32_t index, LayerArrays* to) {
  const LayerSpec& layer = spec_.model.layers[index];
  const AttentionSpec& attention = layer.attention;
  const MlpSpec& mlp = layer.mlp;
  const uint64_t hidden = spec_.model.hidden;
  const uint64_t queries = uint64_t{attention.heads} * attention.head_dim;
  const uint64_t keys = uint64_t{attention.kv_heads} * attention.head_dim;
  const std::string prefix = absl::StrCat(spec_.model.tensor_prefix, "model.layers.", index, ".");
  const LayerNormNames norms = NormNames(layer.norm_places);
  const bool bias = attention.qkv_bias;
  AddNorm(prefix, norms.before_attention, layer.norm, &to->attention_norm);
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
  if (attention.sinks) {
    AddVector(prefix + "self_attn.sinks", attention.heads, &to->sinks);
  }
  AddLinear(prefix + "self_attn.o_proj", hidden, attention.OutputInputs(), attention.out_bias,
            &to->o);
  AddNorm(prefix, norms.after_attention, layer.norm, &to->after_attention_norm);
  AddNorm(prefix, norms.before_mlp, layer.norm, &to->mlp_norm);
  if (mlp.fused_gate_up) {
    const std::string both = prefix + "mlp.gate_up_proj";
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->gate, 0, uint64_t{2} * mlp.ffn);
    AddPart(both, mlp.ffn, hidden, mlp.bias, &to->up, mlp.ffn, uint64_t{2} * mlp.ffn);
  } else {
    AddLinear(prefix + "mlp.gate_proj", mlp.ffn, hidden, mlp.bias, &to->gate);
    AddLinear(prefix + "mlp.up_proj", mlp.ffn, hidden, mlp.bias, &to->up);
  }
  AddLinear(prefix + "mlp.down_proj", hidden, mlp.ffn, mlp.bias, &to->down);
  AddNorm(prefix, norms.after_mlp, layer.norm, &to->after_mlp_norm);
}

absl::StatusOr<TensorInfo> ArrayLoader::Describe(const std::string& name, Slot* slot) {
  ASSIGN_OR_RETURN(TensorInfo info, source_.Describe(name));
  std::vector<std::string>& sources = slot->form.sources;
  if (info.sources.empty()) {
    sources.push_back(info.sha256);
  } else {
    sources.insert(sources.end(), info.sources.begin(), info.sources.end());
  }
  if (slot->all_rows != 0) {
    if (info.shape.empty() || info.shape[0] != slot->all_rows) {
      return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                   absl::StrCat("tensor ", name, " has shape ", ShapeText(info.shape),
                                " where config.json asks for ", slot->all_rows, " rows"));
    }
    info.shape[0] = slot->layout.rows();
    info.bytes = info.bytes / slot->all_rows * slot->layout.rows();
  }
  return info;
}

absl::Status ArrayLoader::CheckFloats(Slot* slot) {
  ArrayLayout& layout = slot->layout;
  const Dtype dtype = slot->weight.dtype;
  const std::vector<uint64_t> shape = slot->matrix == nullptr
                                          ? std::vector<uint64_t>{layout.outputs}
                                          : std::vector<uint64_t>{layout.outputs, layout.inputs};
  if (slot->weight.shape != shape) {
    return WrongShape(slot->name, slot->weight.shape, layout);
  }
  const bool blocks = slot->matrix != nullptr && IsBlocks(dtype);
  if (!IsPlainFloat(dtype) && !blocks) {
    return Error(absl::StatusCode::kUnimplemented, "TENSOR_DTYPE",
                 absl::StrCat("tensor ", slot->name, " is ", DtypeName(dtype),
                              ", which the mlx backend does not support yet"))
        .Hint(
            "use a checkpoint in F32, F16 or BF16, one in a quantized format that "
            "docs/internals/weights.md names, or a GGUF file");
  }
  RETURN_IF_ERROR(CheckBytes(slot->name, slot->weight));
  if (blocks || slot->matrix == nullptr || spec_.quantize == v1::QUANTIZE_NONE ||
      StaysAsStored(slot->name)) {
    return absl::OkStatus();
  }
  layout.bits = spec_.quantize == v1::QUANTIZE_INT4 && slot->in_layer ? 4 : 8;
  layout.group = GroupOf(layout.inputs, layout.bits == 4 ? 64 : 128);
  if (layout.group == 0) {
    return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
                 absl::StrCat("tensor ", slot->name, " has ", layout.inputs,
                              " inputs, which are no whole groups of 32: quantizing it is not "
                              "supported by the mlx backend"))
        .Hint("load it as stored: --quantize none");
  }
  return absl::OkStatus();
}

// Bits and group follow from the shapes, so that paths that differ need no word of config.json.
absl::Status ArrayLoader::CheckAffine(Slot* slot) {
  ASSIGN_OR_RETURN(slot->scales, Describe(slot->Sibling(".scales"), slot));
  ASSIGN_OR_RETURN(slot->biases, Describe(slot->Sibling(".biases"), slot));
  ArrayLayout& layout = slot->layout;
  const auto is_matrix = [&](const TensorInfo& tensor) {
    return tensor.shape.size() == 2 && tensor.shape[0] == layout.outputs && tensor.shape[1] > 0;
  };
  const bool matrices = is_matrix(slot->weight) && is_matrix(slot->scales) &&
                        slot->biases.shape == slot->scales.shape &&
                        IsPlainFloat(slot->scales.dtype) && IsPlainFloat(slot->biases.dtype);
  const uint64_t groups = matrices ? slot->scales.shape[1] : 1;
  const uint64_t words = matrices ? slot->weight.shape[1] : 0;
  layout.bits = static_cast<uint32_t>(words * 32 / layout.inputs);
  layout.group = static_cast<uint32_t>(layout.inputs / groups);
  const bool whole = words * 32 == uint64_t{layout.bits} * layout.inputs &&
                     uint64_t{layout.group} * groups == layout.inputs;
  if (!matrices || !whole || (layout.bits != 4 && layout.bits != 8) ||
      (layout.group != 32 && layout.group != 64 && layout.group != 128)) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", slot->name, " ", ShapeText(slot->weight.shape),
                              " with scales ", ShapeText(slot->scales.shape), " is no matrix [",
                              layout.outputs, ", ", layout.inputs,
                              "] of 4 or 8 bits in groups of 32, 64 or 128"))
        .Hint("quantize the checkpoint with one of those");
  }
  for (const TensorInfo* tensor : {&slot->weight, &slot->scales, &slot->biases}) {
    RETURN_IF_ERROR(CheckBytes(slot->name, *tensor));
  }
  return absl::OkStatus();
}

absl::Status ArrayLoader::CheckSlot(Slot* slot) {
  ASSIGN_OR_RETURN(slot->weight, Describe(slot->name, slot));
  const bool affine = slot->matrix != nullptr && slot->weight.dtype == Dtype::kU32;
  RETURN_IF_ERROR(affine ? CheckAffine(slot) : CheckFloats(slot));
  SetForm(slot);
  return absl::OkStatus();
}

void ArrayLoader::SetForm(Slot* slot) {
  const ArrayLayout& layout = slot->layout;
  slot->form.bytes = layout.Bytes();
  if (slot->matrix == nullptr) {
    return;  // As quickly made as read.
  }
  std::string text =
      absl::StrCat(kArraysVersion, " ", layout.bits, " bits groups of ", layout.group, " ",
                   layout.outputs, " outputs ", layout.inputs, " inputs from row ", slot->first_row,
                   " pairs of ", slot->pairs_of);
  for (const TensorInfo* tensor : {&slot->weight, &slot->scales, &slot->biases}) {
    if (!tensor->shape.empty()) {
      if (tensor->sha256.empty()) {
        return;
      }
      absl::StrAppend(&text, " ", DtypeName(tensor->dtype), " ", tensor->sha256);
    }
  }
  slot->form.key = Sha256Hex(text);
  slot->kept = store_ != nullptr && store_->Has(slot->form);
}

absl::Status ArrayLoader::Check() {
  for (Slot& slot : slots_) {
    RETURN_IF_ERROR(CheckSlot(&slot));
    bytes_ += slot.layout.Bytes();
    source_bytes_ += slot.SourceBytes();
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorView> ArrayLoader::FindRows(const std::string& name, const Slot& slot) const {
  ASSIGN_OR_RETURN(TensorView view, source_.Find(name));
  if (slot.all_rows != 0) {
    const size_t row_bytes = view.bytes / slot.all_rows;
    view.data += slot.first_row * row_bytes;
    view.bytes = slot.layout.rows() * row_bytes;
  }
  return view;
}

absl::Status ArrayLoader::Make(const Slot& slot, std::span<uint8_t> out) const {
  const ArrayLayout& layout = slot.layout;
  const uint64_t rows = layout.rows();
  ASSIGN_OR_RETURN(const TensorView weight, FindRows(slot.name, slot));
  auto* const floats = reinterpret_cast<float*>(out.data());
  if (slot.matrix == nullptr) {
    for (uint64_t i = 0; i < rows; ++i) {
      floats[i] = FloatAt(weight, StoredRow(i, slot.pairs_of)) + (slot.plus_one ? 1.0f : 0.0f);
    }
    return absl::OkStatus();
  }
  auto* const scales = reinterpret_cast<float*>(out.data() + layout.WordBytes());
  auto* const biases = scales + layout.ScaleBytes() / sizeof(float);
  if (!slot.scales.shape.empty()) {
    ASSIGN_OR_RETURN(const TensorView stored_scales, FindRows(slot.Sibling(".scales"), slot));
    ASSIGN_OR_RETURN(const TensorView stored_biases, FindRows(slot.Sibling(".biases"), slot));
    std::memcpy(out.data(), weight.data, layout.WordBytes());
    for (uint64_t i = 0; i < layout.ScaleBytes() / sizeof(float); ++i) {
      scales[i] = FloatAt(stored_scales, i);
      biases[i] = FloatAt(stored_biases, i);
    }
    return absl::OkStatus();
  }
  std::vector<float> values(layout.inputs);
  const uint64_t groups = layout.bits == 0 ? 0 : layout.inputs / layout.group;
  for (uint64_t row = 0; row < rows; ++row) {
    ReadRow(weight, StoredRow(row, slot.pairs_of), values);
    if (layout.bits == 0) {
      std::copy(values.begin(), values.end(), floats + row * layout.inputs);
      continue;
    }
    auto* const words =
        reinterpret_cast<uint32_t*>(out.data() + row * layout.inputs * layout.bits / 8);
    QuantizeRow(values, layout.bits, layout.group, words, scales + row * groups,
                biases + row * groups);
  }
  return absl::OkStatus();
}

void ArrayLoader::Release(const Slot& slot) const {
  const uint64_t end = slot.first_row + slot.layout.rows();
  const auto release = [&](const std::string& name, const TensorInfo& tensor) {
    const size_t bytes =
        slot.all_rows == 0 ? tensor.bytes : tensor.bytes / slot.layout.rows() * end;
    source_.Release(name, bytes);
  };
  release(slot.name, slot.weight);
  if (!slot.scales.shape.empty()) {
    release(slot.Sibling(".scales"), slot.scales);
    release(slot.Sibling(".biases"), slot.biases);
  }
}

absl::Status ArrayLoader::LoadSlot(Slot* slot) {
  const ArrayLayout& layout = slot->layout;
  mx::allocator::Data data = mx::allocator::malloc(layout.Bytes());
  const std::span<uint8_t> bytes(static_cast<uint8_t*>(data.buffer().raw_ptr()), layout.Bytes());
  absl::Status read = absl::NotFoundError("");
  if (slot->kept) {
    read = store_->Read(slot->form, bytes, [](size_t count, const auto& part) { part(0, count); });
    if (!read.ok()) {
      RETURN_IF_ERROR(source_.Prepare(slot->Names()));
    }
  }
  if (!read.ok()) {
    RETURN_IF_ERROR(Annotate(Make(*slot, bytes), "tensor " + slot->name));
    Release(*slot);
    if (store_ != nullptr && !slot->form.key.empty()) {
      store_->Write(slot->form, bytes);
    }
  }
  if (slot->vector != nullptr) {
    *slot->vector = mx::array(std::move(data), {static_cast<int>(layout.outputs)}, mx::float32);
    return absl::OkStatus();
  }
  slot->matrix->layout = layout;
  if (layout.bits == 0) {
    slot->matrix->weight = mx::array(std::move(data), ShapeOf(layout, layout.inputs), mx::float32);
    return absl::OkStatus();
  }
  // Views of one piece of memory.
  const uint64_t groups = layout.inputs / layout.group;
  const auto words = static_cast<int64_t>(layout.WordBytes() / sizeof(uint32_t));
  const auto scales = static_cast<int64_t>(layout.ScaleBytes() / sizeof(float));
  const mx::array all(std::move(data), {static_cast<int>(words + 2 * scales)}, mx::uint32);
  const auto part = [&](int64_t first, int64_t count) {
    return mx::slice(all, {static_cast<int>(first)}, {static_cast<int>(first + count)});
  };
  slot->matrix->weight =
      mx::reshape(part(0, words), ShapeOf(layout, layout.inputs * layout.bits / 32));
  slot->matrix->scales =
      mx::reshape(mx::view(part(words, scales), mx::float32), ShapeOf(layout, groups));
  slot->matrix->biases =
      mx::reshape(mx::view(part(words + scales, scales), mx::float32), ShapeOf(layout, groups));
  mx::eval(*slot->matrix->weight, *slot->matrix->scales, *slot->matrix->biases);
  return absl::OkStatus();
}

absl::Status ArrayLoader::Load(const LoadProgressFn& progress) {
  std::set<std::string> missing;  // Parts of one tensor name it once.
  for (const Slot& slot : slots_) {
    if (!slot.kept) {
      const std::vector<std::string> names = slot.Names();
      missing.insert(names.begin(), names.end());
    }
  }
  RETURN_IF_ERROR(source_.Prepare({missing.begin(), missing.end()}));
  uint64_t done = 0;
  const auto report = [&] {
    if (progress) {
      progress(done, source_bytes_);
    }
  };
  report();
  for (Slot& slot : slots_) {
    RETURN_IF_ERROR(Guarded("loading " + slot.name, [&] { return LoadSlot(&slot); }));
    const uint64_t bytes = slot.layout.Bytes();
    arrays_->bytes += bytes;
    arrays_->step_read_bytes += slot.looked_up ? 0 : bytes;
    done += slot.SourceBytes();
    report();
  }
  return absl::OkStatus();
}

}  // namespace strata::mlx
