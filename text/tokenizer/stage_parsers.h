// The stages of a tokenizer.json, each from its object. For .cc files only (nlohmann/json).
#ifndef STRATA_TEXT_TOKENIZER_STAGE_PARSERS_H_
#define STRATA_TEXT_TOKENIZER_STAGE_PARSERS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/text_pattern.h"
#include "text/tokenizer/token_model.h"

namespace strata {

struct LongLists;

// INVALID_ARGUMENT for what is malformed, UNIMPLEMENTED for what is not supported; both say what.
absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const Json& value);
absl::StatusOr<std::unique_ptr<PreTokenizer>> ParsePreTokenizer(const Json& value);
// `lists` are of a model whose own are empty; null: they are in `value`.
absl::StatusOr<std::unique_ptr<TokenModel>> ParseTokenModel(const Json& value,
                                                            const LongLists* lists = nullptr);
// Adds to *parts; a processor that changes no ids adds nothing.
absl::Status ParsePostProcessor(const Json& value,
                                std::vector<std::unique_ptr<PostProcessor>>* parts);
// Adds to *steps.
absl::Status ParseDecoder(const Json& value, std::vector<std::unique_ptr<DecoderStep>>* steps);
// Adds to *ids the id that each is said to have, where it is.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& value,
                                                         std::vector<int64_t>* ids);
// The type of a model; of one from before types were written, by what it has. "": unknown.
std::string_view TokenModelType(const Json& model);

// What several stages have: the "pattern" of an object, and the fields of "Metaspace" of any age.
absl::StatusOr<TextPattern> ParsePattern(const JsonObject& object);
absl::StatusOr<MetaspaceOptions> ParseMetaspace(const JsonObject& object);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_STAGE_PARSERS_H_
