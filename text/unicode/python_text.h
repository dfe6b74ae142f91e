// Characters and strings by the rules of Python's str. Strings are UTF-8 and count code points; a
// byte that is no part of a well-formed character counts as one of its own (utf8.h). Pure; any
// thread.
#ifndef STRATA_TEXT_UNICODE_PYTHON_TEXT_H_
#define STRATA_TEXT_UNICODE_PYTHON_TEXT_H_

#include <string>
#include <string_view>

namespace strata::python {

bool IsSpace(char32_t c);      // str.isspace, and \s of re.
bool IsLineBreak(char32_t c);  // str.splitlines.
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);  // Decimals, superscripts and the like.
bool IsWord(char32_t c);   // \w of re.
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

}  // namespace strata::python

#endif  // STRATA_TEXT_UNICODE_PYTHON_TEXT_H_
