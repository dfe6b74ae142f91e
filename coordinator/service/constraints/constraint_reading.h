// A client's constraint as a grammar. Pure; any thread.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_READING_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_READING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/service/request/calls_wanted.h"
#include "strata/v1/inference.pb.h"

namespace strata {

// What is seen at a glance: BAD_FIELD (no kind, or json_object false), CONSTRAINT_TOO_LONG.
absl::Status CheckConstraint(const v1::Constraint& constraint, size_t max_source_bytes);

// Its grammar as EBNF (EbnfOf). Errors are those of text/grammar/constraint.h. The work is bounded
// by counts; it may be a second's.
absl::StatusOr<std::string> EbnfOfConstraint(const v1::Constraint& constraint,
                                             size_t max_source_bytes);

// The same of an answer that has, or may have, calls of tools; `constraint`: what it follows where
// it has none. Errors are GrammarOf's (calls_wanted.h) too.
absl::StatusOr<std::string> EbnfOfCalls(const CallsWanted& calls,
                                        const std::optional<v1::Constraint>& constraint,
                                        const Tokenizer& tokenizer, uint32_t vocab,
                                        size_t max_source_bytes);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_CONSTRAINT_READING_H_
