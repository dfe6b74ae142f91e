// Text out of bytes that may be none: what goes into a message's string fields must be UTF-8, or
// its reader drops the whole message.
#ifndef STRATA_COMMON_UTF8_H_
#define STRATA_COMMON_UTF8_H_

#include <string>
#include <string_view>

namespace strata {

// `bytes` with U+FFFD in place of each byte that is no part of a well-formed character.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace strata

#endif  // STRATA_COMMON_UTF8_H_
