#include "common/numerics/math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/numerics/exp_constants.h"

// Without hardware fma, std::fma is a call that gives the same bits slowly. On x86-64 each function
// is therefore built twice and chosen at the call; elsewhere fma is part of the base instructions.
#if defined(__x86_64__) && !defined(__FMA__)
#define STRATA_FMA_DISPATCH 1
#define STRATA_TARGET_FMA __attribute__((target("fma")))
#else
#define STRATA_FMA_DISPATCH 0
#endif
#define STRATA_INLINE inline __attribute__((always_inline))
// Loops around an unrolled one can be vectorized.
#if defined(__clang__)
#define STRATA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STRATA_UNROLL _Pragma("GCC unroll 32")
#endif

namespace strata {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr double kLog2e = 0x1.71547652b82fep+0;
constexpr double kMagic = 0x1.8p+52;
constexpr double kLn2High = 0x1.62e42fefa3p-1;  // 41 bits: n * kLn2High is exact.
constexpr double kLn2Low = 0x1.3de6af278ece6p-42;
constexpr double kExp64Max = 0x1.62e42fefa39efp+9;
constexpr double kExp64Min = -0x1.6232bdd7abcd2p+9;

STRATA_INLINE float Exp32(float x) {
  if (x > kExpMax) {
    return std::numeric_limits<float>::infinity();
  }
  if (x < kExpMin) {
    return 0.0f;
  }
  if (x != x) {
    return x;
  }
  const float t = std::fma(x, kExpLog2e, kExpMagic);
  const float n = t - kExpMagic;
  float r = std::fma(-n, kExpLn2High, x);
  r = std::fma(-n, kExpLn2Low, r);
  float q = kExpQ5;
  q = std::fma(q, r, kExpQ4);
  q = std::fma(q, r, kExpQ3);
  q = std::fma(q, r, kExpQ2);
  q = std::fma(q, r, kExpQ1);
  q = std::fma(q, r, kExpQ0);
  const float p = std::fma(q, r * r, r);
  const float y = 1.0f + p;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(t) << 23));
}

// Between -most and most; a NaN stays one.
STRATA_INLINE float Clamped(float x, float most) { return x > most ? most : x < -most ? -most : x; }

STRATA_INLINE float Tanh32(float x) {
  const float y = Clamped(x, kTanhMost);
  const float a = Clamped(y, kTanhNear);
  const float b = y - a;
  const float z = a * a;
  float p = kTanhP4;
  p = std::fma(p, z, kTanhP3);
  p = std::fma(p, z, kTanhP2);
  p = std::fma(p, z, kTanhP1);
  p = std::fma(p, z, kTanhP0);
  const float t = std::fma(p * z, a, a);
  const float e = Exp32(-2.0f * b);
  return std::fma(t, 1.0f + e, 1.0f - e) / std::fma(t, 1.0f - e, 1.0f + e);
}

// Taylor coefficients of e^r, 1/13! down to 1/2!.
constexpr double kExpTaylor[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                 1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                 1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};

// e^(x + low), |low| tiny against 1; x within the limits.
STRATA_INLINE double ExpWithTail(double x, double low) {
  const double t = std::fma(x, kLog2e, kMagic);
  const double n = t - kMagic;
  double r = std::fma(-n, kLn2High, x);
  r = r + std::fma(-n, kLn2Low, low);
  double q = kExpTaylor[0];
  STRATA_UNROLL
  for (int i = 1; i < 12; ++i) {
    q = std::fma(q, r, kExpTaylor[i]);
  }
  const double p = std::fma(q, r * r, r);
  const double y = 1.0 + p;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(y) + (std::bit_cast<uint64_t>(t) << 52));
}

STRATA_INLINE double Exp64(double x) {
  if (x > kExp64Max) {
    return kInfinity;
  }
  if (x < kExp64Min) {
    return 0.0;
  }
  if (x != x) {
    return x;
  }
  return ExpWithTail(x, 0.0);
}

// All ones or none.
STRATA_INLINE uint64_t Mask(bool set) { return uint64_t{0} - static_cast<uint64_t>(set); }

// The same without branches, for loops: that of 0 where x is out of range, and then left out.
STRATA_INLINE double Exp64Selected(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t inside = Mask(x >= kExp64Min) & Mask(x <= kExp64Max);
  const double e = ExpWithTail(std::bit_cast<double>(bits & inside), 0.0);
  return std::bit_cast<double>((std::bit_cast<uint64_t>(e) & inside) |
                               (std::bit_cast<uint64_t>(kInfinity) & Mask(x > kExp64Max)) |
                               (bits & Mask(x != x)));
}

