#include "text/tokenizer/tiktoken.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/file_limits.h"
#include "common/limits.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/decoder_steps.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/pre_tokenizers.h"
#include "text/tokenizer/special_tokens.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// o200k has 4 MB, and tokens of 128 bytes.
constexpr size_t kMaxTokenBytes = 512;

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD R"([^\r\n\p{L}\p{N}]?)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TAIL R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES
#define UPPER R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define LOWER R"(\p{Ll}\p{Lm}\p{Lo}\p{M})"
#define NOT_HAN R"(&&[^\p{Han}])"

struct Kind {
  std::string_view file_name;
  const char* pattern;
  bool nfc = false;
  uint32_t reserved = 0;  // Ids behind the ranks that have a name at any rate.
};

constexpr Kind kKinds[] = {
    {"cl100k_base.tiktoken", CONTRACTIONS "|" LEAD R"(\p{L}+|\p{N}{1,3}|)" TAIL},
    {"o200k_base.tiktoken",
     LEAD "[" UPPER "]*[" LOWER "]+" CONTRACTIONS "?|" LEAD "[" UPPER "]+[" LOWER "]*" CONTRACTIONS
          R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES},
    {"qwen.tiktoken", CONTRACTIONS "|" LEAD R"(\p{L}+|\p{N}|)" TAIL, /*nfc=*/true},
    {"tiktoken.model",
     R"([\p{Han}]+|)" LEAD "[" UPPER NOT_HAN "]*[" LOWER NOT_HAN "]+" CONTRACTIONS "?|" LEAD
     "[" UPPER NOT_HAN "]+[" LOWER NOT_HAN "]*" CONTRACTIONS R"(?|\p{N}{1,3}|)" TAIL,
     /*nfc=*/false, /*reserved=*/256},
};

#undef CONTRACTIONS
#undef LEAD
#undef SPACES
#undef TAIL
#undef UPPER
#undef LOWER
#undef NOT_HAN

using Tokens = std::vector<std::pair<std::string, uint64_t>>;

// The tokens in the byte alphabet.
absl::StatusOr<Tokens> ParseRanks(std::string_view ranks) {
  if (ranks.size() > kMaxTiktokenBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_TOO_LARGE",
                 absl::StrCat("the file of ranks has ", ranks.size(), " bytes"))
        .Limit(absl::StrCat("tiktoken_bytes=", kMaxTiktokenBytes));
  }
  Tokens tokens;
  size_t number = 0;
  while (!ranks.empty()) {
    ++number;
    const std::string_view line = ranks.substr(0, ranks.find('\n'));
    ranks.remove_prefix(std::min(line.size() + 1, ranks.size()));
    const size_t blank = line.find(' ');
    if (line.empty() || line == "\r") {
      continue;
    }
    std::string bytes;
    uint64_t rank = 0;
    std::string_view digits = line.substr(std::min(blank, line.size() - 1) + 1);
    digits = digits.substr(0, digits.find('\r'));
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), rank);
    if (blank == std::string_view::npos || error != std::errc() || end != digits.end() ||
        !absl::Base64Unescape(absl::string_view(line.data(), blank), &bytes) || bytes.empty()) {
      return TokenizerInvalid(
          absl::StrCat("line ", number, " is not a token in base64 and a rank"));
    }
    if (bytes.size() > kMaxTokenBytes) {
      return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                   absl::StrCat("the token of line ", number, " is ", bytes.size(), " bytes long"))
          .Limit(absl::StrCat("tiktoken_token_bytes=", kMaxTokenBytes));
    }
    std::string text;
    AppendByteLevel(bytes, &text);
    tokens.emplace_back(std::move(text), rank);
  }
  return tokens;
}

