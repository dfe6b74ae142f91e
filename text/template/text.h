// Operations on strings that methods and filters share.
#ifndef STRATA_TEXT_TEMPLATE_TEXT_H_
#define STRATA_TEXT_TEMPLATE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"
#include "text/unicode/python_text.h"

namespace strata::jinja {

// Offset of `wanted` in `text` from `from` on, and of the last one; npos. In linear time.
size_t Find(std::string_view text, std::string_view wanted, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view wanted);
// A string stripped, as safe as it was; see Strip.
Value StripSteps(Runtime& runtime, const Value& string, python::Side side,
                 const std::string_view* characters);
// str.splitlines
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);
// str.split() and str.split(separator); `limit` splits at most, -1: all.
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit);
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t limit);
std::vector<std::string_view> SplitSpaceRight(std::string_view text, int64_t limit);
std::vector<std::string_view> SplitAtRight(std::string_view text, std::string_view separator,
                                           int64_t limit);
// str.replace; `limit` replacements at most, -1: all.
std::string Replace(Runtime& runtime, std::string_view text, std::string_view from,
                    std::string_view to, int64_t limit);
// `text` in the middle, left or right ('^', '<', '>') of `width` characters.
std::string Pad(Runtime& runtime, std::string_view text, int64_t width, std::string_view fill,
                char align);
// float(text); false if it is none.
bool ParseFloat(std::string_view text, double* out);
std::string Repeated(Runtime& runtime, std::string_view text, int64_t count);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_TEXT_H_
