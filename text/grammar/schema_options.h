// How a schema is read.
#ifndef STRATA_TEXT_GRAMMAR_SCHEMA_OPTIONS_H_
#define STRATA_TEXT_GRAMMAR_SCHEMA_OPTIONS_H_

#include "text/grammar/grammar_limits.h"

namespace strata {

struct SchemaOptions {
  // Objects whose schema lists `properties` and says nothing of others have no others, as OpenAI's
  // `strict` has it; else the standard's defaults hold, by which others may be anything.
  bool closed = false;
  GrammarLimits limits;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SCHEMA_OPTIONS_H_
