// Integers of any size, as Python has them: small ones are kInt, others kBigInt. Their size is
// limited to kMaxIntegerBits.
#ifndef STRATA_TEXT_TEMPLATE_INTEGER_H_
#define STRATA_TEXT_TEMPLATE_INTEGER_H_

#include <string>
#include <string_view>

#include "text/template/operators.h"
#include "text/template/value.h"

namespace strata::jinja {

inline constexpr unsigned kMaxIntegerBits = 16384;
// More digits than this are neither printed nor read (Python's own limit).
inline constexpr size_t kMaxIntegerDigits = 4300;

// Both are kInt, kBool or kBigInt. kAdd to kModulo, without kDivide; kPower with b >= 0.
Value IntegerBinary(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value IntegerNegate(Runtime& runtime, const Value& v);
// a / b, rounded once.
double IntegerDivide(const Value& a, const Value& b);
int IntegerOrder(const Value& a, const Value& b);  // -1, 0, 1
// Order of an integer and a float that is not NaN.
int IntegerFloatOrder(const Value& integer, double real);
double IntegerToDouble(const Value& v);  // Infinite where it does not fit.
// trunc(real), which must be finite.
Value IntegerOf(Runtime& runtime, double real);
size_t IntegerHash(const Value& big);
bool IntegerIsOdd(const Value& v);
// `base` 10, 16, 8 or 2; lower case, no prefix.
std::string IntegerToString(const Value& v, int base = 10);
// int(text, base) without white space; false if it is none or too long. base 0 or 2 to 36.
bool ParseInteger(Budget* budget, std::string_view text, int base, Value* out);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_INTEGER_H_
