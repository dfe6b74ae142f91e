// Tests: what may follow `is`.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/printing.h"

namespace strata::jinja {
namespace {

template <bool (*kTest)(const Value&)>
bool Plain(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("test", arguments);
  return kTest(input);
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsNotDefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.Is(Kind::kNone); }
bool IsBoolean(const Value& v) { return v.Is(Kind::kBool); }
bool IsTrueValue(const Value& v) { return v.Is(Kind::kBool) && v.boolean(); }
bool IsFalseValue(const Value& v) { return v.Is(Kind::kBool) && !v.boolean(); }
bool IsIntegerValue(const Value& v) { return v.Is(Kind::kInt) || v.Is(Kind::kBigInt); }
bool IsFloat(const Value& v) { return v.Is(Kind::kFloat); }
bool IsNumberValue(const Value& v) { return v.IsNumber(); }
bool IsStringValue(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.Is(Kind::kDict); }
bool IsEscaped(const Value& v) { return v.IsString() && v.safe(); }

bool IsSequenceValue(const Value& v) {
  return v.IsString() || v.IsSequence() || v.Is(Kind::kDict) || v.Is(Kind::kRange) ||
         v.IsUndefined();
}

bool IsIterable(const Value& v) {
  return IsSequenceValue(v) || v.Is(Kind::kDictView) || v.Is(Kind::kIterator) || v.Is(Kind::kLoop);
}

bool IsCallable(const Value& v) {
  return v.Is(Kind::kFunction) || v.Is(Kind::kMethod) || v.Is(Kind::kMacro) || v.Is(Kind::kLoop) ||
         v.Is(Kind::kJoiner) || v.IsUndefined();
}

template <bool kOdd>
bool Parity(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing(kOdd ? "odd" : "even", arguments);
  const Value rest = Binary(runtime, Operator::kModulo, input, Value::Int(2));
  return Equals(runtime, rest, Value::Int(kOdd ? 1 : 0));
}

bool DivisibleBy(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("divisibleby", arguments, {"num"});
  const Value rest = Binary(runtime, Operator::kModulo, input, parameters.Get(0));
  return Equals(runtime, rest, Value::Int(0));
}

template <Operator kOp>
bool Compared(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("test", arguments, {"other"});
  return Compare(runtime, kOp, input, parameters.Get(0));
}

// Identity: small values are the same where they are equal and of one type.
bool SameAs(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("sameas", arguments, {"other"});
  const Value& other = parameters.Get(0);
  if (input.kind() != other.kind()) {
    return false;
  }
  const bool by_value = input.IsNumber() || input.Is(Kind::kNone) || input.IsString();
  return by_value ? Equals(runtime, input, other) : input.object() == other.object();
}

template <bool kUpper>
bool IsCase(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing(kUpper ? "upper" : "lower", arguments);
  const Value method =
      FindMethod(runtime, StringOf(runtime, input), kUpper ? "isupper" : "islower");
  Arguments none;
  return Truth(runtime.Call(method, none));
}

template <bool kFilterNames>
bool IsKnown(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("test", arguments);
  return input.IsString() &&
         (kFilterNames ? FindFilter(input.text()) != nullptr : FindTest(input.text()) != nullptr);
}

constexpr TestEntry kTests[] = {
    {"defined", &Plain<&IsDefined>},
    {"undefined", &Plain<&IsNotDefined>},
    {"none", &Plain<&IsNone>},
    {"boolean", &Plain<&IsBoolean>},
    {"true", &Plain<&IsTrueValue>},
    {"false", &Plain<&IsFalseValue>},
    {"integer", &Plain<&IsIntegerValue>},
    {"float", &Plain<&IsFloat>},
    {"number", &Plain<&IsNumberValue>},
    {"string", &Plain<&IsStringValue>},
    {"mapping", &Plain<&IsMapping>},
    {"sequence", &Plain<&IsSequenceValue>},
    {"iterable", &Plain<&IsIterable>},
    {"callable", &Plain<&IsCallable>},
    {"escaped", &Plain<&IsEscaped>},
    {"odd", &Parity<true>},
    {"even", &Parity<false>},
    {"divisibleby", &DivisibleBy},
    {"eq", &Compared<Operator::kEqual>},
    {"equalto", &Compared<Operator::kEqual>},
    {"==", &Compared<Operator::kEqual>},
    {"ne", &Compared<Operator::kNotEqual>},
    {"!=", &Compared<Operator::kNotEqual>},
    {"lt", &Compared<Operator::kLess>},
    {"lessthan", &Compared<Operator::kLess>},
    {"<", &Compared<Operator::kLess>},
    {"le", &Compared<Operator::kLessEqual>},
    {"<=", &Compared<Operator::kLessEqual>},
    {"gt", &Compared<Operator::kGreater>},
    {"greaterthan", &Compared<Operator::kGreater>},
    {">", &Compared<Operator::kGreater>},
    {"ge", &Compared<Operator::kGreaterEqual>},
    {">=", &Compared<Operator::kGreaterEqual>},
    {"in", &Compared<Operator::kIn>},
    {"sameas", &SameAs},
    {"upper", &IsCase<true>},
    {"lower", &IsCase<false>},
    {"filter", &IsKnown<true>},
    {"test", &IsKnown<false>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const TestEntry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace strata::jinja
