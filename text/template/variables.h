// The caller's variables, from JSON.
#ifndef STRATA_TEXT_TEMPLATE_VARIABLES_H_
#define STRATA_TEXT_TEMPLATE_VARIABLES_H_

#include "nlohmann/json_fwd.hpp"
#include "text/template/ast.h"
#include "text/template/scopes.h"
#include "text/template/template_limits.h"

namespace strata::jinja {

// Sets in `root` those of `variables` that the program names, and the ones that every template has.
// No budget counts their values, which belong to the caller's input. Fails where `variables` is no
// object or one of those nests deeper than half of the limit.
void DefineVariables(const nlohmann::ordered_json& variables, const Program& program,
                     const TemplateLimits& limits, Scope* root);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_VARIABLES_H_
