// A list with commas, of which parentheses need not tell that it is one.
#ifndef STRATA_TEXT_TEMPLATE_TUPLE_PARSER_H_
#define STRATA_TEXT_TEMPLATE_TUPLE_PARSER_H_

#include <functional>

#include "text/template/ast.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

// A tuple if there are commas, else the one item, each of which `item` reads. Up to a tag's or a
// parenthesis' end, or one of `end_names`. None at all is a syntax error, unless it `may_be_empty`.
Expression* ParseTupleOf(TokenReader& tokens, ProgramBuilder& nodes,
                         const TokenReader::Names& end_names, bool may_be_empty,
                         const std::function<Expression*()>& item);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_TUPLE_PARSER_H_
