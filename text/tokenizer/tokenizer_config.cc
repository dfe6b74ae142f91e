#include "text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/status.h"
#include "text/tokenizer/json_object.h"

namespace strata {
namespace {

constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kMapFile[] = "special_tokens_map.json";
constexpr char kAddedFile[] = "added_tokens.json";
constexpr char kExtra[] = "extra_special_tokens";
constexpr char kAdditional[] = "additional_special_tokens";
constexpr char kModelSpecific[] = "model_specific_special_tokens";
constexpr const char* kStandardNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

bool IsStandard(std::string_view name) {
  return std::find(std::begin(kStandardNames), std::end(kStandardNames), name) !=
         std::end(kStandardNames);
}

// A token as a file gives it.
struct GivenToken {
  AddedToken token;
  // None: found in normalized text if it is not special.
  std::optional<bool> normalized;
  bool as_object = false;  // Of tokenizer_config.json, not a text.

  AddedToken Resolved(bool special) const {
    AddedToken resolved = token;
    resolved.special |= special;
    resolved.normalized = normalized.value_or(!resolved.special);
    return resolved;
  }
};

// Tokens by name, in the order in which the names came.
class NamedTokens {
 public:
  // A name that is there keeps its place.
  void Set(const std::string& name, GivenToken token) {
    const auto [at, added] = places_.try_emplace(name, list_.size());
    if (added) {
      list_.emplace_back(name, std::move(token));
    } else {
      list_[at->second].second = std::move(token);
    }
  }
  const std::vector<std::pair<std::string, GivenToken>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, GivenToken>> list_;
  absl::flat_hash_map<std::string, size_t> places_;
};

// A file's object with the order of its keys, which nlohmann::json does not keep; and that of the
// objects in it that name tokens.
struct OrderedFile {
  std::string name;
  Json document = Json::object();
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::string>> inner_keys;
};

absl::StatusOr<OrderedFile> ReadOrdered(std::string_view text, const char* name) {
  OrderedFile file;
  file.name = name;
  if (text.empty()) {
    return file;
  }
  // A key that comes again keeps its first place.
  absl::flat_hash_set<std::string> seen;
  std::map<std::string, absl::flat_hash_set<std::string>> seen_inside;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event != Json::parse_event_t::key) {
      return true;
    }
    const auto& key = parsed.get_ref<const std::string&>();
    if (depth == 1 && seen.insert(key).second) {
      file.keys.push_back(key);
    } else if (depth == 2 && !file.keys.empty()) {
      const std::string& outer = file.keys.back();
      if ((outer == kExtra || outer == kAdditional || outer == kModelSpecific) &&
          seen_inside[outer].insert(key).second) {
        file.inner_keys[outer].push_back(key);
      }
    }
    return true;
  };
  file.document = Json::parse(text.begin(), text.end(), note, /*allow_exceptions=*/false);
  if (file.document.is_discarded()) {
    return ParseJsonText(text, name).status();
  }
  if (!file.document.is_object()) {
    return TokenizerInvalid(absl::StrCat(name, " is no object"));
  }
  return file;
}

absl::Status NoToken(const std::string& file, std::string_view name) {
  return TokenizerInvalid(absl::StrCat(file, ": ", std::string(name), " is not a token"));
}

// A text, or an object with `content` and flags. `special`: what one without the flag is.
absl::StatusOr<GivenToken> ReadToken(const Json& value, const std::string& file,
                                     std::string_view name, bool special) {
  GivenToken given;
  if (value.is_string()) {
    given.token.content = value.get<std::string>();
    given.token.special = special;
    return given;
  }
  if (!value.is_object() || !value.contains("content") || !value["content"].is_string()) {
    return NoToken(file, name);
  }
  given.as_object = true;
  ASSIGN_OR_RETURN(const JsonObject object,
                   JsonObject::Of(value, absl::StrCat(file, ": ", std::string(name))));
  AddedToken& token = given.token;
  ASSIGN_OR_RETURN(token.content, object.String("content"));
  ASSIGN_OR_RETURN(token.special, object.Bool("special", special));
  ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
  if (object.Find("normalized") != nullptr) {
    ASSIGN_OR_RETURN(given.normalized, object.Bool("normalized", false));
  }
  return given;
}

class Reader {
 public:
  absl::StatusOr<TokenizerConfig> Read(const FilesBesideTokenizer& files) {
    ASSIGN_OR_RETURN(const OrderedFile config, ReadOrdered(files.tokenizer_config, kConfigFile));
    RETURN_IF_ERROR(ReadSettings(config.document));
    RETURN_IF_ERROR(ReadNames(config));
    if (config.document.contains("added_tokens_decoder")) {
      RETURN_IF_ERROR(ReadDecoder(config.document["added_tokens_decoder"]));
    } else {
      ASSIGN_OR_RETURN(const OrderedFile map, ReadOrdered(files.special_tokens_map, kMapFile));
      RETURN_IF_ERROR(ReadMap(map));
      RETURN_IF_ERROR(ReadAddedTokens(files.added_tokens));
    }
    return Resolve();
  }