STRATA_INLINE void Exps64(const double* x, size_t count, double* out) {
  constexpr size_t kAtOnce = 8;
  for (size_t first = 0; first < count; first += kAtOnce) {
    const size_t some = std::min(kAtOnce, count - first);
    double e[kAtOnce] = {};
    std::memcpy(e, x + first, some * sizeof(double));
    for (double& value : e) {
      value = Exp64Selected(value);
    }
    std::memcpy(out + first, e, some * sizeof(double));
  }
}

// x = m * 2^k, m in [sqrt(1/2), sqrt(2)). x is positive and finite.
STRATA_INLINE double SplitExponent(double x, int* k) {
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  // sqrt(1/2) has the mantissa 0x6a09e667f3bcd; the sum carries into the exponent above it.
  const uint64_t shifted = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  exponent += static_cast<int>(shifted >> 52) - 1023;
  *k = exponent;
  return std::bit_cast<double>((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
}

// log((1 + s) / (1 - s)) = 2 s + s R(s^2): R(z) = 2 z/3 + 2 z^2/5 + ..., z <= 0.0295.
STRATA_INLINE double LogSeries(double z) {
  double r = 2.0 / 23;
  for (int i = 21; i >= 3; i -= 2) {
    r = std::fma(r, z, 2.0 / i);
  }
  return r * z;
}

STRATA_INLINE double Log64(double x) {
  if (x != x) {
    return x;
  }
  if (x <= 0) {
    return x == 0 ? -kInfinity : kNaN;
  }
  if (x == kInfinity) {
    return x;
  }
  int k;
  const double f = SplitExponent(x, &k) - 1.0;
  const double s = f / (2.0 + f);
  const double half = 0.5 * f * f;
  const double tail = s * (half + LogSeries(s * s));
  // log(1 + f) = f - (f^2/2 - tail), the small parts first.
  const double small = std::fma(k, kLn2Low, tail) - half;
  const double high = k * kLn2High;  // Exact.
  // f + high, and what that rounds off: |high| is 0 or above |f|.
  const double sum = high + f;
  const double lost = k == 0 ? 0.0 : f - (sum - high);
  return sum + (lost + small);
}

struct Pair {
  double high;
  double low;
};

// log(x) to about 2^-64, relative to the larger of it and ln 2 |k|. x is positive and finite.
STRATA_INLINE Pair LogPair(double x) {
  int k;
  const double m = SplitExponent(x, &k);
  const double f = m - 1.0;  // Exact.
  const double d = 1.0 + m;
  const double d_low = m >= 1.0 ? 1.0 - (d - m) : m - (d - 1.0);
  const double s = f / d;
  const double s_low = std::fma(-s, d_low, std::fma(-s, d, f)) / d;
  const double z = s * s;
  const double series = s * LogSeries(z);
  const double high = k * kLn2High;  // Exact.
  const double twice = 2.0 * s;
  const double sum = high + twice;
  const double lost = k == 0 ? 0.0 : twice - (sum - high);
  const double rest = lost + std::fma(k, kLn2Low, 2.0 * s_low);
  // `series` is below a hundredth of `twice`; its rounding is what remains.
  const double low = rest + series;
  const double total = sum + low;
  return {total, low - (total - sum)};
}

STRATA_INLINE double Pow64(double x, double y) {
  if (y == 0 || x == 1) {
    return 1.0;
  }
  if (x != x || y != y || x < 0) {
    return kNaN;
  }
  if (x == 0) {
    return y > 0 ? 0.0 : kInfinity;
  }
  if (x == kInfinity || y == kInfinity || y == -kInfinity) {
    return (x > 1) == (y > 0) ? kInfinity : 0.0;
  }
  const Pair log = LogPair(x);
  const double high = y * log.high;
  if (high > 1000 || high < -1000 || high != high) {
    return high > 0 ? kInfinity : 0.0;
  }
  const double low = std::fma(y, log.low, std::fma(y, log.high, -high));
  if (high > kExp64Max || high < kExp64Min) {
    return high > 0 ? kInfinity : 0.0;
  }
  return ExpWithTail(high, low);
}

constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// pi/2 in 33 + 33 + 53 bits: n times the first two is exact for n < 2^31, but for one rounding that
// an fma recovers.
constexpr double kPio2High = 0x1.921fb544p+0;
constexpr double kPio2Mid = 0x1.0b4611a6p-34;
constexpr double kPio2Low = 0x1.3198a2e037073p-69;

// sin(r + low), |r| <= pi/4.
STRATA_INLINE double SinReduced(double r, double low) {
  const double z = r * r;
  double p = -1.0 / 1307674368000;  // -1/15!
  p = std::fma(1.0 / 355687428096000, z, p);
  p = std::fma(p, z, 1.0 / 6227020800);
  p = std::fma(p, z, -1.0 / 39916800);
  p = std::fma(p, z, 1.0 / 362880);
  p = std::fma(p, z, -1.0 / 5040);
  p = std::fma(p, z, 1.0 / 120);
  p = std::fma(p, z, -1.0 / 6);
  return r + std::fma(p, z * r, low * std::fma(-0.5, z, 1.0));
}

// cos(r + low), |r| <= pi/4.
STRATA_INLINE double CosReduced(double r, double low) {
  const double z = r * r;
  double p = 1.0 / 20922789888000;  // 1/16!
  p = std::fma(-1.0 / 6402373705728000, z, p);
  p = std::fma(p, z, -1.0 / 87178291200);
  p = std::fma(p, z, 1.0 / 479001600);
  p = std::fma(p, z, -1.0 / 3628800);
  p = std::fma(p, z, 1.0 / 40320);
  p = std::fma(p, z, -1.0 / 720);
  p = std::fma(p, z, 1.0 / 24);
  const double half = 0.5 * z;
  const double half_low = 0.5 * std::fma(r, r, -z);
  const double w = 1.0 - half;
  const double lost = (1.0 - w) - half;
  return w + (lost - half_low + std::fma(p, z * z, -r * low));
}

STRATA_INLINE void SinCos64(double x, double* sin, double* cos) {
  if (!(x >= 0 && x < 0x1p31)) {
    *sin = kNaN;
    *cos = kNaN;
    return;
  }
  const double n = std::fma(x, kTwoOverPi, kMagic) - kMagic;
  const double first = std::fma(-n, kPio2High, x);  // Exact.
  const double mid = n * kPio2Mid;
  const double mid_low = std::fma(n, kPio2Mid, -mid);
  const double r0 = first - mid;
  // What that subtraction rounded off (Knuth's two-sum).
  const double back = r0 - first;
  const double lost = (first - (r0 - back)) - (mid + back);
  const double tail = lost - std::fma(n, kPio2Low, mid_low);
  const double r = r0 + tail;
  const double low = tail - (r - r0);
  const double s = SinReduced(r, low);
  const double c = CosReduced(r, low);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sin = s;
      *cos = c;
      return;
    case 1:
      *sin = c;
      *cos = -s;
      return;
    case 2:
      *sin = -s;
      *cos = -c;
      return;
    default:
      *sin = -c;
      *cos = s;
      return;
  }
}

#if STRATA_FMA_DISPATCH
bool HasFma() { return __builtin_cpu_supports("fma"); }
bool HasAvx2() { return __builtin_cpu_supports("avx2") && HasFma(); }
STRATA_TARGET_FMA void Exps64Fma(const double* x, size_t count, double* out) {
  Exps64(x, count, out);
}
STRATA_TARGET_FMA float Exp32Fma(float x) { return Exp32(x); }
STRATA_TARGET_FMA float Tanh32Fma(float x) { return Tanh32(x); }
STRATA_TARGET_FMA double Exp64Fma(double x) { return Exp64(x); }
__attribute__((target("avx2,fma"))) void Exps64Avx2(const double* x, size_t count, double* out) {
  Exps64(x, count, out);
}
STRATA_TARGET_FMA double Log64Fma(double x) { return Log64(x); }
STRATA_TARGET_FMA double Pow64Fma(double x, double y) { return Pow64(x, y); }
STRATA_TARGET_FMA void SinCos64Fma(double x, double* s, double* c) { SinCos64(x, s, c); }
#endif

}  // namespace

