#include "text/template/filter_parser.h"

#include "text/template/builtins.h"
#include "text/template/failure.h"

namespace strata::jinja {

Expression* FilterParser::Parse(Expression* node) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      node = ParseFilter(node);
    } else if (tokens_.SkipName("is")) {
      node = ParseTest(node);
    } else if (tokens_.IsOperator("(")) {
      node = postfixes_.ParseCall(node);
    } else {
      return node;
    }
  }
}

std::string FilterParser::ParseDottedName() {
  std::string name = tokens_.ExpectAnyName();
  while (tokens_.SkipOperator(".")) {
    name += "." + tokens_.ExpectAnyName();
  }
  return name;
}

Expression* FilterParser::ParseFilter(Expression* input) {
  const std::string name = ParseDottedName();
  ArgumentNodes* arguments = tokens_.IsOperator("(") ? postfixes_.ParseArguments() : nullptr;
  Expression* node = nodes_.NewExpression(Expression::Kind::kFilter, {input});
  node->arguments = arguments;
  node->filter = FindFilter(name);
  if (node->filter == nullptr) {
    unknown_.Add("No filter named '" + name + "'.", node->line);
  }
  node->value = Value::Constant(name);
  return node;
}

Expression* FilterParser::ParseChain() {
  Expression* node = ParseFilter(nullptr);
  while (tokens_.SkipOperator("|")) {
    node = ParseFilter(node);
  }
  return node;
}

Expression* FilterParser::ParseTest(Expression* input) {
  const bool negated = tokens_.SkipName("not");
  const std::string name = ParseDottedName();
  ArgumentNodes* arguments = nullptr;
  const Token::Type type = tokens_.Current().type;
  if (tokens_.IsOperator("(")) {
    arguments = postfixes_.ParseArguments();
  } else if ((type == Token::Type::kName && !tokens_.IsName("else") && !tokens_.IsName("or") &&
              !tokens_.IsName("and")) ||
             type == Token::Type::kString || type == Token::Type::kInteger ||
             type == Token::Type::kFloat || tokens_.IsOperator("[") || tokens_.IsOperator("{")) {
    if (tokens_.IsName("is")) {
      FailSyntax("You cannot chain multiple tests with is", tokens_.line());
    }
    arguments = nodes_.NewArguments();
    arguments->positional.push_back(postfixes_.Parse(primaries_.Parse()));
  }
  Expression* node = nodes_.NewExpression(Expression::Kind::kTest, {input});
  node->arguments = arguments;
  node->test = FindTest(name);
  if (node->test == nullptr) {
    unknown_.Add("No test named '" + name + "'.", node->line);
  }
  node->value = Value::Constant(name);
  return negated ? nodes_.NewExpression(Expression::Kind::kNot, {node}) : node;
}

}  // namespace strata::jinja
