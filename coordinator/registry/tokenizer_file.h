// Which file of a checkpoint folder is its tokenizer.
#ifndef STRATA_COORDINATOR_REGISTRY_TOKENIZER_FILE_H_
#define STRATA_COORDINATOR_REGISTRY_TOKENIZER_FILE_H_

#include <span>
#include <string>
#include <string_view>

namespace strata {

// Whether a file of this name holds tiktoken's ranks.
bool IsTiktokenFile(std::string_view name);

// SentencePiece's model.
inline constexpr char kSentencePieceFile[] = "tokenizer.model";

// Of `names`: tokenizer.json, else the first of tiktoken's files, else SentencePiece's; "" without
// any.
std::string TokenizerFileOf(std::span<const std::string> names);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_TOKENIZER_FILE_H_
