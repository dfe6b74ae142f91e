#include "text/tools/offered_tools.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "text/tools/json_scanner.h"
#include "text/tools/json_text.h"
#include "text/tools/marked_text.h"
#include "text/tools/ordered_json.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxReferences = 16;
constexpr size_t kMaxToolNameBytes = 256;

absl::Status Bad(const std::string& field, const std::string& wanted) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD", field + " must be " + wanted)
      .Fact("field", field);
}

const Json* Member(const Json& object, std::string_view name) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(std::string(name));
  return found == object.end() ? nullptr : &*found;
}

const char* TypeOfValue(const Json& value) {
  return value.is_string()    ? "string"
         : value.is_boolean() ? "boolean"
         : value.is_null()    ? "null"
         : value.is_number()  ? "number"
         : value.is_array()   ? "array"
                              : "object";
}

// Adds the types that `schema` allows; false where it allows any. `left`: schemas that may still be
// looked at.
bool AddTypes(const Json& root, const Json& schema, int* left, std::vector<std::string>* types) {
  if (--*left < 0) {
    return false;
  }
  if (const Json* reference = Member(schema, "$ref"); reference != nullptr) {
    if (!reference->is_string()) {
      return false;
    }
    const auto& text = reference->get_ref<const std::string&>();
    if (!text.starts_with("#/")) {
      return false;
    }
    const Json* at = &root;
    for (size_t begin = 2; at != nullptr && begin <= text.size();) {
      const size_t end = std::min(text.find('/', begin), text.size());
      at = Member(*at, text.substr(begin, end - begin));
      begin = end + 1;
    }
    return at != nullptr && AddTypes(root, *at, left, types);
  }
  if (const Json* type = Member(schema, "type"); type != nullptr) {
    if (type->is_string()) {
      types->push_back(type->get<std::string>());
      return true;
    }
    for (const Json& one : *type) {
      if (one.is_string()) types->push_back(one.get<std::string>());
    }
    return type->is_array() && !type->empty();
  }
  for (const char* name : {"anyOf", "oneOf", "allOf"}) {
    if (const Json* branches = Member(schema, name);
        branches != nullptr && branches->is_array() && !branches->empty()) {
      return std::ranges::all_of(
          *branches, [&](const Json& branch) { return AddTypes(root, branch, left, types); });
    }
  }
  if (const Json* values = Member(schema, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) {
      types->push_back(TypeOfValue(value));
    }
    return !values->empty();
  }
  if (const Json* value = Member(schema, "const"); value != nullptr) {
    types->push_back(TypeOfValue(*value));
    return true;
  }
  return false;
}

std::string Quoted(std::string_view text) { return "\"" + JsonEscaped(text) + "\""; }

// `written` as JSON where it is some, or Python's word for that; else "".
std::string JsonOf(std::string_view written) {
  const std::string_view text = Stripped(written);
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return IsJson(text) ? std::string(text) : "";
}

// Of JSON, by its first byte.
std::string_view TypeOfJson(std::string_view json) {
  switch (json.front()) {
    case '"':
      return "string";
    case '{':
      return "object";
    case '[':
      return "array";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
  }
}

}  // namespace

std::string JsonOrText(std::string_view written) {
  std::string json = JsonOf(written);
  return json.empty() ? Quoted(written) : json;
}

std::vector<std::string> ParameterTypes::TypesOf(const std::string& parameter) const {
  const Json* properties = Member(schema_, "properties");
  const Json* schema = properties == nullptr ? nullptr : Member(*properties, parameter);
  std::vector<std::string> types;
  int left = kMaxReferences;
  if (schema == nullptr || !AddTypes(schema_, *schema, &left, &types)) {
    types.clear();
  }
  return types;
}

bool ParameterTypes::IsText(const std::string& parameter) const {
  const std::vector<std::string> types = TypesOf(parameter);
  return !types.empty() &&
         std::ranges::all_of(types, [](const std::string& type) { return type == "string"; });
}

std::string ParameterTypes::Value(const std::string& parameter, std::string_view written) const {
  const std::vector<std::string> types = TypesOf(parameter);
  std::string json = JsonOf(written);
  if (json.empty()) {
    return Quoted(written);
  }
  const std::string_view type = TypeOfJson(json);
  if (type == "string") {
    // Quotes that are part of a text, unless they are how it was written where any value may be.
    return types.empty() ? json : Quoted(written);
  }
  const bool allowed = types.empty() || std::ranges::any_of(types, [&](const std::string& one) {
                         return one == type || (one == "integer" && type == "number");
                       });
  return allowed ? json : Quoted(written);
}

absl::StatusOr<std::shared_ptr<const OfferedTools>> OfferedTools::Parse(
    const std::vector<std::string>& tools) {
  if (tools.size() > kMaxTools) {
    return Bad("tools", "at most " + std::to_string(kMaxTools));
  }
  auto offered = std::make_shared<OfferedTools>();
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = "tools[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const Json tool, ParseOrderedJson(tools[i], place));
    offered->source_.append(tools[i]).append("\n");
    const Json* type = Member(tool, "type");
    if (type != nullptr && *type != "function") {
      return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED",
                   place + ".type is not supported yet: only \"function\" is")
          .Fact("field", place + ".type")
          .Hint("leave it out");
    }
    const Json* function = Member(tool, "function");
    if (function == nullptr || !function->is_object()) {
      return Bad(place + ".function", "an object");
    }
    const Json* name = Member(*function, "name");
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty() ||
        name->get_ref<const std::string&>().size() > kMaxToolNameBytes) {
      return Bad(place + ".function.name",
                 "a name of 1 to " + std::to_string(kMaxToolNameBytes) + " bytes");
    }
    const Json* parameters = Member(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
      return Bad(place + ".function.parameters", "an object");
    }
    const Json* strict = Member(*function, "strict");
    if (strict != nullptr && !strict->is_boolean() && !strict->is_null()) {
      return Bad(place + ".function.strict", "true or false");
    }
    const bool given = parameters != nullptr && parameters->is_object();
    offered->tools_.push_back(
        {.name = name->get<std::string>(),
         .types = ParameterTypes(given ? *parameters : Json()),
         .parameters =
             given ? CompactJson(MemberText(MemberText(tools[i], "function"), "parameters")) : "",
         .strict = strict != nullptr && *strict == true});
    if (!offered->by_name_.emplace(offered->tools_.back().name, i).second) {
      return Bad(place + ".function.name", "another than those of the tools before it");
    }
  }
  return offered;
}

bool OfferedTools::HasStrict() const { return std::ranges::any_of(tools_, &OfferedTool::strict); }

const ParameterTypes* OfferedTools::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tools_[found->second].types;
}

}  // namespace strata
