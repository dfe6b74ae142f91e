// How numbers are written, as expressions. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_NUMBER_TEXTS_H_
#define STRATA_TEXT_GRAMMAR_NUMBER_TEXTS_H_

#include "text/grammar/decimal.h"
#include "text/grammar/number_set.h"
#include "text/grammar/regex_node.h"

namespace strata {

// All numbers in that notation.
RegexPtr NumberTexts(Notation notation);
// All integers in short notation.
RegexPtr IntegerTexts();
// `number` in scientific notation.
RegexPtr TextsOf(const Decimal& number);
// The numbers of one side of zero (and zero, where it is the bound itself), in scientific notation,
// that lie at `bound` or farther from zero; without the bound where that is exclusive. The sign of
// `bound` is of no importance.
RegexPtr TextsBeyond(const Decimal& bound, bool below, bool exclusive);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_NUMBER_TEXTS_H_
