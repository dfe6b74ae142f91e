// Defaults of transformers' configuration classes, for the second reading of a config.json.
#ifndef STRATA_TESTS_MUTATIONS_FIELD_DEFAULTS_H_
#define STRATA_TESTS_MUTATIONS_FIELD_DEFAULTS_H_

#include <string_view>

namespace strata::testing {

// `family` is a model_type. A family without a default of its own has that of all families.
bool HasDefault(std::string_view family, std::string_view field);
// 0 where a field is required, or none is none.
double DefaultOf(std::string_view family, std::string_view field);

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_FIELD_DEFAULTS_H_
