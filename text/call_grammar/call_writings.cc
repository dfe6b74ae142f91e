#include "text/call_grammar/call_writings.h"

#include <vector>

namespace strata {
namespace {

std::vector<CallWriting> MakeWritings() {
  std::vector<CallWriting> rows;
  rows.push_back({.format = "harmony",
                  .begin = "<|channel|>commentary to=functions.",
                  .middle = " <|constrain|>json<|message|>",
                  .one_call = true});
  rows.push_back({.format = "deepseek_v32",
                  .open = "<｜DSML｜function_calls>\n",
                  .begin = "<｜DSML｜invoke name=\"",
                  .middle = "\">\n",
                  .end = "</｜DSML｜invoke>",
                  .between = "\n",
                  .close = "\n</｜DSML｜function_calls>",
                  .key_begin = "<｜DSML｜parameter name=\"",
                  .key_end = "\" string=\"true\">",
                  .value_end = "</｜DSML｜parameter>\n",
                  .json_key_end = "\" string=\"false\">"});
  rows.push_back({.format = "deepseek_v3",
                  .open = "<｜tool▁calls▁begin｜>",
                  .begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                  .middle = "\n```json\n",
                  .end = "\n```<｜tool▁call▁end｜>",
                  .between = "\n",
                  .close = "<｜tool▁calls▁end｜>"});
  rows.push_back({.format = "deepseek_v31",
                  .open = "<｜tool▁calls▁begin｜>",
                  .begin = "<｜tool▁call▁begin｜>",
                  .middle = "<｜tool▁sep｜>",
                  .end = "<｜tool▁call▁end｜>",
                  .close = "<｜tool▁calls▁end｜>"});
  rows.push_back({.format = "kimi_k2",
                  .open = "<|tool_calls_section_begin|>",
                  .begin = "<|tool_call_begin|>functions.",
                  .middle = ":\x01<|tool_call_argument_begin|>",
                  .end = "<|tool_call_end|>",
                  .close = "<|tool_calls_section_end|>"});
  rows.push_back({.format = "minimax_m2",
                  .open = "<minimax:tool_call>\n",
                  .begin = "<invoke name=\"",
                  .middle = "\">\n",
                  .end = "</invoke>",
                  .between = "\n",
                  .close = "\n</minimax:tool_call>",
                  .key_begin = "<parameter name=\"",
                  .key_end = "\">",
                  .value_end = "</parameter>\n"});
  rows.push_back({.format = "minimax_m1",
                  .open = "<tool_calls>\n",
                  .begin = "{\"name\": ",
                  .middle = ", \"arguments\": ",
                  .end = "}",
                  .between = "\n",
                  .close = "\n</tool_calls>",
                  .quoted_name = true});
  // GLM 4.7 ends no lines in calls, 4.5 does.
  rows.push_back({.format = "glm45",
                  .begin = "<tool_call>",
                  .middle = "\x02",
                  .end = "</tool_call>",
                  .between = "\x02",
                  .key_begin = "<arg_key>",
                  .key_end = "</arg_key>\x02<arg_value>",
                  .value_end = "</arg_value>\x02"});
  rows.push_back({.format = "seed_oss",
                  .begin = "<seed:tool_call>\n<function=",
                  .middle = ">\n",
                  .end = "</function>\n</seed:tool_call>",
                  .between = "\n",
                  .key_begin = "<parameter=",
                  .key_end = ">",
                  .value_end = "</parameter>\n"});
  rows.push_back({.format = "qwen3_coder",
                  .begin = "<tool_call>\n<function=",
                  .middle = ">\n",
                  .end = "</function>\n</tool_call>",
                  .between = "\n",
                  .key_begin = "<parameter=",
                  .key_end = ">\n",
                  .value_end = "\n</parameter>\n"});
  rows.push_back({.format = "command_r7b",
                  .open = "<|START_ACTION|>[\n",
                  .begin = "    {\"tool_call_id\": \"\x01\", \"tool_name\": ",
                  .middle = ", \"parameters\": ",
                  .end = "}",
                  .between = ",\n",
                  .close = "\n]<|END_ACTION|>",
                  .quoted_name = true});
  rows.push_back({.format = "granite",
                  .open = "<|tool_call|>[",
                  .begin = "{\"name\": ",
                  .middle = ", \"arguments\": ",
                  .end = "}",
                  .between = ", ",
                  .close = "]",
                  .quoted_name = true});
  rows.push_back({.format = "hermes",
                  .begin = "<tool_call>\n{\"name\": ",
                  .middle = ", \"arguments\": ",
                  .end = "}\n</tool_call>",
                  .between = "\n",
                  .quoted_name = true});
  rows.push_back({.format = "mistral",
                  .open = "[TOOL_CALLS]\x03[",
                  .begin = "{\"name\": ",
                  .middle = ", \"arguments\": ",
                  .end = "}",
                  .between = ", ",
                  .close = "]",
                  .quoted_name = true});
  rows.push_back({.format = "gemma4",
                  .begin = "<|tool_call>call:",
                  .middle = "{",
                  .end = "}<tool_call|>",
                  .equals = ":",
                  .comma = ","});
  rows.push_back({.format = "lfm2",
                  .open = "<|tool_call_start|>[",
                  .begin = "",
                  .middle = "(",
                  .end = ")",
                  .between = ", ",
                  .close = "]<|tool_call_end|>",
                  .equals = "="});
  rows.push_back({.format = "pythonic",
                  .open = "[",
                  .begin = "",
                  .middle = "(",
                  .end = ")",
                  .between = ", ",
                  .close = "]",
                  .equals = "="});
  rows.push_back(
      {.format = "functionary_v31", .begin = "<function=", .middle = ">", .end = "</function>"});
  rows.push_back({.format = "llama3_json",
                  .begin = "{\"name\": ",
                  .middle = ", \"parameters\": ",
                  .end = "}",
                  .between = "; ",
                  .quoted_name = true});
  return rows;
}

}  // namespace

const CallWriting* CallWritingOf(std::string_view format,
                                 const std::function<bool(std::string_view)>& is_special) {
  static const std::vector<CallWriting>& rows = *new std::vector<CallWriting>(MakeWritings());
  // Mistral's newer models have a token between name and arguments.
  static const CallWriting& mistral =
      *new CallWriting{.format = "mistral", .begin = "[TOOL_CALLS]", .middle = "[ARGS]"};
  // Phi-4-mini's calls are closed, Granite's are not.
  static const CallWriting& phi = *new CallWriting{.format = "granite",
                                                   .open = "<|tool_call|>[",
                                                   .begin = "{\"name\": ",
                                                   .middle = ", \"arguments\": ",
                                                   .end = "}",
                                                   .between = ", ",
                                                   .close = "]<|/tool_call|>",
                                                   .quoted_name = true};
  if (format == mistral.format && is_special("[ARGS]")) {
    return &mistral;
  }
  if (format == phi.format && is_special("<|/tool_call|>")) {
    return &phi;
  }
  for (const CallWriting& row : rows) {
    if (row.format == format) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace strata
