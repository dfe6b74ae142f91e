#include "text/template/target_parser.h"

#include <string>

#include "text/template/failure.h"
#include "text/template/tuple_parser.h"

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
  Expression* target = ParseTupleOf(tokens_, nodes_, end_names, /*may_be_empty=*/false,
                                    [&] { return ParseItem(with_members); });
  Check(target);
  return target;
}

}  // namespace strata::jinja
