#include "common/printable.h"

#include <cstdint>
#include <cstdio>

#include "common/utf8.h"

namespace strata {
namespace {

// The character at the beginning of `text`, which is UTF-8 and not empty, and its bytes.
uint32_t First(std::string_view text, size_t* bytes) {
  const auto lead = static_cast<uint8_t>(text[0]);
  *bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t c = *bytes == 1 ? lead : lead & (0xFFu >> (*bytes + 1));
  for (size_t i = 1; i < *bytes; ++i) {
    c = (c << 6) | (static_cast<uint8_t>(text[i]) & 0x3F);
  }
  return c;
}

bool IsHarmless(uint32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool direction = c == 0x061C || c == 0x200E || c == 0x200F ||
                         (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  const bool separator = c == 0x2028 || c == 0x2029;
  const bool tag = c == 0xFEFF || (c >= 0xE0000 && c <= 0xE007F);
  return !control && !direction && !separator && !tag;
}

std::string Escaped(uint32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  char text[16];
  std::snprintf(text, sizeof(text),
                c < 0x80      ? "\\x%02x"
                : c < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
                static_cast<unsigned>(c));
  return text;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kCut = "...";
  // A long one is not gone over in whole.
  const bool longer = text.size() > max_bytes;
  const std::string valid = ReplaceInvalidUtf8(longer ? text.substr(0, max_bytes) : text);
  std::string out;
  out.reserve(valid.size());
  bool cut = longer;
  size_t room_end = 0;  // Bytes of `out` after which there is still room for "...".
  for (size_t at = 0, bytes = 0; at < valid.size(); at += bytes) {
    const uint32_t c = First(std::string_view(valid).substr(at), &bytes);
    const std::string piece = IsHarmless(c) ? valid.substr(at, bytes) : Escaped(c);
    if (out.size() + piece.size() > max_bytes) {
      cut = true;
      break;
    }
    out += piece;
    if (out.size() + kCut.size() <= max_bytes) {
      room_end = out.size();
    }
  }
  if (cut) {
    out.resize(room_end);
    out += kCut;
  }
  return out;
}

bool IsPrintable(std::string_view text) {
  bool ascii = true;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      return false;
    }
    ascii = ascii && byte < 0x80;
  }
  return ascii || Printable(text) == text;
}

}  // namespace strata
