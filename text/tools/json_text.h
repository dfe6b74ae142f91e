// Parts of JSON as they are written, so that no number loses a digit. What they are given is JSON
// that a parser has taken. Pure; any thread.
#ifndef STRATA_TEXT_TOOLS_JSON_TEXT_H_
#define STRATA_TEXT_TOOLS_JSON_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace strata {

// The value of that name, the last one if there are several; "": there is none, or `object` is no
// object.
std::string_view MemberText(std::string_view object, std::string_view name);
// The elements; none of what is no array.
std::vector<std::string_view> ItemTexts(std::string_view array);
// `json` without the white space between its tokens.
std::string CompactJson(std::string_view json);

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_JSON_TEXT_H_
