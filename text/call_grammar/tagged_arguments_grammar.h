// Arguments that stand between tags of their own, as grammars. One thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_TAGGED_ARGUMENTS_GRAMMAR_H_
#define STRATA_TEXT_CALL_GRAMMAR_TAGGED_ARGUMENTS_GRAMMAR_H_

#include "absl/status/statusor.h"
#include "text/call_grammar/call_writings.h"
#include "text/call_grammar/markup_grammar.h"
#include "text/grammar/schema_grammar.h"
#include "text/tools/offered_tools.h"
#include "text/tools/tool_formats.h"

namespace strata {

// What a row's tags look like in a vocabulary.
struct TaggedMarkup {
  TaggedMarkup(const CallWriting& writing, const ToolFormat& format, const SpecialTokenFn& special);

  const ToolFormat& format;
  GrammarExpr key_begin, key_end, json_key_end, value_end;
  // What ends a value as text spells it; "": a special token does.
  std::string text_end;
  // Strings of JSON within a value do not have these as they are.
  CharSet escaped;
};

// The arguments of one tool: what `goal` admits of objects, with the members that it lists. Rules
// that are referred to are left to `writer`'s Finish.
absl::StatusOr<GrammarExpr> TaggedArgumentsOf(const OfferedTool& tool, const Goal& goal,
                                              const TaggedMarkup& markup, SchemaGrammar* writer);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_TAGGED_ARGUMENTS_GRAMMAR_H_
