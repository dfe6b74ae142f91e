// Runs statements.
#ifndef STRATA_TEXT_TEMPLATE_STATEMENT_RUNNER_H_
#define STRATA_TEXT_TEMPLATE_STATEMENT_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "text/template/ast.h"
#include "text/template/expression_evaluator.h"
#include "text/template/loop_object.h"
#include "text/template/macro_object.h"
#include "text/template/output.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/value.h"

namespace strata::jinja {

class StatementRunner {
 public:
  // What a statement does to the loop around it.
  enum class Flow { kNext, kBreak, kContinue };

  // Calls go through `runtime`.
  StatementRunner(Runtime& runtime, Scopes& scopes, Output& output,
                  ExpressionEvaluator& expressions)
      : runtime_(runtime), scopes_(scopes), output_(output), expressions_(expressions) {}
  StatementRunner(const StatementRunner&) = delete;
  StatementRunner& operator=(const StatementRunner&) = delete;

  Flow Execute(const Block& block);
  // What `block` writes, run in `scope`.
  std::string Capture(std::shared_ptr<Scope> scope, const Block& block, Flow* flow);
  // loop(iterable): what the loop writes, run over its argument one level deeper.
  Value CallLoop(const LoopObject& loop, Arguments& arguments);

 private:
  Flow ExecuteOne(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteIn(std::shared_ptr<Scope> scope, const Block& block);
  Flow ExecuteLoop(const Statement& statement, const Value& iterable, std::shared_ptr<Scope> around,
                   int64_t depth0);
  Flow ExecuteSetBlock(const Statement& statement);
  Flow ExecuteFilter(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  Flow ExecuteAutoescape(const Statement& statement);
  void ExecuteCall(const Statement& statement);
  void DefineMacro(const Statement& statement);
  // A macro over the current scope.
  std::shared_ptr<MacroObject> NewMacro(const MacroNode* node);

  Runtime& runtime_;
  Scopes& scopes_;
  Output& output_;
  ExpressionEvaluator& expressions_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_STATEMENT_RUNNER_H_
