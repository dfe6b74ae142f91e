#include "text/template/postfix_parser.h"

#include <string>
#include <vector>

#include "text/template/expression_parser.h"
#include "text/template/failure.h"

namespace strata::jinja {

Expression* PostfixParser::Parse(Expression* node) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      node = ParseAttribute(node);
    } else if (tokens_.IsOperator("[")) {
      node = ParseSubscript(node);
    } else if (tokens_.IsOperator("(")) {
      node = ParseCall(node);
    } else {
      return node;
    }
  }
}

Expression* PostfixParser::ParseAttribute(Expression* object) {
  tokens_.ExpectOperator(".");
  if (tokens_.Current().type == Token::Type::kName) {
    Expression* node = nodes_.NewExpression(Expression::Kind::kAttribute, {object});
    node->value = Value::Constant(tokens_.Take().text);
    return node;
  }
  if (tokens_.Current().type != Token::Type::kInteger) {
    tokens_.FailUnexpected("a name or a number");
  }
  Expression* index = nodes_.NewExpression(Expression::Kind::kConstant);
  index->value = tokens_.Take().number;
  return nodes_.NewExpression(Expression::Kind::kItem, {object, index});
}

Expression* PostfixParser::ParseSubscript(Expression* object) {
  tokens_.ExpectOperator("[");
  std::vector<Expression*> parts;
  bool is_tuple = false;
  Expression* single = nullptr;
  while (!tokens_.IsOperator("]")) {
    if (single != nullptr) {
      tokens_.ExpectOperator(",");
      is_tuple = true;
      if (tokens_.IsOperator("]")) {
        break;
      }
    }
    single = ParseSubscribed(object);
    parts.push_back(single);
  }
  tokens_.ExpectOperator("]");
  if (parts.size() == 1 && !is_tuple) {
    return single->kind == Expression::Kind::kSlice && single->operands[0] == object
               ? single
               : nodes_.NewExpression(Expression::Kind::kItem, {object, single});
  }
  return nodes_.NewExpression(
      Expression::Kind::kItem,
      {object, nodes_.NewExpression(Expression::Kind::kTuple, std::move(parts))});
}

// One index, or a slice of `object`.
Expression* PostfixParser::ParseSubscribed(Expression* object) {
  std::vector<Expression*> parts = {object};
  if (tokens_.IsOperator(":")) {
    parts.push_back(nullptr);
  } else {
    Expression* node = expressions_.ParseExpression();
    if (!tokens_.IsOperator(":")) {
      return node;
    }
    parts.push_back(node);
  }
  tokens_.ExpectOperator(":");
  const auto at_end = [this] { return tokens_.IsOperator("]") || tokens_.IsOperator(","); };
  parts.push_back(at_end() || tokens_.IsOperator(":") ? nullptr : expressions_.ParseExpression());
  parts.push_back(tokens_.SkipOperator(":") && !at_end() ? expressions_.ParseExpression()
                                                         : nullptr);
  return nodes_.NewExpression(Expression::Kind::kSlice, std::move(parts));
}

ArgumentNodes* PostfixParser::ParseArguments() {
  tokens_.ExpectOperator("(");
  ArgumentNodes& arguments = *nodes_.NewArguments();
  const auto require = [this](bool ok) {
    if (!ok) {
      FailSyntax("invalid syntax for function call expression", tokens_.line());
    }
  };
  bool first = true;
  while (!tokens_.IsOperator(")")) {
    if (!first) {
      tokens_.ExpectOperator(",");
      if (tokens_.IsOperator(")")) {
        break;
      }
    }
    first = false;
    if (tokens_.SkipOperator("*")) {
      require(arguments.star == nullptr && arguments.double_star == nullptr);
      arguments.star = expressions_.ParseExpression();
    } else if (tokens_.SkipOperator("**")) {
      require(arguments.double_star == nullptr);
      arguments.double_star = expressions_.ParseExpression();
    } else if (tokens_.Current().type == Token::Type::kName &&
               tokens_.Next().type == Token::Type::kOperator && tokens_.Next().text == "=") {
      require(arguments.double_star == nullptr);
      std::string name = tokens_.Take().text;
      tokens_.Take();
      arguments.named.emplace_back(std::move(name), expressions_.ParseExpression());
    } else {
      require(arguments.named.empty() && arguments.star == nullptr &&
              arguments.double_star == nullptr);
      arguments.positional.push_back(expressions_.ParseExpression());
    }
  }
  tokens_.ExpectOperator(")");
  return &arguments;
}

Expression* PostfixParser::ParseCall(Expression* callee) {
  ArgumentNodes* arguments = ParseArguments();
  Expression* node = nodes_.NewExpression(Expression::Kind::kCall, {callee});
  node->arguments = arguments;
  return node;
}

}  // namespace strata::jinja
