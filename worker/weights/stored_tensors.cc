#include "worker/weights/stored_tensors.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/model/block_formats.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

// Counts up whenever other bytes are made of the same tensors.
constexpr char kVersion[] = "stored-tensors-3";

// Outputs that are made at once: rows of words that are written are apart, those read are near.
constexpr size_t kOutputs = 64;

absl::Status ReleaseParts(const TensorSource& source, const StoredMatrix& matrix) {
  for (const StoredPart* part : matrix.Parts()) {
    ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(part->name));
    source.Release(part->name, info.bytes);
  }
  return absl::OkStatus();
}

// The matrices as they lie, which may be inputs first: blocks of these are square.
StoredMatrix AsItLies(const StageTensor& tensor, const TensorSource& source) {
  StoredMatrix matrix = *tensor.matrix;
  const auto info = source.Describe(matrix.codes.name);
  if (!tensor.may_be_transposed || !info.ok() || info->shape == matrix.codes.shape) {
    return matrix;
  }
  std::swap(matrix.outputs, matrix.inputs);
  for (StoredPart* part : {&matrix.codes, &matrix.scales}) {
    std::swap(part->shape[1], part->shape[2]);
  }
  return matrix;
}

// The bytes of a part, of the length that its shape says; or, of a state, of any.
absl::StatusOr<TensorView> FindPart(const TensorSource& source, const StoredPart& part,
                                    bool any_length) {
  ASSIGN_OR_RETURN(TensorView view, source.Find(part.name));
  const uint64_t bytes = any_length ? view.bytes : TensorBytes(view.dtype, part.shape).value_or(0);
  const bool known =
      std::find(part.dtypes.begin(), part.dtypes.end(), view.dtype) != part.dtypes.end();
  if (!known || view.bytes != bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_BYTES",
                 absl::StrCat("tensor ", part.name, " has ", view.bytes, " bytes of ",
                              DtypeName(view.dtype), " where its matrix needs ", bytes));
  }
  return view;
}

}  // namespace

StoredTensors::StoredTensors(const std::vector<StageTensor>& tensors, const TensorSource& source)
    : source_(source) {
  for (const StageTensor& tensor : tensors) {
    if (!tensor.matrix.has_value()) {
      continue;
    }
    const StoredMatrix matrix = AsItLies(tensor, source);
    matrices_.push_back({matrix, {}});
    const KeptForm kept = matrix.Kept();
    // Of several matrices, with that dimension.
    const auto add = [&](const std::string& name, Dtype dtype, uint64_t columns) {
      std::vector<uint64_t> shape = {matrix.outputs, columns};
      if (matrix.codes.shape.size() > 2) {
        shape.insert(shape.begin(), matrix.matrices);
      }
      Add(name, dtype, std::move(shape));
    };
    switch (kept.kind) {
      case KeptForm::Kind::kFloats:
        add(matrix.name, Dtype::kF32, matrix.inputs);
        break;
      case KeptForm::Kind::kBlocks:
        add(matrix.name, kept.blocks, matrix.inputs);
        break;
      case KeptForm::Kind::kIntegers: {
        const std::string path = matrix.name.substr(0, matrix.name.rfind('.'));
        add(matrix.name, Dtype::kU32, matrix.inputs * kept.bits / 32);
        add(path + ".scales", Dtype::kF32, matrix.inputs / kept.group);
        add(path + ".biases", Dtype::kF32, matrix.inputs / kept.group);
        break;
      }
    }
  }
}

void StoredTensors::Add(const std::string& name, Dtype dtype, std::vector<uint64_t> shape) {
  std::vector<Made>& made = matrices_.back().made;
  places_[name] = {matrices_.size() - 1, made.size()};
  TensorInfo& info = made.emplace_back().info;
  const uint64_t bytes = TensorBytes(dtype, shape).value_or(0);
  info = {dtype, std::move(shape), bytes, ""};
}

std::string StoredTensors::DigestOf(const StoredMatrix& matrix, size_t made) const {
  const StoredScheme& scheme = matrix.scheme;
  std::string text =
      absl::StrCat(kVersion, " tensor ", made, " method ", static_cast<int>(scheme.method), " ",
                   matrix.matrices, " ", matrix.outputs, " ", matrix.inputs, " ", matrix.bits, " ",
                   matrix.group, " ", matrix.per_scale, " ", matrix.ordered ? "ordered" : "");
  absl::StrAppend(&text, " ", matrix.zeros_less_one ? "less-one" : "",
                  matrix.as_floats ? " floats" : "");
  for (const StoredPart* part : matrix.Parts()) {
    const auto info = source_.Describe(part->name);
    if (!info.ok() || info->sha256.empty()) {
      return "";
    }
    absl::StrAppend(&text, " ", DtypeName(info->dtype), " ", info->sha256);
  }
  return Sha256Hex(text);
}

