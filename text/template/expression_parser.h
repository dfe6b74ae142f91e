// The expression half of the parser.
#ifndef STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_
#define STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"
#include "text/template/template_limits.h"

namespace strata::jinja {

class ExpressionParser {
 protected:
  using EndNames = std::vector<std::string_view>;

  ExpressionParser(std::vector<Token> tokens, const TemplateLimits& limits, Program* program);

  // Counts a level of recursion; fails where the source nests too deep.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser* parser);
    ~Deeper() { --parser_->depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser* const parser_;
  };

  const Token& Current() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Take();
  bool IsOperator(std::string_view op) const;
  bool IsName(std::string_view name) const;
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  std::string ExpectAnyName();
  void Expect(Token::Type type);
  [[noreturn]] void FailUnexpected(std::string_view wanted) const;
  int NameId(const std::string& name);

  Expression* ParseExpression(bool with_conditional = true);
  // A tuple if there are commas, else one expression.
  Expression* ParseTuple(bool with_conditional, const EndNames& end_names = {},
                         bool in_parentheses = false);
  // What may stand left of = or between `for` and `in`.
  Expression* ParseTarget(const EndNames& end_names, bool with_members);
  // A chain of filters without input, from `name` on (upper | trim), as filter blocks have it.
  Expression* ParseFilterChain();

  Expression* New(Expression::Kind kind, std::vector<Expression*> operands = {});
  ArgumentNodes* ParseArguments();

  Program* const program_;
  std::vector<MacroNode*> open_macros_;
  // Inside an if, an unknown filter or test is an error only where it is reached.
  bool soft_ = false;
  std::vector<std::pair<std::string, int>> unknown_;  // Others: message and line.

 private:
  Expression* ParseConditional();
  Expression* ParseOr();
  Expression* ParseAnd();
  Expression* ParseNot();
  Expression* ParseCompare();
  Expression* ParseSum();
  Expression* ParseConcat();
  Expression* ParseProduct();
  Expression* ParsePower();
  Expression* ParseUnary(bool with_filter);
  Expression* ParsePrimary();
  Expression* ParseTargetItem(bool with_members);
  Expression* ParsePostfix(Expression* node);
  Expression* ParseFilterExpression(Expression* node);
  Expression* ParseFilter(Expression* input);
  Expression* ParseTest(Expression* input);
  Expression* ParseCall(Expression* callee);
  Expression* ParseAttribute(Expression* object);
  Expression* ParseSubscript(Expression* object);
  Expression* ParseSubscribed(Expression* object);
  Expression* ParseName();
  Expression* ParseList();
  Expression* ParseDict();
  std::string ParseDottedName();
  bool IsTupleEnd(const EndNames& end_names) const;
  void CheckTarget(const Expression* target) const;
  bool TakeCompareOperator(Operator* op);

  const std::vector<Token> tokens_;
  const TemplateLimits limits_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_
