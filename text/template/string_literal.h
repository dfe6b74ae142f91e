// Escape sequences of string literals, as Python reads them.
#ifndef STRATA_TEXT_TEMPLATE_STRING_LITERAL_H_
#define STRATA_TEXT_TEMPLATE_STRING_LITERAL_H_

#include <string>
#include <string_view>

namespace strata::jinja {

// `raw` is what stands between the quotes. Throws a syntax Failure with `line`.
std::string UnescapeString(std::string_view raw, int line);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_STRING_LITERAL_H_
