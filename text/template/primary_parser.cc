#include "text/template/primary_parser.h"

#include <string>
#include <vector>

#include "text/template/expression_parser.h"
#include "text/template/failure.h"

namespace strata::jinja {
namespace {

bool IsConstantName(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

Expression* PrimaryParser::Parse() {
  switch (tokens_.Current().type) {
    case Token::Type::kName:
      return ParseName();
    case Token::Type::kString:
      return ParseString();
    case Token::Type::kInteger:
    case Token::Type::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (tokens_.SkipOperator("(")) {
    Expression* node = expressions_.ParseTuple(true, {}, /*in_parentheses=*/true);
    tokens_.ExpectOperator(")");
    return node;
  }
  if (tokens_.IsOperator("[")) {
    return ParseList();
  }
  if (tokens_.IsOperator("{")) {
    return ParseDict();
  }
  FailSyntax("unexpected '" + Describe(tokens_.Current()) + "'", tokens_.line());
}

Expression* PrimaryParser::ParseName() {
  const std::string name = tokens_.Take().text;
  if (IsConstantName(name)) {
    Expression* node = nodes_.NewExpression(Expression::Kind::kConstant);
    const char first = name[0];
    node->value =
        first == 'n' || first == 'N' ? Value::None() : Value::Bool(first == 't' || first == 'T');
    return node;
  }
  return nodes_.NewName(name);
}

Expression* PrimaryParser::ParseString() {
  std::string text;
  while (tokens_.Current().type == Token::Type::kString) {
    text += tokens_.Take().text;
  }
  Expression* node = nodes_.NewExpression(Expression::Kind::kConstant);
  node->value = Value::Constant(std::move(text));
  return node;
}

Expression* PrimaryParser::ParseNumber() {
  Expression* node = nodes_.NewExpression(Expression::Kind::kConstant);
  node->value = tokens_.Take().number;
  return node;
}

Expression* PrimaryParser::ParseList() {
  tokens_.ExpectOperator("[");
  std::vector<Expression*> items;
  while (!tokens_.IsOperator("]")) {
    if (!items.empty()) {
      tokens_.ExpectOperator(",");
    }
    if (tokens_.IsOperator("]")) {
      break;
    }
    items.push_back(expressions_.ParseExpression());
  }
  tokens_.ExpectOperator("]");
  return nodes_.NewExpression(Expression::Kind::kList, std::move(items));
}

Expression* PrimaryParser::ParseDict() {
  tokens_.ExpectOperator("{");
  std::vector<Expression*> items;
  while (!tokens_.IsOperator("}")) {
    if (!items.empty()) {
      tokens_.ExpectOperator(",");
    }
    if (tokens_.IsOperator("}")) {
      break;
    }
    items.push_back(expressions_.ParseExpression());
    tokens_.ExpectOperator(":");
    items.push_back(expressions_.ParseExpression());
  }
  tokens_.ExpectOperator("}");
  return nodes_.NewExpression(Expression::Kind::kDict, std::move(items));
}

}  // namespace strata::jinja
