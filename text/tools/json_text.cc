#include "text/tools/json_text.h"

#include <cstddef>

#include "nlohmann/json.hpp"

namespace strata {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // The parser takes one in front.

bool IsJsonBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Behind the string that begins at `at`.
size_t EndOfString(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at < json.size() ? at + 1 : json.size();
}

// Walks along the values of one array or object.
class PartReader {
 public:
  explicit PartReader(std::string_view json) : json_(json) {
    if (json_.starts_with(kByteOrderMark)) {
      at_ = kByteOrderMark.size();
    }
  }

  // Whether a value begins with `open`, which it steps over.
  bool Open(char open) {
    SkipBlanks();
    const bool opens = at_ < json_.size() && json_[at_] == open;
    at_ += opens ? 1 : 0;
    return opens;
  }

  // The next key or value, with the mark between them stepped over; "" behind the last.
  std::string_view Next() {
    SkipBlanks();
    if (at_ < json_.size() && (json_[at_] == ',' || json_[at_] == ':')) {
      ++at_;
      SkipBlanks();
    }
    const size_t begin = at_;
    size_t depth = 0;
    while (at_ < json_.size()) {
      const char c = json_[at_];
      if (c == '"') {
        at_ = EndOfString(json_, at_);
      } else if (c == '[' || c == '{') {
        ++depth;
        ++at_;
      } else if (depth > 0) {
        depth -= c == ']' || c == '}' ? 1 : 0;
        ++at_;
      } else if (c == ',' || c == ':' || c == ']' || c == '}' || IsJsonBlank(c)) {
        break;
      } else {
        ++at_;
      }
    }
    return json_.substr(begin, at_ - begin);
  }

 private:
  void SkipBlanks() {
    while (at_ < json_.size() && IsJsonBlank(json_[at_])) {
      ++at_;
    }
  }

  const std::string_view json_;
  size_t at_ = 0;
};

// Whether `key`, in its quotes, is `name`.
bool IsKey(std::string_view key, std::string_view name) {
  if (key.find('\\') == std::string_view::npos) {
    return key.size() == name.size() + 2 && key.substr(1, name.size()) == name;
  }
  const auto text = nlohmann::json::parse(key, nullptr, /*allow_exceptions=*/false);
  return text.is_string() && text.get_ref<const std::string&>() == name;
}

}  // namespace

std::string_view MemberText(std::string_view object, std::string_view name) {
  std::string_view found;
  PartReader reader(object);
  if (!reader.Open('{')) {
    return found;
  }
  for (std::string_view key = reader.Next(); !key.empty(); key = reader.Next()) {
    const std::string_view value = reader.Next();
    if (IsKey(key, name)) found = value;
  }
  return found;
}

std::vector<std::string_view> ItemTexts(std::string_view array) {
  std::vector<std::string_view> items;
  PartReader reader(array);
  if (!reader.Open('[')) {
    return items;
  }
  for (std::string_view item = reader.Next(); !item.empty(); item = reader.Next()) {
    items.push_back(item);
  }
  return items;
}

std::string CompactJson(std::string_view json) {
  std::string compact;
  compact.reserve(json.size());
  for (size_t at = 0; at < json.size();) {
    const size_t end = json[at] == '"' ? EndOfString(json, at) : at + 1;
    if (!IsJsonBlank(json[at])) compact.append(json.substr(at, end - at));
    at = end;
  }
  return compact;
}

}  // namespace strata
