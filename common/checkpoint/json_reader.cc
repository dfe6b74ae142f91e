#include "common/checkpoint/json_reader.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr size_t kMostShown = 100;

std::string Shorten(std::string_view text) {
  const bool cut = text.size() > kMostShown;
  if (cut) {
    text = text.substr(0, kMostShown);
  }
  return absl::StrCat(absl::CHexEscape(absl::string_view(text.data(), text.size())),
                      cut ? "..." : "");
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, std::string_view what,
                                     std::string_view reason, size_t max_bytes) {
  const auto fail = [&](const std::string& problem) {
    return Error(absl::StatusCode::kInvalidArgument, reason, std::string(what) + " " + problem);
  };
  if (text.size() > max_bytes) {
    return fail(absl::StrCat("has ", text.size(), " bytes"))
        .Limit(absl::StrCat("bytes=", max_bytes));
  }
  bool too_deep = false;
  std::string duplicate;
  std::vector<std::set<std::string>> keys;  // Of the objects that are open.
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      too_deep |= depth >= kMaxJsonDepth;
    }
    if (too_deep) {
      return false;  // What lies below is not kept.
    }
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      auto& name = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(name).second && duplicate.empty()) {
        duplicate = Quoted(name);
      }
    }
    return true;
  };
  json parsed = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (too_deep) {
    return fail("nests too deeply").Limit(absl::StrCat("depth=", kMaxJsonDepth));
  }
  if (parsed.is_discarded()) {
    return fail("is not valid JSON");
  }
  if (!parsed.is_object()) {
    return fail("is not a JSON object");
  }
  if (!duplicate.empty()) {
    return fail("has the key " + duplicate + " twice");
  }
  return parsed;
}

std::string Quoted(std::string_view name) { return absl::StrCat("\"", Shorten(name), "\""); }

std::string QuotedValue(const json& value) {
  if (value.is_string()) {
    return Quoted(value.get_ref<const std::string&>());
  }
  // ASCII, and without control characters.
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMostShown) {
    text.resize(kMostShown);
    text += "...";
  }
  return text;
}

const json* FieldReader::Find(std::string_view name) const {
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const char* FieldReader::NameOf(std::span<const char* const> names) {
  const char* found = nullptr;
  for (const char* name : names) {
    if (!Has(name)) {
      continue;
    }
    if (found != nullptr && *Find(found) != *Find(name)) {
      Fail(found, absl::StrCat("is ", QuotedValue(*Find(found)), ", and ", name,
                               ", another name of ", "it, ", QuotedValue(*Find(name))));
    }
    found = found != nullptr ? found : name;
  }
  return found != nullptr ? found : names.front();
}

void FieldReader::Fail(std::string_view name, std::string_view problem) {
  Fail(Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
             absl::StrCat(prefix_, std::string(name), " ", std::string(problem))));
}

void FieldReader::Fail(absl::Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
  }
}

uint64_t FieldReader::Uint(std::string_view name, uint64_t min, uint64_t max,
                           std::optional<uint64_t> fallback) {
  const uint64_t instead = fallback.value_or(min);
  const json* value = Find(name);
  if (value == nullptr) {
    if (!fallback.has_value()) {
      Fail(name, "is missing");
    }
    return instead;
  }
  if (!value->is_number_integer()) {
    Fail(name, QuotedValue(*value) + " is not an integer");
    return instead;
  }
  const uint64_t number = value->is_number_unsigned() ? value->get<uint64_t>() : 0;
  if (!value->is_number_unsigned() || number < min || number > max) {
    Fail(name, absl::StrCat(QuotedValue(*value), " is not in [", min, ", ", max, "]"));
    return instead;
  }
  return status_.ok() ? number : instead;
}

double FieldReader::Number(std::string_view name, double min, double max,
                           std::optional<double> fallback) {
  const double instead = fallback.value_or(min);
  const json* value = Find(name);
  if (value == nullptr) {
    if (!fallback.has_value()) {
      Fail(name, "is missing");
    }
    return instead;
  }
  const bool tagged = value->is_object() && value->size() == 1 && value->contains("__float__") &&
                      value->front().is_string();
  const std::string tag = tagged ? value->front().get<std::string>() : "";
  const bool infinite = tag == "Infinity" || tag == "-Infinity";
  if (!value->is_number() && !infinite) {
    Fail(name, QuotedValue(*value) + " is not a number");
    return instead;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double number = tag == "Infinity" ? kInfinity
                        : infinite        ? -kInfinity
                                          : value->get<double>();
  if (!(number >= min && number <= max)) {
    Fail(name, absl::StrCat(QuotedValue(*value), " is not in [", min, ", ", max, "]"));
    return instead;
  }
  return status_.ok() ? number : instead;
}

bool FieldReader::Bool(std::string_view name, bool fallback) {
  const json* value = Find(name);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    Fail(name, QuotedValue(*value) + " is not true or false");
    return fallback;
  }
  return value->get<bool>();
}

std::string FieldReader::String(std::string_view name, std::string_view fallback) {
  const json* value = Find(name);
  if (value == nullptr) {
    return std::string(fallback);
  }
  if (!value->is_string()) {
    Fail(name, QuotedValue(*value) + " is not a string");
    return std::string(fallback);
  }
  return value->get<std::string>();
}

}  // namespace strata