 private:
  absl::Status ReadSettings(const Json& document) {
    ASSIGN_OR_RETURN(const JsonObject config, JsonObject::Of(document, kConfigFile));
    ASSIGN_OR_RETURN(out_.split_special_tokens, config.Bool("split_special_tokens", false));
    ASSIGN_OR_RETURN(out_.clean_up_spaces, config.Bool("clean_up_tokenization_spaces", false));
    ASSIGN_OR_RETURN(
        out_.clean_up_spaces_of_bpe,
        config.Bool("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                    false));
    ASSIGN_OR_RETURN(out_.fix_mistral_regex, config.Bool("fix_mistral_regex", false));
    if (const Json* list = config.Find("fast_tokenizer_files")) {
      out_.other_tokenizer_files =
          !list->is_array() || !std::all_of(list->begin(), list->end(), [](const Json& name) {
            return name == "tokenizer.json";
          });
    }
    return absl::OkStatus();
  }

  absl::Status ReadNames(const OrderedFile& file) {
    const Json& document = file.document;
    for (const std::string& name : file.keys) {
      const Json& value = document[name];
      const bool standard = IsStandard(name);
      // An object of a type becomes a token later than texts do.
      const bool typed = value.is_object() && value.contains("__type");
      if (standard ? value.is_null() : !name.ends_with("_token") || !(value.is_string() || typed)) {
        continue;
      }
      ASSIGN_OR_RETURN(GivenToken token, ReadToken(value, file.name, name, true));
      if (standard) {
        standard_[name] = std::move(token);
      } else {
        (typed ? late_ : early_).Set(name, std::move(token));
      }
    }
    // The newer name wins unless it says nothing.
    const auto given = [&](const char* name) {
      const auto found = document.find(name);
      return found != document.end() && !found->is_null() && !found->empty();
    };
    extra_is_list_ = document.contains(kExtra) && !document[kExtra].is_object();
    if (given(kExtra)) {
      RETURN_IF_ERROR(ReadExtra(file, kExtra, &extra_));
    }
    if (given(kAdditional) && (!given(kExtra) || document[kExtra].is_object())) {
      RETURN_IF_ERROR(ReadExtra(file, kAdditional, &extra_));
      extra_is_list_ |= document[kAdditional].is_array();
    }
    if (early_.list().empty() && given(kModelSpecific)) {
      if (!document[kModelSpecific].is_object()) {
        return NoToken(file.name, kModelSpecific);
      }
      return ReadExtra(file, kModelSpecific, &extra_);
    }
    return absl::OkStatus();
  }

  // A list of tokens, or an object of named ones.
  absl::Status ReadExtra(const OrderedFile& file, const char* field,
                         std::vector<GivenToken>* list) {
    const Json& value = file.document[field];
    if (value.is_object()) {
      if (const auto keys = file.inner_keys.find(field); keys != file.inner_keys.end()) {
        for (const std::string& name : keys->second) {
          ASSIGN_OR_RETURN(GivenToken token,
                           ReadToken(value[name], file.name, absl::StrCat(field, ".", name), true));
          if (IsStandard(name)) {
            standard_[name] = std::move(token);
          } else {
            early_.Set(name, std::move(token));
          }
        }
      }
      return absl::OkStatus();
    }
    if (!value.is_array()) {
      return TokenizerInvalid(
          absl::StrCat(file.name, ": ", field, " is neither a list nor an object of tokens"));
    }
    for (const Json& item : value) {
      // One of a type says for itself whether it is special.
      const bool special = !item.is_object() || !item.contains("__type");
      ASSIGN_OR_RETURN(GivenToken token, ReadToken(item, file.name, field, special));
      list->push_back(std::move(token));
    }
    return absl::OkStatus();
  }

  absl::Status ReadDecoder(const Json& value) {
    if (!value.is_object()) {
      return TokenizerInvalid(absl::StrCat(kConfigFile, ": added_tokens_decoder is no object"));
    }
    out_.added_by_decoder = true;
    for (const auto& [key, item] : value.items()) {
      int64_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        return TokenizerInvalid(
            absl::StrCat(kConfigFile, ": added_tokens_decoder has \"", key, "\", which is no id"));
      }
      if (!item.is_object()) {
        return NoToken(kConfigFile, absl::StrCat("added_tokens_decoder ", key));
      }
      ASSIGN_OR_RETURN(added_[id], ReadToken(item, kConfigFile,
                                             absl::StrCat("added_tokens_decoder ", key), false));
    }
    return absl::OkStatus();
  }

  // Its names win over those of tokenizer_config.json where these are the seven.
  absl::Status ReadMap(const OrderedFile& file) {
    for (const std::string& name : file.keys) {
      const Json& value = file.document[name];
      if (name == kExtra || name == kAdditional) {
        extra_is_list_ |= name == kExtra && !value.is_object();
        if (!value.is_null() && !value.empty()) {
          RETURN_IF_ERROR(ReadExtra(file, name.c_str(), name == kExtra ? &extra_ : &additional_));
        }
      } else if (IsStandard(name) && value.is_null()) {
        standard_.erase(name);
      } else if (IsStandard(name) ||
                 (name.ends_with("_token") && (value.is_string() || value.is_object()))) {
        ASSIGN_OR_RETURN(GivenToken token, ReadToken(value, file.name, name, true));
        token.token.special = true;
        token.as_object = false;
        if (IsStandard(name)) {
          standard_[name] = std::move(token);
        } else {
          late_.Set(name, std::move(token));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadAddedTokens(std::string_view text) {
    ASSIGN_OR_RETURN(const OrderedFile file, ReadOrdered(text, kAddedFile));
    // Objects of tokenizer_config.json are not tokens yet where transformers asks for these.
    absl::flat_hash_set<std::string> special;
    for (const auto& [name, token] : standard_) {
      if (!token.as_object) {
        special.insert(token.token.content);
      }
    }
    for (const GivenToken& token : extra_) {
      if (!token.as_object) {
        special.insert(token.token.content);
      }
    }
    for (const std::string& content : file.keys) {
      const Json& id = file.document[content];
      if (!id.is_number_integer() || content.empty()) {
        return TokenizerInvalid(
            absl::StrCat(kAddedFile, ": token \"", content, "\" has no id of a token"));
      }
      GivenToken& token = added_[id.get<int64_t>()];
      token = GivenToken();
      token.token.content = content;
      token.token.special = special.contains(content);
      token.normalized = !token.token.special;
    }
    return absl::OkStatus();
  }

  TokenizerConfig Resolve() {
    for (const char* name : kStandardNames) {
      if (const auto found = standard_.find(name); found != standard_.end()) {
        out_.named.push_back({name, found->second.Resolved(true)});
      }
    }
    for (const auto& [name, token] : early_.list()) {
      late_.Set(name, token);
    }
    absl::flat_hash_set<std::string> names;
    for (const auto& [name, token] : late_.list()) {
      out_.named.push_back({name, token.Resolved(true)});
    }
    for (const auto& named : out_.named) {
      names.insert(named.token.content);
    }
    for (const auto& [id, token] : added_) {
      out_.added.emplace_back(id, token.Resolved(names.contains(token.token.content)));
    }
    if (!extra_is_list_) {
      std::move(additional_.begin(), additional_.end(), std::back_inserter(extra_));
    }
    for (const GivenToken& token : extra_) {
      out_.extra.push_back(token.Resolved(names.contains(token.token.content)));
    }
    return std::move(out_);
  }

  TokenizerConfig out_;
  std::map<std::string, GivenToken> standard_;
  // Other names. The late ones come first, and have what the early ones say where these have them.
  NamedTokens early_;
  NamedTokens late_;
  std::vector<GivenToken> extra_;
  // Of special_tokens_map.json's older name, which only counts where no file has a newer list.
  std::vector<GivenToken> additional_;
  bool extra_is_list_ = false;
  std::map<int64_t, GivenToken> added_;
};

}  // namespace

std::vector<AddedToken> TokenizerConfig::TokensBeside(const std::vector<AddedToken>& in_file,
                                                      std::span<const int64_t> ids) const {
  std::vector<AddedToken> beside;
  absl::flat_hash_set<std::string> there;
  for (const AddedToken& token : in_file) {
    there.insert(token.content);
  }
  std::map<int64_t, AddedToken> by_id(added.begin(), added.end());
  if (!added_by_decoder) {
    // In an older folder tokenizer.json's own are read as if they were of the decoder: they have
    // the last word of their ids, and those with a name are special.
    absl::flat_hash_set<std::string> names;
    for (const NamedToken& token : named) {
      names.insert(token.token.content);
    }
    for (size_t i = 0; i < std::min(ids.size(), in_file.size()); ++i) {
      AddedToken& token = by_id[ids[i]];
      token = in_file[i];
      token.special |= names.contains(token.content);
    }
  }
  for (const auto& [id, token] : by_id) {
    beside.push_back(token);
    there.insert(token.content);
  }
  const auto add = [&](const AddedToken& token) {
    if (!there.contains(token.content)) {
      beside.push_back(token);
    }
  };
  for (const NamedToken& token : named) {
    add(token.token);
  }
  for (const AddedToken& token : extra) {
    add(token);
  }
  return beside;
}

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(const FilesBesideTokenizer& files) {
  return Reader().Read(files);
}

}  // namespace strata
