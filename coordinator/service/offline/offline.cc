#include "coordinator/service/offline/offline.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/app/flags.h"
#include "common/checkpoint/gguf_model.h"
#include "common/report/model_report.h"
#include "common/status.h"
#include "coordinator/registry/chat_template_source.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "coordinator/registry/gguf_text.h"
#include "coordinator/registry/tokenizer_file.h"
#include "coordinator/service/request/model_facts.h"
#include "coordinator/service/request/model_runtime.h"
#include "nlohmann/json.hpp"
#include "text/template/chat_template.h"
#include "text/template/conversation.h"
#include "text/template/template_jsonl.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenize_jsonl.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata {
namespace {

constexpr char kHelp[] =
    "strata-coordinator tokenize PATH [--jsonl] [--no-special] [TEXT...]\n"
    "strata-coordinator detokenize PATH [--jsonl] [--keep-special] [ID...]\n"
    "strata-coordinator template PATH [--jsonl] [MESSAGE...]\n"
    "\n"
    "What the coordinator would make of a text, without any cluster. PATH is a checkpoint\n"
    "folder, a tokenizer.json, a file of tiktoken's ranks, a .gguf or a .jinja file.\n"
    "\n"
    "  --jsonl         one JSON document a line on stdin, one a line on stdout, in order:\n"
    "                  tokenize    {\"text\",\"add_special_tokens\"} -> {\"ids\"}\n"
    "                  detokenize  {\"ids\",\"skip_special_tokens\"} -> {\"text\"}\n"
    "                  template    {\"input\":{variables},\"now\"?} -> {\"output\"}\n"
    "                  a refused line -> {\"error\"}\n"
    "                  A .jinja file gets the variables as they are; a checkpoint's template also\n"
    "                  its named tokens, and messages as a conversation has them.\n"
    "  --no-special    do not add what the post-processor adds (BOS)\n"
    "  --keep-special  write special tokens too\n"
    "\n"
    "Without --jsonl the rest of the arguments is the text, the ids, or a user's message. Where\n"
    "there is none, and PATH is a checkpoint folder or a .gguf file: what was found in it "
    "(family,\n"
    "layers, formats, tokenizer, template, memory), and what it cannot do, as `strata model add\n"
    "PATH` says it. No weights are read.\n"
    "Exit status: 0 done, 1 failed, 2 wrong use.\n";

struct Arguments {
  std::string path;
  bool jsonl = false;
  bool no_special = false;
  bool keep_special = false;
  std::vector<std::string> rest;
};

int WrongUse(const std::string& what) {
  std::fprintf(stderr, "strata-coordinator: %s; see strata-coordinator tokenize --help\n",
               what.c_str());
  return 2;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "strata-coordinator: %s\n", Describe(status).c_str());
  return 1;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  if (!in || !(all << in.rdbuf())) {
    return Error(absl::StatusCode::kNotFound, "NO_FILE", "cannot read " + path);
  }
  return all.str();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file)) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(file, error)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    const std::string name = TokenizerFileOf(names);
    std::string gguf;
    if (name.empty()) {
      ASSIGN_OR_RETURN(gguf, GgufFileIn(path));
    }
    if (gguf.empty()) {
      file /= name.empty() ? "tokenizer.json" : name;
    } else {
      file = gguf;
    }
  }
  if (file.extension() == ".gguf") {
    return ReadGgufTokenizer(file.string());
  }
  ASSIGN_OR_RETURN(const std::string content, ReadFile(file.string()));
  const std::string name = file.filename().string();
  const auto beside = [&](const char* other) {
    return ReadFile((file.parent_path() / other).string()).value_or("");
  };
  if (IsTiktokenFile(name)) {
    return ParseTiktoken(content, name, beside("tokenizer_config.json"));
  }
  if (file.extension() == ".model") {
    return ParseSentencePiece(content, beside("tokenizer_config.json"),
                              beside("added_tokens.json"));
  }
  ASSIGN_OR_RETURN(const FilesBesideTokenizer files,
                   ReadFilesBesideTokenizer([&](const char* other) -> absl::StatusOr<std::string> {
                     return beside(other);
                   }));
  return ParseTokenizer(content, files);
}

// Answers every line of stdin.
int EachLine(const std::function<std::string(std::string_view)>& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty()) {
      std::cout << answer(line) << '\n' << std::flush;
    }
  }
  return 0;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// Whether a path can be a whole checkpoint.
bool IsCheckpoint(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ||
         std::filesystem::path(path).extension() == ".gguf";
}

