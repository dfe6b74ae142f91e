// One JSON value as it comes, byte by byte: whether it can still become one, and where it ends.
#ifndef STRATA_TEXT_TOOLS_JSON_SCANNER_H_
#define STRATA_TEXT_TOOLS_JSON_SCANNER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class JsonScanner {
 public:
  enum class Result {
    kMore,      // The value goes on.
    kEnds,      // It ends with this byte.
    kEndedAgo,  // A number, and this byte is none of it.
    kBad,       // This byte cannot follow, or it nests deeper than 64 levels.
  };

  // The next byte. What the value is with it is appended to `out`: the byte itself, but for control
  // characters in strings, which models write as they are and JSON wants escaped.
  Result Add(char byte, std::string* out);
  // Whether the value can end here: a number that nothing followed.
  bool CanEnd() const;

 private:
  enum class State {
    kValue,
    kValueOrEnd,  // Behind a "[".
    kKeyOrEnd,    // Behind a "{".
    kKey,
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kWord,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };

  Result BeginValue(char byte);
  Result InNumber(char byte);
  bool NumberIsWhole() const;
  Result EndValue();
  Result Close(char open);

  State state_ = State::kValue;
  bool in_key_ = false;
  int hex_left_ = 0;
  std::string_view word_left_;  // Of true, false or null.
  std::vector<char> open_;      // '{' and '['.
};

// `text` as JSON writes it between the quotes of a string.
std::string JsonEscaped(std::string_view text);
// Whether `text` is one JSON value, white space around it left aside.
bool IsJson(std::string_view text);

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_JSON_SCANNER_H_
