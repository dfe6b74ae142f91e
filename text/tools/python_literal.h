// Values as Python writes them. Pure; any thread.
#ifndef STRATA_TEXT_TOOLS_PYTHON_LITERAL_H_
#define STRATA_TEXT_TOOLS_PYTHON_LITERAL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Finds where a value ends, in text that grows.
class PythonValueEnd {
 public:
  // Looks at what of `text` it has not seen. The offset of the comma or closing bracket behind the
  // value; nullopt: it goes on.
  std::optional<size_t> Find(std::string_view text);

 private:
  size_t at_ = 0;
  size_t depth_ = 0;
  char quote_ = '\0';  // Within a string.
  bool escaped_ = false;
};

// Whether it can be part of the name of a function or an argument.
bool IsPythonNameByte(char c);

// The value as JSON: strings, numbers, True, False, None, lists, tuples and dicts of these, and
// what JSON writes. nullopt: it is none, or nests deeper than 64 levels.
std::optional<std::string> JsonOfPython(std::string_view value);

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_PYTHON_LITERAL_H_
