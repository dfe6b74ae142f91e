// How JSON writes a character of a string. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_ESCAPES_H_
#define STRATA_TEXT_GRAMMAR_ESCAPES_H_

#include "text/grammar/char_set.h"
#include "text/grammar/grammar.h"

namespace strata {

// Every way of writing one character of `set`.
GrammarExpr EveryWriting(const CharSet& set);
// The characters of `set` that may stand for themselves, and every other way of writing one of it,
// without the backslash that it begins with.
CharSet WrittenAsThemselves(const CharSet& set);
GrammarExpr BehindBackslash(const CharSet& set);
// The usual ways of writing this one: itself where that is printable ASCII and needs no escape;
// else its short escape, \uXXXX, or, where it may stand as it is, itself.
GrammarExpr UsualWriting(char32_t character);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_ESCAPES_H_
