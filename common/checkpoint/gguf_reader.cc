// Typed values of a GGUF header.
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"

namespace strata {
namespace {

template <typename Value>
Value At(std::string_view bytes, size_t index) {
  Value value;
  std::memcpy(&value, bytes.data() + index * sizeof(Value), sizeof(Value));
  return value;
}

// An integer of any type; nothing for other types, and for what int64 does not have.
std::optional<int64_t> IntAt(const GgufValue& value, size_t index) {
  switch (value.type) {
    case GgufType::kU8:
      return At<uint8_t>(value.bytes, index);
    case GgufType::kI8:
      return At<int8_t>(value.bytes, index);
    case GgufType::kU16:
      return At<uint16_t>(value.bytes, index);
    case GgufType::kI16:
      return At<int16_t>(value.bytes, index);
    case GgufType::kU32:
      return At<uint32_t>(value.bytes, index);
    case GgufType::kI32:
      return At<int32_t>(value.bytes, index);
    case GgufType::kI64:
      return At<int64_t>(value.bytes, index);
    case GgufType::kU64: {
      const uint64_t number = At<uint64_t>(value.bytes, index);
      if (number <= uint64_t{INT64_MAX}) {
        return static_cast<int64_t>(number);
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

const GgufValue* GgufReader::Find(std::string_view key) const {
  const auto found = header_->values.find(key);
  return found == header_->values.end() ? nullptr : &found->second;
}

void GgufReader::Fail(std::string_view key, std::string_view problem) {
  if (status_.ok()) {
    status_ = Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF",
                    absl::StrCat("key ", Quoted(key), " ", std::string(problem)));
  }
}

const GgufValue* GgufReader::Get(std::string_view key, bool list, bool required) {
  const GgufValue* const value = status_.ok() ? Find(key) : nullptr;
  if (value == nullptr) {
    if (required) {
      Fail(key, "is missing");
    }
    return nullptr;
  }
  if (value->is_list != list) {
    Fail(key, list ? "is no list" : "is a list");
    return nullptr;
  }
  return value;
}

uint64_t GgufReader::Uint(std::string_view key, uint64_t min, uint64_t max,
                          std::optional<uint64_t> fallback) {
  const GgufValue* const value = Get(key, false, !fallback.has_value());
  if (value == nullptr) {
    return fallback.value_or(min);
  }
  const std::optional<int64_t> number = IntAt(*value, 0);
  if (!number.has_value() || *number < 0 || static_cast<uint64_t>(*number) < min ||
      static_cast<uint64_t>(*number) > max) {
    Fail(key, absl::StrCat(number.has_value() ? absl::StrCat("is ", *number, ", which ") : "",
                           "is no integer from ", min, " to ", max));
    return fallback.value_or(min);
  }
  return static_cast<uint64_t>(*number);
}

double GgufReader::Number(std::string_view key, double min, double max,
                          std::optional<double> fallback) {
  const GgufValue* const value = Get(key, false, !fallback.has_value());
  if (value == nullptr) {
    return fallback.value_or(min);
  }
  double number = std::nan("");
  if (value->type == GgufType::kF32) {
    number = At<float>(value->bytes, 0);
  } else if (value->type == GgufType::kF64) {
    number = At<double>(value->bytes, 0);
  }
  if (!(number >= min && number <= max)) {
    Fail(key, absl::StrCat("is no number from ", min, " to ", max));
    return fallback.value_or(min);
  }
  return number;
}

bool GgufReader::Bool(std::string_view key, bool fallback) {
  const GgufValue* const value = Get(key, false, false);
  if (value == nullptr) {
    return fallback;
  }
  if (value->type != GgufType::kBool) {
    Fail(key, "is neither true nor false");
    return fallback;
  }
  return value->bytes[0] != 0;
}

std::string GgufReader::String(std::string_view key, std::string_view fallback) {
  const GgufValue* const value = Get(key, false, false);
  if (value == nullptr) {
    return std::string(fallback);
  }
  if (value->type != GgufType::kString) {
    Fail(key, "is no string");
    return std::string(fallback);
  }
  return std::string(value->bytes);
}

std::vector<std::string_view> GgufReader::Strings(std::string_view key) {
  std::vector<std::string_view> out;
  const GgufValue* const value = Get(key, true, false);
  if (value == nullptr) {
    return out;
  }
  if (value->type != GgufType::kString) {
    Fail(key, "is no list of strings");
    return out;
  }
  // The header's reader saw that they are whole.
  out.reserve(value->count);
  for (size_t at = 0; at < value->bytes.size();) {
    const uint64_t length = At<uint64_t>(value->bytes.substr(at), 0);
    out.push_back(value->bytes.substr(at + sizeof(length), length));
    at += sizeof(length) + length;
  }
  return out;
}

std::vector<float> GgufReader::Floats(std::string_view key) {
  const GgufValue* const value = Get(key, true, false);
  if (value == nullptr) {
    return {};
  }
  if (value->type != GgufType::kF32) {
    Fail(key, "is no list of float32");
    return {};
  }
  std::vector<float> out(value->count);
  std::memcpy(out.data(), value->bytes.data(), value->bytes.size());
  return out;
}

std::vector<int64_t> GgufReader::Ints(std::string_view key) {
  std::vector<int64_t> out;
  const GgufValue* const value = Get(key, true, false);
  if (value == nullptr) {
    return out;
  }
  out.reserve(value->count);
  for (size_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = IntAt(*value, i);
    if (!number.has_value()) {
      Fail(key, "is no list of integers");
      return {};
    }
    out.push_back(*number);
  }
  return out;
}

std::vector<bool> GgufReader::Bools(std::string_view key) {
  std::vector<bool> out;
  const GgufValue* const value = Get(key, true, false);
  if (value == nullptr) {
    return out;
  }
  if (value->type != GgufType::kBool) {
    Fail(key, "is no list of true and false");
    return out;
  }
  for (const char byte : value->bytes) {
    out.push_back(byte != 0);
  }
  return out;
}

}  // namespace strata
