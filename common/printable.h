// Text from elsewhere, made fit for a terminal, a log line and a table.
#ifndef STRATA_COMMON_PRINTABLE_H_
#define STRATA_COMMON_PRINTABLE_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace strata {

// `text` with everything escaped that a terminal obeys or that makes text look like other text:
// control characters (as \n, \x1b, \u0085), characters that change the direction of text, and line
// and paragraph separators (as \u202e). Bytes that are no UTF-8 become U+FFFD. What is longer than
// `max_bytes` is cut at a character's end, and ends in "...".
std::string Printable(std::string_view text, size_t max_bytes = std::numeric_limits<size_t>::max());

// Whether Printable would leave `text` as it is.
bool IsPrintable(std::string_view text);

}  // namespace strata

#endif  // STRATA_COMMON_PRINTABLE_H_
