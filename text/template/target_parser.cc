#include "text/template/target_parser.h"

#include <string>
#include <vector>

#include "text/template/failure.h"

namespace strata::jinja {

void TargetParser::Check(const Expression* target) {
  if (target->kind == Expression::Kind::kTuple) {
    for (const Expression* item : target->operands) {
      Check(item);
    }
  } else if (target->kind != Expression::Kind::kName && target->kind != Expression::Kind::kMember) {
    FailSyntax("can't assign to an expression", target->line);
  }
}

Expression* TargetParser::ParseItem(bool with_members) {
  if (with_members && tokens_.Current().type == Token::Type::kName &&
      tokens_.Next().type == Token::Type::kOperator && tokens_.Next().text == ".") {
    const std::string name = tokens_.Take().text;
    tokens_.Take();
    Expression* node = nodes_.NewExpression(Expression::Kind::kMember);
    node->name = nodes_.NameId(name);
    node->value = Value::Constant(tokens_.ExpectAnyName());
    return node;
  }
  return primaries_.Parse();
}

Expression* TargetParser::Parse(const TokenReader::Names& end_names, bool with_members) {
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      tokens_.ExpectOperator(",");
    }
    if (tokens_.IsTupleEnd(end_names)) {
      break;
    }
    items.push_back(ParseItem(with_members));
    if (!tokens_.IsOperator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (items.empty()) {
    FailSyntax("Expected an expression, got '" + Describe(tokens_.Current()) + "'", tokens_.line());
  }
  Expression* target =
      is_tuple ? nodes_.NewExpression(Expression::Kind::kTuple, std::move(items)) : items[0];
  Check(target);
  return target;
}

}  // namespace strata::jinja
