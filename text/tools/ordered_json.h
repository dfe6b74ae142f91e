// JSON from outside whose objects keep the order of their keys.
#ifndef STRATA_TEXT_TOOLS_ORDERED_JSON_H_
#define STRATA_TEXT_TOOLS_ORDERED_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace strata {

// What is read may be copied, which takes a stack frame a level; and an object's time is quadratic
// in its members, as each key is looked for among those before it.
inline constexpr size_t kMaxOrderedJsonDepth = 64;
inline constexpr size_t kMaxOrderedJsonMembers = 1024;

// The JSON that `text` is. Refuses more levels, and objects of more members, than the limits above,
// with `what` as its name. Where `only` is not empty, the outermost object has these members alone,
// and what stands in others is not counted.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& what,
                                                        const std::vector<std::string>& only = {});

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_ORDERED_JSON_H_
