// The making of a Program's nodes and the numbering of its names.
#ifndef STRATA_TEXT_TEMPLATE_PROGRAM_BUILDER_H_
#define STRATA_TEXT_TEMPLATE_PROGRAM_BUILDER_H_

#include <string>
#include <vector>

#include "text/template/ast.h"
#include "text/template/template_limits.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

// Nodes are of the line that `tokens` is at, and live as long as the program.
class ProgramBuilder {
 public:
  ProgramBuilder(const TokenReader& tokens, const TemplateLimits& limits, Program* program);

  // Fails where there are too many expressions, or they nest too deep.
  Expression* NewExpression(Expression::Kind kind, std::vector<Expression*> operands = {});
  // A variable; open macros hear of it.
  Expression* NewName(const std::string& name);
  ArgumentNodes* NewArguments() { return &program_->arguments.emplace_back(); }
  Statement* NewStatement(Statement::Kind kind);
  MacroNode* NewMacro() { return &program_->macros.emplace_back(); }
  int NameId(const std::string& name);

  // Until it is closed, a macro notes which of caller, varargs and kwargs are named.
  void OpenMacro(MacroNode* macro) { open_macros_.push_back(macro); }
  void CloseMacro() { open_macros_.pop_back(); }

  void SetBody(Block body) { program_->body = std::move(body); }

 private:
  const TokenReader& tokens_;
  const int max_depth_;
  const size_t max_expressions_;
  Program* const program_;
  std::vector<MacroNode*> open_macros_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_PROGRAM_BUILDER_H_
