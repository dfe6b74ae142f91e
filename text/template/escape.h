// HTML escaping, for the few templates that ask for it.
#ifndef STRATA_TEXT_TEMPLATE_ESCAPE_H_
#define STRATA_TEXT_TEMPLATE_ESCAPE_H_

#include <string>
#include <string_view>

namespace strata::jinja {

class Runtime;

// & < > " ' as &amp; &lt; &gt; &#34; &#39;
std::string Escaped(Runtime& runtime, std::string_view text);
// Without comments and tags, white space collapsed, the common entities resolved.
std::string StripTags(std::string_view text);
// Percent encoding of all but unreserved characters and `safe`; a blank is %20, or + if `plus`.
std::string UrlQuote(std::string_view text, std::string_view safe, bool plus);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_ESCAPE_H_
