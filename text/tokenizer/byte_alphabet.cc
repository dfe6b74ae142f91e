#include "text/tokenizer/byte_alphabet.h"

#include <array>

namespace strata {
namespace {

constexpr int kCharacters = 0x100 + 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> characters{};
  std::array<int16_t, kCharacters> bytes{};  // -1: stands for none.

  constexpr Alphabet() {
    for (int16_t& byte : bytes) {
      byte = -1;
    }
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int character = StandsForItself(byte) ? byte : next++;
      characters[byte] = static_cast<char16_t>(character);
      bytes[character] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

void AppendByteLevel(std::string_view bytes, std::string* text) {
  for (const char byte : bytes) {
    const char16_t c = kAlphabet.characters[static_cast<uint8_t>(byte)];
    if (c < 0x80) {
      text->push_back(static_cast<char>(c));
    } else {
      text->push_back(static_cast<char>(0xC0 | (c >> 6)));
      text->push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
  }
}

std::optional<uint8_t> ByteOfCharacter(char32_t character) {
  if (character >= kCharacters || kAlphabet.bytes[character] < 0) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(kAlphabet.bytes[character]);
}

}  // namespace strata
