// What the keys and tensors of a GGUF file's header mean for a model's spec.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_
#define STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_

#include <string>
#include <vector>

#include "tests/mutations/facts.h"
#include "tests/mutations/gguf_fields.h"

namespace strata::testing {

// What the spec must be once the field is changed from what it is in `valid_file` to what it is in
// `file`. Keys that are not known to mean anything mean nothing; those of sizes contradict the
// tensors.
Wanted WantedOf(const Facts& valid, const Field& field, const std::string& valid_file,
                const std::string& file);

// The checkpoint's names that a tensor of these files may have, which is what is said of it once it
// is read.
std::vector<std::string> CheckpointNames(const std::string& tensor);

// Names under which the header's keys are known behind it, as config.json has them.
std::vector<std::string> NamesOf(const Field& field);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_
