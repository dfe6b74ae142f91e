#include "text/template/expression_parser.h"

#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/failure.h"
#include "text/template/parser.h"

namespace strata::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.type) {
    case Token::Type::kVariableEnd:
      return "end of print statement";
    case Token::Type::kBlockEnd:
      return "end of statement block";
    case Token::Type::kEnd:
      return "end of template";
    case Token::Type::kString:
      return "string";
    default:
      return token.text;
  }
}

bool IsConstantName(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, const TemplateLimits& limits,
                                   Program* program)
    : program_(program), tokens_(std::move(tokens)), limits_(limits) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs", "self"}) {
    NameId(name);
  }
}

ExpressionParser::Deeper::Deeper(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->depth_ > parser_->limits_.max_depth) {
    --parser_->depth_;
    throw Failure{
        Failure::Kind::kLimit,
        "the template nests deeper than " + std::to_string(parser_->limits_.max_depth) + " levels",
        parser_->Current().line};
  }
}

Token ExpressionParser::Take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) {
    ++at_;
  }
  return token;
}

bool ExpressionParser::IsOperator(std::string_view op) const {
  return Current().type == Token::Type::kOperator && Current().text == op;
}

bool ExpressionParser::IsName(std::string_view name) const {
  return Current().type == Token::Type::kName && Current().text == name;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  const bool found = IsOperator(op);
  if (found) {
    Take();
  }
  return found;
}

bool ExpressionParser::SkipName(std::string_view name) {
  const bool found = IsName(name);
  if (found) {
    Take();
  }
  return found;
}

void ExpressionParser::FailUnexpected(std::string_view wanted) const {
  FailSyntax("expected " + std::string(wanted) + ", got '" + Describe(Current()) + "'",
             Current().line);
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) {
    FailUnexpected("'" + std::string(op) + "'");
  }
}

void ExpressionParser::ExpectName(std::string_view name) {
  if (!SkipName(name)) {
    FailUnexpected("'" + std::string(name) + "'");
  }
}

std::string ExpressionParser::ExpectAnyName() {
  if (Current().type != Token::Type::kName) {
    FailUnexpected("a name");
  }
  return Take().text;
}

void ExpressionParser::Expect(Token::Type type) {
  if (Current().type != type) {
    FailUnexpected(type == Token::Type::kVariableEnd ? "'}}'" : "'%}'");
  }
  Take();
}

int ExpressionParser::NameId(const std::string& name) {
  const auto [found, is_new] =
      program_->name_ids.emplace(name, static_cast<int>(program_->names.size()));
  if (is_new) {
    program_->names.push_back(name);
  }
  return found->second;
}

Expression* ExpressionParser::New(Expression::Kind kind, std::vector<Expression*> operands) {
  if (program_->expressions.size() >= limits_.max_expressions) {
    throw Failure{
        Failure::Kind::kLimit,
        "the template has more than " + std::to_string(limits_.max_expressions) + " expressions",
        Current().line};
  }
  Expression& node = program_->expressions.emplace_back();
  node.kind = kind;
  node.line = Current().line;
  // Chains of operators lean to the left and are evaluated without recursion on that side.
  const bool leans = kind == Expression::Kind::kBinary || kind == Expression::Kind::kAnd ||
                     kind == Expression::Kind::kOr;
  int below = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] != nullptr) {
      below = std::max(below, operands[i]->levels - (leans && i == 0 ? 1 : 0));
    }
  }
  node.levels = below + 1;
  if (node.levels > limits_.max_depth) {
    throw Failure{Failure::Kind::kLimit,
                  "the template nests deeper than " + std::to_string(limits_.max_depth) + " levels",
                  node.line};
  }
  node.operands = std::move(operands);
  return &node;
}

Expression* ExpressionParser::ParseExpression(bool with_conditional) {
  const Deeper deeper(this);
  return with_conditional ? ParseConditional() : ParseOr();
}

