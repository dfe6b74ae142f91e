// What config.json says of a model, read a second time: by formulas of transformers' modelling
// code, not by the product's parser.
#ifndef STRATA_TESTS_MUTATIONS_RESTATED_H_
#define STRATA_TESTS_MUTATIONS_RESTATED_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/mutations/facts.h"

namespace strata::testing {

// Fields of the documents' top level that are not alike.
std::vector<std::string> ChangedFields(const nlohmann::ordered_json& before,
                                       const nlohmann::ordered_json& after);

// What a spec must be that was `valid` for the configuration `before`, for `after`: fields that are
// not known to mean anything mean nothing.
Wanted Restated(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after,
                const Facts& valid);

// The same of one field alone, of a configuration as it is.
Wanted RestatedField(const nlohmann::ordered_json& config, const std::string& field,
                     const Facts& valid);

// The fields that mean something: mutations should try these.
std::vector<std::string> MeaningfulFields();

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_RESTATED_H_
