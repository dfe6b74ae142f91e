#include "cli/embeddings_file.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/mapped_file.h"
#include "common/dtype.h"
#include "common/half.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata::cli {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 20;

absl::Status Invalid(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INPUT_EMBEDDINGS", path + ": " + what)
      .Hint(
          "a safetensors file with `embeddings`, F32, F16 or BF16 [rows, hidden size], and "
          "`positions`, I64, I32 or U32 [rows]");
}

struct Tensor {
  TensorEntry entry;
  const uint8_t* data = nullptr;
};

// Element `i` as a position; nothing if it is none.
std::optional<uint32_t> PositionAt(const Tensor& tensor, uint64_t i) {
  int64_t value = 0;
  if (tensor.entry.dtype == Dtype::kI64) {
    std::memcpy(&value, tensor.data + i * sizeof(value), sizeof(value));
  } else {
    uint32_t bits;
    std::memcpy(&bits, tensor.data + i * sizeof(bits), sizeof(bits));
    value = tensor.entry.dtype == Dtype::kI32 ? int64_t{static_cast<int32_t>(bits)} : bits;
  }
  if (value < 0 || value > int64_t{kMaxContextTokens}) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(value);
}

// `from`: its bytes.
float FloatAt(Dtype dtype, const uint8_t* from) {
  if (dtype == Dtype::kF16) return HalfAt(from);
  if (dtype == Dtype::kBF16) return Bfloat16At(from);
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

bool HoldsPositions(Dtype dtype) {
  return dtype == Dtype::kI64 || dtype == Dtype::kI32 || dtype == Dtype::kU32;
}

bool HoldsRows(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16;
}

}  // namespace

absl::StatusOr<std::vector<sdk::InputEmbedding>> ReadEmbeddingsFile(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    return Invalid(path, "it is no safetensors file");
  }
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - sizeof(header_bytes)) {
    return Invalid(path, "it is no safetensors file, or has a header of more than 1 MiB");
  }
  const uint64_t start = sizeof(header_bytes) + header_bytes;
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + sizeof(header_bytes),
                                header_bytes);
  ASSIGN_OR_RETURN(const std::vector<TensorEntry> entries,
                   ParseSafetensorsHeader(header, file.size() - start, start, path));
  Tensor rows;
  Tensor positions;
  for (const TensorEntry& entry : entries) {
    if (entry.name == "embeddings") rows = {entry, file.data() + entry.offset};
    if (entry.name == "positions") positions = {entry, file.data() + entry.offset};
  }
  if (rows.data == nullptr || !HoldsRows(rows.entry.dtype) || rows.entry.shape.size() != 2 ||
      rows.entry.bytes == 0) {
    return Invalid(path, "it has no `embeddings` with rows of floats");
  }
  const uint64_t count = rows.entry.shape[0];
  const uint64_t hidden = rows.entry.shape[1];
  const Dtype dtype = rows.entry.dtype;
  if (positions.data != nullptr && (!HoldsPositions(positions.entry.dtype) ||
                                    positions.entry.shape != std::vector<uint64_t>{count})) {
    return Invalid(path, "`positions` is not a list of " + std::to_string(count) + " integers");
  }
  if (count > kMaxInputEmbeddingBytes / sizeof(float) / hidden) {
    return Invalid(path, std::to_string(count) + " rows of " + std::to_string(hidden) +
                             " values are more than " +
                             std::to_string(kMaxInputEmbeddingBytes >> 10) +
                             " KiB as float32, the most of one request");
  }
  std::vector<sdk::InputEmbedding> embeddings(count);
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<uint32_t> position =
        positions.data == nullptr ? static_cast<uint32_t>(i) : PositionAt(positions, i);
    if (!position.has_value()) {
      return Invalid(path, "`positions` has one that no prompt has");
    }
    embeddings[i].position = *position;
    embeddings[i].values.resize(hidden);
    for (uint64_t h = 0; h < hidden; ++h) {
      embeddings[i].values[h] = FloatAt(dtype, rows.data + (i * hidden + h) * DtypeBytes(dtype));
    }
  }
  return embeddings;
}

}  // namespace strata::cli
