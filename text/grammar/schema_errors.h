// How a constraint is refused. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_SCHEMA_ERRORS_H_
#define STRATA_TEXT_GRAMMAR_SCHEMA_ERRORS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace strata {

// `text` between quotes, in JSON's spelling, cut behind 100 bytes.
std::string QuotedText(std::string_view text);

// SCHEMA_INVALID: what is at `path` (a JSON pointer into the schema) is no schema: "`path` WHAT".
absl::Status SchemaInvalid(std::string_view path, std::string_view what);
// SCHEMA_UNSUPPORTED: no grammar holds `keyword` (named with its path), because of `why`.
absl::Status SchemaUnsupported(std::string_view keyword, std::string_view path,
                               std::string_view why);
// SCHEMA_TOO_COMPLEX: more than `limit` of `what` would be needed.
absl::Status SchemaTooComplex(std::string_view what, size_t limit);
// SCHEMA_ADMITS_NOTHING: no value satisfies the schema.
absl::Status SchemaAdmitsNothing();

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SCHEMA_ERRORS_H_
