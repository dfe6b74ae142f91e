// GGUF files made out of one that is right.
#ifndef STRATA_TESTS_MUTATIONS_REMADE_GGUF_H_
#define STRATA_TESTS_MUTATIONS_REMADE_GGUF_H_

#include <functional>
#include <string>
#include <vector>

#include "tests/common/checkpoint/made_gguf.h"

namespace strata::testing {

// With what `add` adds to its key-values.
std::string WithMoreKeys(const std::string& file, const std::function<void(MadeGguf*)>& add);

// Its tensors in two files with the keys of split ones, of which the first has all others.
std::vector<std::string> InTwoParts(const std::string& file);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_REMADE_GGUF_H_