int Report(const std::string& path) {
  auto manifest = LookAtCheckpoint(path);
  if (!manifest.ok()) return Fail(manifest.status());
  const std::string source = manifest->Source();
  const auto model =
      MakeModelRuntime(GgufModelName(std::filesystem::path(source).filename().string()),
                       std::make_shared<const ModelManifest>(*std::move(manifest)));
  if (!model.ok()) return Fail(model.status());
  v1::Model found = DescribeModel(**model);
  *found.mutable_facts() = FactsOf(**model);
  std::printf("%s\n%s", source.c_str(), ModelReport(found).c_str());
  return 0;
}

int Tokenize(const Arguments& arguments) {
  const auto tokenizer = OpenTokenizer(arguments.path);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  if (arguments.jsonl) {
    return EachLine([&](std::string_view line) { return TokenizeLine(**tokenizer, line); });
  }
  const auto ids = (*tokenizer)->Encode(Joined(arguments.rest), !arguments.no_special);
  if (!ids.ok()) return Fail(ids.status());
  for (const uint32_t id : *ids) {
    const std::string piece = (*tokenizer)->Decode(std::vector<uint32_t>{id}, false);
    std::printf("%8u  %s\n", id,
                nlohmann::json(piece)
                    .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                    .c_str());
  }
  return 0;
}

int Detokenize(const Arguments& arguments) {
  const auto tokenizer = OpenTokenizer(arguments.path);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  if (arguments.jsonl) {
    return EachLine([&](std::string_view line) { return DetokenizeLine(**tokenizer, line); });
  }
  std::vector<uint32_t> ids;
  for (const std::string& word : arguments.rest) {
    std::istringstream list(word);
    for (std::string text; std::getline(list, text, ',');) {
      uint32_t id = 0;
      const char* end = text.data() + text.size();
      const auto [rest, error] = std::from_chars(text.data(), end, id);
      if (error != std::errc() || rest != end) return WrongUse("'" + text + "' is no token id");
      ids.push_back(id);
    }
  }
  std::printf("%s\n", (*tokenizer)->Decode(ids, !arguments.keep_special).c_str());
  return 0;
}

int Template(const Arguments& arguments) {
  absl::StatusOr<ChatTemplateSource> source = ReadChatTemplate(arguments.path);
  if (!source.ok()) return Fail(source.status());
  const auto parsed = ParseChatTemplate(source->source);
  if (!parsed.ok()) return Fail(parsed.status());
  if (source->tokens.empty() && !source->bos_token.empty()) {  // Of a GGUF file.
    source->tokens = {{"bos_token", source->bos_token}, {"eos_token", source->eos_token}};
  }
  if (arguments.jsonl) {
    // A template of its own gets its variables as they are, a model's what a conversation gives it.
    const bool alone = std::filesystem::path(arguments.path).extension() == ".jinja";
    return EachLine([&](std::string_view line) {
      return RenderLine(**parsed, line, /*default_now_s=*/0, alone ? nullptr : &source->tokens);
    });
  }
  nlohmann::ordered_json variables;
  variables["messages"] = {{{"role", "user"}, {"content", Joined(arguments.rest)}}};
  variables["add_generation_prompt"] = true;
  AddTokens(source->tokens, &variables);
  const auto output = (*parsed)->Render(variables, std::time(nullptr));
  if (!output.ok()) return Fail(output.status());
  std::printf("%s\n", output->c_str());
  return 0;
}

}  // namespace

int OfflineMain(int argc, char** argv) {
  const std::string command = argv[0];
  Arguments arguments;
  bool flags_end = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!flags_end && (word == "--help" || word == "-h")) {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (!flags_end && word == "--version") {
      std::printf("strata-coordinator %s\n", kVersion);
      return 0;
    }
    if (!flags_end && word == "--") {
      flags_end = true;
    } else if (!flags_end && word == "--jsonl") {
      arguments.jsonl = true;
    } else if (!flags_end && word == "--no-special" && command == "tokenize") {
      arguments.no_special = true;
    } else if (!flags_end && word == "--keep-special" && command == "detokenize") {
      arguments.keep_special = true;
    } else if (!flags_end && word.rfind("--", 0) == 0) {
      return WrongUse("there is no flag '" + word + "'");
    } else if (arguments.path.empty()) {
      arguments.path = word;
    } else {
      arguments.rest.push_back(word);
    }
  }
  if (arguments.path.empty()) {
    return WrongUse(command + " needs a PATH");
  }
  if (!arguments.jsonl && arguments.rest.empty() && IsCheckpoint(arguments.path)) {
    return Report(arguments.path);
  }
  if (arguments.jsonl == !arguments.rest.empty()) {
    return WrongUse(arguments.jsonl ? "--jsonl reads stdin and takes no other arguments"
                                    : command + " needs --jsonl, or something to work on");
  }
  if (command == "tokenize") return Tokenize(arguments);
  if (command == "detokenize") return Detokenize(arguments);
  return Template(arguments);
}

}  // namespace strata
