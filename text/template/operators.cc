#include "text/template/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/integer.h"
#include "text/template/printing.h"

namespace strata::jinja {
namespace {

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.Is(Kind::kFloat) && b.Is(Kind::kFloat)) {
    return a.real() == b.real();
  }
  if (a.Is(Kind::kFloat)) {
    return !std::isnan(a.real()) && IntegerFloatOrder(b, a.real()) == 0;
  }
  if (b.Is(Kind::kFloat)) {
    return !std::isnan(b.real()) && IntegerFloatOrder(a, b.real()) == 0;
  }
  return IntegerOrder(a, b) == 0;
}

bool EqualsImpl(Runtime* runtime, const Value& a, const Value& b);

bool ItemsEqual(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&runtime](const Value& x, const Value& y) {
           return EqualsImpl(&runtime, x, y);
         });
}

bool DictsEqual(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) {
    return false;
  }
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(runtime, key);
    if (other == nullptr || !EqualsImpl(&runtime, value, *other)) {
      return false;
    }
  }
  return true;
}

// Without `runtime`, which only an `a` that is no list, tuple or dict may lack, it takes no steps.
bool EqualsImpl(Runtime* runtime, const Value& a, const Value& b) {
  std::optional<Runtime::Deeper> deeper;
  if (runtime != nullptr) {
    runtime->Step();
    deeper.emplace(*runtime);
  }
  if (a.IsNumber() && b.IsNumber()) {
    return NumbersEqual(a, b);
  }
  if (a.kind() != b.kind()) {
    return false;
  }
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (runtime != nullptr) {
        runtime->StepBytes(std::min(a.text().size(), b.text().size()));
      }
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return ItemsEqual(*runtime, a.items(), b.items());
    case Kind::kDict:
      return a.object() == b.object() ||
             DictsEqual(*runtime, a.As<DictObject>(), b.As<DictObject>());
    case Kind::kRange: {
      const auto& x = a.As<RangeObject>();
      const auto& y = b.As<RangeObject>();
      return x.size == y.size &&
             (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    case Kind::kFunction:
      return a.As<FunctionObject>().call == b.As<FunctionObject>().call;
    default:
      return a.object() == b.object();
  }
}

[[noreturn]] void FailOperands(std::string_view symbol, const Value& a, const Value& b) {
  Fail("unsupported operand type(s) for " + std::string(symbol) + ": '" + std::string(TypeName(a)) +
       "' and '" + std::string(TypeName(b)) + "'");
}

double FloorMod(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0 && ((remainder < 0) != (b < 0))) {
    remainder += b;
  }
  return remainder;
}

Value FloatBinary(Operator op, double a, double b) {
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) {
    Fail(op == Operator::kModulo ? "float modulo" : "float division by zero");
  }
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kDivide:
      return Value::Float(a / b);
    case Operator::kFloorDivide:
      return Value::Float(std::floor((a - FloorMod(a, b)) / b + 0.5));
    case Operator::kModulo:
      return Value::Float(FloorMod(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) {
    Fail("0.0 cannot be raised to a negative power");
  }
  if (a < 0 && b != std::floor(b)) {
    Fail("a negative number cannot be raised to a fractional power");
  }
  const double power = std::pow(a, b);
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) {
    Fail("(34, 'Numerical result out of range')");
  }
  return Value::Float(power);
}

Value NumberBinary(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const bool real = a.Is(Kind::kFloat) || b.Is(Kind::kFloat);
  if (real) {
    return FloatBinary(op, ToDouble(a), ToDouble(b));
  }
  if (op == Operator::kDivide) {
    if (IntegerOrder(b, Value::Int(0)) == 0) {
      Fail("division by zero");
    }
    return Value::Float(IntegerDivide(a, b));
  }
  if (op == Operator::kPower && IntegerOrder(b, Value::Int(0)) < 0) {
    return FloatBinary(op, IntegerToDouble(a), IntegerToDouble(b));
  }
  return IntegerBinary(runtime, op, a, b);
}

