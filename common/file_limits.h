// How large the files beside a checkpoint's weights may be. Readers refuse more, and who fetches a
// checkpoint does so before it fetches what nobody would read.
#ifndef STRATA_COMMON_FILE_LIMITS_H_
#define STRATA_COMMON_FILE_LIMITS_H_

#include <cstddef>

namespace strata {

// The tokenizer refuses the same, also where it is handed a text.
inline constexpr size_t kMaxTokenizerBytes = size_t{100} << 20;  // tokenizer.json
inline constexpr size_t kMaxTiktokenBytes = size_t{16} << 20;
inline constexpr size_t kMaxSentencePieceBytes = size_t{64} << 20;
inline constexpr size_t kMaxTemplateBytes = size_t{4} << 20;  // *.jinja
// Of files that are only digested, and of those that list tensors.
inline constexpr size_t kMaxSideFileBytes = size_t{256} << 20;

}  // namespace strata

#endif  // STRATA_COMMON_FILE_LIMITS_H_
