// After it is known which tensors there are: their check, and the arrays made of them.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/footprint/mlx_limits.h"
#include "common/model/block_formats.h"
#include "common/status.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "worker/backend/mlx/array_weights.h"
#include "worker/backend/mlx/guard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Counts up whenever other bytes are made of the same tensors: files of the version before are then
// never read again, and evicted in time.
constexpr char kArraysVersion[] = "mlx-arrays-2";

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

std::vector<std::string> ArrayLoader::Source::Names() const {
  if (!affine()) {
    return {name};
  }
  return {name, Sibling(".scales"), Sibling(".biases")};
}

uint64_t ArrayLoader::Slot::SourceBytes() const {
  uint64_t bytes = 0;
  for (const Source& source : sources) {
    bytes += source.weight.bytes + source.scales.bytes + source.biases.bytes;
  }
  return bytes;
}

absl::StatusOr<TensorInfo> ArrayLoader::Describe(const std::string& name, Slot* slot) {
  ASSIGN_OR_RETURN(TensorInfo info, source_.Describe(name));
  std::vector<std::string>& sources = slot->form.sources;
  if (info.sources.empty()) {
    sources.push_back(info.sha256);
  } else {
    sources.insert(sources.end(), info.sources.begin(), info.sources.end());
  }
  const size_t dimensions = slot->matrix == nullptr ? 1 : 2;
  if (slot->layout.matrices != 0 && info.shape.size() == dimensions + 1 &&
      info.shape[0] == slot->layout.matrices) {
    info.shape[1] *= info.shape[0];  // One after another.
    info.shape.erase(info.shape.begin());
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

absl::StatusOr<ArrayLayout> ArrayLoader::CheckFloats(const Slot& slot, const Source& source) const {
  ArrayLayout layout = slot.layout;
  const std::string& name = source.name;
  const Dtype dtype = source.weight.dtype;
  std::vector<uint64_t> shape = {slot.RowsOfEach()};
  if (slot.matrix != nullptr) {
    shape.push_back(layout.inputs);
  }
  if (source.weight.shape != shape) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", name, " has shape ", ShapeText(source.weight.shape),
                              " where config.json asks for ", ShapeText(shape)));
  }
  const bool blocks = slot.matrix != nullptr && IsBlocks(dtype);
  if (!IsPlainFloat(dtype) && !blocks) {
    return Error(absl::StatusCode::kUnimplemented, "TENSOR_DTYPE",
                 absl::StrCat("tensor ", name, " is ", DtypeName(dtype),
                              ", which the mlx backend does not support yet"))
        .Hint(
            "use a checkpoint in F32, F16 or BF16, one in a quantized format that "
            "docs/internals/weights.md names, or a GGUF file");
  }
  RETURN_IF_ERROR(CheckBytes(name, source.weight));
  layout.bits = 0;
  layout.group = 0;
  if (blocks && !slot.as_floats && !StaysAsStored(name)) {
    const MlxBlocks kept = MlxBlocksOf(dtype);
    layout.bits = kept.bits;
    layout.group = kept.bits == 0 ? 0 : kBlockPart;
    layout.mxfp4 = kept.mxfp4;
  }
  if (blocks || slot.matrix == nullptr || spec_.quantize == v1::QUANTIZE_NONE || slot.as_floats ||
      StaysAsStored(name)) {
    // Products of a row and an expert widen all of an array.
    const bool widened =
        blocks || slot.matrix == nullptr || slot.as_floats || slot.layout.matrices != 0;
    layout.floats = widened || StaysAsStored(name) ? Dtype::kF32 : dtype;
    return layout;
  }
  layout.bits = spec_.quantize == v1::QUANTIZE_INT4 && slot.in_layer ? 4 : 8;
  layout.group = GroupOf(layout.inputs, layout.bits == 4 ? 64 : 128);
  if (layout.group == 0) {
    return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
                 absl::StrCat("tensor ", name, " has ", layout.inputs,
                              " inputs, which are no whole groups of 32: quantizing it is not "
                              "supported by the mlx backend"))
        .Hint("load it as stored: --quantize none");
  }
  return layout;
}

