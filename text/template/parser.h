// From the source of a template to its tree.
#ifndef STRATA_TEXT_TEMPLATE_PARSER_H_
#define STRATA_TEXT_TEMPLATE_PARSER_H_

#include <memory>
#include <string_view>

#include "text/template/ast.h"
#include "text/template/template_limits.h"

namespace strata::jinja {

// Names that every template has among its names, at these numbers.
enum ReservedName { kNameLoop, kNameCaller, kNameVarargs, kNameKwargs, kNameSelf, kReservedNames };

// Throws Failure.
std::unique_ptr<Program> Parse(std::string_view source, const TemplateLimits& limits);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_PARSER_H_