// Those that go with a file's name, where tokenizer_config.json names none.
void AddUsual(const Kind& kind, uint64_t ranks, SpecialTokens* specials) {
  const auto add = [specials](uint64_t id, std::string content) {
    specials->try_emplace(id, AddedToken{std::move(content), /*special=*/true});
  };
  for (uint64_t id = ranks; id < ranks + kind.reserved; ++id) {
    add(id, absl::StrCat("<|reserved_token_", id, "|>"));
  }
  if (kind.reserved > 0 || !specials->empty()) {
    return;
  }
  if (kind.file_name == "qwen.tiktoken") {
    add(ranks, "<|endoftext|>");
    add(ranks + 1, "<|im_start|>");
    add(ranks + 2, "<|im_end|>");
    for (uint64_t i = 0; i < 205; ++i) {
      add(ranks + 3 + i, absl::StrCat("<|extra_", i, "|>"));
    }
  } else if (kind.file_name == "cl100k_base.tiktoken") {
    add(100257, "<|endoftext|>");
    add(100258, "<|fim_prefix|>");
    add(100259, "<|fim_middle|>");
    add(100260, "<|fim_suffix|>");
    add(100276, "<|endofprompt|>");
  } else {
    add(199999, "<|endoftext|>");
    add(200018, "<|endofprompt|>");
  }
}

size_t CharacterEnd(std::string_view text, size_t at) {
  NextChar(text, &at);
  return at;
}

// Any two tokens that make a third are joined, those that make the lowest rank first.
absl::StatusOr<std::unique_ptr<TokenModel>> MakeModel(const Tokens& tokens,
                                                      const SpecialTokens& specials) {
  Tokens all = tokens;
  for (const auto& [id, token] : specials) {
    all.emplace_back(token.content, id);
  }
  ASSIGN_OR_RETURN(const Vocabulary ranked, Vocabulary::Make(tokens));
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<uint32_t> ranks;
  for (const auto& [token, rank] : tokens) {
    const std::string_view text = token;
    for (size_t cut = CharacterEnd(text, 0); cut < text.size(); cut = CharacterEnd(text, cut)) {
      if (ranked.IdOf(text.substr(0, cut)) && ranked.IdOf(text.substr(cut))) {
        merges.emplace_back(text.substr(0, cut), text.substr(cut));
        ranks.push_back(static_cast<uint32_t>(rank));
      }
    }
  }
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Make(std::move(all)));
  BpeOptions options;
  options.ignore_merges = true;
  ASSIGN_OR_RETURN(std::unique_ptr<BpeModel> model,
                   BpeModel::Make(std::move(vocabulary), merges, std::move(options), ranks));
  return std::unique_ptr<TokenModel>(std::move(model));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const Kind& kind) {
  ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::OfRegex(kind.pattern));
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<SplitPreTokenizer>(std::move(pattern), SplitBehavior::kIsolated,
                                                      /*invert=*/false));
  ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> bytes,
                   ByteLevelPreTokenizer::Make(/*add_prefix_space=*/false, /*use_regex=*/false));
  parts.push_back(std::move(bytes));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTiktoken(std::string_view ranks,
                                                         std::string_view file_name,
                                                         std::string_view tokenizer_config) {
  const Kind* kind = nullptr;
  for (const Kind& known : kKinds) {
    kind = known.file_name == file_name ? &known : kind;
  }
  if (kind == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
                 absl::StrCat("the split pattern of ", std::string(file_name), " is not known"))
        .Hint("convert it to tokenizer.json with Hugging Face's transformers");
  }
  ASSIGN_OR_RETURN(const Tokens tokens, ParseRanks(ranks));
  ASSIGN_OR_RETURN(SpecialTokens specials, ParseAddedTokensDecoder(tokenizer_config));
  AddUsual(*kind, tokens.size(), &specials);
  TokenizerStages stages;
  if (kind->nfc) {
    stages.normalizer = std::make_unique<UnicodeNormalizer>(NormalForm::kNfc);
  }
  ASSIGN_OR_RETURN(stages.pre_tokenizer, MakePreTokenizer(*kind));
  ASSIGN_OR_RETURN(stages.model, MakeModel(tokens, specials));
  std::vector<std::unique_ptr<DecoderStep>> steps;
  steps.push_back(std::make_unique<ByteLevelStep>());
  stages.decoder = std::make_unique<Decoder>(std::move(steps));
  stages.kind = "byte-level BPE";
  std::vector<AddedToken> added;
  for (auto& [id, token] : specials) {
    added.push_back(std::move(token));
  }
  ASSIGN_OR_RETURN(stages.added_tokens,
                   AddedTokens::Make(added, stages.model->vocabulary(), stages.normalizer.get()));
  return std::make_unique<PipelineTokenizer>(std::move(stages));
}

}  // namespace strata
