#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/long_lists.h"
#include "text/tokenizer/stage_parsers.h"
#include "text/tokenizer/unigram_model.h"
#include "text/tokenizer/word_models.h"

namespace strata {
namespace {

// Longer than any text.
constexpr size_t kMaxWordCharacters = size_t{1} << 40;

absl::StatusOr<Vocabulary> ParseVocabulary(const JsonObject& model) {
  const Json* vocab = model.Find("vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return model.Wrong("vocab", "an object");
  }
  std::vector<std::pair<std::string, uint64_t>> tokens;
  tokens.reserve(vocab->size());
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_unsigned()) {
      return TokenizerInvalid(
          absl::StrCat("the id of token \"", token, "\" is no number from 0 up"));
    }
    tokens.emplace_back(token, id.get<uint64_t>());
  }
  return Vocabulary::Make(std::move(tokens));
}

// Of lists that were taken out of the file.
absl::StatusOr<Vocabulary> VocabularyOf(const LongLists& lists) {
  std::vector<std::pair<std::string, uint64_t>> tokens;
  tokens.reserve(lists.vocab.size());
  for (const auto& [token, id] : lists.vocab) {
    tokens.emplace_back(token, id);
  }
  return Vocabulary::Make(std::move(tokens));
}

// "a b" as older files have it, or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ParseMerge(const Json& item, size_t rank) {
  if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
    return std::make_pair(item[0].get<std::string>(), item[1].get<std::string>());
  }
  if (item.is_string()) {
    const std::string& text = item.get_ref<const std::string&>();
    const size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos) {
      return std::make_pair(text.substr(0, blank), text.substr(blank + 1));
    }
  }
  return TokenizerInvalid(absl::StrCat("merges: entry ", rank, " is not a pair of tokens"));
}

// A field that must be absent, null, empty or zero.
absl::Status RequireUnset(const JsonObject& model, const char* name) {
  const Json* field = model.Find(name);
  if (field == nullptr || (field->is_string() && field->get_ref<const std::string&>().empty()) ||
      (field->is_number() && field->get<double>() == 0)) {
    return absl::OkStatus();
  }
  return TokenizerUnsupported(absl::StrCat("model BPE with ", name));
}

absl::StatusOr<std::vector<BpeMerge>> MergesOf(const JsonObject& model,
                                               const Vocabulary& vocabulary, const LongLists* lists,
                                               size_t prefix_bytes) {
  std::vector<BpeMerge> merges;
  const auto add = [&](std::string_view left, std::string_view right) -> absl::Status {
    ASSIGN_OR_RETURN(const BpeMerge merge,
                     MergeOfTexts(vocabulary, left, right, merges.size(), prefix_bytes));
    merges.push_back(merge);
    return absl::OkStatus();
  };
  if (lists != nullptr) {
    merges.reserve(lists->merges.size());
    for (const auto& [left, right] : lists->merges) {
      RETURN_IF_ERROR(add(left, right));
    }
    return merges;
  }
  ASSIGN_OR_RETURN(const Json* list, model.Array("merges"));
  merges.reserve(list->size());
  for (const Json& item : *list) {
    if (item.is_string() && item.get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    ASSIGN_OR_RETURN(const auto merge, ParseMerge(item, merges.size()));
    RETURN_IF_ERROR(add(merge.first, merge.second));
  }
  return merges;
}

using MadeModel = absl::StatusOr<std::unique_ptr<TokenModel>>;

MadeModel ParseBpe(const JsonObject& model, const LongLists* lists) {
  RETURN_IF_ERROR(RequireUnset(model, "dropout"));
  BpeOptions options;
  for (const auto& [name, affix] : {std::pair{"continuing_subword_prefix", &options.prefix},
                                    std::pair{"end_of_word_suffix", &options.suffix}}) {
    if (model.Find(name) != nullptr) {
      ASSIGN_OR_RETURN(*affix, model.String(name));
    }
  }
  ASSIGN_OR_RETURN(options.ignore_merges, model.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(options.byte_fallback, model.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(options.fuse_unknown, model.Bool("fuse_unk", false));
  if (model.Find("unk_token") != nullptr) {
    ASSIGN_OR_RETURN(options.unknown_token, model.String("unk_token"));
  }
  ASSIGN_OR_RETURN(Vocabulary vocabulary,
                   lists != nullptr ? VocabularyOf(*lists) : ParseVocabulary(model));
  ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges,
                   MergesOf(model, vocabulary, lists, options.prefix.size()));
  ASSIGN_OR_RETURN(std::unique_ptr<BpeModel> bpe,
                   BpeModel::Make(std::move(vocabulary), merges, std::move(options)));
  return std::unique_ptr<TokenModel>(std::move(bpe));
}

// A number as Hugging Face's library reads it: its digits as an integer, times or by a power of
// ten. That may be the neighbour of the nearest double, and it decides between equally good ways to
// cut a text. The digits are those of the shortest decimal number that is nearest to `value`, which
// is how files are written.
double ReadByDigits(double value) {
  char text[32];
  const auto written =
      std::to_chars(text, text + sizeof(text), std::abs(value), std::chars_format::scientific);
  uint64_t digits = 0;
  int behind_point = 0;
  const char* at = text;
  for (bool point = false; at < written.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      point = true;
    } else {
      digits = 10 * digits + static_cast<uint64_t>(*at - '0');
      behind_point += point ? 1 : 0;
    }
  }
  int exponent = 0;
  at += at + 1 < written.ptr && at[1] == '+' ? 2 : 1;
  std::from_chars(at, written.ptr, exponent);
  exponent -= behind_point;
  double power = 0;
  const std::string ten = absl::StrCat("1e", std::abs(exponent));
  if (std::from_chars(ten.data(), ten.data() + ten.size(), power).ec != std::errc()) {
    return value;  // Out of a double's range: no score is.
  }
  const double read = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? read / power : read * power, value);
}

