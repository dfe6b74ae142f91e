// SentencePiece's model file (sentencepiece_model.proto), as far as it says how texts are cut.
#ifndef STRATA_TEXT_TOKENIZER_SENTENCEPIECE_FILE_H_
#define STRATA_TEXT_TOKENIZER_SENTENCEPIECE_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

enum class PieceKind { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::kNormal;
};

struct SentencePieceFile {
  std::vector<SentencePiece> pieces;  // By id.
  bool unigram = true;                // Else BPE.
  bool byte_fallback = false;
  std::string unknown_surface = " \u2047 ";
  std::string bos = "<s>";
  std::string eos = "</s>";
  std::string charsmap;  // See CharsMap.
  bool dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

// INVALID_ARGUMENT for what is no such file, UNIMPLEMENTED for models of words or characters and
// for settings that no language model has.
absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(std::string_view bytes);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SENTENCEPIECE_FILE_H_
