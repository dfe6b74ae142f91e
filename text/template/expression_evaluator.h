// Evaluates expressions.
#ifndef STRATA_TEXT_TEMPLATE_EXPRESSION_EVALUATOR_H_
#define STRATA_TEXT_TEMPLATE_EXPRESSION_EVALUATOR_H_

#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/value.h"

namespace strata::jinja {

class ExpressionEvaluator {
 public:
  // Calls go through `runtime`.
  ExpressionEvaluator(Runtime& runtime, Scopes& scopes) : runtime_(runtime), scopes_(scopes) {}
  ExpressionEvaluator(const ExpressionEvaluator&) = delete;
  ExpressionEvaluator& operator=(const ExpressionEvaluator&) = delete;

  Value Eval(const Expression& node);
  Arguments EvalArguments(const ArgumentNodes* nodes);
  // A chain of filters without input, applied to `input`.
  Value EvalFilters(const Expression& chain, Value input);

  // The line of the source that is run, for errors.
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

 private:
  Value EvalDispatch(const Expression& node);
  std::vector<Value> EvalAll(const std::vector<Expression*>& nodes);
  Value EvalDict(const Expression& node);
  Value EvalBinary(const Expression& node);
  Value EvalLogical(const Expression& node);
  Value EvalConcat(const Expression& node);
  Value EvalCompare(const Expression& node);
  Value EvalConditional(const Expression& node);
  Value EvalItem(const Expression& node);
  Value EvalSlice(const Expression& node);
  Value EvalFilter(const Expression& node);
  Value EvalTest(const Expression& node);
  Value EvalCall(const Expression& node);
  Value Attribute(const Value& object, std::string_view name);

  Runtime& runtime_;
  Scopes& scopes_;
  int line_ = 0;
  Value block_input_;  // Of the filter chain of a block.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_EXPRESSION_EVALUATOR_H_
