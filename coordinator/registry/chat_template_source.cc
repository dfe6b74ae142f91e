#include "coordinator/registry/chat_template_source.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/file_limits.h"
#include "common/status.h"
#include "coordinator/registry/gguf_text.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kTemplateFolder[] = "additional_chat_templates";
constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kDefault[] = "default";  // The name of the template that is taken.
constexpr size_t kMaxTemplates = 64;

absl::Status Wrong(const std::string& file, const std::string& problem) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_TOKENIZER_CONFIG",
               absl::StrCat(file, ": ", problem));
}

// `chat_template` as tokenizer_config.json has it.
absl::Status ReadTemplates(const json& config, const std::string& file, ChatTemplateSource* out) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return absl::OkStatus();
  }
  if (found->is_string()) {
    out->source = found->get<std::string>();
    out->origin = file;
    return absl::OkStatus();
  }
  if (!found->is_array()) {
    return Wrong(file, "chat_template is neither a string nor a list");
  }
  for (const json& entry : *found) {
    const bool well_formed = entry.is_object() && entry.contains("name") &&
                             entry.contains("template") && entry["name"].is_string() &&
                             entry["template"].is_string();
    if (!well_formed) {
      return Wrong(file, "chat_template has an entry without name and template");
    }
    const auto name = entry["name"].get<std::string>();
    auto source = entry["template"].get<std::string>();
    if (name == kDefault) {
      out->source = std::move(source);
      out->origin = file;
    } else {
      out->others.emplace_back(name, std::move(source));
    }
  }
  return absl::OkStatus();
}

// Whether there is such a file; what it is instead is found out by reading it.
bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A small JSON file of the folder, {} when it is absent.
absl::StatusOr<json> ReadOptionalJson(const std::string& folder, const char* name) {
  const std::string path = absl::StrCat(folder, "/", name);
  if (!Exists(path)) {
    return json::object();
  }
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxConfigBytes));
  return ParseJsonObject(text, path, "INVALID_TOKENIZER_CONFIG", kMaxConfigBytes);
}

absl::Status ReadTokens(const std::string& folder, ChatTemplateSource* out) {
  ASSIGN_OR_RETURN(const FilesBesideTokenizer files,
                   ReadFilesBesideTokenizer([&](const char* name) -> absl::StatusOr<std::string> {
                     const std::string path = absl::StrCat(folder, "/", name);
                     return Exists(path) ? ReadSmallFile(path, kMaxConfigBytes) : "";
                   }));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ParseTokenizerConfig(files));
  for (const auto& [name, token] : config.named) {
    out->tokens.emplace_back(name, token.content);
    if (name == "bos_token") {
      out->bos_token = token.content;
    } else if (name == "eos_token") {
      out->eos_token = token.content;
    }
  }
  return absl::OkStatus();
}

// chat_template.jinja and its companions, which win over what tokenizer_config.json has.
absl::Status ReadTemplateFiles(const std::string& folder, ChatTemplateSource* out) {
  std::vector<std::pair<std::string, std::string>> found;  // Name and path.
  const std::string jinja = absl::StrCat(folder, "/", kTemplateFile);
  if (Exists(jinja)) {
    found.emplace_back(kDefault, jinja);
  }
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(absl::StrCat(folder, "/", kTemplateFolder), error),
       end;
       !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".jinja") {
      names.push_back(it->path().stem().string());
    }
  }
  if (names.size() > kMaxTemplates) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_TOKENIZER_CONFIG",
                 absl::StrCat(folder, "/", kTemplateFolder, " has ", names.size(), " templates"))
        .Limit(absl::StrCat("chat_templates=", kMaxTemplates));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    found.emplace_back(name, absl::StrCat(folder, "/", kTemplateFolder, "/", name, ".jinja"));
  }
  if (found.empty()) {
    return absl::OkStatus();
  }
  out->source.clear();
  out->origin.clear();
  out->others.clear();
  for (const auto& [name, path] : found) {
    ASSIGN_OR_RETURN(std::string source, ReadSmallFile(path, kMaxTemplateBytes));
    if (name == kDefault) {
      out->source = std::move(source);
      out->origin = path;
    } else {
      out->others.emplace_back(name, std::move(source));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplateSource> ReadFolderChatTemplate(const std::string& folder) {
  ChatTemplateSource out;
  ASSIGN_OR_RETURN(const json config, ReadOptionalJson(folder, kConfigFile));
  RETURN_IF_ERROR(ReadTemplates(config, absl::StrCat(folder, "/", kConfigFile), &out));
  RETURN_IF_ERROR(ReadTokens(folder, &out));
  RETURN_IF_ERROR(ReadTemplateFiles(folder, &out));
  return out;
}

absl::StatusOr<ChatTemplateSource> ReadChatTemplate(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (!is_folder && !Exists(path)) {
    return Error(absl::StatusCode::kNotFound, "FILE_NOT_FOUND", "there is no " + path);
  }
  if (!is_folder && absl::EndsWith(path, ".gguf")) {
    ASSIGN_OR_RETURN(ChatTemplateSource out, ReadGgufChatTemplate(path));
    if (out.source.empty()) {
      return Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE", path + " has no chat template");
    }
    return out;
  }
  std::string folder = path;
  if (!is_folder) {
    folder = std::filesystem::path(path).parent_path().string();
    // A companion's tokens are those of the folder above.
    if (absl::EndsWith(path, ".jinja") &&
        std::filesystem::path(folder).filename() == kTemplateFolder) {
      folder = std::filesystem::path(folder).parent_path().string();
    }
    if (folder.empty()) {
      folder = ".";
    }
  }
  ASSIGN_OR_RETURN(ChatTemplateSource out, ReadFolderChatTemplate(folder));
  if (absl::EndsWith(path, ".jinja") && !is_folder) {
    ASSIGN_OR_RETURN(out.source, ReadSmallFile(path, kMaxTemplateBytes));
    out.origin = path;
  }
  if (out.origin.empty() && is_folder) {
    ASSIGN_OR_RETURN(const std::string gguf, GgufFileIn(folder));
    if (!gguf.empty()) {
      ASSIGN_OR_RETURN(out, ReadGgufChatTemplate(gguf));
    }
  }
  if (out.origin.empty() && !out.others.empty()) {
    std::string names;
    for (const auto& [name, source] : out.others) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    }
    return Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE",
                 absl::StrCat(folder, " has chat templates, but none that is the default"))
        .Hint(absl::StrCat("name the file of one of ", names, ", or call one ", kTemplateFile));
  }
  if (out.origin.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE",
                 absl::StrCat(folder, " has no chat template"))
        .Hint(absl::StrCat("it would be in ", kTemplateFile, " or in ", kConfigFile));
  }
  return out;
}

}  // namespace strata
