#include "text/template/expression_evaluator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/loop_object.h"
#include "text/template/macro_object.h"
#include "text/template/operators.h"
#include "text/template/printing.h"

namespace strata::jinja {

Value ExpressionEvaluator::Eval(const Expression& node) {
  runtime_.Step();
  if (node.kind == Expression::Kind::kConstant) {
    return node.value;
  }
  if (node.kind == Expression::Kind::kName) {
    return scopes_.Find(node.name);
  }
  const Runtime::Deeper deeper(runtime_);
  return EvalDispatch(node);
}

Value ExpressionEvaluator::EvalDispatch(const Expression& node) {
  switch (node.kind) {
    case Expression::Kind::kList:
      return runtime_.List(EvalAll(node.operands));
    case Expression::Kind::kTuple:
      return runtime_.Tuple(EvalAll(node.operands));
    case Expression::Kind::kDict:
      return EvalDict(node);
    case Expression::Kind::kNegate:
      return Negate(runtime_, Eval(*node.operands[0]));
    case Expression::Kind::kPositive:
      return Positive(runtime_, Eval(*node.operands[0]));
    case Expression::Kind::kNot:
      return Value::Bool(!Truth(Eval(*node.operands[0])));
    case Expression::Kind::kBinary:
      return EvalBinary(node);
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr:
      return EvalLogical(node);
    case Expression::Kind::kConcat:
      return EvalConcat(node);
    case Expression::Kind::kCompare:
      return EvalCompare(node);
    case Expression::Kind::kConditional:
      return EvalConditional(node);
    case Expression::Kind::kAttribute:
      return Attribute(Eval(*node.operands[0]), node.value.text());
    case Expression::Kind::kItem:
      return EvalItem(node);
    case Expression::Kind::kSlice:
      return EvalSlice(node);
    case Expression::Kind::kFilter:
      return EvalFilter(node);
    case Expression::Kind::kTest:
      return EvalTest(node);
    case Expression::Kind::kCall:
      return EvalCall(node);
    default:
      return Value();
  }
}

std::vector<Value> ExpressionEvaluator::EvalAll(const std::vector<Expression*>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const Expression* node : nodes) {
    values.push_back(Eval(*node));
  }
  return values;
}

Value ExpressionEvaluator::EvalDict(const Expression& node) {
  DictObject::Entries entries;
  entries.reserve(node.operands.size() / 2);
  for (size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    Value key = Eval(*node.operands[i]);
    entries.emplace_back(std::move(key), Eval(*node.operands[i + 1]));
  }
  return runtime_.Dict(std::move(entries));
}

Value ExpressionEvaluator::EvalBinary(const Expression& node) {
  if (node.operands[0]->kind != Expression::Kind::kBinary) {
    const Value left = Eval(*node.operands[0]);
    return Binary(runtime_, node.op, left, Eval(*node.operands[1]));
  }
  // A chain that leans to the left: from the bottom up, without recursion.
  std::vector<const Expression*> chain;
  const Expression* bottom = &node;
  for (; bottom->kind == Expression::Kind::kBinary; bottom = bottom->operands[0]) {
    chain.push_back(bottom);
  }
  Value left = Eval(*bottom);
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    runtime_.Step();
    left = Binary(runtime_, (*link)->op, left, Eval(*(*link)->operands[1]));
  }
  return left;
}

Value ExpressionEvaluator::EvalLogical(const Expression& node) {
  const bool stops_at = node.kind == Expression::Kind::kOr;
  std::vector<const Expression*> chain;
  const Expression* bottom = &node;
  for (; bottom->kind == node.kind; bottom = bottom->operands[0]) {
    chain.push_back(bottom);
  }
  Value left = Eval(*bottom);
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    if (Truth(left) == stops_at) {
      return left;
    }
    left = Eval(*(*link)->operands[1]);
  }
  return left;
}

Value ExpressionEvaluator::EvalConcat(const Expression& node) {
  const std::vector<Value> values = EvalAll(node.operands);
  std::string text;
  if (!runtime_.autoescape()) {
    size_t bytes = 0;
    for (const Value& value : values) {
      bytes += value.IsString() ? value.text().size() : 0;
    }
    runtime_.CheckBytes(bytes);
    text.reserve(bytes);
    for (const Value& value : values) {
      AppendString(runtime_, value, &text);
    }
    return runtime_.String(std::move(text));
  }
  const bool safe = std::any_of(values.begin(), values.end(),
                                [](const Value& v) { return v.IsString() && v.safe(); });
  for (const Value& value : values) {
    const std::string part = ToString(runtime_, value);
    text += safe && !(value.IsString() && value.safe()) ? Escaped(runtime_, part) : part;
    runtime_.CheckBytes(text.size());
  }
  return runtime_.String(std::move(text), safe);
}

