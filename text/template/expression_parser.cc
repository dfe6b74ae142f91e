#include "text/template/expression_parser.h"

#include <algorithm>

#include "text/template/tuple_parser.h"

namespace strata::jinja {

ExpressionParser::ExpressionParser(TokenReader& tokens, ProgramBuilder& nodes, Nesting& nesting,
                                   UnknownNames& unknown)
    : tokens_(tokens),
      nodes_(nodes),
      nesting_(nesting),
      unknown_(unknown),
      primaries_(tokens, nodes, *this),
      postfixes_(tokens, nodes, *this),
      filters_(tokens, nodes, unknown, primaries_, postfixes_),
      targets_(tokens, nodes, primaries_) {}

Expression* ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting::Level level(nesting_);
  return with_conditional ? ParseConditional() : ParseOr();
}

Expression* ExpressionParser::ParseConditional() {
  const size_t unknown_before = unknown_.count();
  Expression* node = ParseOr();
  while (tokens_.SkipName("if")) {
    Expression* condition = ParseOr();
    Expression* otherwise = tokens_.SkipName("else") ? ParseExpression() : nullptr;
    node = nodes_.NewExpression(Expression::Kind::kConditional, {condition, node, otherwise});
    unknown_.Forget(unknown_before);
  }
  return node;
}

Expression* ExpressionParser::ParseOr() {
  Expression* node = ParseAnd();
  while (tokens_.SkipName("or")) {
    Expression* right = ParseAnd();
    node = nodes_.NewExpression(Expression::Kind::kOr, {node, right});
  }
  return node;
}

Expression* ExpressionParser::ParseAnd() {
  Expression* node = ParseNot();
  while (tokens_.SkipName("and")) {
    Expression* right = ParseNot();
    node = nodes_.NewExpression(Expression::Kind::kAnd, {node, right});
  }
  return node;
}

Expression* ExpressionParser::ParseNot() {
  if (tokens_.SkipName("not")) {
    const Nesting::Level level(nesting_);
    return nodes_.NewExpression(Expression::Kind::kNot, {ParseNot()});
  }
  return ParseCompare();
}

bool ExpressionParser::TakeCompareOperator(Operator* op) {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [symbol, known] : kOperators) {
    if (tokens_.SkipOperator(symbol)) {
      *op = known;
      return true;
    }
  }
  if (tokens_.SkipName("in")) {
    *op = Operator::kIn;
    return true;
  }
  if (tokens_.IsName("not") && tokens_.Next().type == Token::Type::kName &&
      tokens_.Next().text == "in") {
    tokens_.Take();
    tokens_.Take();
    *op = Operator::kNotIn;
    return true;
  }
  return false;
}

Expression* ExpressionParser::ParseCompare() {
  std::vector<Expression*> operands = {ParseSum()};
  std::vector<Operator> operators;
  Operator op;
  while (TakeCompareOperator(&op)) {
    operators.push_back(op);
    operands.push_back(ParseSum());
  }
  if (operators.empty()) {
    return operands[0];
  }
  Expression* node = nodes_.NewExpression(Expression::Kind::kCompare, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

Expression* ExpressionParser::ParseSum() {
  Expression* node = ParseConcat();
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Operator op = tokens_.Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    Expression* right = ParseConcat();
    node = nodes_.NewExpression(Expression::Kind::kBinary, {node, right});
    node->op = op;
  }
  return node;
}

Expression* ExpressionParser::ParseConcat() {
  std::vector<Expression*> operands = {ParseProduct()};
  while (tokens_.SkipOperator("~")) {
    operands.push_back(ParseProduct());
  }
  return operands.size() == 1
             ? operands[0]
             : nodes_.NewExpression(Expression::Kind::kConcat, std::move(operands));
}

Expression* ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo}};
  Expression* node = ParsePower();
  while (true) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [this](const auto& entry) { return tokens_.IsOperator(entry.first); });
    if (found == std::end(kOperators)) {
      return node;
    }
    tokens_.Take();
    Expression* right = ParsePower();
    node = nodes_.NewExpression(Expression::Kind::kBinary, {node, right});
    node->op = found->second;
  }
}

Expression* ExpressionParser::ParsePower() {
  Expression* node = ParseUnary(true);
  while (tokens_.SkipOperator("**")) {
    Expression* right = ParseUnary(true);
    node = nodes_.NewExpression(Expression::Kind::kBinary, {node, right});
    node->op = Operator::kPower;
  }
  return node;
}

Expression* ExpressionParser::ParseUnary(bool with_filter) {
  const Nesting::Level level(nesting_);
  Expression* node = nullptr;
  if (tokens_.SkipOperator("-")) {
    node = nodes_.NewExpression(Expression::Kind::kNegate, {ParseUnary(false)});
  } else if (tokens_.SkipOperator("+")) {
    node = nodes_.NewExpression(Expression::Kind::kPositive, {ParseUnary(false)});
  } else {
    node = primaries_.Parse();
  }
  node = postfixes_.Parse(node);
  return with_filter ? filters_.Parse(node) : node;
}

Expression* ExpressionParser::ParseTuple(bool with_conditional, const TokenReader::Names& end_names,
                                         bool in_parentheses) {
  return ParseTupleOf(tokens_, nodes_, end_names, /*may_be_empty=*/in_parentheses,
                      [&] { return ParseExpression(with_conditional); });
}

}  // namespace strata::jinja
