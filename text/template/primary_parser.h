// What an expression is made of: names, literals, and what brackets enclose.
#ifndef STRATA_TEXT_TEMPLATE_PRIMARY_PARSER_H_
#define STRATA_TEXT_TEMPLATE_PRIMARY_PARSER_H_

#include "text/template/ast.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

class ExpressionParser;

class PrimaryParser {
 public:
  // `expressions` parses what is inside brackets.
  PrimaryParser(TokenReader& tokens, ProgramBuilder& nodes, ExpressionParser& expressions)
      : tokens_(tokens), nodes_(nodes), expressions_(expressions) {}

  Expression* Parse();

 private:
  Expression* ParseName();
  Expression* ParseString();
  Expression* ParseNumber();
  Expression* ParseList();
  Expression* ParseDict();

  TokenReader& tokens_;
  ProgramBuilder& nodes_;
  ExpressionParser& expressions_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_PRIMARY_PARSER_H_
