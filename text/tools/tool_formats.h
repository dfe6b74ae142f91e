// How families of models write calls of tools, and what they think before they answer: a table, and
// which of its rows a model's chat template means. Pure; any thread.
#ifndef STRATA_TEXT_TOOLS_TOOL_FORMATS_H_
#define STRATA_TEXT_TOOLS_TOOL_FORMATS_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

// A row. Texts that a row does not have are "".
struct ToolFormat {
  enum class Body {
    kJson,     // {"name": ..., "arguments": {...}}, or a list of these.
    kNamed,    // The name, then the arguments as a JSON object.
    kPython,   // [name(key=value, ...), ...] with Python's values.
    kBraced,   // name{key:value,...} with texts between marks.
    kTagged,   // The name, then each argument between tags of its own.
    kHarmony,  // A message to a function.
  };
  enum class Ids {
    kLong,     // "call_" and 24 letters and digits.
    kShort,    // 9 letters and digits: Mistral's templates take no others.
    kWritten,  // The model writes "functions.NAME:0", and its template wants it back.
  };

  std::string_view name;
  Body body;
  // Around all calls; then around each.
  std::string_view section_open = "";
  std::string_view section_close = "";
  std::string_view call_open = "";
  std::string_view call_close = "";
  // Around a name, and of arguments that are not inside of the JSON with it, around those.
  std::string_view name_open = "";
  std::string_view name_end = "";
  std::string_view arguments_open = "";
  std::string_view arguments_close = "";
  // Of tagged ones: key_open KEY key_end VALUE value_close. `key_end` that goes on with white space
  // has that written as a blank.
  std::string_view key_open = "";
  std::string_view key_end = "";
  std::string_view value_close = "";
  std::string_view quote = "";   // Of braced ones: before and behind a text.
  bool values_in_lines = false;  // A line's end before and one behind each value is not part of it.
  bool bare = false;             // An answer that begins with "{" ("[") is a call, too.
  Ids ids = Ids::kLong;
  // Markup that is a special token in some vocabularies. Where it is one, text never means it.
  std::vector<std::string_view> tokens = {};
  // A template that has all of these, in it, is of this format, unless one further up is.
  std::vector<std::string_view> signs = {};
};

struct ThoughtFormat {
  std::string_view name;
  std::string_view open;  // "" : harmony, whose channels say it.
  std::string_view close;
  std::vector<std::string_view> signs;  // Any of them.
  // Parts of the two that are special tokens in some vocabularies; where they are none, the whole.
  std::vector<std::string_view> tokens = {};
};

std::span<const ToolFormat> ToolFormats();
std::span<const ThoughtFormat> ThoughtFormats();

// The row that `wanted` names: "" or "auto" is the one that the template's text shows, null if it
// shows none; "none" is null. INVALID_ARGUMENT (BAD_FIELD) lists the names.
absl::StatusOr<const ToolFormat*> ChooseToolFormat(std::string_view wanted,
                                                   std::string_view chat_template);
absl::StatusOr<const ThoughtFormat*> ChooseThoughtFormat(std::string_view wanted,
                                                         std::string_view chat_template);

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_TOOL_FORMATS_H_
