#include "text/template/statement_runner.h"

#include <utility>

#include "text/template/builtins.h"
#include "text/template/failure.h"
#include "text/template/operators.h"
#include "text/template/parser.h"

namespace strata::jinja {

StatementRunner::Flow StatementRunner::Execute(const Block& block) {
  for (const Statement* statement : block) {
    const Flow flow = ExecuteOne(*statement);
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

StatementRunner::Flow StatementRunner::ExecuteOne(const Statement& statement) {
  runtime_.Step();
  const Runtime::Deeper deeper(runtime_);
  expressions_.set_line(statement.line);
  switch (statement.kind) {
    case Statement::Kind::kText:
      output_.Write(statement.text);
      return Flow::kNext;
    case Statement::Kind::kPrint:
      output_.Print(expressions_.Eval(*statement.expression));
      return Flow::kNext;
    case Statement::Kind::kIf:
      return ExecuteIf(statement);
    case Statement::Kind::kFor:
      return ExecuteLoop(statement, expressions_.Eval(*statement.expression), scopes_.current(), 0);
    case Statement::Kind::kSet:
      scopes_.Assign(*statement.target, expressions_.Eval(*statement.expression));
      return Flow::kNext;
    case Statement::Kind::kSetBlock:
      return ExecuteSetBlock(statement);
    case Statement::Kind::kMacro:
      DefineMacro(statement);
      return Flow::kNext;
    case Statement::Kind::kCall:
      ExecuteCall(statement);
      return Flow::kNext;
    case Statement::Kind::kFilter:
      return ExecuteFilter(statement);
    case Statement::Kind::kWith:
      return ExecuteWith(statement);
    case Statement::Kind::kScope:
      return ExecuteIn(std::make_shared<Scope>(scopes_.current()), statement.body);
    case Statement::Kind::kBlock:
      return ExecuteIn(std::make_shared<Scope>(scopes_.root()), statement.body);
    case Statement::Kind::kAutoescape:
      return ExecuteAutoescape(statement);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
    case Statement::Kind::kUnsupported:
      Fail(statement.text);
  }
  return Flow::kNext;
}

StatementRunner::Flow StatementRunner::ExecuteIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (Truth(expressions_.Eval(*condition))) {
      return Execute(body);
    }
  }
  return Execute(statement.otherwise);
}

StatementRunner::Flow StatementRunner::ExecuteIn(std::shared_ptr<Scope> scope, const Block& block) {
  const Scopes::Enter inside(scopes_, std::move(scope));
  return Execute(block);
}

std::string StatementRunner::Capture(std::shared_ptr<Scope> scope, const Block& block, Flow* flow) {
  Output::Capture capture(output_);
  *flow = ExecuteIn(std::move(scope), block);
  return capture.Take();
}

StatementRunner::Flow StatementRunner::ExecuteLoop(const Statement& statement,
                                                   const Value& iterable,
                                                   std::shared_ptr<Scope> around, int64_t depth0) {
  const Runtime::Kept loop(
      runtime_, std::make_shared<LoopObject>(runtime_, scopes_, expressions_, statement, around,
                                             iterable, depth0));
  const Value loop_value = loop.AsValue(Kind::kLoop);
  std::shared_ptr<Scope> turn;
  bool any = false;
  Value item;
  while (loop->TakeItem(&item)) {
    any = true;
    runtime_.Step(2);
    if (turn == nullptr || turn.use_count() > 1) {
      turn = std::make_shared<Scope>(around);  // A macro of the last turn keeps that one.
    } else {
      turn->variables.clear();
    }
    const Scopes::Enter inside(scopes_, turn);
    turn->Set(kNameLoop, loop_value);
    scopes_.Assign(*statement.target, item);
    if (Execute(statement.body) == Flow::kBreak) {
      break;
    }
  }
  // A break in the else part is one of the loop around this one.
  return any ? Flow::kNext
             : ExecuteIn(std::make_shared<Scope>(std::move(around)), statement.otherwise);
}

Value StatementRunner::CallLoop(const LoopObject& loop, Arguments& arguments) {
  if (!loop.statement().recursive) {
    Fail("the loop must have the 'recursive' marker to be called recursively");
  }
  const Parameters parameters("loop", arguments, {"iterable"});
  const Runtime::Deeper deeper(runtime_);
  Output::Capture capture(output_);
  ExecuteLoop(loop.statement(), parameters.Get(0), loop.around(), loop.depth0() + 1);
  return runtime_.String(capture.Take(), runtime_.autoescape());
}

StatementRunner::Flow StatementRunner::ExecuteSetBlock(const Statement& statement) {
  Flow flow = Flow::kNext;
  std::string text = Capture(std::make_shared<Scope>(scopes_.current()), statement.body, &flow);
  if (flow != Flow::kNext) {
    return flow;
  }
  Value value = runtime_.String(std::move(text), runtime_.autoescape());
  if (statement.expression != nullptr) {
    value = expressions_.EvalFilters(*statement.expression, std::move(value));
  }
  scopes_.Assign(*statement.target, value);
  return Flow::kNext;
}

StatementRunner::Flow StatementRunner::ExecuteFilter(const Statement& statement) {
  Flow flow = Flow::kNext;
  std::string text = Capture(std::make_shared<Scope>(scopes_.current()), statement.body, &flow);
  if (flow == Flow::kNext) {
    const Value filtered = expressions_.EvalFilters(
        *statement.expression, runtime_.String(std::move(text), runtime_.autoescape()));
    if (!filtered.IsString()) {
      Fail("the filter of a block made " + std::string(TypeName(filtered)) + " of it, not str");
    }
    output_.Print(filtered);
  }
  return flow;
}

StatementRunner::Flow StatementRunner::ExecuteWith(const Statement& statement) {
  auto inner = std::make_shared<Scope>(scopes_.current());
  for (const auto& [target, expression] : statement.bindings) {
    const Value value = expressions_.Eval(*expression);
    const Scopes::Enter inside(scopes_, inner);
    scopes_.Assign(*target, value);
  }
  return ExecuteIn(std::move(inner), statement.body);
}

StatementRunner::Flow StatementRunner::ExecuteAutoescape(const Statement& statement) {
  const bool outer = runtime_.autoescape();
  runtime_.set_autoescape(Truth(expressions_.Eval(*statement.expression)));
  const Flow flow = ExecuteIn(std::make_shared<Scope>(scopes_.current()), statement.body);
  runtime_.set_autoescape(outer);
  return flow;
}

std::shared_ptr<MacroObject> StatementRunner::NewMacro(const MacroNode* node) {
  return std::make_shared<MacroObject>(runtime_.budget(), node, scopes_.current());
}

void StatementRunner::DefineMacro(const Statement& statement) {
  auto macro = NewMacro(statement.macro);
  runtime_.Keep(macro);
  scopes_.current()->Set(statement.macro->name_id, Value(Kind::kMacro, std::move(macro)));
}

void StatementRunner::ExecuteCall(const Statement& statement) {
  const Expression& call = *statement.expression;
  const Value callee = expressions_.Eval(*call.operands[0]);
  const Runtime::Kept caller(runtime_, NewMacro(statement.macro));
  Arguments arguments = expressions_.EvalArguments(call.arguments);
  arguments.named.emplace_back("caller", caller.AsValue(Kind::kMacro));
  output_.Print(runtime_.Call(callee, arguments));
}

}  // namespace strata::jinja
