// What may follow a value: attributes, subscripts and calls.
#ifndef STRATA_TEXT_TEMPLATE_POSTFIX_PARSER_H_
#define STRATA_TEXT_TEMPLATE_POSTFIX_PARSER_H_

#include "text/template/ast.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

class ExpressionParser;

class PostfixParser {
 public:
  // `expressions` parses subscripts and arguments.
  PostfixParser(TokenReader& tokens, ProgramBuilder& nodes, ExpressionParser& expressions)
      : tokens_(tokens), nodes_(nodes), expressions_(expressions) {}

  // `node` with all that follows it.
  Expression* Parse(Expression* node);
  Expression* ParseCall(Expression* callee);
  // The parentheses of a call, of a filter or of a test.
  ArgumentNodes* ParseArguments();

 private:
  Expression* ParseAttribute(Expression* object);
  Expression* ParseSubscript(Expression* object);
  Expression* ParseSubscribed(Expression* object);

  TokenReader& tokens_;
  ProgramBuilder& nodes_;
  ExpressionParser& expressions_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_POSTFIX_PARSER_H_
