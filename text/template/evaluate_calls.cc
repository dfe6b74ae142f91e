// The evaluator's macros and loops.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/evaluator.h"
#include "text/template/operators.h"
#include "text/template/parser.h"

namespace strata::jinja {

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
      return CallMacro(callee.As<MacroObject>(), arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.As<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : String("");
    }
    case Kind::kLoop: {
      const auto& loop = callee.As<LoopObject>();
      if (!loop.statement->recursive) {
        Fail("the loop must have the 'recursive' marker to be called recursively");
      }
      const Parameters parameters("loop", arguments, {"iterable"});
      const Deeper deeper(*this);
      std::string captured;
      std::string* const outer = std::exchange(out_, &captured);
      RunLoop(*loop.statement, parameters.Get(0), loop.scope, loop.depth0 + 1);
      out_ = outer;
      output_bytes_ -= captured.size();
      return String(std::move(captured), autoescape());
    }
    case Kind::kUndefined:
      FailUndefined(callee);
    default:
      Fail("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
}

void Evaluator::DefineMacro(const Statement& statement) {
  auto macro = std::make_shared<MacroObject>(budget(), statement.macro, scope_);
  if (captured_scopes_.empty() || captured_scopes_.back() != scope_) {
    captured_scopes_.push_back(scope_);
  }
  scope_->Set(statement.macro->name_id, Value(Kind::kMacro, std::move(macro)));
}

void Evaluator::ExecuteCall(const Statement& statement) {
  const Expression& call = *statement.expression;
  const Value callee = Eval(*call.operands[0]);
  Arguments arguments = EvalArguments(call.arguments);
  arguments.named.emplace_back(
      "caller",
      Value(Kind::kMacro, std::make_shared<MacroObject>(budget(), statement.macro, scope_)));
  Print(Call(callee, arguments));
}

void Evaluator::BindParameters(const MacroObject& macro, Arguments& arguments) {
  const MacroNode& node = *macro.node;
  const size_t count = node.parameters.size();
  const size_t first_default = count - node.defaults.size();
  const auto take_named = [&arguments](std::string_view name, Value* value) {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [name](const auto& entry) { return entry.first == name; });
    if (found == arguments.named.end()) {
      return false;
    }
    *value = std::move(found->second);
    arguments.named.erase(found);
    return true;
  };
  for (size_t i = 0; i < count; ++i) {
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!take_named(node.parameters[i], &value)) {
      value = i >= first_default
                  ? Eval(*node.defaults[i - first_default])
                  : Value::Undefined("parameter '" + node.parameters[i] + "' was not provided");
    }
    scope_->Set(node.parameter_ids[i], std::move(value));
  }
  if (node.uses_caller && scope_->Find(kNameCaller) == nullptr) {
    Value caller = Value::Undefined("No caller defined");
    take_named("caller", &caller);
    scope_->Set(kNameCaller, std::move(caller));
  }
  if (node.uses_kwargs) {
    DictObject::Entries entries;
    for (auto& [name, value] : arguments.named) {
      entries.emplace_back(String(name), std::move(value));
    }
    scope_->Set(kNameKwargs, Dict(std::move(entries)));
  } else if (!arguments.named.empty()) {
    Fail("macro '" + node.name + "' takes no keyword argument '" + arguments.named[0].first + "'");
  }
  if (node.uses_varargs) {
    const size_t extra = std::min(count, arguments.positional.size());
    arguments.positional.erase(arguments.positional.begin(),
                               arguments.positional.begin() + static_cast<ptrdiff_t>(extra));
    scope_->Set(kNameVarargs, Tuple(std::move(arguments.positional)));
  } else if (arguments.positional.size() > count) {
    Fail("macro '" + node.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
}

Value Evaluator::CallMacro(const MacroObject& macro, Arguments& arguments) {
  const Deeper deeper(*this);
  if (++call_depth_ > limits().max_depth) {
    FailLimit("the macros of the template call each other deeper than " +
              std::to_string(limits().max_depth) + " levels");
  }
  const int line = line_;
  auto inner = std::make_shared<Scope>(macro.scope);
  const std::shared_ptr<Scope> outer = std::exchange(scope_, inner);
  BindParameters(macro, arguments);
  Flow flow = Flow::kNext;
  std::string text = Capture(std::move(inner), macro.node->body, &flow);
  scope_ = outer;
  line_ = line;
  --call_depth_;
  return String(std::move(text), autoescape());
}

Value Evaluator::MacroAttribute(const MacroObject& macro, std::string_view name) {
  if (name == "name") {
    return String(macro.node->name);
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : macro.node->parameters) {
      names.push_back(String(parameter));
    }
    return Tuple(std::move(names));
  }
  if (name == "catch_kwargs") {
    return Value::Bool(macro.node->uses_kwargs);
  }
  if (name == "catch_varargs") {
    return Value::Bool(macro.node->uses_varargs);
  }
  if (name == "caller") {
    return Value::Bool(macro.node->uses_caller);
  }
  return Value::Undefined("'Macro object' has no attribute '" + std::string(name) + "'");
}

