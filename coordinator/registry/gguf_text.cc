#include "coordinator/registry/gguf_text.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/gguf_model.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"
#include "common/utf8.h"

namespace strata {
namespace {

using nlohmann::json;

// tokenizer.ggml.token_type.
enum TokenKind : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

// How texts are cut before their pieces are merged, by tokenizer.ggml.pre: the patterns of the
// tokenizer.json that each name stands for.
struct PreTokenizer {
  const char* name;
  const char* pattern;  // "": ByteLevel's own.
  bool nfc;
  bool single_digits;
  bool whole_words;  // A piece that is a token is not merged ("ignore_merges").
  bool adds_bos;     // Where the file does not say, as llama.cpp has it.
};
#define STRATA_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define STRATA_TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define STRATA_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define STRATA_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
constexpr char kLlama3[] = STRATA_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" STRATA_TAIL;
constexpr char kQwen2[] = STRATA_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" STRATA_TAIL;
constexpr char kTekken[] =
    "[^\\r\\n\\p{L}\\p{N}]?" STRATA_UPPER "*" STRATA_LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" STRATA_UPPER
    "+" STRATA_LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" STRATA_TAIL;
constexpr char kO200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?" STRATA_UPPER "*" STRATA_LOWER "+" STRATA_CONTRACTIONS
    "?|[^\\r\\n\\p{L}\\p{N}]?" STRATA_UPPER "+" STRATA_LOWER "*" STRATA_CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" STRATA_TAIL;
#undef STRATA_CONTRACTIONS
#undef STRATA_TAIL
#undef STRATA_UPPER
#undef STRATA_LOWER
constexpr PreTokenizer kPreTokenizers[] = {
    {"llama-bpe", kLlama3, false, false, true, true},
    {"llama3", kLlama3, false, false, true, true},
    {"llama-v3", kLlama3, false, false, true, true},
    {"dbrx", kLlama3, false, false, false, false},
    {"smaug-bpe", kLlama3, false, false, false, false},
    {"qwen2", kQwen2, true, false, false, false},
    {"tekken", kTekken, false, false, true, true},
    {"gpt-4o", kO200k, false, false, false, false},
    {"gpt-2", "", false, false, false, false},
    {"smollm", "", false, true, false, false},
    {"refact", "", false, true, false, false},
};

absl::Status NotSupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
               what + " is not supported yet")
      .Hint("put the model's tokenizer.json beside the file and add the folder");
}

