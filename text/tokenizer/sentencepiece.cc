#include "text/tokenizer/sentencepiece.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/sentencepiece_file.h"
#include "text/tokenizer/sentencepiece_stages.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/unigram_model.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// Whether text may become it.
bool IsMatched(const SentencePiece& piece) {
  return piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUserDefined;
}

const std::string& UnknownOf(const SentencePieceFile& file) {
  return std::find_if(file.pieces.begin(), file.pieces.end(),
                      [](const SentencePiece& p) { return p.kind == PieceKind::kUnknown; })
      ->text;
}

ByteTrie UserDefined(const SentencePieceFile& file) {
  ByteTrie trie;
  for (uint32_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].kind == PieceKind::kUserDefined) {
      trie.Add(file.pieces[id].text, id);
    }
  }
  return trie;
}

// Any two neighbours that make a piece are joined, those of the highest score first.
absl::StatusOr<std::unique_ptr<TokenModel>> MakeBpe(const SentencePieceFile& file) {
  std::vector<std::pair<std::string, uint64_t>> tokens;
  std::map<float, uint32_t, std::greater<>> ranks_of;
  for (const SentencePiece& piece : file.pieces) {
    tokens.emplace_back(piece.text, tokens.size());
    ranks_of[piece.score] = 0;
  }
  uint32_t next = 0;
  for (auto& [unused, rank] : ranks_of) {
    rank = next++;
  }
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Make(std::move(tokens)));
  // A character is a symbol, whatever it is.
  const auto is_symbol = [&](std::string_view text) {
    const auto id = vocabulary.IdOf(text);
    size_t end = 0;
    NextChar(text, &end);
    return id && (end == text.size() || IsMatched(file.pieces[*id]));
  };
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<uint32_t> ranks;
  for (const SentencePiece& piece : file.pieces) {
    const std::string_view text = piece.text;
    size_t cut = 0;
    NextChar(text, &cut);
    while (IsMatched(piece) && cut < text.size()) {
      if (is_symbol(text.substr(0, cut)) && is_symbol(text.substr(cut))) {
        merges.emplace_back(text.substr(0, cut), text.substr(cut));
        ranks.push_back(ranks_of[piece.score]);
      }
      NextChar(text, &cut);
    }
  }
  BpeOptions options;
  options.byte_fallback = file.byte_fallback;
  options.unknown_token = UnknownOf(file);
  options.fuse_unknown = true;
  ASSIGN_OR_RETURN(std::unique_ptr<BpeModel> model,
                   BpeModel::Make(std::move(vocabulary), merges, std::move(options), ranks));
  return std::make_unique<FrozenPiecesModel>(std::move(model), UserDefined(file));
}

absl::StatusOr<std::unique_ptr<TokenModel>> MakeUnigram(const SentencePieceFile& file) {
  float best = std::numeric_limits<float>::lowest();
  for (const SentencePiece& piece : file.pieces) {
    best = piece.kind == PieceKind::kNormal ? std::max(best, piece.score) : best;
  }
  UnigramOptions options;
  options.as_sentencepiece = true;
  options.byte_fallback = file.byte_fallback;
  std::vector<std::pair<std::string, double>> tokens;
  for (const SentencePiece& piece : file.pieces) {
    if (piece.kind == PieceKind::kUnknown) {
      options.unknown_id = static_cast<uint32_t>(tokens.size());
    }
    options.unmatched.push_back(!IsMatched(piece));
    // The bonus that the library gives to those that users define.
    const double score = piece.kind == PieceKind::kUserDefined
                             ? static_cast<float>(piece.text.size()) * best - 0.1
                             : piece.score;
    tokens.emplace_back(piece.text, score);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<UnigramModel> model,
                   UnigramModel::Make(std::move(tokens), std::move(options)));
  return std::unique_ptr<TokenModel>(std::move(model));
}

