#include "text/tools/tool_formats.h"

#include <algorithm>

#include "common/status.h"

namespace strata {
namespace {

using Body = ToolFormat::Body;

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::vector<ToolFormat> MakeToolFormats() {
  std::vector<ToolFormat> rows;
  // gpt-oss.
  rows.push_back({.name = "harmony",
                  .body = Body::kHarmony,
                  .tokens = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                             "<|return|>", "<|call|>"},
                  .signs = {"<|channel|>", "<|message|>"}});
  // DeepSeek V3.2 and later: tags that say themselves whether a value is a text.
  rows.push_back({.name = "deepseek_v32",
                  .body = Body::kTagged,
                  .section_open = "<｜DSML｜function_calls>",
                  .section_close = "</｜DSML｜function_calls>",
                  .call_close = "</｜DSML｜invoke>",
                  .name_open = "<｜DSML｜invoke name=\"",
                  .name_end = "\">",
                  .key_open = "<｜DSML｜parameter name=\"",
                  .key_end = "\" string=\"",
                  .value_close = "</｜DSML｜parameter>",
                  .tokens = {"｜DSML｜"},
                  .signs = {"DSML"}});
  // DeepSeek V3 and R1, then V3.1.
  rows.push_back({.name = "deepseek_v3",
                  .body = Body::kNamed,
                  .section_open = "<｜tool▁calls▁begin｜>",
                  .section_close = "<｜tool▁calls▁end｜>",
                  .call_open = "<｜tool▁call▁begin｜>",
                  .call_close = "<｜tool▁call▁end｜>",
                  .name_open = "function<｜tool▁sep｜>",
                  .name_end = "\n",
                  .arguments_open = "```json",
                  .arguments_close = "```",
                  .tokens = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                             "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
                  .signs = {"<｜tool▁calls▁begin｜>", "```json"}});
  rows.push_back({.name = "deepseek_v31",
                  .body = Body::kNamed,
                  .section_open = "<｜tool▁calls▁begin｜>",
                  .section_close = "<｜tool▁calls▁end｜>",
                  .call_open = "<｜tool▁call▁begin｜>",
                  .call_close = "<｜tool▁call▁end｜>",
                  .name_end = "<｜tool▁sep｜>",
                  .tokens = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                             "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
                  .signs = {"<｜tool▁calls▁begin｜>"}});
  rows.push_back(
      {.name = "kimi_k2",
       .body = Body::kNamed,
       .section_open = "<|tool_calls_section_begin|>",
       .section_close = "<|tool_calls_section_end|>",
       .call_open = "<|tool_call_begin|>",
       .call_close = "<|tool_call_end|>",
       .name_end = "<|tool_call_argument_begin|>",
       .ids = ToolFormat::Ids::kWritten,
       .tokens = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                  "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
       .signs = {"<|tool_call_argument_begin|>"}});
  rows.push_back({.name = "minimax_m2",
                  .body = Body::kTagged,
                  .section_open = "<minimax:tool_call>",
                  .section_close = "</minimax:tool_call>",
                  .call_close = "</invoke>",
                  .name_open = "<invoke name=\"",
                  .name_end = "\">",
                  .key_open = "<parameter name=\"",
                  .key_end = "\">",
                  .value_close = "</parameter>",
                  .tokens = {"<minimax:tool_call>", "</minimax:tool_call>"},
                  .signs = {"<minimax:tool_call>"}});
  rows.push_back({.name = "minimax_m1",
                  .body = Body::kJson,
                  .section_open = "<tool_calls>",
                  .section_close = "</tool_calls>",
                  .signs = {"<tool_calls>"}});
  rows.push_back({.name = "glm45",
                  .body = Body::kTagged,
                  .call_open = "<tool_call>",
                  .call_close = "</tool_call>",
                  .name_end = "\n",
                  .key_open = "<arg_key>",
                  .key_end = "</arg_key> <arg_value>",
                  .value_close = "</arg_value>",
                  .tokens = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                             "<arg_value>", "</arg_value>"},
                  .signs = {"<arg_key>", "<tool_call>"}});
  rows.push_back({.name = "seed_oss",
                  .body = Body::kTagged,
                  .section_open = "<seed:tool_call>",
                  .section_close = "</seed:tool_call>",
                  .call_close = "</function>",
                  .name_open = "<function=",
                  .name_end = ">",
                  .key_open = "<parameter=",
                  .key_end = ">",
                  .value_close = "</parameter>",
                  .tokens = {"<seed:tool_call>", "</seed:tool_call>"},
                  .signs = {"<seed:tool_call>", "<function="}});
  // Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5.
  rows.push_back({.name = "qwen3_coder",
                  .body = Body::kTagged,
                  .section_open = "<tool_call>",
                  .section_close = "</tool_call>",
                  .call_close = "</function>",
                  .name_open = "<function=",
                  .name_end = ">",
                  .key_open = "<parameter=",
                  .key_end = ">",
                  .value_close = "</parameter>",
                  .values_in_lines = true,
                  .tokens = {"<tool_call>", "</tool_call>"},
                  .signs = {"<tool_call>", "<function=", "<parameter="}});
  rows.push_back({.name = "command_r7b",
                  .body = Body::kJson,
                  .call_open = "<|START_ACTION|>",
                  .call_close = "<|END_ACTION|>",
                  .tokens = {"<|START_ACTION|>", "<|END_ACTION|>"},
                  .signs = {"<|START_ACTION|>"}});
  // Granite 3, and Phi-4-mini.
  rows.push_back({.name = "granite",
                  .body = Body::kJson,
                  .call_open = "<|tool_call|>",
                  .call_close = "<|/tool_call|>",
                  .tokens = {"<|tool_call|>", "<|/tool_call|>"},
                  .signs = {"<|tool_call|>"}});
  // Hermes 2 and 3, Qwen 2.5 and 3, Granite 4.
  rows.push_back({.name = "hermes",
                  .body = Body::kJson,
                  .call_open = "<tool_call>",
                  .call_close = "</tool_call>",
                  .tokens = {"<tool_call>", "</tool_call>"},
                  .signs = {"<tool_call>"}});
  // Both of a list, and of a name before [ARGS].
  rows.push_back({.name = "mistral",
                  .body = Body::kNamed,
                  .call_open = "[TOOL_CALLS]",
                  .name_end = "[ARGS]",
                  .ids = ToolFormat::Ids::kShort,
                  .tokens = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
                  .signs = {"[TOOL_CALLS]"}});
  // Gemma 4.
  rows.push_back({.name = "gemma4",
                  .body = Body::kBraced,
                  .call_open = "<|tool_call>",
                  .call_close = "<tool_call|>",
                  .name_open = "call:",
                  .quote = "<|\"|>",
                  .tokens = {"<|tool_call>", "<tool_call|>", "<|\"|>"},
                  .signs = {"<|tool_call>"}});
  // LFM2.
  rows.push_back({.name = "lfm2",
                  .body = Body::kPython,
                  .call_open = "<|tool_call_start|>",
                  .call_close = "<|tool_call_end|>",
                  .tokens = {"<|tool_call_start|>", "<|tool_call_end|>"},
                  .signs = {"<|tool_call_start|>"}});
  // Llama 4, and Llama 3.2 where it is told to.
  rows.push_back({.name = "pythonic",
                  .body = Body::kPython,
                  .call_open = "<|python_start|>",
                  .call_close = "<|python_end|>",
                  .bare = true,
                  .tokens = {"<|python_start|>", "<|python_end|>"},
                  .signs = {"<|python_start|>"}});
  // Functionary 3.1, and Llama 3.1 where it is told to.
  rows.push_back({.name = "functionary_v31",
                  .body = Body::kNamed,
                  .call_open = "<function=",
                  .call_close = "</function>",
                  .name_end = ">",
                  .signs = {"<function=", "</function>"}});
  rows.push_back({.name = "llama3_json",
                  .body = Body::kJson,
                  .call_open = "<|python_tag|>",
                  .bare = true,
                  .tokens = {"<|python_tag|>"},
                  .signs = {"<|start_header_id|>", "tools", "\"parameters\""}});
  return rows;
}

