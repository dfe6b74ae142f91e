// Arguments as Python's keyword arguments, as grammars. One thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_PYTHON_ARGUMENTS_GRAMMAR_H_
#define STRATA_TEXT_CALL_GRAMMAR_PYTHON_ARGUMENTS_GRAMMAR_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/schema_grammar.h"
#include "text/tools/offered_tools.h"

namespace strata {

// Whether it can be the name of a function or an argument.
bool IsPythonName(std::string_view name);

// What `goal` admits of objects, with the members that it lists, as key=value; values as JSON
// writes them, which the reader of `format` takes too. Rules that are referred to are left to
// `writer`'s Finish. TOOL_NOT_HELD.
absl::StatusOr<GrammarExpr> PythonArgumentsOf(const OfferedTool& tool, const Goal& goal,
                                              std::string_view format, SchemaGrammar* writer);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_PYTHON_ARGUMENTS_GRAMMAR_H_