Value ExpressionEvaluator::EvalCompare(const Expression& node) {
  Value left = Eval(*node.operands[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = Eval(*node.operands[i + 1]);
    if (!Compare(runtime_, node.operators[i], left, right)) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value ExpressionEvaluator::EvalConditional(const Expression& node) {
  if (Truth(Eval(*node.operands[0]))) {
    return Eval(*node.operands[1]);
  }
  if (node.operands[2] != nullptr) {
    return Eval(*node.operands[2]);
  }
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

Value ExpressionEvaluator::EvalItem(const Expression& node) {
  const Value object = Eval(*node.operands[0]);
  const Value key = Eval(*node.operands[1]);
  if ((object.Is(Kind::kLoop) || object.Is(Kind::kMacro)) && key.IsString()) {
    return Attribute(object, key.text());
  }
  return GetItem(runtime_, object, key);
}

Value ExpressionEvaluator::EvalSlice(const Expression& node) {
  const Value object = Eval(*node.operands[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const Expression* bound = node.operands[i + 1];
    bounds[i] = bound == nullptr ? Value::None() : Eval(*bound);
  }
  return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments ExpressionEvaluator::EvalArguments(const ArgumentNodes* nodes) {
  Arguments arguments;
  if (nodes == nullptr) {
    return arguments;
  }
  arguments.positional = EvalAll(nodes->positional);
  if (nodes->star != nullptr) {
    const Items items(runtime_, Eval(*nodes->star));
    for (size_t i = 0; i < items.size(); ++i) {
      arguments.positional.push_back(items[i]);
    }
  }
  for (const auto& [name, node] : nodes->named) {
    arguments.named.emplace_back(name, Eval(*node));
  }
  if (nodes->double_star != nullptr) {
    const Value mapping = Eval(*nodes->double_star);
    if (!mapping.Is(Kind::kDict)) {
      Fail("argument after ** must be a mapping, not " + std::string(TypeName(mapping)));
    }
    for (const auto& [key, value] : mapping.As<DictObject>().entries) {
      if (!key.IsString()) {
        Fail("keywords must be strings");
      }
      arguments.named.emplace_back(key.text(), value);
    }
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    runtime_.Step(i);
    for (size_t j = 0; j < i; ++j) {
      if (arguments.named[i].first == arguments.named[j].first) {
        Fail("got multiple values for keyword argument '" + arguments.named[i].first + "'");
      }
    }
  }
  return arguments;
}

Value ExpressionEvaluator::EvalFilter(const Expression& node) {
  const Value input =
      node.operands[0] == nullptr ? std::exchange(block_input_, Value()) : Eval(*node.operands[0]);
  if (node.filter == nullptr) {
    Fail("No filter named '" + node.value.text() + "'.");
  }
  Arguments arguments = EvalArguments(node.arguments);
  line_ = node.line;
  runtime_.Step(4);
  return node.filter(runtime_, input, arguments);
}

Value ExpressionEvaluator::EvalTest(const Expression& node) {
  const Value input = Eval(*node.operands[0]);
  if (node.test == nullptr) {
    Fail("No test named '" + node.value.text() + "'.");
  }
  Arguments arguments = EvalArguments(node.arguments);
  line_ = node.line;
  return Value::Bool(node.test(runtime_, input, arguments));
}

Value ExpressionEvaluator::EvalCall(const Expression& node) {
  const Value callee = Eval(*node.operands[0]);
  Arguments arguments = EvalArguments(node.arguments);
  line_ = node.line;
  return runtime_.Call(callee, arguments);
}

Value ExpressionEvaluator::EvalFilters(const Expression& chain, Value input) {
  block_input_ = std::move(input);
  return Eval(chain);
}

// The class of a value's attribute decides who answers; the rest is in attributes.cc.
Value ExpressionEvaluator::Attribute(const Value& object, std::string_view name) {
  if (object.Is(Kind::kLoop)) {
    return object.As<LoopObject>().Attribute(object, name);
  }
  if (object.Is(Kind::kMacro)) {
    return object.As<MacroObject>().Attribute(runtime_, name);
  }
  return GetAttribute(runtime_, object, name);
}

}  // namespace strata::jinja
