// Constants of ExpF32 and TanhF32, shared by the scalar form in math.cc and by the vector forms of
// backends, which do these operations, each rounded once, in this order:
//
//   t = fma(x, kExpLog2e, kExpMagic)          round x / ln 2 to the nearest integer, ties to even
//   n = t - kExpMagic
//   r = fma(-n, kExpLn2High, x)               |r| <= ln 2 / 2
//   r = fma(-n, kExpLn2Low, r)
//   q = kExpQ5                                e^r = 1 + r + r^2 q(r)
//   q = fma(q, r, kExpQ4); q = fma(q, r, kExpQ3); q = fma(q, r, kExpQ2)
//   q = fma(q, r, kExpQ1); q = fma(q, r, kExpQ0)
//   p = fma(q, r * r, r)
//   y = 1 + p
//   result bits = bits(y) + (bits(t) << 23)   as u32: the low bits of t hold n, in two's complement
//   x > kExpMax: +inf.  x < kExpMin: +0.  x is NaN: x.
//
// The three last cases replace whatever the arithmetic gave. Between the limits bits(y) + (n << 23)
// is a normal number, n = 128 included. q is the Chebyshev interpolant of (e^r - 1 - r) / r^2 over
// |r| <= ln 2 / 2; the whole is within 0.99 ulp (measured over every float32).
//
// TanhF32, where the clamps keep a NaN, by the sum of angles, so that no lane has to choose: below
// kTanhNear b is 0, e is 1, and the result is t.
//
//   y = clamp(x, -kTanhMost, kTanhMost)       beyond it the result is 1 or -1
//   a = clamp(y, -kTanhNear, kTanhNear); b = y - a
//   z = a * a; p = kTanhP4
//   p = fma(p, z, kTanhP3); p = fma(p, z, kTanhP2); p = fma(p, z, kTanhP1); p = fma(p, z, kTanhP0)
//   t = fma(p * z, a, a)                      tanh a = a + a^3 p(a^2)
//   e = ExpF32(-2 * b)
//   result = fma(t, 1 + e, 1 - e) / fma(t, 1 - e, 1 + e)
//
// Within 3 ulp (measured: 2.5), and never beyond 1.
#ifndef STRATA_COMMON_NUMERICS_EXP_CONSTANTS_H_
#define STRATA_COMMON_NUMERICS_EXP_CONSTANTS_H_

namespace strata {

inline constexpr float kExpLog2e = 0x1.715476p+0f;
inline constexpr float kExpMagic = 0x1.8p+23f;
inline constexpr float kExpLn2High = 0x1.62e4p-1f;  // 15 bits: n * kExpLn2High is exact.
inline constexpr float kExpLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kExpQ0 = 0x1p-1f;
inline constexpr float kExpQ1 = 0x1.555556p-3f;
inline constexpr float kExpQ2 = 0x1.5554eap-5f;
inline constexpr float kExpQ3 = 0x1.1110ep-7f;
inline constexpr float kExpQ4 = 0x1.6d4316p-10f;
inline constexpr float kExpQ5 = 0x1.a124e4p-13f;
// The largest float32 whose exponential is finite, and the smallest whose is a normal number.
inline constexpr float kExpMax = 0x1.62e42ep+6f;
inline constexpr float kExpMin = -0x1.5d589ep+6f;

inline constexpr float kTanhMost = 10.0f;
inline constexpr float kTanhNear = 0.625f;
inline constexpr float kTanhP0 = -0x1.555532p-2f;
inline constexpr float kTanhP1 = 0x1.110726p-3f;
inline constexpr float kTanhP2 = -0x1.b83c5ap-5f;
inline constexpr float kTanhP3 = 0x1.52269cp-6f;
inline constexpr float kTanhP4 = -0x1.75e1d4p-8f;

}  // namespace strata

#endif  // STRATA_COMMON_NUMERICS_EXP_CONSTANTS_H_
