#include "text/template/template_jsonl.h"

#include <cstdio>
#include <ctime>
#include <limits>
#include <optional>
#include <vector>

#include "common/status.h"
#include "nlohmann/json.hpp"
#include "text/template/conversation.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMaxJsonDepth = 128;

// Builds the document, with integers past 64 bits as binary values.
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != text.npos) {
      return Add(value);
    }
    return Add(Json::binary({text.begin(), text.end()}, kBigIntegerSubtype));
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& value) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    message_ = error.what();
    return false;
  }

  Json Take() { return std::move(root_); }
  const std::string& message() const { return message_; }

 private:
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(value);
    return &member;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (open_.size() >= kMaxJsonDepth) {
      message_ = "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels";
      return false;
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // A parent gets no sibling while a child is open: pointers hold.
  std::string key_;
  std::string message_;
};

// "2026-03-05T09:07:05", then perhaps a fraction and Z.
std::optional<int64_t> ParseTime(const std::string& text) {
  std::tm utc{};
  int read = 0;
  const int fields =
      std::sscanf(text.c_str(), "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d%n", &utc.tm_year, &utc.tm_mon,
                  &utc.tm_mday, &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &read);
  if (fields != 6) {
    return std::nullopt;
  }
  size_t rest = static_cast<size_t>(read);
  if (rest < text.size() && text[rest] == '.') {
    rest = text.find_first_not_of("0123456789", rest + 1);
  }
  const std::string zone = rest < text.size() ? text.substr(rest) : "";
  if (!zone.empty() && zone != "Z" && zone != "+00:00") {
    return std::nullopt;
  }
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return timegm(&utc);
}

std::string ErrorLine(std::string_view message) {
  return Json{{"error", message}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Json> ParseTemplateJson(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_JSON",
                 "not a JSON document: " + builder.message());
  }
  return builder.Take();
}

std::string RenderLine(const ChatTemplate& chat_template, std::string_view line,
                       int64_t default_now_s,
                       const std::vector<std::pair<std::string, std::string>>* tokens) {
  absl::StatusOr<Json> document = ParseTemplateJson(line);
  if (!document.ok()) {
    return ErrorLine(std::string(document.status().message()));
  }
  if (!document->is_object() || !document->contains("input")) {
    return ErrorLine("a line must be {\"input\": {variables}, \"now\"?}");
  }
  int64_t now_s = default_now_s;
  if (const auto now = document->find("now"); now != document->end() && !now->is_null()) {
    const std::optional<int64_t> parsed =
        now->is_number_integer() ? std::optional(now->get<int64_t>())
        : now->is_string()       ? ParseTime(now->get_ref<const std::string&>())
                                 : std::nullopt;
    if (!parsed) {
      return ErrorLine("now must be a time like 2026-03-05T09:07:05, or seconds since 1970");
    }
    now_s = *parsed;
  }
  Json& variables = (*document)["input"];
  if (tokens != nullptr && variables.is_object()) {
    AddTokens(*tokens, &variables);
    if (const auto messages = variables.find("messages"); messages != variables.end()) {
      NormalizeMessages(&*messages);
    }
  }
  const absl::StatusOr<std::string> output = chat_template.Render(variables, now_s);
  if (!output.ok()) {
    return ErrorLine(std::string(output.status().message()));
  }
  return Json{{"output", *output}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace strata
