#include "text/template/program_builder.h"

#include <algorithm>

#include "text/template/failure.h"
#include "text/template/nesting.h"
#include "text/template/parser.h"

namespace strata::jinja {

ProgramBuilder::ProgramBuilder(const TokenReader& tokens, const TemplateLimits& limits,
                               Program* program)
    : tokens_(tokens),
      max_depth_(limits.max_depth),
      max_expressions_(limits.max_expressions),
      program_(program) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs", "self"}) {
    NameId(name);
  }
}

int ProgramBuilder::NameId(const std::string& name) {
  const auto [found, is_new] =
      program_->name_ids.emplace(name, static_cast<int>(program_->names.size()));
  if (is_new) {
    program_->names.push_back(name);
  }
  return found->second;
}

Expression* ProgramBuilder::NewExpression(Expression::Kind kind,
                                          std::vector<Expression*> operands) {
  if (program_->expressions.size() >= max_expressions_) {
    throw Failure{Failure::Kind::kLimit,
                  "the template has more than " + std::to_string(max_expressions_) + " expressions",
                  tokens_.line()};
  }
  Expression& node = program_->expressions.emplace_back();
  node.kind = kind;
  node.line = tokens_.line();
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
  if (node.levels > max_depth_) {
    Nesting::FailDepth(max_depth_, node.line);
  }
  node.operands = std::move(operands);
  return &node;
}

Expression* ProgramBuilder::NewName(const std::string& name) {
  Expression* node = NewExpression(Expression::Kind::kName);
  node->name = NameId(name);
  for (MacroNode* macro : open_macros_) {
    macro->uses_caller |= node->name == kNameCaller;
    macro->uses_varargs |= node->name == kNameVarargs;
    macro->uses_kwargs |= node->name == kNameKwargs;
  }
  return node;
}

Statement* ProgramBuilder::NewStatement(Statement::Kind kind) {
  Statement& statement = program_->statements.emplace_back();
  statement.kind = kind;
  statement.line = tokens_.line();
  return &statement;
}

}  // namespace strata::jinja
