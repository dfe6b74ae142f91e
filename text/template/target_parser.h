// What may stand left of = or between `for` and `in`.
#ifndef STRATA_TEXT_TEMPLATE_TARGET_PARSER_H_
#define STRATA_TEXT_TEMPLATE_TARGET_PARSER_H_

#include "text/template/ast.h"
#include "text/template/primary_parser.h"
#include "text/template/program_builder.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

class TargetParser {
 public:
  TargetParser(TokenReader& tokens, ProgramBuilder& nodes, PrimaryParser& primaries)
      : tokens_(tokens), nodes_(nodes), primaries_(primaries) {}

  // A name, or several with commas between them, up to one of `end_names`; with members,
  // namespace.name too.
  Expression* Parse(const TokenReader::Names& end_names, bool with_members);

 private:
  Expression* ParseItem(bool with_members);
  static void Check(const Expression* target);

  TokenReader& tokens_;
  ProgramBuilder& nodes_;
  PrimaryParser& primaries_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_TARGET_PARSER_H_
