// UTF-8 as bytes and characters. Pure; any thread.
#ifndef STRATA_TEXT_UNICODE_UTF8_H_
#define STRATA_TEXT_UNICODE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// What stands for bytes that are no UTF-8: U+FFFD.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// The offset of the first byte that begins no well-formed character (Unicode 15, table 3-7), or
// nothing for well-formed text.
std::optional<size_t> FirstInvalidUtf8(std::string_view text);

// Whether more bytes can make `bytes`, which are no well-formed text, one character.
bool BeginsCharacter(std::string_view bytes);

// The character at `*offset` of well-formed text; moves `*offset` behind it.
char32_t NextChar(std::string_view text, size_t* offset);
// The character that ends before `offset` > 0 of well-formed text; `*start` is its first byte.
char32_t CharBefore(std::string_view text, size_t offset, size_t* start);
void AppendUtf8(char32_t character, std::string* text);

bool IsAscii(std::string_view text);

// ---- Of any bytes: one that is no part of a well-formed character counts as a character of its
// own.

struct CodePoint {
  char32_t value;
  size_t bytes;  // 1 to 4.
};

// The character at byte `at` (< text.size()); of a byte that counts by itself the value is U+FFFD.
CodePoint DecodeAt(std::string_view text, size_t at);
// Start of the character that ends at byte `end` (> 0).
size_t PreviousStart(std::string_view text, size_t end);

size_t CountCodePoints(std::string_view text);
// Byte offset of character `index` (at most the length).
size_t ByteOffset(std::string_view text, size_t index);

// ---- Of bytes that come piece by piece.

// Decodes UTF-8 as it comes, one U+FFFD for each maximal invalid subpart (as Unicode recommends and
// WHATWG prescribes). Says what is certain at once.
class Utf8Assembler {
 public:
  void Add(std::string_view bytes, std::string* text);
  // A character that was begun and not completed becomes one U+FFFD.
  void Finish(std::string* text);

 private:
  void AddByte(uint8_t byte, std::string* text);

  std::string pending_;  // A proper prefix of a character.
  int missing_ = 0;      // Bytes that complete it.
  uint8_t low_ = 0x80;   // Range of the next one.
  uint8_t high_ = 0xBF;
};

}  // namespace strata

#endif  // STRATA_TEXT_UNICODE_UTF8_H_
