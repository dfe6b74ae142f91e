// The names that an error may give what is wrong in a GGUF file's header.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_NAMES_H_
#define STRATA_TESTS_MUTATIONS_GGUF_NAMES_H_

#include <string>
#include <vector>

#include "tests/mutations/gguf_fields.h"

namespace strata::testing {

// The checkpoint's names that a tensor of these files may have, which is what is said of it once it
// is read.
std::vector<std::string> CheckpointNames(const std::string& tensor);

// Names under which the field is known that is changed between the files: its key or tensor, as it
// was and is, and as config.json has it. Only where something has another length than it says may
// any key or tensor be named: what stands behind it is read as something else.
std::vector<std::string> NamesOf(const Field& field, const std::string& valid_file,
                                 const std::string& file);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_NAMES_H_
