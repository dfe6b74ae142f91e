// Calls of tools as grammars: what an answer is held to that has to call one, or whose calls have
// to be as their schemas say. Pure; any thread.
#ifndef STRATA_TEXT_CALL_GRAMMAR_CALL_GRAMMAR_H_
#define STRATA_TEXT_CALL_GRAMMAR_CALL_GRAMMAR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_limits.h"
#include "text/tools/offered_tools.h"
#include "text/tools/tool_formats.h"

namespace strata {

struct CallGrammarOptions {
  const ToolFormat* format = nullptr;
  std::string only = "";     // The one tool that may be called; "": any.
  bool one_call = false;     // No more than one.
  bool may_be_text = false;  // The answer may be text, with or without calls behind it.
  // Where it may be text, the text is all of it and follows this grammar. Null: any. Of harmony it
  // is the message of the channel "final"; then there need be no tools.
  const Grammar* text = nullptr;
  // The special token that a text is in the vocabulary.
  std::function<std::optional<uint32_t>(std::string_view)> special_token = nullptr;
  GrammarLimits limits = {};
};

// Answers, behind the thoughts, that AnswerReader reads as calls of `offered` tools, written as the
// family does, whose arguments satisfy the tools' parameters. Those of `strict` tools have no
// others than are listed. Where arguments stand between tags, there are none but those that are
// listed. Harmony's answers begin with the header of a message; what is thought is none of them.
//
// TOOL_NOT_HELD names the tool, the format and what of it cannot be held; BAD_FIELD: there is no
// tool `only`; errors of GrammarOfSchema, with the tool's name in front.
absl::StatusOr<Grammar> GrammarOfCalls(const OfferedTools& offered,
                                       const CallGrammarOptions& options);

}  // namespace strata

#endif  // STRATA_TEXT_CALL_GRAMMAR_CALL_GRAMMAR_H_
