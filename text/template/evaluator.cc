#include "text/template/evaluator.h"

#include <string>
#include <utility>

#include "text/template/failure.h"
#include "text/template/loop_object.h"
#include "text/template/macro_object.h"
#include "text/template/operators.h"
#include "text/template/variables.h"

namespace strata::jinja {

Evaluator::Evaluator(const Program& program, const TemplateLimits& limits, int64_t now_s)
    : Runtime(limits, now_s),
      program_(program),
      scopes_(*this, program),
      output_(*this),
      expressions_(*this, scopes_),
      statements_(*this, scopes_, output_, expressions_),
      macros_(*this, scopes_, expressions_, statements_) {}

std::string Evaluator::Render(const nlohmann::ordered_json& variables) {
  try {
    DefineVariables(variables, program_, limits(), scopes_.root().get());
    statements_.Execute(program_.body);
  } catch (Failure& failure) {
    if (failure.line == 0) {
      failure.line = expressions_.line();
    }
    throw;
  }
  return output_.Take();
}

Value Evaluator::Call(const Value& callee, Arguments& arguments) {
  Step(8);
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.As<FunctionObject>().call(*this, arguments);
    case Kind::kMethod: {
      const auto& method = callee.As<MethodObject>();
      return method.call(*this, method.self, arguments);
    }
    case Kind::kMacro:
      return macros_.Call(callee.As<MacroObject>(), arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.As<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : String("");
    }
    case Kind::kLoop:
      return statements_.CallLoop(callee.As<LoopObject>(), arguments);
    case Kind::kUndefined:
      FailUndefined(callee);
    default:
      Fail("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
}

}  // namespace strata::jinja
