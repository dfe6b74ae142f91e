// The printable characters that stand for bytes in byte-level vocabularies: a byte that prints in
// Latin-1 stands for itself, the 68 others for U+0100 and up in order (GPT-2's table).
#ifndef STRATA_TEXT_TOKENIZER_BYTE_ALPHABET_H_
#define STRATA_TEXT_TOKENIZER_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Appends the characters of `bytes` in the alphabet, as UTF-8.
void AppendByteLevel(std::string_view bytes, std::string* text);

// The byte that a character stands for.
std::optional<uint8_t> ByteOfCharacter(char32_t character);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_BYTE_ALPHABET_H_
