// Tokenizers of checkpoints that have SentencePiece's tokenizer.model and no tokenizer.json.
#ifndef STRATA_TEXT_TOKENIZER_SENTENCEPIECE_H_
#define STRATA_TEXT_TOKENIZER_SENTENCEPIECE_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

// `model`: the file. Texts become the ids, and ids the text, that SentencePiece's library gives.
// Its control pieces and the tokens of added_tokens_decoder (`tokenizer_config`) and of
// `added_tokens` are found in texts, each behind the model's pieces; `tokenizer_config` says what
// is put around a text (`add_bos_token`, true where it does not say and there is such a piece;
// `add_eos_token`), and whether a blank is put before every text between added tokens (`legacy`,
// true where it does not say). "": the file is not there.
//
// The library itself is of no use here: Debian's exports a protobuf of its own, of another version
// than the one that gRPC needs, and both cannot be in one process.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(std::string_view model,
                                                              std::string_view tokenizer_config,
                                                              std::string_view added_tokens);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_SENTENCEPIECE_H_
