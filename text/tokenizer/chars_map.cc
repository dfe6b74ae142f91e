#include "text/tokenizer/chars_map.h"

#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = (value << 8) | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

// The parts of a unit of the trie, as the Darts library packs them.
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
bool HasLeaf(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t ValueOf(uint32_t unit) { return unit & ((1u << 31) - 1); }

absl::Status Invalid(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
               std::string("precompiled_charsmap ") + std::string(what));
}

}  // namespace

absl::StatusOr<CharsMap> CharsMap::Make(std::string_view bytes) {
  std::vector<uint32_t> units;
  std::string replacements;
  if (!bytes.empty()) {
    if (bytes.size() < 4) {
      return Invalid("has no size");
    }
    const size_t size = LittleEndian(bytes);
    bytes.remove_prefix(4);
    if (size > bytes.size() || size % 4 != 0) {
      return Invalid("is shorter than it says");
    }
    for (size_t at = 0; at < size; at += 4) {
      units.push_back(LittleEndian(bytes.substr(at)));
    }
    replacements = bytes.substr(size);
    if (FirstInvalidUtf8(replacements)) {
      return Invalid("has replacements that are no UTF-8");
    }
  }
  return CharsMap(std::move(units), std::move(replacements));
}

template <typename Visit>
void CharsMap::ForEach(std::string_view text, Visit visit) const {
  if (units_.empty()) {
    return;
  }
  size_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) {
      return;
    }
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) {
      continue;
    }
    const size_t begin = node < units_.size() ? ValueOf(units_[node]) : replacements_.size();
    std::optional<std::string_view> replacement;
    if (begin < replacements_.size() &&
        (static_cast<uint8_t>(replacements_[begin]) & 0xC0) != 0x80) {
      replacement = std::string_view(replacements_).substr(begin);
      replacement = replacement->substr(0, replacement->find('\0'));
    }
    if (!visit(replacement, i + 1)) {
      return;
    }
  }
}

std::optional<std::string_view> CharsMap::Shortest(std::string_view text) const {
  std::optional<std::string_view> found;
  ForEach(text, [&](std::optional<std::string_view> replacement, size_t) {
    found = replacement;
    return false;
  });
  return found;
}

std::optional<std::pair<std::string_view, size_t>> CharsMap::Longest(std::string_view text) const {
  std::optional<std::pair<std::string_view, size_t>> found;
  ForEach(text, [&](std::optional<std::string_view> replacement, size_t length) {
    if (replacement.has_value()) {
      found = {*replacement, length};
    }
    return true;
  });
  return found;
}

}  // namespace strata