absl::StatusOr<TensorInfo> StoredTensors::Describe(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    return source_.Describe(name);
  }
  const Matrix& matrix = matrices_[found->second.matrix];
  TensorInfo info = matrix.made[found->second.made].info;
  for (const StoredPart* part : matrix.stored.Parts()) {
    ASSIGN_OR_RETURN(TensorInfo of_part, source_.Describe(part->name));
    info.sources.push_back(std::move(of_part.sha256));
  }
  info.sha256 = DigestOf(matrix.stored, found->second.made);
  return info;
}

absl::Status StoredTensors::Prepare(const std::vector<std::string>& names) const {
  std::set<std::string> wanted;
  for (const std::string& name : names) {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      wanted.insert(name);
      continue;
    }
    for (const StoredPart* part : matrices_[found->second.matrix].stored.Parts()) {
      wanted.insert(part->name);
    }
  }
  return source_.Prepare({wanted.begin(), wanted.end()});
}

absl::Status StoredTensors::Make(Matrix* matrix) const {
  const StoredMatrix& stored = matrix->stored;
  StoredWeights::Data data;
  for (const StoredPart* part : stored.Parts()) {
    ASSIGN_OR_RETURN(const TensorView view, FindPart(source_, *part, part == &stored.state));
    *StoredWeights::PlaceOf(stored, part, &data) = {view.data, view.dtype, view.bytes};
  }
  StoredWeights weights(stored, data);
  RETURN_IF_ERROR(weights.Check());
  for (Made& made : matrix->made) {
    if (made.data == nullptr) {
      made.data.reset(new (std::nothrow) uint32_t[(made.info.bytes + 3) / sizeof(uint32_t)]);
    }
    if (made.data == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                   absl::StrCat("no memory to unpack tensor ", stored.codes.name))
          .Limit(absl::StrCat("needed=", FormatSize(made.info.bytes)))
          .Hint("load fewer layers on this node");
    }
  }
  const auto row = [&](size_t made, size_t first) {
    const Made& out = matrix->made[made];
    return reinterpret_cast<uint8_t*>(out.data.get()) + out.info.bytes / stored.rows() * first;
  };
  const auto floats = [&](size_t made, size_t first) {
    return reinterpret_cast<float*>(row(made, first));
  };
  const KeptForm::Kind kind = stored.Kept().kind;
  for (size_t first = 0; first < stored.rows(); first += kOutputs) {
    const size_t end = std::min<size_t>(first + kOutputs, stored.rows());
    switch (kind) {
      case KeptForm::Kind::kFloats:
        weights.ReadFloats(first, end, floats(0, first));
        break;
      case KeptForm::Kind::kBlocks:
        weights.ReadBlocks(first, end, row(0, first));
        break;
      case KeptForm::Kind::kIntegers:
        weights.ReadWords(first, end, reinterpret_cast<uint32_t*>(row(0, first)));
        weights.ReadScales(first, end, floats(1, first), floats(2, first));
        break;
    }
  }
  return ReleaseParts(source_, stored);
}

absl::StatusOr<TensorView> StoredTensors::Find(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    return source_.Find(name);
  }
  MutexLock lock(&mutex_);
  Matrix& matrix = matrices_[found->second.matrix];
  Made& made = matrix.made[found->second.made];
  if (made.data == nullptr) {
    RETURN_IF_ERROR(Make(&matrix));
  }
  return TensorView{.dtype = made.info.dtype,
                    .shape = made.info.shape,
                    .data = reinterpret_cast<const uint8_t*>(made.data.get()),
                    .bytes = made.info.bytes};
}

void StoredTensors::Release(std::string_view name, size_t bytes) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    source_.Release(name, bytes);
    return;
  }
  MutexLock lock(&mutex_);
  Made& made = matrices_[found->second.matrix].made[found->second.made];
  if (bytes == made.info.bytes) {
    made.data = nullptr;
  }
}

}  // namespace strata
