// How a family of models writes calls: one way of those that its reader takes. Pure; any thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_CALL_WRITINGS_H_
#define STRATA_TEXT_CALL_GRAMMAR_CALL_WRITINGS_H_

#include <functional>
#include <string_view>

namespace strata {

// In texts of CallWriting: one to four digits; a line's end, or none; a blank, or none.
inline constexpr char kDigits = '\x01';
inline constexpr char kMaybeLine = '\x02';
inline constexpr char kMaybeBlank = '\x03';

// All calls: open, calls with `between` between them, close. A call: begin, its name, middle, its
// arguments, end.
struct CallWriting {
  std::string_view format;  // ToolFormat::name.
  std::string_view open = "";
  std::string_view begin;
  std::string_view middle;
  std::string_view end = "";
  std::string_view between = "";
  std::string_view close = "";
  // Of arguments between tags, each: key_begin, the key, key_end, the value, value_end. Else they
  // are a JSON object.
  std::string_view key_begin = "";
  std::string_view key_end = "";
  std::string_view value_end = "";
  // Behind the key where the value is no text; "": as `key_end`.
  std::string_view json_key_end = "";
  bool quoted_name = false;  // The name is within a string of JSON.
  // Arguments are KEY, this, VALUE, and `comma` between them.
  std::string_view equals = "";
  std::string_view comma = ", ";
  bool one_call = false;  // An answer has no more.

  bool tagged() const { return !key_begin.empty(); }
  bool keywords() const { return !equals.empty(); }
};

// Of the row of that name; null: there is none. `is_special` says which texts are special tokens of
// the vocabulary, by which versions of a family differ.
const CallWriting* CallWritingOf(std::string_view format,
                                 const std::function<bool(std::string_view)>& is_special);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_CALL_WRITINGS_H_
