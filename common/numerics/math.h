// Transcendental functions of ours: pure arithmetic and explicit fma, so that every machine and
// library gives the same bits. Scalar forms; the CPU backend's vector forms of ExpF32 and TanhF32
// do the same operations in the same order (exp_constants.h). Errors are against the exact value,
// and hold with rounding to nearest, subnormals on. Any thread.
#ifndef STRATA_COMMON_NUMERICS_MATH_H_
#define STRATA_COMMON_NUMERICS_MATH_H_

#include <cstddef>

namespace strata {

// e^x. Within 1 ulp; 0 below the smallest normal, +inf above the largest.
float ExpF32(float x);
double ExpF64(double x);
// ExpF64 of each of x[0, count), the same bits, several at once; `out` may be x.
void ExpsF64(const double* x, size_t count, double* out);
// tanh x. Within 3 ulp, and never beyond 1 or -1.
float TanhF32(float x);
// Natural logarithm, within 1 ulp; -inf at 0, NaN below.
double LogF64(double x);
// 0 <= x < 2^31: reduced by a three-part pi/2. Each within 1 ulp. NaN for any other x.
void SinCosF64(double x, double* sin, double* cos);
// x^y for x > 0. Within 2 ulp; +inf above the largest number, 0 below the smallest normal one. x =
// 0 gives 0, 1 or +inf by the sign of y; x < 0 gives NaN.
double PowF64(double x, double y);

}  // namespace strata

#endif  // STRATA_COMMON_NUMERICS_MATH_H_
