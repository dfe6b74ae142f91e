#include "text/template/tuple_parser.h"

#include <utility>
#include <vector>

#include "text/template/failure.h"

namespace strata::jinja {

Expression* ParseTupleOf(TokenReader& tokens, ProgramBuilder& nodes,
                         const TokenReader::Names& end_names, bool may_be_empty,
                         const std::function<Expression*()>& item) {
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      tokens.ExpectOperator(",");
    }
    if (tokens.IsTupleEnd(end_names)) {
      break;
    }
    items.push_back(item());
    if (!tokens.IsOperator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (items.empty() && !may_be_empty) {
    FailSyntax("Expected an expression, got '" + Describe(tokens.Current()) + "'", tokens.line());
  }
  return items.size() == 1 && !is_tuple
             ? items[0]
             : nodes.NewExpression(Expression::Kind::kTuple, std::move(items));
}

}  // namespace strata::jinja
