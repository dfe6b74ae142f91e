#include "cli/embeddings_file.h"

#include <cstring>
#include <optional>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_reader.h"
#include "common/limits.h"
#include "common/model/dtype.h"
#include "common/model/half.h"
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

absl::StatusOr<std::vector<uint8_t>> BytesOf(const FileReader& file, const TensorEntry& tensor) {
  std::vector<uint8_t> bytes(tensor.bytes);
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, bytes.data(), bytes.size()));
  return bytes;
}

// Element `i` of `data` as a position; nothing if it is none.
std::optional<uint32_t> PositionAt(Dtype dtype, const uint8_t* data, uint64_t i) {
  int64_t value = 0;
  if (dtype == Dtype::kI64) {
    std::memcpy(&value, data + i * sizeof(value), sizeof(value));
  } else {
    uint32_t bits;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    value = dtype == Dtype::kI32 ? int64_t{static_cast<int32_t>(bits)} : bits;
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
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  ASSIGN_OR_RETURN(const std::vector<TensorEntry> entries,
                   ReadSafetensorsHeader(file, path, kMaxHeaderBytes));
  const TensorEntry* rows = nullptr;
  const TensorEntry* positions = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.name == "embeddings") rows = &entry;
    if (entry.name == "positions") positions = &entry;
  }
  if (rows == nullptr || !HoldsRows(rows->dtype) || rows->shape.size() != 2 || rows->bytes == 0) {
    return Invalid(path, "it has no `embeddings` with rows of floats");
  }
  const uint64_t count = rows->shape[0];
  const uint64_t hidden = rows->shape[1];
  if (positions != nullptr &&
      (!HoldsPositions(positions->dtype) || positions->shape != std::vector<uint64_t>{count})) {
    return Invalid(path, "`positions` is not a list of " + std::to_string(count) + " integers");
  }
  if (count > kMaxInputEmbeddingBytes / sizeof(float) / hidden) {
    return Invalid(path, std::to_string(count) + " rows of " + std::to_string(hidden) +
                             " values are more than " +
                             std::to_string(kMaxInputEmbeddingBytes >> 10) +
                             " KiB as float32, the most of one request");
  }
  // Both are small by now.
  ASSIGN_OR_RETURN(const std::vector<uint8_t> row_bytes, BytesOf(file, *rows));
  std::vector<uint8_t> position_bytes;
  if (positions != nullptr) {
    ASSIGN_OR_RETURN(position_bytes, BytesOf(file, *positions));
  }
  std::vector<sdk::InputEmbedding> embeddings(count);
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<uint32_t> position =
        positions == nullptr ? static_cast<uint32_t>(i)
                             : PositionAt(positions->dtype, position_bytes.data(), i);
    if (!position.has_value()) {
      return Invalid(path, "`positions` has one that no prompt has");
    }
    embeddings[i].position = *position;
    embeddings[i].values.resize(hidden);
    for (uint64_t h = 0; h < hidden; ++h) {
      embeddings[i].values[h] =
          FloatAt(rows->dtype, row_bytes.data() + (i * hidden + h) * DtypeBytes(rows->dtype));
    }
  }
  return embeddings;
}

}  // namespace strata::cli