uint64_t RepeatCount(const Value& count) {
  if (count.Is(Kind::kBigInt)) {
    if (IntegerOrder(count, Value::Int(0)) < 0) {
      return 0;
    }
    FailLimit("a repetition of the template is too long");
  }
  return count.integer() < 0 ? 0 : static_cast<uint64_t>(count.integer());
}

Value Repeat(Runtime& runtime, const Value& sequence, const Value& count_value) {
  const uint64_t count = RepeatCount(count_value);
  if (sequence.IsString()) {
    const std::string& text = sequence.text();
    runtime.CheckBytes(text.size(), count);
    std::string repeated;
    repeated.reserve(text.size() * count);
    if (text.size() == 1) {
      repeated.assign(count, text[0]);
    } else if (!text.empty()) {
      for (uint64_t i = 0; i < count; ++i) {
        repeated += text;
      }
    }
    return runtime.String(std::move(repeated), sequence.safe());
  }
  const std::vector<Value>& items = sequence.items();
  runtime.CheckBytes(items.size() * sizeof(Value), count);
  std::vector<Value> repeated;
  repeated.reserve(items.size() * count);
  for (uint64_t i = 0; i < count && !items.empty(); ++i) {
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return sequence.Is(Kind::kList) ? runtime.List(std::move(repeated))
                                  : runtime.Tuple(std::move(repeated));
}

Value Add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.IsString() && b.IsString()) {
    runtime.CheckBytes(a.text().size() + b.text().size());
    if (a.safe() != b.safe()) {
      return runtime.String((a.safe() ? a.text() : Escaped(runtime, a.text())) +
                                (b.safe() ? b.text() : Escaped(runtime, b.text())),
                            /*safe=*/true);
    }
    return runtime.String(a.text() + b.text(), a.safe());
  }
  if (a.IsSequence() && a.kind() == b.kind()) {
    std::vector<Value> items;
    runtime.CheckBytes((a.items().size() + b.items().size()) * sizeof(Value));
    items.reserve(a.items().size() + b.items().size());
    items.insert(items.end(), a.items().begin(), a.items().end());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.Is(Kind::kList) ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
  }
  if (a.IsString() || a.IsSequence()) {
    const std::string type(TypeName(a));
    Fail("can only concatenate " + type + " (not \"" + std::string(TypeName(b)) + "\") to " + type);
  }
  FailOperands("+", a, b);
}

constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

}  // namespace

void FailUndefined(const Value& v) {
  Fail(v.object() == nullptr ? "the value is undefined" : v.As<UndefinedObject>().message);
}

double ToDouble(const Value& v) {
  if (v.Is(Kind::kFloat)) {
    return v.real();
  }
  if (v.Is(Kind::kBigInt)) {
    const double d = IntegerToDouble(v);
    if (std::isinf(d)) {
      Fail("int too large to convert to float");
    }
    return d;
  }
  if (v.IsInteger()) {
    return static_cast<double>(v.integer());
  }
  if (v.IsUndefined()) {
    FailUndefined(v);
  }
  Fail("must be real number, not " + std::string(TypeName(v)));
}

bool Truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.real() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.items().empty();
    case Kind::kDict:
      return !v.As<DictObject>().entries.empty();
    case Kind::kDictView:
      return !v.As<DictViewObject>().dict.As<DictObject>().entries.empty();
    case Kind::kRange:
      return v.As<RangeObject>().size != 0;
    default:
      return true;
  }
}

bool Equals(Runtime& runtime, const Value& a, const Value& b) { return EqualsImpl(&runtime, a, b); }

bool KeyEquals(Runtime& runtime, const Value& a, const Value& b) {
  return EqualsImpl(a.Is(Kind::kTuple) ? &runtime : nullptr, a, b);
}