Expression* ExpressionParser::ParseConditional() {
  const size_t unknown_before = unknown_.size();
  Expression* node = ParseOr();
  while (SkipName("if")) {
    Expression* condition = ParseOr();
    Expression* otherwise = SkipName("else") ? ParseExpression() : nullptr;
    node = New(Expression::Kind::kConditional, {condition, node, otherwise});
    unknown_.resize(unknown_before);
  }
  return node;
}

Expression* ExpressionParser::ParseOr() {
  Expression* node = ParseAnd();
  while (SkipName("or")) {
    Expression* right = ParseAnd();
    node = New(Expression::Kind::kOr, {node, right});
  }
  return node;
}

Expression* ExpressionParser::ParseAnd() {
  Expression* node = ParseNot();
  while (SkipName("and")) {
    Expression* right = ParseNot();
    node = New(Expression::Kind::kAnd, {node, right});
  }
  return node;
}

Expression* ExpressionParser::ParseNot() {
  if (SkipName("not")) {
    const Deeper deeper(this);
    return New(Expression::Kind::kNot, {ParseNot()});
  }
  return ParseCompare();
}

bool ExpressionParser::TakeCompareOperator(Operator* op) {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [symbol, known] : kOperators) {
    if (SkipOperator(symbol)) {
      *op = known;
      return true;
    }
  }
  if (SkipName("in")) {
    *op = Operator::kIn;
    return true;
  }
  if (IsName("not") && Next().type == Token::Type::kName && Next().text == "in") {
    Take();
    Take();
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
  Expression* node = New(Expression::Kind::kCompare, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

Expression* ExpressionParser::ParseSum() {
  Expression* node = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const Operator op = Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    Expression* right = ParseConcat();
    node = New(Expression::Kind::kBinary, {node, right});
    node->op = op;
  }
  return node;
}

Expression* ExpressionParser::ParseConcat() {
  std::vector<Expression*> operands = {ParseProduct()};
  while (SkipOperator("~")) {
    operands.push_back(ParseProduct());
  }
  return operands.size() == 1 ? operands[0] : New(Expression::Kind::kConcat, std::move(operands));
}

Expression* ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo}};
  Expression* node = ParsePower();
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [this](const auto& entry) { return IsOperator(entry.first); });
    if (found == std::end(kOperators)) {
      return node;
    }
    Take();
    Expression* right = ParsePower();
    node = New(Expression::Kind::kBinary, {node, right});
    node->op = found->second;
  }
}

Expression* ExpressionParser::ParsePower() {
  Expression* node = ParseUnary(true);
  while (SkipOperator("**")) {
    Expression* right = ParseUnary(true);
    node = New(Expression::Kind::kBinary, {node, right});
    node->op = Operator::kPower;
  }
  return node;
}

