#include "common/utf8.h"

#include <cstddef>
#include <cstdint>

namespace strata {
namespace {

// Bytes of the well-formed character at the beginning of `text` (Unicode 15, table 3-7); 0 where
// there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  // No overlong forms, surrogates or numbers past the last character.
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (bytes == 0 || byte(1) < least || byte(1) > most) {
    return 0;
  }
  for (size_t i = 2; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  return bytes;
}

}  // namespace

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = CharacterBytes(bytes);
    if (good == 0) {
      text += "\xEF\xBF\xBD";
    } else {
      text += bytes.substr(0, good);
    }
    bytes.remove_prefix(good == 0 ? 1 : good);
  }
  return text;
}

}  // namespace strata
