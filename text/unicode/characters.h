// The classes and forms of characters that tokenizers speak of. Pure; any thread.
#ifndef STRATA_TEXT_UNICODE_CHARACTERS_H_
#define STRATA_TEXT_UNICODE_CHARACTERS_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

// White_Space.
bool IsWhiteSpace(char32_t character);
// What regular expressions call \w: Alphabetic, M, Nd, Pc, Join_Control.
bool IsWordCharacter(char32_t character);
// Nd, Nl, No.
bool IsNumeric(char32_t character);
// ASCII punctuation and symbols, and the categories P*.
bool IsPunctuation(char32_t character);

// The categories M*.
bool IsMark(char32_t character);
// Mn.
bool IsNonspacingMark(char32_t character);
// What BERT's normalizer calls a control character: Cc but for tab, newline and carriage return,
// Co, and Cf without those newer than Unicode 8.
bool IsBertControl(char32_t character);
// One character's lower case where that is one character too.
char32_t LowerCase(char32_t character);

// Where the white space at the end of well-formed `text` begins.
size_t TrailingWhiteSpace(std::string_view text);
// Where the white space at its beginning ends.
size_t LeadingWhiteSpace(std::string_view text);

// Where the grapheme cluster that begins at `begin` < size of well-formed `text` ends.
size_t GraphemeEnd(std::string_view text, size_t begin);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Well-formed text in a normal form.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace strata

#endif  // STRATA_TEXT_UNICODE_CHARACTERS_H_
