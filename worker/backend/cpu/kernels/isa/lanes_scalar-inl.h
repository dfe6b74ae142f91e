// 16 lanes without vector instructions. Included once by each scalar kernel file, within its
// namespace and target attributes.

#define STRATA_INLINE inline __attribute__((always_inline))

struct Lanes {
  float v[16];
};

#define STRATA_LANES(expression) \
  Lanes out;                     \
  for (int i = 0; i < 16; ++i) { \
    out.v[i] = (expression);     \
  }                              \
  return out

STRATA_INLINE Lanes Set(float x) { STRATA_LANES(x); }
STRATA_INLINE Lanes Load(const float* p) { STRATA_LANES(p[i]); }
STRATA_INLINE Lanes Load(const F16* p) { STRATA_LANES(ToF32(p[i])); }
STRATA_INLINE Lanes Load(const BF16* p) { STRATA_LANES(ToF32(p[i])); }
STRATA_INLINE Lanes Load(const int8_t* p) { STRATA_LANES(p[i]); }
STRATA_INLINE void Store(const Lanes& a, float* p) {
  for (int i = 0; i < 16; ++i) {
    p[i] = a.v[i];
  }
}
STRATA_INLINE void Store(const Lanes& a, F16* p) {
  for (int i = 0; i < 16; ++i) {
    p[i] = ToF16(a.v[i]);
  }
}
// a * b + c, rounded once.
STRATA_INLINE Lanes Fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  STRATA_LANES(std::fma(a.v[i], b.v[i], c.v[i]));
}
STRATA_INLINE Lanes Add(const Lanes& a, const Lanes& b) { STRATA_LANES(a.v[i] + b.v[i]); }
STRATA_INLINE Lanes Sub(const Lanes& a, const Lanes& b) { STRATA_LANES(a.v[i] - b.v[i]); }
STRATA_INLINE Lanes Mul(const Lanes& a, const Lanes& b) { STRATA_LANES(a.v[i] * b.v[i]); }
STRATA_INLINE Lanes Div(const Lanes& a, const Lanes& b) { STRATA_LANES(a.v[i] / b.v[i]); }
STRATA_INLINE Lanes Max(const Lanes& a, const Lanes& b) {
  STRATA_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
// Adds lanes i and i + n / 2 into lane i until one is left, or keeps the larger.
STRATA_INLINE float TreeSum(const Lanes& a) {
  Lanes t = a;
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      t.v[i] += t.v[i + width];
    }
  }
  return t.v[0];
}
STRATA_INLINE float LargestLane(const Lanes& a) {
  Lanes t = a;
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      t.v[i] = t.v[i] > t.v[i + width] ? t.v[i] : t.v[i + width];
    }
  }
  return t.v[0];
}
STRATA_INLINE void TreeSums(const Lanes (&rows)[4], float* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = TreeSum(rows[i]);
  }
}
STRATA_INLINE void LargestLanes(const Lanes (&rows)[4], float* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = LargestLane(rows[i]);
  }
}
// The first n lanes of a, then those of b.
STRATA_INLINE Lanes FirstN(const Lanes& a, const Lanes& b, uint32_t n) {
  STRATA_LANES(static_cast<uint32_t>(i) < n ? a.v[i] : b.v[i]);
}
// a where x is above the limit, else b.
STRATA_INLINE Lanes IfAbove(const Lanes& x, float limit, const Lanes& a, const Lanes& b) {
  STRATA_LANES(x.v[i] > limit ? a.v[i] : b.v[i]);
}
// y * 2^n of t = n + kExpMagic, a normal number; 0 where x < kExpMin, and no number where x is
// none.
STRATA_INLINE Lanes ScaleExp(const Lanes& x, const Lanes& y, const Lanes& t) {
  Lanes out;
  for (int i = 0; i < 16; ++i) {
    const float e = std::bit_cast<float>(std::bit_cast<uint32_t>(y.v[i]) +
                                         (std::bit_cast<uint32_t>(t.v[i]) << 23));
    out.v[i] = x.v[i] < kExpMin ? 0.0f : e;
    out.v[i] = x.v[i] == x.v[i] ? out.v[i] : x.v[i];
  }
  return out;
}

STRATA_INLINE Lanes Magnitude(const Lanes& x) { STRATA_LANES(std::fabs(x.v[i])); }
// The low byte of each lane's bits.
STRATA_INLINE void StoreLowBytes(const Lanes& x, int8_t* to) {
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(x.v[i]) & 255);
  }
}
// Four rows of four 32-bit words, `from_stride` bytes apart, to four columns `to_stride` apart.
STRATA_INLINE void TransposeWords(const void* from, size_t from_stride, void* to,
                                  size_t to_stride) {
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      std::memcpy(static_cast<uint8_t*>(to) + j * to_stride + 4 * i,
                  static_cast<const uint8_t*>(from) + i * from_stride + 4 * j, 4);
    }
  }
}

// Bits `shift` and up of each lane's 32, as many as `mask` has, as numbers. `p` may be unaligned.
STRATA_INLINE Lanes LoadBits(const uint8_t* p, int shift, uint32_t mask) {
  uint32_t words[16];
  std::memcpy(words, p, sizeof(words));
  STRATA_LANES(static_cast<float>((words[i] >> shift) & mask));
}

// Of 16 bytes each: 2^(b - 127), no number of 255; an 8-bit float (E4M3), of which all are numbers;
// four bits from `shift` on.
STRATA_INLINE Lanes LoadExponents(const uint8_t* p) {
  STRATA_LANES(std::bit_cast<float>(p[i] == 255 ? 0x7fc00000u
                                    : p[i] == 0 ? 0x00400000u
                                                : uint32_t{p[i]} << 23));
}
STRATA_INLINE Lanes LoadFloats8(const uint8_t* p) {
  STRATA_LANES(std::bit_cast<float>((p[i] & 128u) << 24 | (p[i] & 127u) << 20) * 0x1p120f);
}
STRATA_INLINE Lanes LoadHalfBytes(const uint8_t* p, int shift) {
  STRATA_LANES(static_cast<float>(p[i] >> shift & 15));
}
// Of 16 values those that four bits of LoadBits's number.
STRATA_INLINE Lanes LookUpBits(const float* values, const uint8_t* p, int shift) {
  uint32_t words[16];
  std::memcpy(words, p, sizeof(words));
  STRATA_LANES(values[words[i] >> shift & 15]);
}

// To the nearest bfloat16 and float16, of two the even one; what float16 has not becomes infinite.
STRATA_INLINE Lanes RoundBf16(const Lanes& a) { STRATA_LANES(RoundToBfloat16(a.v[i])); }
STRATA_INLINE Lanes RoundF16(const Lanes& a) { STRATA_LANES(RoundToHalf(a.v[i])); }

#undef STRATA_LANES