// [["token", -1.5], ...] in the order of ids.
MadeModel ParseUnigram(const JsonObject& model) {
  UnigramOptions options;
  ASSIGN_OR_RETURN(options.byte_fallback, model.Bool("byte_fallback", false));
  if (model.Find("unk_id") != nullptr) {
    ASSIGN_OR_RETURN(const size_t id, model.Count("unk_id", 0, kMaxVocabSize));
    options.unknown_id = static_cast<uint32_t>(id);
  }
  ASSIGN_OR_RETURN(const Json* list, model.Array("vocab"));
  std::vector<std::pair<std::string, double>> tokens;
  tokens.reserve(list->size());
  for (const Json& item : *list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return TokenizerInvalid(
          absl::StrCat("item ", tokens.size(), " of vocab is not a token and its score"));
    }
    tokens.emplace_back(item[0].get<std::string>(), ReadByDigits(item[1].get<double>()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<UnigramModel> unigram,
                   UnigramModel::Make(std::move(tokens), options));
  return std::unique_ptr<TokenModel>(std::move(unigram));
}

MadeModel ParseWordPiece(const JsonObject& model) {
  WordPieceOptions options;
  ASSIGN_OR_RETURN(options.unknown_token, model.String("unk_token"));
  ASSIGN_OR_RETURN(options.prefix, model.String("continuing_subword_prefix"));
  if (model.Find("max_input_chars_per_word") == nullptr) {
    return model.Wrong("max_input_chars_per_word", "there");
  }
  ASSIGN_OR_RETURN(options.max_characters,
                   model.Count("max_input_chars_per_word", 0, kMaxWordCharacters));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ParseVocabulary(model));
  return std::make_unique<WordPieceModel>(std::move(vocabulary), options);
}

MadeModel ParseWordLevel(const JsonObject& model) {
  ASSIGN_OR_RETURN(const std::string unknown, model.String("unk_token"));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ParseVocabulary(model));
  return std::make_unique<WordLevelModel>(std::move(vocabulary), unknown);
}

}  // namespace

std::string_view TokenModelType(const Json& model) {
  if (!model.is_object()) {
    return "";
  }
  const auto has = [&model](const char* name) {
    const auto found = model.find(name);
    return found != model.end() && !found->is_null();
  };
  if (has("type")) {
    const Json& type = model["type"];
    return type.is_string() ? std::string_view(type.get_ref<const std::string&>()) : "";
  }
  // Files from before types were written: only BPE has merges, only Unigram lists its vocabulary,
  // only WordPiece has its limit.
  if (has("merges")) {
    return "BPE";
  }
  if (has("vocab") && model["vocab"].is_array()) {
    return "Unigram";
  }
  if (has("max_input_chars_per_word")) {
    return "WordPiece";
  }
  return has("vocab") && has("unk_token") ? "WordLevel" : "";
}

absl::StatusOr<std::unique_ptr<TokenModel>> ParseTokenModel(const Json& value,
                                                            const LongLists* lists) {
  ASSIGN_OR_RETURN(const JsonObject model, JsonObject::Of(value, "model"));
  if (model.Find("type") != nullptr) {
    RETURN_IF_ERROR(model.String("type").status());
  }
  const std::string_view type = TokenModelType(value);
  if (type == "BPE") {
    return ParseBpe(model, lists);
  }
  if (type == "Unigram") {
    return ParseUnigram(model);
  }
  if (type == "WordPiece") {
    return ParseWordPiece(model);
  }
  if (type == "WordLevel") {
    return ParseWordLevel(model);
  }
  return TokenizerUnsupported("model", type);
}

}  // namespace strata