const std::vector<ThoughtFormat>& ThoughtRows() {
  static const std::vector<ThoughtFormat>& rows = *new std::vector<ThoughtFormat>{
      {.name = "harmony", .open = "", .close = "", .signs = {"<|channel|>analysis", "<|channel|>"}},
      {.name = "gemma4",
       .open = "<|channel>thought\n",
       .close = "<channel|>",
       .signs = {"<|channel>"},
       .tokens = {"<|channel>", "<channel|>"}},
      {.name = "mistral", .open = "[THINK]", .close = "[/THINK]", .signs = {"[THINK]"}},
      {.name = "seed",
       .open = "<seed:think>",
       .close = "</seed:think>",
       .signs = {"<seed:think>", "seed:think"}},
      {.name = "kimi_vl", .open = "◁think▷", .close = "◁/think▷", .signs = {"◁think▷"}},
      {.name = "cohere",
       .open = "<|START_THINKING|>",
       .close = "<|END_THINKING|>",
       .signs = {"<|START_THINKING|>"}},
      {.name = "think", .open = "<think>", .close = "</think>", .signs = {"<think>", "</think>"}},
      {.name = "granite",
       .open = "Here is my thought process:",
       .close = "Here is my response:",
       .signs = {"Here is my thought process:"}}};
  return rows;
}

template <typename Row>
absl::StatusOr<const Row*> Named(std::string_view wanted, std::string_view field,
                                 std::span<const Row> rows) {
  std::string names = "auto, none";
  for (const Row& row : rows) {
    if (row.name == wanted) {
      return &row;
    }
    names.append(", ").append(row.name);
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD",
               std::string(field) + " must be one of " + names)
      .Fact("field", field);
}

}  // namespace

std::span<const ToolFormat> ToolFormats() {
  static const std::vector<ToolFormat>& rows = *new std::vector<ToolFormat>(MakeToolFormats());
  return rows;
}

std::span<const ThoughtFormat> ThoughtFormats() { return ThoughtRows(); }

absl::StatusOr<const ToolFormat*> ChooseToolFormat(std::string_view wanted,
                                                   std::string_view chat_template) {
  if (wanted == "none") {
    return nullptr;
  }
  if (!wanted.empty() && wanted != "auto") {
    return Named(wanted, "tool_format", ToolFormats());
  }
  for (const ToolFormat& row : ToolFormats()) {
    if (std::ranges::all_of(row.signs, [&](auto sign) { return Has(chat_template, sign); })) {
      return &row;
    }
  }
  return nullptr;
}

absl::StatusOr<const ThoughtFormat*> ChooseThoughtFormat(std::string_view wanted,
                                                         std::string_view chat_template) {
  if (wanted == "none") {
    return nullptr;
  }
  if (!wanted.empty() && wanted != "auto") {
    return Named(wanted, "reasoning_format", ThoughtFormats());
  }
  for (const ThoughtFormat& row : ThoughtFormats()) {
    if (std::ranges::any_of(row.signs, [&](auto sign) { return Has(chat_template, sign); })) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace strata
