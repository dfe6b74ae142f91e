// Strings are UTF-8; their semantics are Python's, which counts code points. A byte that is not
// part of valid UTF-8 counts as one character of its own.
#ifndef STRATA_COORDINATOR_TEMPLATE_UNICODE_H_
#define STRATA_COORDINATOR_TEMPLATE_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::jinja {

struct CodePoint {
  char32_t value;
  size_t bytes;  // 1 to 4.
};

// The character at byte `at` (< text.size()).
CodePoint DecodeAt(std::string_view text, size_t at);
// Start of the character that ends at byte `end` (> 0).
size_t PreviousStart(std::string_view text, size_t end);
void AppendUtf8(char32_t code, std::string* out);

size_t CountCodePoints(std::string_view text);
// Byte offset of character `index` (at most the length).
size_t ByteOffset(std::string_view text, size_t index);

bool IsSpace(char32_t c);      // str.isspace, and \s of re.
bool IsLineBreak(char32_t c);  // str.splitlines.
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);  // Decimals, superscripts and the like.
bool IsNumeric(char32_t c);
bool IsWord(char32_t c);  // \w of re.
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);       // With the final sigma.
std::string ToTitleWords(std::string_view text);  // str.title
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// str.strip and its kin: white space, or the characters of `characters` if it is not null.
std::string_view Strip(std::string_view text, Side side,
                       const std::string_view* characters = nullptr);

}  // namespace strata::jinja

#endif  // STRATA_COORDINATOR_TEMPLATE_UNICODE_H_
