// What may follow a value: attributes, subscripts, calls, filters and tests.
#include "text/template/builtins.h"
#include "text/template/expression_parser.h"
#include "text/template/failure.h"

namespace strata::jinja {

Expression* ExpressionParser::ParsePostfix(Expression* node) {
  while (true) {
    if (IsOperator(".")) {
      node = ParseAttribute(node);
    } else if (IsOperator("[")) {
      node = ParseSubscript(node);
    } else if (IsOperator("(")) {
      node = ParseCall(node);
    } else {
      return node;
    }
  }
}

Expression* ExpressionParser::ParseFilterExpression(Expression* node) {
  while (true) {
    if (SkipOperator("|")) {
      node = ParseFilter(node);
    } else if (SkipName("is")) {
      node = ParseTest(node);
    } else if (IsOperator("(")) {
      node = ParseCall(node);
    } else {
      return node;
    }
  }
}

Expression* ExpressionParser::ParseAttribute(Expression* object) {
  ExpectOperator(".");
  if (Current().type == Token::Type::kName) {
    Expression* node = New(Expression::Kind::kAttribute, {object});
    node->value = Value::Constant(Take().text);
    return node;
  }
  if (Current().type != Token::Type::kInteger) {
    FailUnexpected("a name or a number");
  }
  Expression* index = New(Expression::Kind::kConstant);
  index->value = Take().number;
  return New(Expression::Kind::kItem, {object, index});
}

Expression* ExpressionParser::ParseSubscript(Expression* object) {
  ExpectOperator("[");
  std::vector<Expression*> parts;
  bool is_tuple = false;
  Expression* single = nullptr;
  while (!IsOperator("]")) {
    if (single != nullptr) {
      ExpectOperator(",");
      is_tuple = true;
      if (IsOperator("]")) {
        break;
      }
    }
    single = ParseSubscribed(object);
    parts.push_back(single);
  }
  ExpectOperator("]");
  if (parts.size() == 1 && !is_tuple) {
    return single->kind == Expression::Kind::kSlice && single->operands[0] == object
               ? single
               : New(Expression::Kind::kItem, {object, single});
  }
  return New(Expression::Kind::kItem, {object, New(Expression::Kind::kTuple, std::move(parts))});
}

// One index, or a slice of `object`.
Expression* ExpressionParser::ParseSubscribed(Expression* object) {
  std::vector<Expression*> parts = {object};
  if (IsOperator(":")) {
    parts.push_back(nullptr);
  } else {
    Expression* node = ParseExpression();
    if (!IsOperator(":")) {
      return node;
    }
    parts.push_back(node);
  }
  ExpectOperator(":");
  const auto at_end = [this] { return IsOperator("]") || IsOperator(","); };
  parts.push_back(at_end() || IsOperator(":") ? nullptr : ParseExpression());
  parts.push_back(SkipOperator(":") && !at_end() ? ParseExpression() : nullptr);
  return New(Expression::Kind::kSlice, std::move(parts));
}

ArgumentNodes* ExpressionParser::ParseArguments() {
  ExpectOperator("(");
  ArgumentNodes& arguments = program_->arguments.emplace_back();
  const auto require = [this](bool ok) {
    if (!ok) {
      FailSyntax("invalid syntax for function call expression", Current().line);
    }
  };
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (IsOperator(")")) {
        break;
      }
    }
    first = false;
    if (SkipOperator("*")) {
      require(arguments.star == nullptr && arguments.double_star == nullptr);
      arguments.star = ParseExpression();
    } else if (SkipOperator("**")) {
      require(arguments.double_star == nullptr);
      arguments.double_star = ParseExpression();
    } else if (Current().type == Token::Type::kName && Next().type == Token::Type::kOperator &&
               Next().text == "=") {
      require(arguments.double_star == nullptr);
      std::string name = Take().text;
      Take();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      require(arguments.named.empty() && arguments.star == nullptr &&
              arguments.double_star == nullptr);
      arguments.positional.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
  return &arguments;
}

Expression* ExpressionParser::ParseCall(Expression* callee) {
  ArgumentNodes* arguments = ParseArguments();
  Expression* node = New(Expression::Kind::kCall, {callee});
  node->arguments = arguments;
  return node;
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = ExpectAnyName();
  while (SkipOperator(".")) {
    name += "." + ExpectAnyName();
  }
  return name;
}

Expression* ExpressionParser::ParseFilter(Expression* input) {
  const std::string name = ParseDottedName();
  ArgumentNodes* arguments = IsOperator("(") ? ParseArguments() : nullptr;
  Expression* node = New(Expression::Kind::kFilter, {input});
  node->arguments = arguments;
  node->filter = FindFilter(name);
  if (node->filter == nullptr && !soft_) {
    unknown_.emplace_back("No filter named '" + name + "'.", node->line);
  }
  node->value = Value::Constant(name);
  return node;
}

Expression* ExpressionParser::ParseFilterChain() {
  Expression* node = ParseFilter(nullptr);
  while (SkipOperator("|")) {
    node = ParseFilter(node);
  }
  return node;
}

Expression* ExpressionParser::ParseTest(Expression* input) {
  const bool negated = SkipName("not");
  const std::string name = ParseDottedName();
  ArgumentNodes* arguments = nullptr;
  const Token::Type type = Current().type;
  if (IsOperator("(")) {
    arguments = ParseArguments();
  } else if ((type == Token::Type::kName && !IsName("else") && !IsName("or") && !IsName("and")) ||
             type == Token::Type::kString || type == Token::Type::kInteger ||
             type == Token::Type::kFloat || IsOperator("[") || IsOperator("{")) {
    if (IsName("is")) {
      FailSyntax("You cannot chain multiple tests with is", Current().line);
    }
    arguments = &program_->arguments.emplace_back();
    arguments->positional.push_back(ParsePostfix(ParsePrimary()));
  }
  Expression* node = New(Expression::Kind::kTest, {input});
  node->arguments = arguments;
  node->test = FindTest(name);
  if (node->test == nullptr && !soft_) {
    unknown_.emplace_back("No test named '" + name + "'.", node->line);
  }
  node->value = Value::Constant(name);
  return negated ? New(Expression::Kind::kNot, {node}) : node;
}

}  // namespace strata::jinja
