// Expressions, by the precedence of their operators.
#ifndef STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_
#define STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_

#include "text/template/ast.h"
#include "text/template/filter_parser.h"
#include "text/template/nesting.h"
#include "text/template/postfix_parser.h"
#include "text/template/primary_parser.h"
#include "text/template/program_builder.h"
#include "text/template/target_parser.h"
#include "text/template/token_reader.h"
#include "text/template/unknown_names.h"

namespace strata::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, ProgramBuilder& nodes, Nesting& nesting,
                   UnknownNames& unknown);
  ExpressionParser(const ExpressionParser&) = delete;
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  Expression* ParseExpression(bool with_conditional = true);
  // A tuple if there are commas, else one expression.
  Expression* ParseTuple(bool with_conditional, const TokenReader::Names& end_names = {},
                         bool in_parentheses = false);
  // As TargetParser and FilterParser say.
  Expression* ParseTarget(const TokenReader::Names& end_names, bool with_members) {
    return targets_.Parse(end_names, with_members);
  }
  Expression* ParseFilterChain() { return filters_.ParseChain(); }

 private:
  // One for each level of precedence, from the loosest binding on.
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
  bool TakeCompareOperator(Operator* op);

  TokenReader& tokens_;
  ProgramBuilder& nodes_;
  Nesting& nesting_;
  UnknownNames& unknown_;
  PrimaryParser primaries_;
  PostfixParser postfixes_;
  FilterParser filters_;
  TargetParser targets_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_EXPRESSION_PARSER_H_
