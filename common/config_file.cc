#include "common/config_file.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace strata {
namespace {

// A basic string of TOML 1.0.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "\"";
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first);
}

enum class Sets { kNo, kInComment, kYes };

// Whether `line` is `key = ...`.
Sets SetsKey(std::string_view line, const std::string& key) {
  line = WithoutBlanks(line);
  const bool comment = line.starts_with('#');
  if (comment) {
    line = WithoutBlanks(line.substr(1));
  }
  if (!line.starts_with(key) || !WithoutBlanks(line.substr(key.size())).starts_with('=')) {
    return Sets::kNo;
  }
  return comment ? Sets::kInComment : Sets::kYes;
}

}  // namespace

std::string WithSettings(const std::string& text,
                         const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) {
    lines.pop_back();  // What follows the last newline.
  }
  for (const auto& [key, value] : settings) {
    const std::string line = key + " = " + Quoted(value);
    std::optional<size_t> at;
    bool set = false;
    for (size_t i = 0; i < lines.size() && !set; ++i) {
      const Sets sets = SetsKey(lines[i], key);
      set = sets == Sets::kYes;
      if (set || (sets == Sets::kInComment && !at.has_value())) {
        at = i;
      }
    }
    if (at.has_value()) {
      lines[*at] = line;
    } else {
      lines.push_back(line);
    }
  }
  return absl::StrJoin(lines, "\n") + "\n";
}

std::optional<std::string> SettingOf(const std::string& text, const std::string& key) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    if (SetsKey(line, key) != Sets::kYes) {
      continue;
    }
    std::string_view value = WithoutBlanks(std::string_view(line).substr(line.find('=') + 1));
    if (value.starts_with('"') || value.starts_with('\'')) {
      const size_t end = value.find(value.front(), 1);
      return std::string(value.substr(1, end == value.npos ? end : end - 1));
    }
    value = value.substr(0, value.find_first_of(" \t#"));
    return std::string(value);
  }
  return std::nullopt;
}

}  // namespace strata
