#include "text/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/decoder_steps.h"
#include "text/tokenizer/gguf_pre_tokenizers.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/score_merges.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// tokenizer.ggml.token_type.
enum GgufTokenKind : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr std::string_view kBlankMark = "\u2581";

absl::Status GgufUnsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
               what + " is not supported yet")
      .Hint("put the model's tokenizer.json beside the file and add the folder");
}

absl::Status GgufInvalid(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

size_t CharactersOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Blanks become marks, with one more before the text.
class BlankNormalizer : public Normalizer {
 public:
  // `prefix`: the one more; `every_segment`: also behind added tokens.
  BlankNormalizer(bool prefix, bool every_segment)
      : prefix_(prefix), every_segment_(every_segment) {}
  absl::Status Apply(NormalizedText* text) const override {
    std::string out;
    const auto blanks = std::count(text->text.begin(), text->text.end(), ' ');
    out.reserve(text->text.size() + (static_cast<size_t>(blanks) + 1) * kBlankMark.size());
    if (prefix_ && !text->text.empty() && (every_segment_ || text->at_start)) {
      out.append(kBlankMark);
    }
    for (const char c : text->text) {
      c == ' ' ? out.append(kBlankMark) : out.append(1, c);
    }
    text->text = std::move(out);
    return CheckGrown(text->text.size(), text->max_bytes);
  }
  size_t max_shrink() const override { return 1; }

 private:
  const bool prefix_;
  const bool every_segment_;
};

class GgufTokenizerMaker {
 public:
  explicit GgufTokenizerMaker(const GgufHeader& header) : reader_(&header) {}

  absl::StatusOr<std::unique_ptr<Tokenizer>> Make() {
    model_ = reader_.String("tokenizer.ggml.model", "");
    tokens_ = reader_.Strings("tokenizer.ggml.tokens");
    kinds_ = reader_.Ints("tokenizer.ggml.token_type");
    RETURN_IF_ERROR(reader_.status());
    if (!kinds_.empty() && kinds_.size() != tokens_.size()) {
      return GgufInvalid(absl::StrCat("key \"tokenizer.ggml.token_type\" has ", kinds_.size(),
                                      " values for ", tokens_.size(), " tokens"));
    }
    ASSIGN_OR_RETURN(Vocabulary vocabulary, MakeVocabulary());
    if (model_ == "gpt2") {
      RETURN_IF_ERROR(MakeByteLevel(std::move(vocabulary)));
    } else if (model_ == "llama") {
      RETURN_IF_ERROR(MakeSentencePiece(std::move(vocabulary)));
    } else {
      return GgufUnsupported("key \"tokenizer.ggml.model\" " + Quoted(model_));
    }
    RETURN_IF_ERROR(AddEnds());
    RETURN_IF_ERROR(reader_.status());
    ASSIGN_OR_RETURN(stages_.added_tokens,
                     AddedTokens::Make(added_, stages_.model->vocabulary(), nullptr));
    return std::make_unique<PipelineTokenizer>(std::move(stages_));
  }

 private:
  int64_t KindOf(size_t id) const { return kinds_.empty() ? kNormal : kinds_[id]; }

  // Whether this is Phi-3's vocabulary of SentencePiece's kind. No key says that there texts behind
  // added tokens begin with a blank too, and that special tokens, but for three, take the white
  // space behind them.
  bool IsPhi3() {
    return model_ == "llama" && reader_.String("general.architecture", "") == "phi3";
  }

  absl::StatusOr<Vocabulary> MakeVocabulary() {
    const bool phi3 = IsPhi3();
    std::vector<std::pair<std::string, uint64_t>> tokens;
    tokens.reserve(tokens_.size());
    for (size_t id = 0; id < tokens_.size(); ++id) {
      // As llama.cpp has one without a text.
      std::string token =
          tokens_[id].empty() ? absl::StrCat("[EMPTY_", id, "]") : std::string(tokens_[id]);
      if (FirstInvalidUtf8(token)) {
        return GgufInvalid(
            absl::StrCat("token ", id, " of key \"tokenizer.ggml.tokens\" is no UTF-8"));
      }
      const int64_t kind = KindOf(id);
      if (kind == kControl || kind == kUserDefined || kind == kUnknown) {
        const bool takes_blanks =
            phi3 && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
        added_.push_back(
            {.content = token, .special = kind != kUserDefined, .rstrip = takes_blanks});
      }
      tokens.emplace_back(std::move(token), id);
    }
    auto vocabulary = Vocabulary::Make(std::move(tokens));
    if (!vocabulary.ok()) {
      return Annotate(vocabulary.status(), "key \"tokenizer.ggml.tokens\"");
    }
    return vocabulary;
  }

  // GPT-2's kind: bytes stand for themselves as characters, and merges are listed.
  absl::Status MakeByteLevel(Vocabulary vocabulary) {
    const std::string pre = reader_.String("tokenizer.ggml.pre", "");
    const GgufPreTokenizer* const row = FindGgufPreTokenizer(pre);
    if (row == nullptr) {
      return GgufUnsupported("key \"tokenizer.ggml.pre\" " + Quoted(pre));
    }
    ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, ListedMerges(vocabulary));
    ASSIGN_OR_RETURN(stages_.pre_tokenizer, MakeGgufPreTokenizer(*row));
    if (row->nfc) {
      stages_.normalizer = std::make_unique<UnicodeNormalizer>(NormalForm::kNfc);
    }
    BpeOptions options;
    options.ignore_merges = row->whole_words;
    ASSIGN_OR_RETURN(stages_.model,
                     BpeModel::Make(std::move(vocabulary), merges, std::move(options)));
    std::vector<std::unique_ptr<DecoderStep>> steps;
    steps.push_back(std::make_unique<ByteLevelStep>());
    stages_.decoder = std::make_unique<Decoder>(std::move(steps));
    stages_.kind = "byte-level BPE";
    adds_bos_ = row->adds_bos;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<BpeMerge>> ListedMerges(const Vocabulary& vocabulary) {
    constexpr char kKey[] = "tokenizer.ggml.merges";
    const std::vector<std::string_view> texts = reader_.Strings(kKey);
    RETURN_IF_ERROR(reader_.status());
    // Without them texts would fall apart into bytes, unless there is nothing else.
    for (size_t id = 0; id < tokens_.size() && texts.empty(); ++id) {
      if (KindOf(id) == kNormal && CharactersOf(tokens_[id]) > 1) {
        return GgufInvalid(absl::StrCat(
            "key ", Quoted(kKey), " is missing or empty, and token ", id,
            " of key \"tokenizer.ggml.tokens\", ", Quoted(tokens_[id]),
            ", is of several characters and a normal one by key \"tokenizer.ggml.token_type\""));
      }
    }
    std::vector<BpeMerge> merges;
    merges.reserve(texts.size());
    for (const std::string_view text : texts) {
      const size_t blank = text.find(' ', 1);
      if (FirstInvalidUtf8(text) || blank == std::string_view::npos) {
        return GgufInvalid(absl::StrCat("merge ", merges.size(), " of key ", Quoted(kKey),
                                        " is no pair of tokens in UTF-8"));
      }
      const auto merge =
          MergeOfTexts(vocabulary, text.substr(0, blank), text.substr(blank + 1), merges.size());
      if (!merge.ok()) {
        return Annotate(merge.status(), absl::StrCat("key ", Quoted(kKey)));
      }
      merges.push_back(*merge);
    }
    return merges;
  }

  // SentencePiece's kind: merges follow from scores, and blanks are marks.
  absl::Status MakeSentencePiece(Vocabulary vocabulary) {
    const std::vector<float> scores = reader_.Floats("tokenizer.ggml.scores");
    RETURN_IF_ERROR(reader_.status());
    if (scores.size() != tokens_.size()) {
      return GgufInvalid(absl::StrCat("key \"tokenizer.ggml.scores\" has ", scores.size(),
                                      " values for ", tokens_.size(), " tokens"));
    }
    std::vector<bool> merged(tokens_.size());
    BpeOptions options;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (std::isnan(scores[id])) {
        return GgufInvalid(
            absl::StrCat("value ", id, " of key \"tokenizer.ggml.scores\" is no number"));
      }
      merged[id] = KindOf(id) == kNormal;
      if (KindOf(id) == kUnknown && !options.unknown_token) {
        options.unknown_token = *vocabulary.TokenOf(static_cast<uint32_t>(id));
      }
    }
    const auto merges = MergesOfScores(vocabulary, scores, merged);
    RETURN_IF_ERROR(Annotate(merges.status(), "key \"tokenizer.ggml.tokens\""));
    options.byte_fallback = true;
    options.fuse_unknown = true;
    ASSIGN_OR_RETURN(stages_.model,
                     BpeModel::Make(std::move(vocabulary), *merges, std::move(options)));
    // SentencePiece puts a blank before a text, and none behind what is one piece at any rate.
    const bool prefix = reader_.Bool("tokenizer.ggml.add_space_prefix", true);
    stages_.normalizer = std::make_unique<BlankNormalizer>(prefix, IsPhi3());
    std::vector<std::unique_ptr<DecoderStep>> steps;
    steps.push_back(
        std::make_unique<ReplaceStep>(TextPattern::OfLiteral(std::string(kBlankMark)), " "));
    steps.push_back(std::make_unique<ByteFallbackStep>());
    steps.push_back(std::make_unique<FuseStep>());
    if (prefix) {
      steps.push_back(std::make_unique<StripStep>(" ", 1, 0));
    }
    stages_.decoder = std::make_unique<Decoder>(std::move(steps));
    stages_.kind = "BPE with byte fallback";
    adds_bos_ = true;
    return absl::OkStatus();
  }

  // The tokens that are put around a text.
  absl::Status AddEnds() {
    const auto id_of = [&](const char* key) -> std::optional<uint32_t> {
      if (reader_.Find(key) == nullptr) {
        return std::nullopt;
      }
      return static_cast<uint32_t>(reader_.Uint(key, 0, tokens_.size() - 1));
    };
    std::vector<uint32_t> before, after;
    constexpr char kBos[] = "tokenizer.ggml.bos_token_id";
    if (reader_.Bool("tokenizer.ggml.add_bos_token", adds_bos_)) {
      if (const auto id = id_of(kBos)) {
        before.push_back(*id);
      }
    }
    if (reader_.Bool("tokenizer.ggml.add_eos_token", false)) {
      if (const auto id = id_of("tokenizer.ggml.eos_token_id")) {
        after.push_back(*id);
      }
    }
    RETURN_IF_ERROR(reader_.status());
    if (!before.empty() || !after.empty()) {
      stages_.post_processors.push_back(
          std::make_unique<TemplatePostProcessor>(std::move(before), std::move(after)));
    }
    // Behind the token that begins texts a text begins, as where it is added.
    GgufReader reader = reader_;
    const uint64_t bos = reader.Uint(kBos, 0, UINT32_MAX, UINT32_MAX);
    if (bos < tokens_.size()) {
      stages_.text_begins_behind = static_cast<uint32_t>(bos);
    }
    return absl::OkStatus();
  }

  GgufReader reader_;
  std::string model_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> kinds_;
  std::vector<AddedToken> added_;
  bool adds_bos_ = false;  // Unless the file says otherwise.
  TokenizerStages stages_;
};

}  // namespace

absl::Status CheckGgufHasTokenizer(const GgufHeader& header) {
  const GgufReader reader(&header);
  for (const char* name : {"model", "tokens"}) {
    const GgufValue* const value = reader.Find(absl::StrCat("tokenizer.ggml.", name));
    if (value == nullptr || value->bytes.empty()) {
      return Error(absl::StatusCode::kNotFound, "NO_TOKENIZER",
                   absl::StrCat("the file has no tokenizer: key \"tokenizer.ggml.", name,
                                "\" is not there"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(const GgufHeader& header) {
  RETURN_IF_ERROR(CheckGgufHasTokenizer(header));
  return GgufTokenizerMaker(header).Make();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, ReadGgufFile(path));
  auto tokenizer = MakeGgufTokenizer(file.header);
  RETURN_IF_ERROR(Annotate(tokenizer.status(), path));
  return tokenizer;
}

}  // namespace strata
