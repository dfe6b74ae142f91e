#include "text/template/evaluator.h"

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/operators.h"
#include "text/template/parser.h"
#include "text/template/printing.h"

namespace strata::jinja {

void Scope::Set(int name, Value value) {
  if (Value* found = Find(name)) {
    *found = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Evaluator::Evaluator(const Program& program, const TemplateLimits& limits, int64_t now_s)
    : Runtime(limits, now_s),
      program_(program),
      root_(std::make_shared<Scope>(nullptr)),
      scope_(root_),
      globals_(program.names.size()) {}

Evaluator::~Evaluator() {
  // Breaks the cycles, one object at a time, so that no chain of them is destroyed recursively.
  for (const auto& scope : captured_scopes_) {
    scope->variables.clear();
  }
  ClearNamespaces();
  root_->variables.clear();
}

std::string Evaluator::Render(const nlohmann::ordered_json& variables) {
  try {
    DefineVariables(variables);
    Execute(program_.body);
  } catch (Failure& failure) {
    if (failure.line == 0) {
      failure.line = line_;
    }
    throw;
  }
  return std::move(output_);
}

Evaluator::Flow Evaluator::Execute(const Block& block) {
  for (const Statement* statement : block) {
    const Flow flow = ExecuteOne(*statement);
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecuteOne(const Statement& statement) {
  Step();
  const Deeper deeper(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::kText:
      Write(statement.text);
      return Flow::kNext;
    case Statement::Kind::kPrint:
      Print(Eval(*statement.expression));
      return Flow::kNext;
    case Statement::Kind::kIf:
      return ExecuteIf(statement);
    case Statement::Kind::kFor:
      return RunLoop(statement, Eval(*statement.expression), scope_, 0);
    case Statement::Kind::kSet:
      Assign(*statement.target, Eval(*statement.expression));
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
      return ExecuteIn(std::make_shared<Scope>(scope_), statement.body);
    case Statement::Kind::kBlock:
      return ExecuteIn(std::make_shared<Scope>(root_), statement.body);
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

Evaluator::Flow Evaluator::ExecuteIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (Truth(Eval(*condition))) {
      return Execute(body);
    }
  }
  return Execute(statement.otherwise);
}

Evaluator::Flow Evaluator::ExecuteIn(std::shared_ptr<Scope> scope, const Block& block) {
  std::swap(scope_, scope);
  const Flow flow = Execute(block);
  std::swap(scope_, scope);
  return flow;
}

std::string Evaluator::Capture(std::shared_ptr<Scope> scope, const Block& block, Flow* flow) {
  std::string captured;
  std::string* const outer = std::exchange(out_, &captured);
  *flow = ExecuteIn(std::move(scope), block);
  out_ = outer;
  output_bytes_ -= captured.size();
  return captured;
}

Evaluator::Flow Evaluator::ExecuteSetBlock(const Statement& statement) {
  Flow flow = Flow::kNext;
  std::string text = Capture(std::make_shared<Scope>(scope_), statement.body, &flow);
  if (flow != Flow::kNext) {
    return flow;
  }
  Value value = String(std::move(text), autoescape());
  if (statement.expression != nullptr) {
    block_input_ = std::move(value);
    value = Eval(*statement.expression);
  }
  Assign(*statement.target, value);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecuteFilter(const Statement& statement) {
  Flow flow = Flow::kNext;
  std::string text = Capture(std::make_shared<Scope>(scope_), statement.body, &flow);
  if (flow == Flow::kNext) {
    block_input_ = String(std::move(text), autoescape());
    const Value filtered = Eval(*statement.expression);
    if (!filtered.IsString()) {
      Fail("the filter of a block made " + std::string(TypeName(filtered)) + " of it, not str");
    }
    Print(filtered);
  }
  return flow;
}

Evaluator::Flow Evaluator::ExecuteWith(const Statement& statement) {
  auto inner = std::make_shared<Scope>(scope_);
  for (const auto& [target, expression] : statement.bindings) {
    const Value value = Eval(*expression);
    const std::shared_ptr<Scope> outer = std::exchange(scope_, inner);
    Assign(*target, value);
    scope_ = outer;
  }
  return ExecuteIn(std::move(inner), statement.body);
}

Evaluator::Flow Evaluator::ExecuteAutoescape(const Statement& statement) {
  const bool outer = autoescape();
  set_autoescape(Truth(Eval(*statement.expression)));
  const Flow flow = ExecuteIn(std::make_shared<Scope>(scope_), statement.body);
  set_autoescape(outer);
  return flow;
}

void Evaluator::Write(std::string_view text) {
  output_bytes_ += text.size();
  if (output_bytes_ > limits().max_output_bytes) {
    FailLimit("the template writes more than " + std::to_string(limits().max_output_bytes) +
              " bytes");
  }
  StepBytes(text.size());
  out_->append(text);
}

void Evaluator::Print(const Value& value) {
  if (value.IsUndefined()) {
    return;
  }
  if (value.IsString()) {
    if (autoescape() && !value.safe()) {
      CheckBytes(value.text().size(), 6);
      Write(Escaped(*this, value.text()));
    } else {
      Write(value.text());
    }
    return;
  }
  const std::string text = ToString(*this, value);
  Write(autoescape() ? Escaped(*this, text) : text);
}

void Evaluator::Assign(const Expression& target, const Value& value) {
  Step(1 + scope_->variables.size() / 16);
  switch (target.kind) {
    case Expression::Kind::kName:
      scope_->Set(target.name, value);
      return;
    case Expression::Kind::kMember:
      AssignMember(target, value);
      return;
    default:
      break;
  }
  const size_t wanted = target.operands.size();
  if (!value.IsUndefined() && !value.IsString() && value.kind() < Kind::kString) {
    Fail("cannot unpack non-iterable " + std::string(TypeName(value)) + " object");
  }
  const Items items(*this, value);
  if (items.size() < wanted) {
    Fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
         std::to_string(items.size()) + ")");
  }
  if (items.size() > wanted) {
    Fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
  }
  for (size_t i = 0; i < wanted; ++i) {
    Assign(*target.operands[i], items[i]);
  }
}

void Evaluator::AssignMember(const Expression& target, const Value& value) {
  const Value object = EvalName(target.name);
  if (!object.Is(Kind::kNamespace)) {
    Fail("cannot assign attribute on non-namespace object");
  }
  SetMember(object, target.value.text(), value);
}

// The class of a value's attribute decides who answers; the rest is in attributes.cc.
Value Evaluator::Attribute(const Value& object, std::string_view name) {
  if (object.Is(Kind::kLoop)) {
    return LoopAttribute(object, name);
  }
  if (object.Is(Kind::kMacro)) {
    return MacroAttribute(object.As<MacroObject>(), name);
  }
  return GetAttribute(*this, object, name);
}

}  // namespace strata::jinja
