// Single changes of a JSON document, drawn from a seed.
#ifndef STRATA_TESTS_MUTATIONS_MUTATE_JSON_H_
#define STRATA_TESTS_MUTATIONS_MUTATE_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace strata::testing {

struct JsonMutation {
  std::string text;                 // The document after it.
  std::vector<std::string> fields;  // Names on the way to what was changed, innermost first; none:
                                    // the text itself was changed.
  std::string what;                 // For people.
};

// One of: a value removed, renamed, replaced by another kind of value, or changed a little; or the
// text cut, or one of its bytes changed. Of those of `favoured` that the document has at its top
// level each second one is changed, or something in it.
JsonMutation MutateJson(const nlohmann::ordered_json& document, std::mt19937_64* random,
                        const std::vector<std::string>& favoured = {});

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_MUTATE_JSON_H_
