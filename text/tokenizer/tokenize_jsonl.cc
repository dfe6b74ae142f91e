#include "text/tokenizer/tokenize_jsonl.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "text/tokenizer/json_object.h"

namespace strata {
namespace {

absl::Status Refused(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "LINE_REFUSED", what);
}

absl::StatusOr<Json> ParseLine(std::string_view line, std::initializer_list<const char*> fields) {
  ASSIGN_OR_RETURN(Json document, ParseJsonText(line, "the line"));
  if (!document.is_object()) {
    return Refused("no object");
  }
  for (const auto& [key, value] : document.items()) {
    bool known = false;
    for (const char* field : fields) {
      known |= key == field;
    }
    if (!known) {
      return Refused(absl::StrCat("unknown field \"", key, "\""));
    }
  }
  return document;
}

absl::StatusOr<Json> Tokenize(const Tokenizer& tokenizer, std::string_view line) {
  ASSIGN_OR_RETURN(const Json document, ParseLine(line, {"text", "add_special_tokens"}));
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(document, "line"));
  ASSIGN_OR_RETURN(const std::string text, object.String("text"));
  ASSIGN_OR_RETURN(const bool special, object.Bool("add_special_tokens", true));
  ASSIGN_OR_RETURN(std::vector<uint32_t> ids, tokenizer.Encode(text, special));
  return Json{{"ids", std::move(ids)}};
}

absl::StatusOr<Json> Detokenize(const Tokenizer& tokenizer, std::string_view line) {
  ASSIGN_OR_RETURN(const Json document, ParseLine(line, {"ids", "skip_special_tokens"}));
  ASSIGN_OR_RETURN(const JsonObject object, JsonObject::Of(document, "line"));
  ASSIGN_OR_RETURN(const Json* list, object.Array("ids"));
  ASSIGN_OR_RETURN(const bool skip, object.Bool("skip_special_tokens", true));
  std::vector<uint32_t> ids;
  ids.reserve(list->size());
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
      return Refused("ids are numbers from 0 to 4294967295");
    }
    ids.push_back(id.get<uint32_t>());
  }
  return Json{{"text", tokenizer.Decode(ids, skip)}};
}

std::string Line(const absl::StatusOr<Json>& answer) {
  return (answer.ok() ? *answer : Json{{"error", Describe(answer.status())}}).dump();
}

}  // namespace

std::string TokenizeLine(const Tokenizer& tokenizer, std::string_view line) {
  return Line(Tokenize(tokenizer, line));
}

std::string DetokenizeLine(const Tokenizer& tokenizer, std::string_view line) {
  return Line(Detokenize(tokenizer, line));
}

}  // namespace strata
