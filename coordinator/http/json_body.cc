#include "coordinator/http/json_body.h"

#include <cmath>
#include <cstdlib>

#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

absl::Status BadJson(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_JSON", what);
}

// Before anything is built of it.
absl::Status CheckDepth(std::string_view text, const std::string& what) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return Error(absl::StatusCode::kInvalidArgument, "BAD_JSON",
                     what + "'s arrays and objects are nested too deeply at byte " +
                         std::to_string(i))
            .Limit("json_depth=" + std::to_string(kMaxJsonDepth));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

// The byte of the first error; the parser's own text quotes bytes, which may be no UTF-8.
struct ErrorPlace : nlohmann::json_sax<Json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    byte = position;
    return false;
  }
  size_t byte = 0;
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& what) {
  RETURN_IF_ERROR(CheckDepth(text, what));
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    ErrorPlace place;
    Json::sax_parse(text.begin(), text.end(), &place);
    return BadJson(what + " is no JSON in UTF-8 at byte " + std::to_string(place.byte));
  }
  return json;
}

absl::StatusOr<Json> ParseBody(std::string_view body) {
  ASSIGN_OR_RETURN(Json json, ParseJson(body, "the body"));
  if (!json.is_object()) {
    return BadJson(std::string("the body must be a JSON object, and is of type ") +
                   json.type_name());
  }
  return json;
}

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

double ShortestDouble(float value) {
  return std::isfinite(value) ? std::strtod(FormatFloat(value).c_str(), nullptr)
                              : static_cast<double>(value);
}

float NearestFloat(double value) {
  if (std::fabs(value) > std::numeric_limits<float>::max()) {
    const float infinity = std::numeric_limits<float>::infinity();
    return value > 0 ? infinity : -infinity;
  }
  return static_cast<float>(value);
}

absl::Status BadField(std::string_view field, std::string_view wanted) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
               std::string(field) + " must be " + std::string(wanted))
      .Fact("field", field);
}

absl::Status NotSupported(std::string_view field, std::string_view what) {
  std::string message = std::string(field) + " is not supported yet";
  if (!what.empty()) {
    message.append(": ").append(what);
  }
  return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED", message)
      .Fact("field", field)
      .Hint("leave it out");
}

std::string FieldOf(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  const auto field = detail.facts().find("field");
  return field == detail.facts().end() ? "" : field->second;
}

const Json* Fields::Find(const char* name) const {
  if (!status_.ok()) {
    return nullptr;
  }
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::Bool(const char* name) {
  const Json* field = Find(name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (!field->is_boolean()) {
    Fail(BadField(Name(name), "true or false"));
    return std::nullopt;
  }
  return field->get<bool>();
}

std::optional<float> Fields::Float(const char* name) {
  const Json* field = Find(name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (!field->is_number()) {
    Fail(BadField(Name(name), "a number"));
    return std::nullopt;
  }
  return NearestFloat(field->get<double>());
}

std::optional<int64_t> Fields::Int(const char* name, int64_t least, int64_t most) {
  const Json* field = Find(name);
  if (field == nullptr) {
    return std::nullopt;
  }
  std::optional<int64_t> value;
  constexpr double kExact = 9007199254740992.0;  // 2^53.
  if (field->is_number_unsigned()) {
    if (const auto n = field->get<uint64_t>(); n <= uint64_t{INT64_MAX}) {
      value = static_cast<int64_t>(n);
    }
  } else if (field->is_number_integer()) {
    value = field->get<int64_t>();
  } else if (field->is_number_float()) {
    const auto n = field->get<double>();
    if (std::fabs(n) <= kExact && n == std::floor(n)) value = static_cast<int64_t>(n);
  }
  if (!value.has_value() || *value < least || *value > most) {
    const bool bounded = most != std::numeric_limits<int64_t>::max();
    Fail(BadField(Name(name), bounded ? "a whole number in [" + std::to_string(least) + ", " +
                                            std::to_string(most) + "]"
                                      : "a whole number of at least " + std::to_string(least)));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> Fields::Text(const char* name) {
  const Json* field = Find(name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (!field->is_string()) {
    Fail(BadField(Name(name), "a string"));
    return std::nullopt;
  }
  return field->get<std::string>();
}

std::vector<std::string> Fields::Texts(const char* name) {
  const Json* field = Find(name);
  if (field == nullptr) {
    return {};
  }
  if (field->is_string()) {
    return {field->get<std::string>()};
  }
  std::vector<std::string> texts;
  bool good = field->is_array();
  for (size_t i = 0; good && i < field->size(); ++i) {
    good = (*field)[i].is_string();
    if (good) texts.push_back((*field)[i].get<std::string>());
  }
  if (!good) {
    Fail(BadField(Name(name), "a string, or an array of strings"));
    return {};
  }
  return texts;
}

const Json* Fields::Object(const char* name) {
  const Json* field = Find(name);
  if (field != nullptr && !field->is_object()) {
    Fail(BadField(Name(name), "an object"));
    return nullptr;
  }
  return field;
}

void Fields::Refuse(const char* name, const Json& allowed) {
  const Json* field = Find(name);
  const bool nothing = field == nullptr || *field == false || *field == allowed ||
                       (field->is_string() && field->get_ref<const std::string&>().empty()) ||
                       (field->is_structured() && field->empty());
  if (!nothing) {
    Fail(NotSupported(Name(name)));
  }
}

}  // namespace strata