int Order(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol) {
  runtime.Step();
  if (a.IsNumber() && b.IsNumber()) {
    const bool real_a = a.Is(Kind::kFloat);
    const bool real_b = b.Is(Kind::kFloat);
    if ((real_a && std::isnan(a.real())) || (real_b && std::isnan(b.real()))) {
      return 2;
    }
    if (real_a && real_b) {
      return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : 0;
    }
    return real_b   ? IntegerFloatOrder(a, b.real())
           : real_a ? -IntegerFloatOrder(b, a.real())
                    : IntegerOrder(a, b);
  }
  if (a.IsString() && b.IsString()) {
    runtime.StepBytes(std::min(a.text().size(), b.text().size()));
    const int order = a.text().compare(b.text());  // UTF-8 orders as code points do.
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.IsSequence() && a.kind() == b.kind()) {
    const Runtime::Deeper deeper(runtime);
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (!Equals(runtime, a.items()[i], b.items()[i])) {
        return Order(runtime, a.items()[i], b.items()[i], symbol);
      }
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  if (a.IsUndefined() || b.IsUndefined()) {
    FailUndefined(a.IsUndefined() ? a : b);
  }
  Fail("'" + std::string(symbol) + "' not supported between instances of '" +
       std::string(TypeName(a)) + "' and '" + std::string(TypeName(b)) + "'");
}

Value Binary(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const std::string_view symbol = kSymbols[static_cast<size_t>(op)];
  if (a.IsUndefined() || b.IsUndefined()) {
    // The text on the left of % may print undefined values.
    if (!(op == Operator::kModulo && a.IsString())) {
      FailUndefined(a.IsUndefined() ? a : b);
    }
  }
  if (a.IsNumber() && b.IsNumber()) {
    return NumberBinary(runtime, op, a, b);
  }
  switch (op) {
    case Operator::kAdd:
      return Add(runtime, a, b);
    case Operator::kMultiply: {
      const bool left = a.IsString() || a.IsSequence();
      const bool right = b.IsString() || b.IsSequence();
      if (left && (b.IsInteger() || b.Is(Kind::kBigInt))) {
        return Repeat(runtime, a, b);
      }
      if (right && (a.IsInteger() || a.Is(Kind::kBigInt))) {
        return Repeat(runtime, b, a);
      }
      if (left || right) {
        Fail("can't multiply sequence by non-int of type '" + std::string(TypeName(left ? b : a)) +
             "'");
      }
      break;
    }
    case Operator::kModulo:
      if (a.IsString()) {
        return PercentFormat(runtime, a, b);
      }
      break;
    default:
      break;
  }
  FailOperands(symbol, a, b);
}

bool Compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const std::string_view symbol = kSymbols[static_cast<size_t>(op)];
  switch (op) {
    case Operator::kEqual:
      return Equals(runtime, a, b);
    case Operator::kNotEqual:
      return !Equals(runtime, a, b);
    case Operator::kLess:
      return Order(runtime, a, b, symbol) == -1;
    case Operator::kLessEqual: {
      const int order = Order(runtime, a, b, symbol);
      return order == -1 || order == 0;
    }
    case Operator::kGreater:
      return Order(runtime, a, b, symbol) == 1;
    case Operator::kGreaterEqual: {
      const int order = Order(runtime, a, b, symbol);
      return order == 1 || order == 0;
    }
    case Operator::kIn:
      return Contains(runtime, b, a);
    default:
      return !Contains(runtime, b, a);
  }
}

Value Negate(Runtime& runtime, const Value& v) {
  if (v.Is(Kind::kFloat)) {
    return Value::Float(-v.real());
  }
  if (v.IsNumber()) {
    return IntegerNegate(runtime, v);
  }
  if (v.IsUndefined()) {
    FailUndefined(v);
  }
  Fail("bad operand type for unary -: '" + std::string(TypeName(v)) + "'");
}

Value Positive(Runtime& runtime, const Value& v) {
  if (v.Is(Kind::kBool)) {
    return Value::Int(v.integer());
  }
  if (v.IsNumber()) {
    return v;
  }
  if (v.IsUndefined()) {
    FailUndefined(v);
  }
  Fail("bad operand type for unary +: '" + std::string(TypeName(v)) + "'");
}

}  // namespace strata::jinja
