#include "coordinator/registry/chat_template_source.h"

#include <filesystem>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/status.h"
#include "coordinator/registry/gguf_text.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kConfigFile[] = "tokenizer_config.json";

absl::Status Wrong(const std::string& file, const std::string& problem) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_TOKENIZER_CONFIG",
               absl::StrCat(file, ": ", problem));
}

// A token: a string, or an object with `content`.
absl::StatusOr<std::string> TokenOf(const json& config, const char* name, const std::string& file) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) {
    return "";
  }
  const json* text = &*found;
  if (found->is_object()) {
    const auto content = found->find("content");
    if (content != found->end()) {
      text = &*content;
    }
  }
  if (!text->is_string()) {
    return Wrong(file, absl::StrCat(name, " ", QuotedValue(*found), " is not a token"));
  }
  return text->get<std::string>();
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
    if (name == "default") {
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

absl::Status ReadTokens(const std::string& folder, const json& config, ChatTemplateSource* out) {
  const std::string path = absl::StrCat(folder, "/", kConfigFile);
  ASSIGN_OR_RETURN(out->bos_token, TokenOf(config, "bos_token", path));
  ASSIGN_OR_RETURN(out->eos_token, TokenOf(config, "eos_token", path));
  if (!out->bos_token.empty() && !out->eos_token.empty()) {
    return absl::OkStatus();
  }
  // Older checkpoints keep them in a file of their own.
  const std::string map_path = folder + "/special_tokens_map.json";
  ASSIGN_OR_RETURN(const json map, ReadOptionalJson(folder, "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const std::string bos, TokenOf(map, "bos_token", map_path));
  ASSIGN_OR_RETURN(const std::string eos, TokenOf(map, "eos_token", map_path));
  if (out->bos_token.empty()) {
    out->bos_token = bos;
  }
  if (out->eos_token.empty()) {
    out->eos_token = eos;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplateSource> ReadFolderChatTemplate(const std::string& folder) {
  ChatTemplateSource out;
  ASSIGN_OR_RETURN(const json config, ReadOptionalJson(folder, kConfigFile));
  RETURN_IF_ERROR(ReadTemplates(config, absl::StrCat(folder, "/", kConfigFile), &out));
  RETURN_IF_ERROR(ReadTokens(folder, config, &out));
  const std::string jinja = absl::StrCat(folder, "/", kTemplateFile);
  if (Exists(jinja)) {
    ASSIGN_OR_RETURN(out.source, ReadSmallFile(jinja, kMaxTemplateBytes));
    out.origin = jinja;
  }
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
  if (out.origin.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE",
                 absl::StrCat(folder, " has no chat template"))
        .Hint(absl::StrCat("it would be in ", kTemplateFile, " or in ", kConfigFile));
  }
  return out;
}

}  // namespace strata
