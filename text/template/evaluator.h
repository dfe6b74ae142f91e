// Runs a Program. One object renders once, on one thread.
#ifndef STRATA_TEXT_TEMPLATE_EVALUATOR_H_
#define STRATA_TEXT_TEMPLATE_EVALUATOR_H_

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "text/template/ast.h"
#include "text/template/expression_evaluator.h"
#include "text/template/macro_caller.h"
#include "text/template/output.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/statement_runner.h"
#include "text/template/template_limits.h"

namespace strata::jinja {

// Owns what a rendering changes, and says who answers a call.
class Evaluator final : public Runtime {
 public:
  Evaluator(const Program& program, const TemplateLimits& limits, int64_t now_s);

  // Throws Failure, its line filled in.
  std::string Render(const nlohmann::ordered_json& variables);

  Value Call(const Value& callee, Arguments& arguments) override;

  TemplateUse use() const {
    return {.steps = steps(),
            .output_bytes = output_.bytes(),
            .value_bytes = budget_.most_used_bytes()};
  }

 private:
  const Program& program_;
  Scopes scopes_;
  Output output_;
  ExpressionEvaluator expressions_;
  StatementRunner statements_;
  MacroCaller macros_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_EVALUATOR_H_
