#include "common/app/flag_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "common/printable.h"
#include "common/status.h"
#include "common/units.h"

namespace strata {
namespace {

constexpr size_t kMaxConfigFileBytes = size_t{1} << 20;
constexpr size_t kMaxShownKeyBytes = 128;

absl::Status BadFile(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG", what);
}

// A TOML value as the text that a flag would have.
std::optional<std::string> TomlText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::map<std::string, FlagFileValue>> ReadFlagFile(
    const std::string& path, const std::set<std::string>& known) {
  // Not a folder, and nothing without end; a pipe of the shell will do.
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string content(kMaxConfigFileBytes + 1, '\0');
  errno = file == nullptr ? errno : 0;
  content.resize(file == nullptr ? 0 : std::fread(content.data(), 1, content.size(), file));
  const int error = errno;
  const bool failed = file == nullptr || std::ferror(file) != 0;
  if (file != nullptr) {
    std::fclose(file);
  }
  if (failed) {
    return BadFile("--config " + path + " cannot be read: " + std::strerror(error));
  }
  if (content.size() > kMaxConfigFileBytes) {
    return BadFile("--config " + path + " is longer than a file of flags may be, " +
                   FormatSize(kMaxConfigFileBytes));
  }
  // "FILE:LINE: " of a part of it.
  const auto line_of = [&path](const toml::source_region& region) {
    return path + ":" + std::to_string(region.begin.line) + ": ";
  };
  const toml::parse_result result = toml::parse(content, path);
  if (!result) {
    return BadFile(line_of(result.error().source()) + std::string(result.error().description()));
  }
  std::map<std::string, FlagFileValue> values;
  for (const auto& [key, node] : result.table()) {
    const std::string name(key.str());
    if (!known.contains(name)) {
      return BadFile(line_of(key.source()) + "there is no flag '" +
                     Printable(name, kMaxShownKeyBytes) + "'");
    }
    const std::string where = line_of(node.source());
    auto text = TomlText(node);
    if (!text.has_value()) {
      return BadFile(where + name + " must be a text, a number or a boolean");
    }
    values[name] = {*std::move(text), where};
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> ChangedFlags(const FlagReport& started_with) {
  std::vector<std::string> changed;
  if (started_with.config.empty()) {
    return changed;
  }
  std::set<std::string> known;
  for (const FlagReport::Value& value : started_with.values) known.insert(value.name);
  ASSIGN_OR_RETURN(const auto now, ReadFlagFile(started_with.config, known));
  for (const FlagReport::Value& value : started_with.values) {
    const auto found = now.find(value.name);
    const bool set = found != now.end();
    if (value.from == "file" ? !set || found->second.text != value.text
                             : value.from == "default" && set && found->second.text != value.text) {
      changed.push_back(value.name);
    }
  }
  return changed;
}

}  // namespace strata
