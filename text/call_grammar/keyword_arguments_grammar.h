// Arguments as keys and values, as Python and Gemma write them, as grammars. One thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_KEYWORD_ARGUMENTS_GRAMMAR_H_
#define STRATA_TEXT_CALL_GRAMMAR_KEYWORD_ARGUMENTS_GRAMMAR_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/schema_grammar.h"
#include "text/tools/offered_tools.h"
#include "text/tools/tool_formats.h"

namespace strata {

// Whether it can be the name of a function or an argument.
bool IsPythonName(std::string_view name);

// How they are written.
struct KeywordMarkup {
  const ToolFormat& format;
  std::string_view equals;  // Between key and value.
  std::string_view comma;
  GrammarExpr quote;  // Before and behind a text, which then stands for itself; else empty.
};

// What `goal` admits of objects, with the members that it lists. Values, but for such texts, are
// as JSON writes them, which the format's reader takes too. Rules that are referred to are left to
// `writer`'s Finish. TOOL_NOT_HELD.
absl::StatusOr<GrammarExpr> KeywordArgumentsOf(const OfferedTool& tool, const Goal& goal,
                                               const KeywordMarkup& markup, SchemaGrammar* writer);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_KEYWORD_ARGUMENTS_GRAMMAR_H_
