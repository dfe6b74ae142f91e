// Transcendental functions of ours: pure arithmetic and explicit fma, so that every machine and
// library gives the same bits. Scalar forms; the CPU backend's vector forms do the same operations
// in the same order.
#ifndef STRATA_COMMON_NUMERICS_MATH_H_
#define STRATA_COMMON_NUMERICS_MATH_H_

namespace strata {

// e^x. Within 1 ulp; 0 below the smallest normal, +inf above the largest.
float ExpF32(float x);
double ExpF64(double x);
// Natural logarithm; -inf at 0, NaN below.
double LogF64(double x);
// x >= 0, x < 2^31: reduced by a three-part pi/2.
void SinCosF64(double x, double* sin, double* cos);
// x^y for x > 0.
double PowF64(double x, double y);

}  // namespace strata

#endif  // STRATA_COMMON_NUMERICS_MATH_H_
