// UTF-8 and the character classes that tokenizers speak of. Pure; any thread.
#ifndef STRATA_COORDINATOR_TOKENIZER_UNICODE_H_
#define STRATA_COORDINATOR_TOKENIZER_UNICODE_H_

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

#endif  // STRATA_COORDINATOR_TOKENIZER_UNICODE_H_