absl::Status Invalid(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

bool IsUtf8(std::string_view text) { return ReplaceInvalidUtf8(text) == text; }

class TokenizerWriter {
 public:
  explicit TokenizerWriter(const GgufHeader& header) : reader_(&header) {}

  absl::StatusOr<std::string> Write() {
    const std::string model = reader_.String("tokenizer.ggml.model", "");
    tokens_ = reader_.Strings("tokenizer.ggml.tokens");
    kinds_ = reader_.Ints("tokenizer.ggml.token_type");
    RETURN_IF_ERROR(reader_.status());
    if (model.empty() || tokens_.empty()) {
      return Error(absl::StatusCode::kNotFound, "NO_TOKENIZER",
                   absl::StrCat("the file has no tokenizer: key \"tokenizer.ggml.",
                                model.empty() ? "model" : "tokens", "\" is not there"));
    }
    if (!kinds_.empty() && kinds_.size() != tokens_.size()) {
      return Invalid(absl::StrCat("key \"tokenizer.ggml.token_type\" has ", kinds_.size(),
                                  " values for ", tokens_.size(), " tokens"));
    }
    RETURN_IF_ERROR(WriteVocabulary());
    if (model == "gpt2") {
      RETURN_IF_ERROR(WriteByteLevel());
    } else if (model == "llama") {
      RETURN_IF_ERROR(WriteSentencePiece());
    } else {
      return NotSupported("key \"tokenizer.ggml.model\" " + Quoted(model));
    }
    RETURN_IF_ERROR(WriteEnds());
    RETURN_IF_ERROR(reader_.status());
    file_["model"]["vocab"] = std::move(vocabulary_);
    return file_.dump();
  }

 private:
  int64_t KindOf(size_t id) const { return kinds_.empty() ? kNormal : kinds_[id]; }

  // Whether a special token takes the whitespace behind it. No key says it: Phi-3's with a
  // SentencePiece vocabulary do, but for three.
  bool TakesSpaceBehind(const std::string& token) {
    return reader_.String("general.architecture", "") == "phi3" &&
           reader_.String("tokenizer.ggml.model", "") == "llama" && token != "<unk>" &&
           token != "<s>" && token != "<|endoftext|>";
  }

  absl::Status WriteVocabulary() {
    json added = json::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string token(tokens_[id]);
      if (!IsUtf8(token)) {
        return Invalid(absl::StrCat("token ", id, " of key \"tokenizer.ggml.tokens\" is no UTF-8"));
      }
      if (!ids_.emplace(token, id).second) {
        return Invalid(
            absl::StrCat("token ", Quoted(token), " is in key \"tokenizer.ggml.tokens\" twice"));
      }
      vocabulary_[token] = id;
      const int64_t kind = KindOf(id);
      if (kind == kControl || kind == kUserDefined || kind == kUnknown) {
        added.push_back({{"id", id},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", TakesSpaceBehind(token)},
                         {"normalized", false},
                         {"special", kind != kUserDefined}});
      }
    }
    file_ = {{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
             {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
             {"post_processor", nullptr}, {"decoder", nullptr}};
    return absl::OkStatus();
  }

  // GPT-2's kind: bytes stand for themselves as characters, and merges are listed.
  absl::Status WriteByteLevel() {
    const std::string pre = reader_.String("tokenizer.ggml.pre", "");
    const auto* const found =
        std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                     [&](const PreTokenizer& one) { return pre == one.name; });
    if (found == std::end(kPreTokenizers)) {
      return NotSupported("key \"tokenizer.ggml.pre\" " + Quoted(pre));
    }
    json merges = json::array();
    for (const std::string_view merge : reader_.Strings("tokenizer.ggml.merges")) {
      if (!IsUtf8(merge)) {
        return Invalid("a merge of key \"tokenizer.ggml.merges\" is no UTF-8");
      }
      merges.push_back(std::string(merge));
    }
    // Without them texts would fall apart into bytes, unless there is nothing else.
    for (size_t id = 0; id < tokens_.size() && merges.empty(); ++id) {
      if (KindOf(id) == kNormal && Characters(std::string(tokens_[id])) > 1) {
        return Invalid(absl::StrCat(
            "key \"tokenizer.ggml.merges\" is missing or empty, and token ", id,
            " of key \"tokenizer.ggml.tokens\", ", Quoted(tokens_[id]),
            ", is of several characters and a normal one by key \"tokenizer.ggml.token_type\""));
      }
    }
    adds_bos_ = found->adds_bos;
    const std::string pattern = found->pattern;
    const json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", pattern.empty()}};
    json steps = json::array();
    if (!pattern.empty()) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    if (found->single_digits) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    }
    steps.push_back(byte_level);
    file_["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    if (found->nfc) {
      file_["normalizer"] = {{"type", "NFC"}};
    }
    file_["decoder"] = byte_level;
    file_["model"] = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", found->whole_words},
                      {"merges", std::move(merges)}};
    return absl::OkStatus();
  }

  // SentencePiece's kind: a piece may be merged from any two tokens that it is made of, the one
  // with the highest score first. As transformers makes merges of it.
  absl::StatusOr<json> MergesOfScores() {
    const std::vector<float> scores = reader_.Floats("tokenizer.ggml.scores");
    RETURN_IF_ERROR(reader_.status());
    if (scores.size() != tokens_.size()) {
      return Invalid(absl::StrCat("key \"tokenizer.ggml.scores\" has ", scores.size(),
                                  " values for ", tokens_.size(), " tokens"));
    }
    struct Merge {
      float score;
      size_t left_characters, right_characters;
      uint64_t left, right;
    };
    std::vector<Merge> merges;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (std::isnan(scores[id])) {
        return Invalid(
            absl::StrCat("value ", id, " of key \"tokenizer.ggml.scores\" is no number"));
      }
      if (KindOf(id) != kNormal) {
        continue;
      }
      const size_t before = merges.size();
      const std::string token(tokens_[id]);
      const size_t characters = Characters(token);
      size_t left_characters = 0;
      for (size_t cut = 1; cut < token.size(); ++cut) {
        if ((token[cut] & 0xc0) == 0x80) {
          continue;
        }
        ++left_characters;
        const auto left = ids_.find(token.substr(0, cut));
        const auto right = ids_.find(token.substr(cut));
        if (left != ids_.end() && right != ids_.end()) {
          merges.push_back({scores[id], left_characters, characters - left_characters, left->second,
                            right->second});
        }
      }
      std::sort(merges.begin() + static_cast<ptrdiff_t>(before), merges.end(),
                [](const Merge& a, const Merge& b) {
                  return std::pair(a.left, a.right) < std::pair(b.left, b.right);
                });
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return std::tuple(a.score, a.left_characters, a.right_characters) >
             std::tuple(b.score, b.left_characters, b.right_characters);
    });
    json out = json::array();
    for (const Merge& merge : merges) {
      out.push_back(
          json::array({std::string(tokens_[merge.left]), std::string(tokens_[merge.right])}));
    }
    return out;
  }

  static size_t Characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  }

  absl::Status WriteSentencePiece() {
    ASSIGN_OR_RETURN(json merges, MergesOfScores());
    json unknown = nullptr;
    for (size_t id = 0; id < tokens_.size() && unknown.is_null(); ++id) {
      if (KindOf(id) == kUnknown) {
        unknown = std::string(tokens_[id]);
      }
    }
    const bool prefix = reader_.Bool("tokenizer.ggml.add_space_prefix", true);
    constexpr char kSpace[] = "\u2581";
    json normalizers = json::array();
    json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (prefix) {
      normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
    file_["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    file_["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    file_["model"] = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", unknown},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"ignore_merges", false},
                      {"merges", std::move(merges)}};
    return absl::OkStatus();
  }

  // The tokens that are put around a text.
  absl::Status WriteEnds() {
    const bool adds_bos = adds_bos_ || file_["model"]["byte_fallback"].get<bool>();
    json single = json::array();
    json special = json::object();
    const auto add = [&](const char* flag, const char* key, bool by_default) -> absl::Status {
      if (!reader_.Bool(flag, by_default) || reader_.Find(key) == nullptr) {
        return absl::OkStatus();
      }
      const uint64_t id = reader_.Uint(key, 0, tokens_.size() - 1);
      RETURN_IF_ERROR(reader_.status());
      const std::string token(tokens_[id]);
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", adds_bos));
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    RETURN_IF_ERROR(add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false));
    if (single.size() > 1) {
      json pair = single;
      pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
      file_["post_processor"] = {{"type", "TemplateProcessing"},
                                 {"single", single},
                                 {"pair", pair},
                                 {"special_tokens", special}};
    }
    return absl::OkStatus();
  }

  GgufReader reader_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> kinds_;
  std::unordered_map<std::string, uint64_t> ids_;
  bool adds_bos_ = false;  // Unless the file says otherwise; of byte-level ones.
  json vocabulary_ = json::object();
  json file_;
};

}  // namespace