// Bits and group follow from the shapes, so that paths that differ need no word of config.json.
absl::StatusOr<ArrayLayout> ArrayLoader::CheckAffine(Slot* slot, Source* source) {
  ASSIGN_OR_RETURN(source->scales, Describe(source->Sibling(".scales"), slot));
  ASSIGN_OR_RETURN(source->biases, Describe(source->Sibling(".biases"), slot));
  ArrayLayout layout = slot->layout;
  const uint64_t rows = slot->RowsOfEach();
  const auto is_matrix = [&](const TensorInfo& tensor) {
    return tensor.shape.size() == 2 && tensor.shape[0] == rows && tensor.shape[1] > 0;
  };
  const bool matrices = is_matrix(source->weight) && is_matrix(source->scales) &&
                        source->biases.shape == source->scales.shape &&
                        IsPlainFloat(source->scales.dtype) && IsPlainFloat(source->biases.dtype);
  const uint64_t groups = matrices ? source->scales.shape[1] : 1;
  const uint64_t words = matrices ? source->weight.shape[1] : 0;
  layout.bits = static_cast<uint32_t>(words * 32 / layout.inputs);
  layout.group = static_cast<uint32_t>(layout.inputs / groups);
  const bool whole = words * 32 == uint64_t{layout.bits} * layout.inputs &&
                     uint64_t{layout.group} * groups == layout.inputs;
  if (!matrices || !whole || (layout.bits != 4 && layout.bits != 8) ||
      (layout.group != 32 && layout.group != 64 && layout.group != 128)) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", source->name, " ", ShapeText(source->weight.shape),
                              " with scales ", ShapeText(source->scales.shape), " is no matrix [",
                              rows, ", ", layout.inputs,
                              "] of 4 or 8 bits in groups of 32, 64 or 128"))
        .Hint("quantize the checkpoint with one of those");
  }
  for (const TensorInfo* tensor : {&source->weight, &source->scales, &source->biases}) {
    RETURN_IF_ERROR(CheckBytes(source->name, *tensor));
  }
  return layout;
}

absl::Status ArrayLoader::CheckSlot(Slot* slot) {
  ArrayLayout first = slot->layout;
  for (Source& source : slot->sources) {
    ASSIGN_OR_RETURN(source.weight, Describe(source.name, slot));
    const bool affine = slot->matrix != nullptr && source.weight.dtype == Dtype::kU32;
    ASSIGN_OR_RETURN(const ArrayLayout layout,
                     affine ? CheckAffine(slot, &source) : CheckFloats(*slot, source));
    if (&source == &slot->sources.front()) {
      first = layout;
    } else if (layout.bits != first.bits || layout.floats != first.floats ||
               layout.group != first.group || layout.mxfp4 != first.mxfp4) {
      return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
                   absl::StrCat("tensor ", source.name, " is stored in another format than ",
                                slot->name(), ", which the mlx backend does not support yet"))
          .Hint("store all experts of a layer alike");
    }
  }
  slot->layout = first;
  SetForm(slot);
  return absl::OkStatus();
}

