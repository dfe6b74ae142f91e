// Markup of calls as expressions. Pure; any thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_MARKUP_GRAMMAR_H_
#define STRATA_TEXT_CALL_GRAMMAR_MARKUP_GRAMMAR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/work_budget.h"
#include "text/tools/tool_formats.h"

namespace strata {

using SpecialTokenFn = std::function<std::optional<uint32_t>(std::string_view)>;

// Text of a CallWriting of `format`. What of it is a special token is that token, and nothing else
// is.
GrammarExpr Markup(std::string_view text, const ToolFormat& format, const SpecialTokenFn& special);
// Whether a special token is part of it, so that no text spells it.
bool HasToken(const GrammarExpr& markup);
// All texts that have none of `parts` in them.
absl::StatusOr<AutomatonPtr> TextsWithout(const std::vector<std::string>& parts,
                                          WorkBudget* budget);
// TOOL_NOT_HELD: calls of `tool` as `format` writes them, because of `why`.
absl::Status ToolNotHeld(std::string_view tool, std::string_view format, std::string_view why);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_MARKUP_GRAMMAR_H_
