// What the files beside a tokenizer.json say of its tokens.
#ifndef STRATA_TEXT_TOKENIZER_TOKENIZER_CONFIG_H_
#define STRATA_TEXT_TOKENIZER_TOKENIZER_CONFIG_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/added_tokens.h"

namespace strata {

// Their contents; "" for a file that is not there.
struct FilesBesideTokenizer {
  std::string tokenizer_config;    // tokenizer_config.json
  std::string special_tokens_map;  // special_tokens_map.json, of older folders
  std::string added_tokens;        // added_tokens.json, likewise
};

// Reads each of these files by its name; `read` gives "" for one that is not there.
template <typename Read>
absl::StatusOr<FilesBesideTokenizer> ReadFilesBesideTokenizer(Read read) {
  FilesBesideTokenizer files;
  for (const auto& [name, text] : {std::pair{"tokenizer_config.json", &files.tokenizer_config},
                                   std::pair{"special_tokens_map.json", &files.special_tokens_map},
                                   std::pair{"added_tokens.json", &files.added_tokens}}) {
    absl::StatusOr<std::string> content = read(name);
    if (!content.ok()) {
      return content.status();
    }
    *text = *std::move(content);
  }
  return files;
}

struct TokenizerConfig {
  struct NamedToken {
    std::string name;  // "bos_token", "image_token", "boi"
    AddedToken token;
  };

  // bos_token, eos_token, unk_token, sep_token, pad_token, cls_token and mask_token, then those
  // that only this model has, in the file's order: what transformers' special_tokens_map has, and
  // chat templates get as variables.
  std::vector<NamedToken> named;
  // Of added_tokens_decoder or, in folders without it, added_tokens.json, by their ids there. One
  // that has a name is special.
  std::vector<std::pair<int64_t, AddedToken>> added;
  bool added_by_decoder = false;
  std::vector<AddedToken> extra;  // Special ones without a name.
  // Special tokens in a text are read as the text that they are.
  bool split_special_tokens = false;
  // Decoded text loses blanks before punctuation: of models other than BPE, or of all.
  bool clean_up_spaces = false;
  bool clean_up_spaces_of_bpe = false;
  bool fix_mistral_regex = false;
  // fast_tokenizer_files has others than tokenizer.json: which one counts, goes by transformers'
  // version.
  bool other_tokenizer_files = false;

  // Which tokens there are besides those of tokenizer.json, and which of these become another, in
  // the order in which they are added. `ids`: those that tokenizer.json gives its own.
  std::vector<AddedToken> TokensBeside(const std::vector<AddedToken>& in_file,
                                       std::span<const int64_t> ids) const;
};

// As transformers 5.24 (PreTrainedTokenizerFast, and AutoTokenizer for most folders) reads them:
// - `added_tokens_decoder` says what flags tokens have, whatever tokenizer.json says; ids there
// only
//   order them. Where tokenizer_config.json lacks it, special_tokens_map.json counts, and wins over
//   tokenizer_config.json's own names, and added_tokens.json.
// - Names are the seven above, any other field NAME_token that is a text,
//   `model_specific_special_tokens` where there is no such field, and `extra_special_tokens` that
//   is an object. A list there is of tokens without names; `additional_special_tokens` is its older
//   name, for where it is missing or empty.
// - add_bos_token and add_eos_token say nothing: tokenizer.json's post_processor does.
// INVALID_ARGUMENT names the file and field that is wrong.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(const FilesBesideTokenizer& files);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_TOKENIZER_CONFIG_H_
