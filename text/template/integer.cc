#include "text/template/integer.h"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

#include "text/template/failure.h"

namespace strata::jinja {
namespace {

using Big = boost::multiprecision::cpp_int;

struct BigIntObject : Object {
  BigIntObject(Budget* budget, Big b)
      : Object(budget, 64 + kMaxIntegerBits / 64), value(std::move(b)) {}
  const Big value;
};

Big ToBig(const Value& v) {
  return v.Is(Kind::kBigInt) ? v.As<BigIntObject>().value : Big(v.integer());
}

unsigned Bits(const Big& b) {
  return b == 0 ? 0 : static_cast<unsigned>(boost::multiprecision::msb(abs(b))) + 1;
}

[[noreturn]] void FailSize() {
  FailLimit("an integer of the template has more than " + std::to_string(kMaxIntegerBits) +
            " bits");
}

Value FromBig(Budget* budget, Big b) {
  if (b >= std::numeric_limits<int64_t>::min() && b <= std::numeric_limits<int64_t>::max()) {
    return Value::Int(static_cast<int64_t>(b));
  }
  if (Bits(b) > kMaxIntegerBits) {
    FailSize();
  }
  return Value(Kind::kBigInt, std::make_shared<BigIntObject>(budget, std::move(b)));
}

void FloorDivMod(const Big& a, const Big& b, Big* quotient, Big* remainder) {
  divide_qr(a, b, *quotient, *remainder);
  if (*remainder != 0 && ((*remainder < 0) != (b < 0))) {
    *quotient -= 1;
    *remainder += b;
  }
}

Value Power(Runtime& runtime, const Big& base, const Big& exponent) {
  if (base == 0 || base == 1) {
    return FromBig(runtime.budget(), exponent == 0 ? Big(1) : base);
  }
  if (base == -1) {
    return Value::Int(exponent % 2 == 0 ? 1 : -1);
  }
  if (exponent > kMaxIntegerBits ||
      static_cast<uint64_t>(Bits(base) - 1) * static_cast<uint64_t>(exponent) > kMaxIntegerBits) {
    FailSize();
  }
  const auto count = static_cast<unsigned>(exponent);
  runtime.Step(1 + static_cast<uint64_t>(Bits(base)) * count / 64);
  return FromBig(runtime.budget(), boost::multiprecision::pow(base, count));
}

bool SmallBinary(Operator op, int64_t a, int64_t b, Value* out) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return false;
      break;
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return false;
      break;
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return false;
      break;
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (a == std::numeric_limits<int64_t>::min() && b == -1) return false;
      int64_t quotient = a / b;
      int64_t remainder = a % b;
      if (remainder != 0 && ((remainder < 0) != (b < 0))) {
        --quotient;
        remainder += b;
      }
      result = op == Operator::kModulo ? remainder : quotient;
      break;
    }
    default:
      return false;
  }
  *out = Value::Int(result);
  return true;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

}  // namespace

Value IntegerBinary(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const bool divides = op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b.IsInteger() && b.integer() == 0) {
    Fail(op == Operator::kModulo ? "integer modulo by zero" : "integer division by zero");
  }
  Value small;
  if (a.IsInteger() && b.IsInteger() && SmallBinary(op, a.integer(), b.integer(), &small)) {
    return small;
  }
  const Big x = ToBig(a);
  const Big y = ToBig(b);
  runtime.Step(1 + (static_cast<uint64_t>(Bits(x)) / 64 + 1) * (Bits(y) / 64 + 1) / 8);
  Big quotient, remainder;
  switch (op) {
    case Operator::kAdd:
      return FromBig(runtime.budget(), x + y);
    case Operator::kSubtract:
      return FromBig(runtime.budget(), x - y);
    case Operator::kMultiply:
      if (Bits(x) + Bits(y) > kMaxIntegerBits + 1) {
        FailSize();
      }
      return FromBig(runtime.budget(), x * y);
    case Operator::kFloorDivide:
      FloorDivMod(x, y, &quotient, &remainder);
      return FromBig(runtime.budget(), quotient);
    case Operator::kModulo:
      FloorDivMod(x, y, &quotient, &remainder);
      return FromBig(runtime.budget(), remainder);
    default:
      return Power(runtime, x, y);
  }
}

Value IntegerNegate(Runtime& runtime, const Value& v) {
  if (v.IsInteger() && v.integer() != std::numeric_limits<int64_t>::min()) {
    return Value::Int(-v.integer());
  }
  return FromBig(runtime.budget(), -ToBig(v));
}

