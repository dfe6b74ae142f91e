// What the keys of a GGUF file's header mean for a model's spec, read a second time: by what
// llama.cpp takes each for and, where one is not there, by its default or the family's.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_
#define STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_

#include "tests/mutations/facts.h"
#include "tests/mutations/gguf_keys.h"

namespace strata::testing {

// What the spec must be of a file with these keys whose tensors give the spec `valid` with its
// right ones. Keys that are not known to mean anything mean nothing; those of sizes contradict the
// tensors. A key without which, or with the type of which, a file has to be refused is a fact that
// no spec has.
Wanted GgufMeaning(const Facts& valid, const GgufKeys& keys);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_MEANING_H_