// Those of the files, and control pieces.
absl::StatusOr<std::vector<AddedToken>> TokensBeside(const SentencePieceFile& file,
                                                     std::string_view tokenizer_config,
                                                     std::string_view added_tokens) {
  ASSIGN_OR_RETURN(SpecialTokens specials, ParseAddedTokensDecoder(tokenizer_config));
  RETURN_IF_ERROR(AddAddedTokensJson(added_tokens, &specials));
  for (uint64_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].kind == PieceKind::kControl) {
      specials.try_emplace(id, AddedToken{file.pieces[id].text, /*special=*/true});
    }
  }
  std::vector<AddedToken> tokens;
  uint64_t next = file.pieces.size();  // Behind the pieces ids have no holes.
  for (auto& [id, token] : specials) {
    if (id < file.pieces.size() ? file.pieces[id].text != token.content : id != next++) {
      return TokenizerInvalid(absl::StrCat(
          "token \"", token.content, "\" has the id ", id, ", where tokenizer.model has ",
          id < file.pieces.size() ? "\"" + file.pieces[id].text + "\""
                                  : absl::StrCat(file.pieces.size(), " pieces")));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

struct Around {
  std::vector<uint32_t> before, after;
  bool legacy = true;
};

absl::StatusOr<Around> ReadSettings(const SentencePieceFile& file,
                                    std::string_view tokenizer_config) {
  Around around;
  const auto id_of = [&](const std::string& text) -> std::vector<uint32_t> {
    for (uint32_t id = 0; id < file.pieces.size(); ++id) {
      if (file.pieces[id].kind == PieceKind::kControl && file.pieces[id].text == text) {
        return {id};
      }
    }
    return {};
  };
  around.before = id_of(file.bos);
  if (tokenizer_config.empty()) {
    return around;
  }
  ASSIGN_OR_RETURN(const Json document, ParseJsonText(tokenizer_config, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const JsonObject config, JsonObject::Of(document, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const bool bos, config.Bool("add_bos_token", true));
  ASSIGN_OR_RETURN(const bool eos, config.Bool("add_eos_token", false));
  ASSIGN_OR_RETURN(around.legacy, config.Bool("legacy", true));
  if (!bos) {
    around.before.clear();
  }
  if (eos) {
    around.after = id_of(file.eos);
  }
  return around;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(std::string_view model,
                                                              std::string_view tokenizer_config,
                                                              std::string_view added_tokens) {
  ASSIGN_OR_RETURN(const SentencePieceFile file, ReadSentencePieceFile(model));
  ASSIGN_OR_RETURN(Around around, ReadSettings(file, tokenizer_config));
  ASSIGN_OR_RETURN(CharsMap map, CharsMap::Make(file.charsmap));
  TokenizerStages stages;
  stages.normalizer = std::make_unique<SentencePieceNormalizer>(
      std::move(map), UserDefined(file),
      SentencePieceNormalizer::Options{file.dummy_prefix, around.legacy,
                                       file.remove_extra_whitespaces});
  ASSIGN_OR_RETURN(stages.model, file.unigram ? MakeUnigram(file) : MakeBpe(file));
  stages.post_processors.push_back(
      std::make_unique<TemplatePostProcessor>(std::move(around.before), std::move(around.after)));
  std::vector<std::unique_ptr<DecoderStep>> steps;
  steps.push_back(std::make_unique<SentencePieceStep>(SentencePieceStep::Options{
      UnknownOf(file), file.unknown_surface, file.dummy_prefix || file.remove_extra_whitespaces,
      file.remove_extra_whitespaces}));
  stages.decoder = std::make_unique<Decoder>(std::move(steps));
  stages.kind = file.unigram ? "SentencePiece Unigram" : "SentencePiece BPE";
  ASSIGN_OR_RETURN(const std::vector<AddedToken> tokens,
                   TokensBeside(file, tokenizer_config, added_tokens));
  ASSIGN_OR_RETURN(stages.added_tokens,
                   AddedTokens::Make(tokens, stages.model->vocabulary(), nullptr));
  return std::make_unique<PipelineTokenizer>(std::move(stages));
}

}  // namespace strata