double IntegerDivide(const Value& a, const Value& b) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (a.IsInteger() && b.IsInteger() && std::abs(a.integer()) <= kExact &&
      std::abs(b.integer()) <= kExact) {
    return static_cast<double>(a.integer()) / static_cast<double>(b.integer());
  }
  // Scaled so that the quotient has 64 bits or more, the rest as a sticky bit.
  Big x = ToBig(a);
  Big y = ToBig(b);
  const bool negative = (x < 0) != (y < 0);
  x = abs(x);
  y = abs(y);
  if (x == 0) {
    return 0.0;
  }
  const int shift = 66 - (static_cast<int>(Bits(x)) - static_cast<int>(Bits(y)));
  if (shift > 0) {
    x <<= shift;
  } else {
    y <<= -shift;
  }
  Big quotient, remainder;
  divide_qr(x, y, quotient, remainder);
  quotient <<= 1;
  if (remainder != 0) {
    quotient |= 1;
  }
  const double magnitude = std::ldexp(IntegerToDouble(FromBig(nullptr, quotient)), -shift - 1);
  if (std::isinf(magnitude)) {
    Fail("integer division result too large for a float");
  }
  return negative ? -magnitude : magnitude;
}

int IntegerOrder(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  const int order = ToBig(a).compare(ToBig(b));
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

int IntegerFloatOrder(const Value& integer, double real) {
  if (std::isinf(real)) {
    return real > 0 ? -1 : 1;
  }
  const double whole = std::trunc(real);
  const int order = ToBig(integer).compare(Big(whole));
  if (order != 0) {
    return order < 0 ? -1 : 1;
  }
  return whole < real ? -1 : whole > real ? 1 : 0;
}

double IntegerToDouble(const Value& v) {
  if (v.IsInteger()) {
    return static_cast<double>(v.integer());
  }
  const Big& big = v.As<BigIntObject>().value;
  const Big magnitude = abs(big);
  const unsigned bits = Bits(magnitude);
  const double sign = big < 0 ? -1.0 : 1.0;
  if (bits > 1024) {
    return sign * std::numeric_limits<double>::infinity();
  }
  // 64 bits with a sticky last one: the conversion then rounds to nearest even, once.
  const unsigned drop = bits > 63 ? bits - 63 : 0;
  Big top = magnitude >> drop;
  auto mantissa = static_cast<uint64_t>(top) << 1;
  if ((top << drop) != magnitude) {
    mantissa |= 1;
  }
  return sign * std::ldexp(static_cast<double>(mantissa), static_cast<int>(drop) - 1);
}

Value IntegerOf(Runtime& runtime, double real) {
  const double whole = std::trunc(real);
  if (whole >= -9223372036854775808.0 && whole < 9223372036854775808.0) {
    return Value::Int(static_cast<int64_t>(whole));
  }
  return FromBig(runtime.budget(), Big(whole));
}

size_t IntegerHash(const Value& big) { return std::hash<double>()(IntegerToDouble(big)); }

bool IntegerIsOdd(const Value& v) {
  return v.IsInteger() ? (v.integer() & 1) != 0 : bit_test(abs(ToBig(v)), 0);
}

std::string IntegerToString(const Value& v, int base) {
  if (v.IsInteger() && base == 10) {
    return std::to_string(v.integer());
  }
  Big big = ToBig(v);
  const bool negative = big < 0;
  big = abs(big);
  std::string digits;
  if (base == 10) {
    digits = big.str();
    if (digits.size() > kMaxIntegerDigits) {
      Fail("an integer of more than 4300 digits cannot be printed");
    }
  } else {
    do {
      digits.push_back("0123456789abcdef"[static_cast<unsigned>(big % base)]);
      big /= base;
    } while (big != 0);
    std::reverse(digits.begin(), digits.end());
  }
  return negative ? "-" + digits : digits;
}

bool ParseInteger(Budget* budget, std::string_view text, int base, Value* out) {
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto has_prefix = [&text](char lower) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == lower;
  };
  const int prefixed = has_prefix('x') ? 16 : has_prefix('o') ? 8 : has_prefix('b') ? 2 : 0;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    base = prefixed;
    text.remove_prefix(2);
    if (text[0] == '_') {
      text.remove_prefix(1);
    }
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) {
      return false;
    }
  }
  if (text.empty() || text.size() > kMaxIntegerDigits) {
    return false;
  }
  Big big = 0;
  int64_t small = 0;
  bool is_small = true;
  bool digit_before = false;
  for (const char c : text) {
    if (c == '_') {
      if (!digit_before) {
        return false;
      }
      digit_before = false;
      continue;
    }
    const int digit = DigitOf(c);
    if (digit >= base) {
      return false;
    }
    digit_before = true;
    if (is_small && (small > (std::numeric_limits<int64_t>::max() - digit) / base)) {
      is_small = false;
      big = small;
    }
    if (is_small) {
      small = small * base + digit;
    } else {
      big = big * base + digit;
    }
  }
  if (!digit_before) {
    return false;
  }
  if (is_small) {
    *out = Value::Int(negative ? -small : small);
  } else {
    *out = FromBig(budget, negative ? Big(-big) : big);
  }
  return true;
}

}  // namespace strata::jinja