Expression* ExpressionParser::ParseUnary(bool with_filter) {
  const Deeper deeper(this);
  Expression* node = nullptr;
  if (SkipOperator("-")) {
    node = New(Expression::Kind::kNegate, {ParseUnary(false)});
  } else if (SkipOperator("+")) {
    node = New(Expression::Kind::kPositive, {ParseUnary(false)});
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(node);
  return with_filter ? ParseFilterExpression(node) : node;
}

Expression* ExpressionParser::ParseName() {
  const std::string name = Take().text;
  if (IsConstantName(name)) {
    Expression* node = New(Expression::Kind::kConstant);
    const char first = name[0];
    node->value =
        first == 'n' || first == 'N' ? Value::None() : Value::Bool(first == 't' || first == 'T');
    return node;
  }
  Expression* node = New(Expression::Kind::kName);
  node->name = NameId(name);
  for (MacroNode* macro : open_macros_) {
    macro->uses_caller |= node->name == kNameCaller;
    macro->uses_varargs |= node->name == kNameVarargs;
    macro->uses_kwargs |= node->name == kNameKwargs;
  }
  return node;
}

Expression* ExpressionParser::ParsePrimary() {
  switch (Current().type) {
    case Token::Type::kName:
      return ParseName();
    case Token::Type::kString: {
      std::string text;
      while (Current().type == Token::Type::kString) {
        text += Take().text;
      }
      Expression* node = New(Expression::Kind::kConstant);
      node->value = Value::Constant(std::move(text));
      return node;
    }
    case Token::Type::kInteger:
    case Token::Type::kFloat: {
      Expression* node = New(Expression::Kind::kConstant);
      node->value = Take().number;
      return node;
    }
    default:
      break;
  }
  if (SkipOperator("(")) {
    Expression* node = ParseTuple(true, {}, /*in_parentheses=*/true);
    ExpectOperator(")");
    return node;
  }
  if (IsOperator("[")) {
    return ParseList();
  }
  if (IsOperator("{")) {
    return ParseDict();
  }
  FailSyntax("unexpected '" + Describe(Current()) + "'", Current().line);
}

Expression* ExpressionParser::ParseList() {
  ExpectOperator("[");
  std::vector<Expression*> items;
  while (!IsOperator("]")) {
    if (!items.empty()) {
      ExpectOperator(",");
    }
    if (IsOperator("]")) {
      break;
    }
    items.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return New(Expression::Kind::kList, std::move(items));
}

Expression* ExpressionParser::ParseDict() {
  ExpectOperator("{");
  std::vector<Expression*> items;
  while (!IsOperator("}")) {
    if (!items.empty()) {
      ExpectOperator(",");
    }
    if (IsOperator("}")) {
      break;
    }
    items.push_back(ParseExpression());
    ExpectOperator(":");
    items.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return New(Expression::Kind::kDict, std::move(items));
}

bool ExpressionParser::IsTupleEnd(const EndNames& end_names) const {
  return Current().type == Token::Type::kVariableEnd || Current().type == Token::Type::kBlockEnd ||
         IsOperator(")") ||
         std::any_of(end_names.begin(), end_names.end(),
                     [this](std::string_view name) { return IsName(name); });
}

Expression* ExpressionParser::ParseTuple(bool with_conditional, const EndNames& end_names,
                                         bool in_parentheses) {
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      ExpectOperator(",");
    }
    if (IsTupleEnd(end_names)) {
      break;
    }
    items.push_back(ParseExpression(with_conditional));
    if (!IsOperator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) {
      return items[0];
    }
    if (!in_parentheses) {
      FailSyntax("Expected an expression, got '" + Describe(Current()) + "'", Current().line);
    }
  }
  return New(Expression::Kind::kTuple, std::move(items));
}

void ExpressionParser::CheckTarget(const Expression* target) const {
  if (target->kind == Expression::Kind::kTuple) {
    for (const Expression* item : target->operands) {
      CheckTarget(item);
    }
  } else if (target->kind != Expression::Kind::kName && target->kind != Expression::Kind::kMember) {
    FailSyntax("can't assign to an expression", target->line);
  }
}

Expression* ExpressionParser::ParseTargetItem(bool with_members) {
  if (with_members && Current().type == Token::Type::kName &&
      Next().type == Token::Type::kOperator && Next().text == ".") {
    const std::string name = Take().text;
    Take();
    Expression* node = New(Expression::Kind::kMember);
    node->name = NameId(name);
    node->value = Value::Constant(ExpectAnyName());
    return node;
  }
  return ParsePrimary();
}

Expression* ExpressionParser::ParseTarget(const EndNames& end_names, bool with_members) {
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      ExpectOperator(",");
    }
    if (IsTupleEnd(end_names)) {
      break;
    }
    items.push_back(ParseTargetItem(with_members));
    if (!IsOperator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (items.empty()) {
    FailSyntax("Expected an expression, got '" + Describe(Current()) + "'", Current().line);
  }
  Expression* target = is_tuple ? New(Expression::Kind::kTuple, std::move(items)) : items[0];
  CheckTarget(target);
  return target;
}

}  // namespace strata::jinja
