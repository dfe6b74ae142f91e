// Headers of safetensors files. The format: docs of github.com/huggingface/safetensors, "Format".
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/model/block_formats.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr size_t kMaxRank = 32;

// Blocks are of GGUF alone.
std::optional<Dtype> DtypeOf(std::string_view name) {
  const std::optional<Dtype> dtype = DtypeOfName(name);
  return dtype.has_value() && IsBlocks(*dtype) ? std::nullopt : dtype;
}

Error Invalid(std::string_view file, std::string_view problem) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_SAFETENSORS",
               absl::StrCat(std::string(file), ": ", std::string(problem)));
}

// Element counts and the pair of offsets: arrays of integers >= 0.
std::optional<std::vector<uint64_t>> Integers(const json& value) {
  if (!value.is_array()) {
    return std::nullopt;
  }
  std::vector<uint64_t> numbers;
  numbers.reserve(value.size());
  for (const json& element : value) {
    if (!element.is_number_unsigned()) {
      return std::nullopt;
    }
    numbers.push_back(element.get<uint64_t>());
  }
  return numbers;
}

absl::Status CheckMetadata(const json& metadata, std::string_view file) {
  if (metadata.is_null()) {
    return absl::OkStatus();  // As MLX writes none.
  }
  if (!metadata.is_object()) {
    return Invalid(file, "__metadata__ is not an object");
  }
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      return Invalid(file, "__metadata__ field " + Quoted(key) + " is not a string");
    }
  }
  return absl::OkStatus();
}

// One entry; its offset is still relative to the data.
absl::StatusOr<TensorEntry> ParseEntry(const std::string& name, const json& value,
                                       uint64_t data_bytes, std::string_view file) {
  const std::string who = "tensor " + Quoted(name);
  if (!value.is_object()) {
    return Invalid(file, who + " is not an object");
  }
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Invalid(file, who + " has the unknown field " + Quoted(key));
    }
  }
  const auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) {
    return Invalid(file, who + " has no dtype");
  }
  const auto& dtype_name = dtype->get_ref<const std::string&>();
  const std::optional<Dtype> known = DtypeOf(dtype_name);
  if (!known.has_value()) {
    return Invalid(file, "dtype " + Quoted(dtype_name) + " of " + who + " is unknown");
  }
  const auto shape = value.find("shape");
  std::optional<std::vector<uint64_t>> dimensions;
  if (shape != value.end()) {
    dimensions = Integers(*shape);
  }
  if (!dimensions.has_value() || dimensions->size() > kMaxRank) {
    return Invalid(file, who + " has no shape of at most 32 integers from 0");
  }
  const auto range = value.find("data_offsets");
  std::optional<std::vector<uint64_t>> offsets;
  if (range != value.end()) {
    offsets = Integers(*range);
  }
  if (!offsets.has_value() || offsets->size() != 2) {
    return Invalid(file, who + " has no data_offsets of two integers from 0");
  }
  const uint64_t begin = (*offsets)[0];
  const uint64_t end = (*offsets)[1];
  if (begin > end) {
    return Invalid(file, absl::StrCat("data_offsets of ", who, " end before they begin: [", begin,
                                      ", ", end, ")"));
  }
  if (end > data_bytes) {
    return Invalid(
        file, absl::StrCat("data_offsets of ", who, ", [", begin, ", ", end,
                           "), are past the end: the file has ", data_bytes, " bytes of data"));
  }
  const std::optional<uint64_t> bytes = TensorBytes(*known, *dimensions);
  if (!bytes.has_value()) {
    return Invalid(file, absl::StrCat("shape of ", who, " overflows",
                                      DtypeBits(*known) % 8 == 0 ? "" : ", or ends within a byte"));
  }
  if (*bytes != end - begin) {
    return Invalid(file, absl::StrCat("shape and dtype of ", who, " need ", *bytes,
                                      " bytes, its data_offsets hold ", end - begin));
  }
  TensorEntry entry;
  entry.name = name;
  entry.dtype = *known;
  entry.shape = *std::move(dimensions);
  entry.file = std::string(file);
  entry.offset = begin;
  entry.bytes = *bytes;
  return entry;
}

// The tensors have to cover the data without overlap or hole.
absl::Status CheckCover(const std::vector<TensorEntry>& entries, uint64_t data_bytes,
                        std::string_view file) {
  std::vector<const TensorEntry*> order;
  order.reserve(entries.size());
  for (const TensorEntry& entry : entries) {
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = 0;
  std::string_view before;
  for (const TensorEntry* entry : order) {
    if (entry->offset < end) {
      return Invalid(file, absl::StrCat("tensors ", Quoted(before), " and ", Quoted(entry->name),
                                        " overlap at byte ", entry->offset));
    }
    if (entry->offset > end) {
      return Invalid(file, absl::StrCat("bytes [", end, ", ", entry->offset, ") before tensor ",
                                        Quoted(entry->name), " belong to no tensor"));
    }
    end = entry->offset + entry->bytes;
    before = entry->name;
  }
  if (end != data_bytes) {
    return Invalid(
        file, absl::StrCat("bytes [", end, ", ", data_bytes, ") at the end belong to no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(std::string_view header,
                                                                uint64_t data_bytes,
                                                                uint64_t data_start,
                                                                std::string_view file) {
  if (header.empty() || header.front() != '{') {
    return Invalid(file, "the header does not begin with {");
  }
  if (data_bytes > std::numeric_limits<uint64_t>::max() - data_start) {
    return Invalid(file, "the data ends past the largest offset");
  }
  ASSIGN_OR_RETURN(const json parsed,
                   ParseJsonObject(header, absl::StrCat(std::string(file), ": the header"),
                                   "INVALID_SAFETENSORS", kMaxSafetensorsHeaderBytes));
  std::vector<TensorEntry> entries;
  entries.reserve(parsed.size());
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(value, file));
      continue;
    }
    if (name.empty()) {
      return Invalid(file, "a tensor has an empty name");
    }
    ASSIGN_OR_RETURN(TensorEntry entry, ParseEntry(name, value, data_bytes, file));
    entries.push_back(std::move(entry));
  }
  RETURN_IF_ERROR(CheckCover(entries, data_bytes, file));
  for (TensorEntry& entry : entries) {
    entry.offset += data_start;
  }
  return entries;
}

absl::StatusOr<std::vector<TensorEntry>> ReadSafetensorsHeader(const FileReader& file,
                                                               const std::string& name,
                                                               uint64_t max_header_bytes) {
  const auto fail = [&](const std::string& problem) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_SAFETENSORS", name + ": " + problem);
  };
  uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    return fail(absl::StrCat("has ", file.size(), " bytes, too few for a header's length"));
  }
  RETURN_IF_ERROR(file.ReadAt(0, &length, sizeof(length)));
  if (length > max_header_bytes) {
    return fail(absl::StrCat("header length ", length, " is too large"))
        .Limit(absl::StrCat("header_bytes=", max_header_bytes));
  }
  const uint64_t data_start = sizeof(length) + length;
  if (data_start > file.size()) {
    return fail(absl::StrCat("header length ", length, " is past the end of the file of ",
                             file.size(), " bytes"));
  }
  std::string header(length, '\0');
  RETURN_IF_ERROR(file.ReadAt(sizeof(length), header.data(), header.size()));
  return ParseSafetensorsHeader(header, file.size() - data_start, data_start, name);
}

}  // namespace strata
