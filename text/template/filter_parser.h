// Filters and tests: value | name(arguments), value is name(arguments).
#ifndef STRATA_TEXT_TEMPLATE_FILTER_PARSER_H_
#define STRATA_TEXT_TEMPLATE_FILTER_PARSER_H_

#include <string>

#include "text/template/ast.h"
#include "text/template/postfix_parser.h"
#include "text/template/primary_parser.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"
#include "text/template/unknown_names.h"

namespace strata::jinja {

class FilterParser {
 public:
  FilterParser(TokenReader& tokens, ProgramBuilder& nodes, UnknownNames& unknown,
               PrimaryParser& primaries, PostfixParser& postfixes)
      : tokens_(tokens),
        nodes_(nodes),
        unknown_(unknown),
        primaries_(primaries),
        postfixes_(postfixes) {}

  // `node` with the filters and tests that follow it.
  Expression* Parse(Expression* node);
  // A chain of filters without input, from `name` on (upper | trim), as filter blocks have it.
  Expression* ParseChain();

 private:
  Expression* ParseFilter(Expression* input);
  Expression* ParseTest(Expression* input);
  std::string ParseDottedName();

  TokenReader& tokens_;
  ProgramBuilder& nodes_;
  UnknownNames& unknown_;
  PrimaryParser& primaries_;
  PostfixParser& postfixes_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_FILTER_PARSER_H_
