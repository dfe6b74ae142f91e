// Calls macros.
#ifndef STRATA_TEXT_TEMPLATE_MACRO_CALLER_H_
#define STRATA_TEXT_TEMPLATE_MACRO_CALLER_H_

#include "text/template/expression_evaluator.h"
#include "text/template/macro_object.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/statement_runner.h"
#include "text/template/value.h"

namespace strata::jinja {

class MacroCaller {
 public:
  MacroCaller(Runtime& runtime, Scopes& scopes, ExpressionEvaluator& expressions,
              StatementRunner& statements)
      : runtime_(runtime), scopes_(scopes), expressions_(expressions), statements_(statements) {}
  MacroCaller(const MacroCaller&) = delete;
  MacroCaller& operator=(const MacroCaller&) = delete;

  // What the macro writes. Fails where macros call each other too deep.
  Value Call(const MacroObject& macro, Arguments& arguments);

 private:
  // Sets the macro's parameters in the current scope.
  void BindParameters(const MacroObject& macro, Arguments& arguments);

  Runtime& runtime_;
  Scopes& scopes_;
  ExpressionEvaluator& expressions_;
  StatementRunner& statements_;
  int depth_ = 0;  // Of macros that run.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_MACRO_CALLER_H_