#if STRATA_FMA_DISPATCH
float ExpF32(float x) { return HasFma() ? Exp32Fma(x) : Exp32(x); }
float TanhF32(float x) { return HasFma() ? Tanh32Fma(x) : Tanh32(x); }
double ExpF64(double x) { return HasFma() ? Exp64Fma(x) : Exp64(x); }
void ExpsF64(const double* x, size_t count, double* out) {
  HasAvx2()  ? Exps64Avx2(x, count, out)
  : HasFma() ? Exps64Fma(x, count, out)
             : Exps64(x, count, out);
}
double LogF64(double x) { return HasFma() ? Log64Fma(x) : Log64(x); }
double PowF64(double x, double y) { return HasFma() ? Pow64Fma(x, y) : Pow64(x, y); }
void SinCosF64(double x, double* sin, double* cos) {
  HasFma() ? SinCos64Fma(x, sin, cos) : SinCos64(x, sin, cos);
}
#else
float ExpF32(float x) { return Exp32(x); }
float TanhF32(float x) { return Tanh32(x); }
double ExpF64(double x) { return Exp64(x); }
void ExpsF64(const double* x, size_t count, double* out) { Exps64(x, count, out); }
double LogF64(double x) { return Log64(x); }
double PowF64(double x, double y) { return Pow64(x, y); }
void SinCosF64(double x, double* sin, double* cos) { SinCos64(x, sin, cos); }
#endif

}  // namespace strata
