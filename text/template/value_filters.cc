// Filters that convert single values.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/text.h"
#include "text/unicode/python_text.h"

namespace strata::jinja {
namespace {

Value Default(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool replaces = input.IsUndefined() || (parameters.IsTrue(1) && !Truth(input));
  return replaces ? parameters.GetOr(0, Value::Constant("")) : input;
}

Value StringFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("string", arguments);
  return StringOf(runtime, input);
}

Value IntFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  const Value fallback = parameters.GetOr(0, Value::Int(0));
  const int64_t base = parameters.Integer(1, 10);
  if (input.IsUndefined()) {
    FailUndefined(input);
  }
  double real = 0;
  if (input.IsString()) {
    Value result;
    runtime.Step(std::min(input.text().size(), kMaxIntegerDigits) * 4);
    if ((base == 0 || (base >= 2 && base <= 36)) &&
        ParseInteger(runtime.budget(), python::Strip(input.text(), python::Side::kBoth),
                     static_cast<int>(base), &result)) {
      return result;
    }
    if (!ParseFloat(input.text(), &real)) {
      return fallback;
    }
  } else if (input.Is(Kind::kFloat)) {
    real = input.real();
  } else {
    return input.IsNumber() ? Positive(runtime, input) : fallback;
  }
  return std::isfinite(real) ? IntegerOf(runtime, real) : fallback;
}

Value FloatFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  const Value fallback = parameters.GetOr(0, Value::Float(0));
  if (input.IsUndefined()) {
    FailUndefined(input);
  }
  double real = 0;
  if (input.IsString()) {
    return ParseFloat(input.text(), &real) ? Value::Float(real) : fallback;
  }
  if (!input.IsNumber()) {
    return fallback;
  }
  return Value::Float(ToDouble(input));
}

Value Abs(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("abs", arguments);
  if (input.Is(Kind::kFloat)) {
    return Value::Float(std::abs(input.real()));
  }
  if (!input.IsNumber()) {
    if (input.IsUndefined()) {
      FailUndefined(input);
    }
    Fail("bad operand type for abs(): '" + std::string(TypeName(input)) + "'");
  }
  return IntegerOrder(input, Value::Int(0)) < 0 ? IntegerNegate(runtime, input)
                                                : Positive(runtime, input);
}

// An integer to the next multiple of 10 ** digits, ties to the even one.
Value RoundInteger(Runtime& runtime, const Value& v, int64_t digits) {
  if (digits > static_cast<int64_t>(kMaxIntegerDigits)) {
    return Value::Int(0);
  }
  const Value unit = IntegerBinary(runtime, Operator::kPower, Value::Int(10), Value::Int(digits));
  const Value quotient = IntegerBinary(runtime, Operator::kFloorDivide, v, unit);
  const Value twice = IntegerBinary(runtime, Operator::kMultiply, Value::Int(2),
                                    IntegerBinary(runtime, Operator::kModulo, v, unit));
  const int order = IntegerOrder(twice, unit);
  const bool up = order > 0 || (order == 0 && IntegerIsOdd(quotient));
  const Value rounded =
      up ? IntegerBinary(runtime, Operator::kAdd, quotient, Value::Int(1)) : quotient;
  return IntegerBinary(runtime, Operator::kMultiply, rounded, unit);
}

double RoundFloat(Runtime& runtime, double d, int64_t digits) {
  if (!std::isfinite(d) || digits > 330) {
    return d;
  }
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 400)));
    return std::isinf(unit) ? 0 : std::nearbyint(d / unit) * unit;
  }
  // The exact decimal value is rounded, as Python does.
  return std::strtod(FormatFloat(runtime, d, 'f', digits, false).c_str(), nullptr);
}

Value Round(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  const int64_t precision = parameters.Integer(0, 0);
  const std::string method = parameters.Has(1) ? parameters.Text(1) : "common";
  if (method == "common") {
    if (input.IsNumber() && !input.Is(Kind::kFloat)) {
      return precision >= 0 ? Positive(runtime, input) : RoundInteger(runtime, input, -precision);
    }
    return Value::Float(RoundFloat(runtime, ToDouble(input), precision));
  }
  if (method != "ceil" && method != "floor") {
    Fail("method must be common, ceil or floor");
  }
  const double unit =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -400, 400)));
  const double scaled = ToDouble(input) * unit;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value ToJsonFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = parameters.IsTrue(0);
  options.sort_keys = parameters.IsTrue(3);
  if (parameters.Has(1) && !parameters.Get(1).Is(Kind::kNone)) {
    if (parameters.Get(1).IsString()) {
      options.indent = parameters.Get(1).text();
    } else {
      const int64_t width = std::max<int64_t>(parameters.Integer(1, 0), 0);
      runtime.CheckBytes(static_cast<size_t>(width));
      options.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (parameters.Has(2) && !parameters.Get(2).Is(Kind::kNone)) {
    const Items pair(runtime, parameters.Get(2));
    if (pair.size() != 2 || !pair[0].IsString() || !pair[1].IsString()) {
      Fail("tojson: separators must be two strings");
    }
    options.item_separator = pair[0].text();
    options.key_separator = pair[1].text();
  }
  return runtime.String(ToJson(runtime, input, options));
}

Value Pprint(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("pprint", arguments);
  return runtime.String(ToRepr(runtime, input, /*sort_keys=*/true));
}

Value Attr(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("attr", arguments, {"name"});
  return GetAttributeOnly(runtime, input, ToString(runtime, parameters.Get(0)));
}

Value ItemPairs(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("items", arguments);
  return runtime.Lazily([&](std::vector<Value>* pairs) {
    if (input.IsUndefined()) {
      return;
    }
    if (!input.Is(Kind::kDict)) {
      Fail("Can only get item pairs from a mapping.");
    }
    for (const auto& [key, value] : input.As<DictObject>().entries) {
      pairs->push_back(runtime.Tuple({key, value}));
    }
  });
}

Value LengthFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("length", arguments);
  if (input.IsString()) {
    runtime.StepCharacters(input.text().size() / 4);
  }
  return Value::Int(Length(input));
}

constexpr FilterEntry kOfValues[] = {
    {"default", &Default},    {"d", &Default}, {"string", &StringFilter}, {"int", &IntFilter},
    {"float", &FloatFilter},  {"abs", &Abs},   {"round", &Round},         {"tojson", &ToJsonFilter},
    {"pprint", &Pprint},      {"attr", &Attr}, {"items", &ItemPairs},     {"length", &LengthFilter},
    {"count", &LengthFilter},
};

}  // namespace

const std::span<const FilterEntry> kValueFilters(kOfValues);

}  // namespace strata::jinja
