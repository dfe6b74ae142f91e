// References between schemas, as RFC 3986 resolves them. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_URI_H_
#define STRATA_TEXT_GRAMMAR_URI_H_

#include <optional>
#include <string>
#include <string_view>

namespace strata {

// `reference` seen from `base` (both without a fragment); `base` may be empty.
std::string ResolveUri(std::string_view base, std::string_view reference);

// `%41` as `A`; nothing where it is malformed.
std::optional<std::string> UriDecoded(std::string_view text);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_URI_H_