Evaluator::Flow Evaluator::RunLoop(const Statement& statement, const Value& iterable,
                                   std::shared_ptr<Scope> around, int64_t depth0) {
  auto loop = std::make_shared<LoopObject>(budget(), *this, &statement, around, iterable, depth0);
  const Value loop_value(Kind::kLoop, loop);
  const std::shared_ptr<Scope> outer = scope_;
  std::shared_ptr<Scope> turn;
  bool any = false;
  Value item;
  while (TakeItem(loop.get(), &item)) {
    any = true;
    Step(2);
    if (turn == nullptr || turn.use_count() > 1 + (scope_ == turn ? 1 : 0)) {
      turn = std::make_shared<Scope>(around);  // A macro of the last turn keeps that one.
    } else {
      turn->variables.clear();
    }
    scope_ = turn;
    scope_->Set(kNameLoop, loop_value);
    Assign(*statement.target, item);
    if (Execute(statement.body) == Flow::kBreak) {
      break;
    }
  }
  scope_ = outer;
  // A break in the else part is one of the loop around this one.
  return any ? Flow::kNext
             : ExecuteIn(std::make_shared<Scope>(std::move(around)), statement.otherwise);
}

bool Evaluator::TakeRaw(LoopObject* loop, Value* item) {
  if (loop->length) {
    if (loop->next_of_rest == loop->rest.size()) {
      return false;
    }
    *item = loop->rest[loop->next_of_rest++];
    return true;
  }
  const Statement& statement = *loop->statement;
  while (loop->next < loop->items.size()) {
    Step();
    *item = loop->items[loop->next++];
    if (statement.condition == nullptr) {
      return true;
    }
    const std::shared_ptr<Scope> outer =
        std::exchange(scope_, std::make_shared<Scope>(loop->scope));
    Assign(*statement.target, *item);
    const bool passes = Truth(Eval(*statement.condition));
    scope_ = outer;
    if (passes) {
      return true;
    }
  }
  return false;
}

bool Evaluator::TakeItem(LoopObject* loop, Value* item) {
  if (loop->ahead) {
    *item = std::move(*loop->ahead);
    loop->ahead.reset();
  } else if (!TakeRaw(loop, item)) {
    return false;
  }
  ++loop->index0;
  loop->previous = std::move(loop->current);
  loop->current = *item;
  return true;
}

const Value* Evaluator::PeekItem(LoopObject* loop) {
  if (!loop->ahead) {
    Value item;
    if (!TakeRaw(loop, &item)) {
      return nullptr;
    }
    loop->ahead = std::move(item);
  }
  return &*loop->ahead;
}

int64_t Evaluator::LoopLength(LoopObject* loop) {
  if (loop->length) {
    return *loop->length;
  }
  if (loop->statement->condition == nullptr) {
    return static_cast<int64_t>(loop->items.size());
  }
  std::vector<Value> rest;
  for (Value item; TakeRaw(loop, &item);) {
    rest.push_back(std::move(item));
  }
  loop->rest = std::move(rest);
  loop->length = static_cast<int64_t>(loop->rest.size()) + loop->index0 + 1 + (loop->ahead ? 1 : 0);
  return *loop->length;
}

namespace {

Value LoopCycle(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) {
    Fail("no items for cycling given");
  }
  const auto index = static_cast<size_t>(std::max<int64_t>(self.As<LoopObject>().index0, 0));
  return arguments.positional[index % arguments.positional.size()];
}

Value LoopChanged(Runtime& runtime, const Value& self, Arguments& arguments) {
  auto& loop = self.As<LoopObject>();
  const auto same = [&] {
    return loop.watched && loop.watched->size() == arguments.positional.size() &&
           std::equal(loop.watched->begin(), loop.watched->end(), arguments.positional.begin(),
                      [&](const Value& a, const Value& b) { return Equals(runtime, a, b); });
  };
  if (same()) {
    return Value::Bool(false);
  }
  loop.watched = std::move(arguments.positional);
  return Value::Bool(true);
}

}  // namespace

Value Evaluator::LoopAttribute(const Value& object, std::string_view name) {
  auto& loop = object.As<LoopObject>();
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(PeekItem(&loop) == nullptr);
  if (name == "length") return Value::Int(LoopLength(&loop));
  if (name == "revindex") return Value::Int(LoopLength(&loop) - loop.index0);
  if (name == "revindex0") return Value::Int(LoopLength(&loop) - loop.index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") {
    return loop.previous ? *loop.previous : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* next = PeekItem(&loop);
    return next != nullptr ? *next : Value::Undefined("there is no next item");
  }
  if (name == "cycle") {
    return Value(Kind::kMethod, std::make_shared<MethodObject>(object, "cycle", &LoopCycle));
  }
  if (name == "changed") {
    return Value(Kind::kMethod, std::make_shared<MethodObject>(object, "changed", &LoopChanged));
  }
  return Value::Undefined("'LoopContext object' has no attribute '" + std::string(name) + "'");
}

}  // namespace strata::jinja
