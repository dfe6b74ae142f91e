// Split patterns are written for Oniguruma (its Ruby syntax); this writes them for PCRE2.
#ifndef STRATA_TEXT_TOKENIZER_REGEX_SYNTAX_H_
#define STRATA_TEXT_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata {

// `pattern` (UTF-8) for PCRE2 with UTF, UCP and MULTILINE. What differs and is rewritten: \s is
// White_Space and has no U+180E; \v, \h, \w, \b; {n,m}+ repeats and is not possessive; {,m}; class
// intersections and nested classes; script properties. What has no counterpart is refused by name.
absl::StatusOr<std::string> TranslatePattern(std::string_view pattern);

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_REGEX_SYNTAX_H_
