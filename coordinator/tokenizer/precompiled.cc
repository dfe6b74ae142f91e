#include "coordinator/tokenizer/precompiled.h"

#include "common/status.h"
#include "coordinator/tokenizer/unicode.h"

namespace strata {
namespace {

// Longer clusters are replaced character by character.
constexpr size_t kWholeClusterBytes = 5;

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

absl::StatusOr<std::unique_ptr<PrecompiledNormalizer>> PrecompiledNormalizer::Make(
    std::string_view charsmap) {
  std::vector<uint32_t> units;
  std::string replacements;
  if (!charsmap.empty()) {
    if (charsmap.size() < 4) {
      return Invalid("has no size");
    }
    const size_t size = LittleEndian(charsmap);
    charsmap.remove_prefix(4);
    if (size > charsmap.size() || size % 4 != 0) {
      return Invalid("is shorter than it says");
    }
    for (size_t at = 0; at < size; at += 4) {
      units.push_back(LittleEndian(charsmap.substr(at)));
    }
    replacements = charsmap.substr(size);
    if (FirstInvalidUtf8(replacements)) {
      return Invalid("has replacements that are no UTF-8");
    }
  }
  return std::unique_ptr<PrecompiledNormalizer>(
      new PrecompiledNormalizer(std::move(units), std::move(replacements)));
}

std::optional<std::string_view> PrecompiledNormalizer::Replacement(std::string_view chunk) const {
  if (units_.empty()) {
    return std::nullopt;
  }
  size_t node = OffsetOf(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) {
      return std::nullopt;
    }
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (HasLeaf(unit)) {
      const size_t begin = node < units_.size() ? ValueOf(units_[node]) : replacements_.size();
      if (begin >= replacements_.size() ||
          (static_cast<uint8_t>(replacements_[begin]) & 0xC0) == 0x80) {
        return std::nullopt;
      }
      const std::string_view rest = std::string_view(replacements_).substr(begin);
      return rest.substr(0, rest.find('\0'));
    }
  }
  return std::nullopt;
}

absl::Status PrecompiledNormalizer::Apply(NormalizedText* text) const {
  const std::string_view in = text->text;
  std::string out;
  out.reserve(in.size());
  for (size_t begin = 0; begin < in.size();) {
    const size_t end = GraphemeEnd(in, begin);
    const std::string_view cluster = in.substr(begin, end - begin);
    std::optional<std::string_view> whole;
    if (cluster.size() <= kWholeClusterBytes) {
      whole = Replacement(cluster);
    }
    if (whole) {
      out.append(*whole);
    } else {
      for (size_t at = 0; at < cluster.size();) {
        const size_t start = at;
        NextChar(cluster, &at);
        const std::string_view character = cluster.substr(start, at - start);
        out.append(Replacement(character).value_or(character));
      }
    }
    RETURN_IF_ERROR(CheckGrown(out.size(), text->max_bytes));
    begin = end;
  }
  text->text = std::move(out);
  return absl::OkStatus();
}

}  // namespace strata
