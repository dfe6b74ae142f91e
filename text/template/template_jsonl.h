// Chat templates over JSON lines, as `strata-coordinator template PATH --jsonl` serves them.
#ifndef STRATA_TEXT_TEMPLATE_TEMPLATE_JSONL_H_
#define STRATA_TEXT_TEMPLATE_TEMPLATE_JSONL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "text/template/chat_template.h"

namespace strata {

// Subtype of a JSON binary value that holds the decimal digits of an integer past 64 bits: such
// integers reach templates unrounded.
inline constexpr unsigned kBigIntegerSubtype = 0x49;

// JSON for a template: like nlohmann's parse, but integers keep all their digits and nesting is
// limited. INVALID_ARGUMENT if it is no JSON.
absl::StatusOr<nlohmann::ordered_json> ParseTemplateJson(std::string_view text);

// One line {"input": {variables}, "now"?} to one line {"output"} or {"error"}, without newlines.
// `now`: "2026-03-05T09:07:05" (UTC; a fraction and Z may follow) or seconds since 1970; by
// default `default_now_s`. With the `tokens` of a model, (name, token), these are variables that
// the line need not have, and its messages are what NormalizeMessages makes of them.
std::string RenderLine(const ChatTemplate& chat_template, std::string_view line,
                       int64_t default_now_s = 0,
                       const std::vector<std::pair<std::string, std::string>>* tokens = nullptr);

}  // namespace strata

#endif  // STRATA_TEXT_TEMPLATE_TEMPLATE_JSONL_H_