void ArrayLoader::SetForm(Slot* slot) {
  const ArrayLayout& layout = slot->layout;
  slot->form.bytes = layout.Bytes();
  if (slot->matrix == nullptr) {
    return;  // As quickly made as read.
  }
  std::string text = absl::StrCat(
      kArraysVersion, " ", layout.bits, layout.mxfp4 ? " bits of mxfp4" : " bits", " groups of ",
      layout.group, " ", layout.matrices, " matrices ", layout.outputs, " outputs ", layout.inputs,
      " inputs from row ", slot->first_row, " pairs of ", slot->pairs_of);
  for (const Source& source : slot->sources) {
    for (const TensorInfo* tensor : {&source.weight, &source.scales, &source.biases}) {
      if (!tensor->shape.empty()) {
        if (tensor->sha256.empty()) {
          return;
        }
        absl::StrAppend(&text, " ", DtypeName(tensor->dtype), " ", tensor->sha256);
      }
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

absl::Status ArrayLoader::MakeRows(const Slot& slot, const Source& source, uint64_t row,
                                   std::span<uint8_t> out) const {
  const ArrayLayout& layout = slot.layout;
  const uint64_t rows = slot.RowsOfEach();
  ASSIGN_OR_RETURN(const TensorView weight, FindRows(source.name, slot));
  auto* const floats = reinterpret_cast<float*>(out.data()) + row * layout.inputs;
  if (slot.matrix == nullptr) {
    for (uint64_t i = 0; i < rows; ++i) {
      floats[i] = FloatAt(weight, StoredRow(i, slot.pairs_of)) + (slot.plus_one ? 1.0f : 0.0f);
    }
    return absl::OkStatus();
  }
  if (layout.bits == 0 && layout.floats != Dtype::kF32) {
    const uint64_t row_bytes = layout.inputs * sizeof(uint16_t);
    for (uint64_t i = 0; i < rows; ++i) {
      std::memcpy(out.data() + (row + i) * row_bytes,
                  weight.data + StoredRow(i, slot.pairs_of) * row_bytes, row_bytes);
    }
    return absl::OkStatus();
  }
  if (layout.bits == 0) {
    for (uint64_t i = 0; i < rows; ++i) {
      ReadRow(weight, StoredRow(i, slot.pairs_of), {floats + i * layout.inputs, layout.inputs});
    }
    return absl::OkStatus();
  }
  const uint64_t groups = layout.inputs / layout.group;
  const uint64_t row_bytes = layout.inputs * layout.bits / 8;
  const auto words_of = [&](uint64_t i) {
    return reinterpret_cast<uint32_t*>(out.data() + (row + i) * row_bytes);
  };
  if (layout.mxfp4) {
    uint8_t* const exponents = out.data() + layout.WordBytes() + row * groups;
    for (uint64_t i = 0; i < rows; ++i) {
      ReadMxfp4Row(weight, StoredRow(i, slot.pairs_of), layout.inputs, words_of(i),
                   exponents + i * groups);
    }
    return absl::OkStatus();
  }
  auto* const scales = reinterpret_cast<float*>(out.data() + layout.WordBytes()) + row * groups;
  auto* const biases = scales + layout.ScaleBytes() / sizeof(float);
  if (source.affine()) {
    ASSIGN_OR_RETURN(const TensorView stored_scales, FindRows(source.Sibling(".scales"), slot));
    ASSIGN_OR_RETURN(const TensorView stored_biases, FindRows(source.Sibling(".biases"), slot));
    std::memcpy(out.data() + row * row_bytes, weight.data, rows * row_bytes);
    for (uint64_t i = 0; i < rows * groups; ++i) {
      scales[i] = FloatAt(stored_scales, i);
      biases[i] = FloatAt(stored_biases, i);
    }
    return absl::OkStatus();
  }
  std::vector<float> values(layout.inputs);
  for (uint64_t i = 0; i < rows; ++i) {
    const uint64_t stored = StoredRow(i, slot.pairs_of);
    float* const scale = scales + i * groups;
    float* const bias = biases + i * groups;
    if (IsBlocks(weight.dtype)) {
      ReadIntegerRow(weight, stored, layout.inputs, layout.bits, words_of(i), scale, bias);
      continue;
    }
    ReadRow(weight, stored, values);
    QuantizeRow(values, layout.bits, layout.group, words_of(i), scale, bias);
  }
  return absl::OkStatus();
}

absl::Status ArrayLoader::Make(const Slot& slot, std::span<uint8_t> out) const {
  uint64_t row = 0;
  for (const Source& source : slot.sources) {
    RETURN_IF_ERROR(Annotate(MakeRows(slot, source, row, out), "tensor " + source.name));
    Release(slot, source);
    row += slot.RowsOfEach();
  }
  return absl::OkStatus();
}

void ArrayLoader::Release(const Slot& slot, const Source& source) const {
  const uint64_t rows = slot.RowsOfEach();
  const auto release = [&](const std::string& name, const TensorInfo& tensor) {
    source_.Release(name, tensor.bytes / rows * (slot.first_row + rows));
  };
  release(source.name, source.weight);
  if (source.affine()) {
    release(source.Sibling(".scales"), source.scales);
    release(source.Sibling(".biases"), source.biases);
  }
}

void ArrayLoader::SetArrays(const Slot& slot, mx::allocator::Data data) const {
  const ArrayLayout& layout = slot.layout;
  if (slot.vector != nullptr) {
    mx::Shape shape = ShapeOf(layout, 1);
    shape.pop_back();
    *slot.vector = mx::array(std::move(data), shape, mx::float32);
    return;
  }
  slot.matrix->layout = layout;
  if (layout.bits == 0) {
    const mx::Dtype dtype = layout.floats == Dtype::kF16    ? mx::float16
                            : layout.floats == Dtype::kBF16 ? mx::bfloat16
                                                            : mx::float32;
    slot.matrix->weight = mx::array(std::move(data), ShapeOf(layout, layout.inputs), dtype);
    return;
  }
  // Views of one piece of memory.
  const mx::Shape by_group = ShapeOf(layout, layout.inputs / layout.group);
  const auto words = static_cast<int>(layout.WordBytes() / sizeof(uint32_t));
  const auto end = static_cast<int>(layout.Bytes() / sizeof(uint32_t));
  const mx::array all(std::move(data), {end}, mx::uint32);
  const auto part = [&](int first, int last) { return mx::slice(all, {first}, {last}); };
  slot.matrix->weight =
      mx::reshape(part(0, words), ShapeOf(layout, layout.inputs * layout.bits / 32));
  if (layout.mxfp4) {
    const mx::array bytes = mx::view(part(words, end), mx::uint8);
    slot.matrix->scales =
        mx::reshape(mx::slice(bytes, {0}, {static_cast<int>(layout.ScaleBytes())}), by_group);
    mx::eval(*slot.matrix->weight, *slot.matrix->scales);
    return;
  }
  const int scales = words + static_cast<int>(layout.ScaleBytes() / sizeof(float));
  slot.matrix->scales = mx::reshape(mx::view(part(words, scales), mx::float32), by_group);
  slot.matrix->biases = mx::reshape(mx::view(part(scales, end), mx::float32), by_group);
  mx::eval(*slot.matrix->weight, *slot.matrix->scales, *slot.matrix->biases);
}

absl::Status ArrayLoader::LoadSlot(Slot* slot) {
  const uint64_t count = slot->layout.Bytes();
  mx::allocator::Data data = mx::allocator::malloc(count);
  const std::span<uint8_t> bytes(static_cast<uint8_t*>(data.buffer().raw_ptr()), count);
  absl::Status read = absl::NotFoundError("");
  if (slot->kept) {
    read = store_->Read(slot->form, bytes, [](size_t all, const auto& part) { part(0, all); });
    for (const Source& source : slot->sources) {
      if (!read.ok()) {
        RETURN_IF_ERROR(source_.Prepare(source.Names()));
      }
    }
  }
  if (!read.ok()) {
    RETURN_IF_ERROR(Make(*slot, bytes));
    if (store_ != nullptr && !slot->form.key.empty()) {
      store_->Write(slot->form, bytes);
    }
  }
  SetArrays(*slot, std::move(data));
  return absl::OkStatus();
}

absl::Status ArrayLoader::Load(const LoadProgressFn& progress) {
  std::set<std::string> missing;  // Parts of one tensor name it once.
  for (const Slot& slot : slots_) {
    for (const Source& source : slot.sources) {
      if (!slot.kept) {
        const std::vector<std::string> names = source.Names();
        missing.insert(names.begin(), names.end());
      }
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
    RETURN_IF_ERROR(Guarded("loading " + slot.name(), [&] { return LoadSlot(&slot); }));
    const uint64_t bytes = slot.layout.Bytes();
    arrays_->bytes += bytes;
    arrays_->step_read_bytes += slot.read_share == 0 ? 0 : bytes / slot.read_share;
    done += slot.SourceBytes();
    report();
  }
  return absl::OkStatus();
}

}  // namespace strata::mlx
