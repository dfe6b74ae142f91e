// The container of GGUF files, version 3: key-values and tensor infos. The format: docs/gguf.md of
// github.com/ggml-org/ggml. What a file means is gguf_model.h's affair.
#ifndef STRATA_COMMON_CHECKPOINT_GGUF_H_
#define STRATA_COMMON_CHECKPOINT_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_spec.h"

namespace strata {

// Longer headers are refused: the largest vocabularies take some 20 MB.
inline constexpr size_t kMaxGgufHeaderBytes = size_t{256} << 20;

// The numbers are the format's.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// A value, or a list of values of one type. Points into the header that it was read from.
struct GgufValue {
  GgufType type = GgufType::kU8;  // Of the elements, never kArray.
  bool is_list = false;
  uint64_t count = 1;
  // A string's characters; of everything else the elements as they are stored.
  std::string_view bytes;
};

struct GgufTensor {
  std::string_view name;
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;  // Slowest dimension first, as everywhere here.
  uint64_t offset = 0;          // Of the first byte in the file.
  uint64_t bytes = 0;
};

struct GgufHeader {
  std::map<std::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;  // In the file's order.
};

// `head` is the beginning of a file of `file_bytes`, `file` its name for messages. All views are
// into `head`. Nothing that the header counts is allocated before the file is known to be long
// enough for it. INVALID_ARGUMENT and UNIMPLEMENTED name the key or the tensor. OUT_OF_RANGE: the
// file goes on, and `head` is too short.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::string_view head, uint64_t file_bytes,
                                           std::string_view file);

// A file's header and the bytes that it points into. Movable.
struct GgufFile {
  std::string head;
  GgufHeader header;
};
// INVALID_ARGUMENT and the like as above, or the errors of reading files.
absl::StatusOr<GgufFile> ReadGgufFile(const std::string& path);

// Reads typed values of a header and keeps the first error, which names the key. After an error
// every read gives its fallback.
class GgufReader {
 public:
  // `header` and what it points into outlive the reader.
  explicit GgufReader(const GgufHeader* header) : header_(header) {}

  const GgufValue* Find(std::string_view key) const;
  // An integer in [min, max], of any integer type; required unless there is a fallback.
  uint64_t Uint(std::string_view key, uint64_t min, uint64_t max,
                std::optional<uint64_t> fallback = std::nullopt);
  // A finite number in [min, max].
  double Number(std::string_view key, double min, double max,
                std::optional<double> fallback = std::nullopt);
  bool Bool(std::string_view key, bool fallback);
  std::string String(std::string_view key, std::string_view fallback);
  // Lists; empty where the key is absent. `Ints` takes any integer type.
  std::vector<std::string_view> Strings(std::string_view key);
  std::vector<float> Floats(std::string_view key);
  std::vector<int64_t> Ints(std::string_view key);
  std::vector<bool> Bools(std::string_view key);

  void Fail(std::string_view key, std::string_view problem);
  const absl::Status& status() const { return status_; }

 private:
  // The value of a key, or nullptr and an error where it is not one of a kind that fits.
  const GgufValue* Get(std::string_view key, bool list, bool required);

  const GgufHeader* const header_;
  absl::Status status_;
};

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_GGUF_H_