absl::StatusOr<std::string> GgufTokenizerJson(const GgufHeader& header) {
  return TokenizerWriter(header).Write();
}

absl::StatusOr<std::string> GgufFileIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  ASSIGN_OR_RETURN(const std::vector<std::string> files, GgufFilesOf(names));
  return files.empty() ? "" : folder + "/" + files.front();
}

absl::StatusOr<std::string> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, ReadGgufFile(path));
  auto tokenizer = GgufTokenizerJson(file.header);
  RETURN_IF_ERROR(Annotate(tokenizer.status(), path));
  return tokenizer;
}

absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplate(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, ReadGgufFile(path));
  GgufReader reader(&file.header);
  ChatTemplateSource out;
  out.source = reader.String("tokenizer.chat_template", "");
  out.origin = out.source.empty() ? "" : path;
  const std::vector<std::string_view> tokens = reader.Strings("tokenizer.ggml.tokens");
  const auto token = [&](const char* key) {
    const uint64_t id = reader.Uint(key, 0, UINT32_MAX, UINT32_MAX);
    return id < tokens.size() ? std::string(tokens[id]) : "";
  };
  out.bos_token = token("tokenizer.ggml.bos_token_id");
  out.eos_token = token("tokenizer.ggml.eos_token_id");
  RETURN_IF_ERROR(Annotate(reader.status(), path));
  for (const std::string* text : {&out.source, &out.bos_token, &out.eos_token}) {
    if (!IsUtf8(*text)) {
      return Invalid(path + ": the chat template or one of its tokens is no UTF-8");
    }
  }
  return out;
}

}  // namespace strata
