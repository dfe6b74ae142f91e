// 16 lanes by Highway, in as many vectors as the target needs. Included by one kernel file for each
// instruction set, within its namespace and target attributes.

#define STRATA_INLINE HWY_INLINE

namespace hn = hwy::HWY_NAMESPACE;

#if !HWY_NATIVE_FMA
#error "MulAdd would round twice here"
#endif

// Lanes of one vector.
constexpr size_t kLeaf = HWY_LANES(float);
static_assert(kLeaf <= 16);
using Floats = hn::FixedTag<float, kLeaf>;
using Vector = hn::Vec<Floats>;

// N lanes: one vector, or two halves.
template <size_t N>
struct Pack {
  Pack<N / 2> lo, hi;
};
template <>
struct Pack<kLeaf> {
  Vector v;
};
using Lanes = Pack<16>;

template <size_t N>
STRATA_INLINE Pack<N> SetN(float x) {
  if constexpr (N == kLeaf) {
    return {hn::Set(Floats(), x)};
  } else {
    return {SetN<N / 2>(x), SetN<N / 2>(x)};
  }
}

STRATA_INLINE Vector LoadVector(const float* p) { return hn::LoadU(Floats(), p); }
STRATA_INLINE Vector LoadVector(const F16* p) {
  const hn::Rebind<hwy::float16_t, Floats> halves;
  return hn::PromoteTo(Floats(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(p)));
}
STRATA_INLINE Vector LoadVector(const BF16* p) {
  const hn::Rebind<uint16_t, Floats> shorts;
  const hn::Rebind<uint32_t, Floats> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(shorts, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
}
STRATA_INLINE Vector LoadVector(const int8_t* p) {
  const hn::Rebind<int8_t, Floats> bytes;
  const hn::Rebind<int32_t, Floats> words;
  return hn::ConvertTo(Floats(), hn::PromoteTo(words, hn::LoadU(bytes, p)));
}
template <size_t N, typename T>
STRATA_INLINE Pack<N> LoadN(const T* p) {
  if constexpr (N == kLeaf) {
    return {LoadVector(p)};
  } else {
    return {LoadN<N / 2>(p), LoadN<N / 2>(p + N / 2)};
  }
}

template <size_t N>
STRATA_INLINE void Store(const Pack<N>& a, float* p) {
  if constexpr (N == kLeaf) {
    hn::StoreU(a.v, Floats(), p);
  } else {
    Store(a.lo, p);
    Store(a.hi, p + N / 2);
  }
}
template <size_t N>
STRATA_INLINE void Store(const Pack<N>& a, F16* p) {
  if constexpr (N == kLeaf) {
    const Floats d;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    const Vector most = hn::Set(d, kMaxF16);
    const Vector least = hn::Set(d, -kMaxF16);
    // Comparisons rather than Min and Max: a NaN stays one.
    Vector x = hn::IfThenElse(hn::Gt(a.v, most), most, a.v);
    x = hn::IfThenElse(hn::Lt(x, least), least, x);
    hn::StoreU(hn::DemoteTo(halves, x), halves, reinterpret_cast<hwy::float16_t*>(p));
  } else {
    Store(a.lo, p);
    Store(a.hi, p + N / 2);
  }
}

// a * b + c, rounded once.
template <size_t N>
STRATA_INLINE Pack<N> Fma(const Pack<N>& a, const Pack<N>& b, const Pack<N>& c) {
  if constexpr (N == kLeaf) {
    return {hn::MulAdd(a.v, b.v, c.v)};
  } else {
    return {Fma(a.lo, b.lo, c.lo), Fma(a.hi, b.hi, c.hi)};
  }
}

// a > b ? a : b, so b where one is no number.
template <typename V>
STRATA_INLINE V Larger(V a, V b) {
#if HWY_ARCH_X86
  return hn::Max(a, b);  // Its instruction does just that.
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}

#define STRATA_LANES_BINARY(name, expression)                      \
  template <size_t N>                                              \
  STRATA_INLINE Pack<N> name(const Pack<N>& a, const Pack<N>& b) { \
    if constexpr (N == kLeaf) {                                    \
      return {expression};                                         \
    } else {                                                       \
      return {name(a.lo, b.lo), name(a.hi, b.hi)};                 \
    }                                                              \
  }
STRATA_LANES_BINARY(Add, hn::Add(a.v, b.v))
STRATA_LANES_BINARY(Sub, hn::Sub(a.v, b.v))
STRATA_LANES_BINARY(Mul, hn::Mul(a.v, b.v))
STRATA_LANES_BINARY(Div, hn::Div(a.v, b.v))
STRATA_LANES_BINARY(Max, Larger(a.v, b.v))
#undef STRATA_LANES_BINARY

// Combines lanes i and i + n / 2 into lane i until one is left.
struct SumOf {
  template <size_t N>
  static STRATA_INLINE Pack<N> Packs(const Pack<N>& a, const Pack<N>& b) {
    return Add(a, b);
  }
  template <typename V>
  static STRATA_INLINE V Vectors(V a, V b) {
    return hn::Add(a, b);
  }
};
struct LargerOf {
  template <size_t N>
  static STRATA_INLINE Pack<N> Packs(const Pack<N>& a, const Pack<N>& b) {
    return Max(a, b);
  }
  template <typename V>
  static STRATA_INLINE V Vectors(V a, V b) {
    return Larger(a, b);
  }
};
template <typename Of, size_t N>
STRATA_INLINE float FoldVector(hn::Vec<hn::FixedTag<float, N>> v) {
  if constexpr (N > 4) {
    const hn::FixedTag<float, N / 2> half;
    return FoldVector<Of, N / 2>(Of::Vectors(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    v = Of::Vectors(v, hn::Shuffle1032(v));
    return hn::GetLane(Of::Vectors(v, hn::Shuffle2301(v)));
  }
}
template <typename Of, size_t N>
STRATA_INLINE float Fold(const Pack<N>& a) {
  if constexpr (N == kLeaf) {
    return FoldVector<Of, N>(a.v);
  } else {
    return Fold<Of>(Of::Packs(a.lo, a.hi));
  }
}
// out[i] := the fold of rows[i]: with one vector a row, of all four at once.
template <typename Of, size_t N>
STRATA_INLINE void FoldFour(const Pack<N> (&rows)[4], float* out) {
  if constexpr (N == kLeaf) {
    static_assert(N == 16);
    const hn::FixedTag<float, N> d;
    const auto ab = Of::Vectors(hn::ConcatLowerLower(d, rows[1].v, rows[0].v),
                                hn::ConcatUpperUpper(d, rows[1].v, rows[0].v));
    const auto cd = Of::Vectors(hn::ConcatLowerLower(d, rows[3].v, rows[2].v),
                                hn::ConcatUpperUpper(d, rows[3].v, rows[2].v));
    // In blocks of four lanes: rows 0, 2, 1, 3.
    auto v = Of::Vectors(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(cd), ab),
                         hn::OddEvenBlocks(cd, hn::SwapAdjacentBlocks(ab)));
    v = Of::Vectors(v, hn::Shuffle1032(v));
    v = Of::Vectors(v, hn::Shuffle2301(v));
    alignas(64) static constexpr int32_t kFirsts[N] = {0, 8, 4, 12};
    v = hn::TableLookupLanes(v, hn::SetTableIndices(d, kFirsts));
    const hn::FixedTag<float, N / 2> half;
    const hn::FixedTag<float, N / 4> quarter;
    hn::StoreU(hn::LowerHalf(quarter, hn::LowerHalf(half, v)), quarter, out);
  } else {
    for (int i = 0; i < 4; ++i) {
      out[i] = Fold<Of>(rows[i]);
    }
  }
}
STRATA_INLINE float TreeSum(const Lanes& a) { return Fold<SumOf>(a); }
STRATA_INLINE float LargestLane(const Lanes& a) { return Fold<LargerOf>(a); }
STRATA_INLINE void TreeSums(const Lanes (&rows)[4], float* out) { FoldFour<SumOf>(rows, out); }
STRATA_INLINE void LargestLanes(const Lanes (&rows)[4], float* out) {
  FoldFour<LargerOf>(rows, out);
}

// The first n lanes of a, then those of b.
template <size_t N>
STRATA_INLINE Pack<N> FirstN(const Pack<N>& a, const Pack<N>& b, uint32_t n) {
  if constexpr (N == kLeaf) {
    return {hn::IfThenElse(hn::FirstN(Floats(), n), a.v, b.v)};
  } else {
    return {FirstN(a.lo, b.lo, n), FirstN(a.hi, b.hi, n > N / 2 ? n - uint32_t{N / 2} : 0)};
  }
}

// a where x is above the limit, else b.
template <size_t N>
STRATA_INLINE Pack<N> IfAbove(const Pack<N>& x, float limit, const Pack<N>& a, const Pack<N>& b) {
  if constexpr (N == kLeaf) {
    return {hn::IfThenElse(hn::Gt(x.v, hn::Set(Floats(), limit)), a.v, b.v)};
  } else {
    return {IfAbove(x.lo, limit, a.lo, b.lo), IfAbove(x.hi, limit, a.hi, b.hi)};
  }
}
// y * 2^n of t = n + kExpMagic, a normal number; 0 where x < kExpMin, and no number where x is
// none.
template <size_t N>
STRATA_INLINE Pack<N> ScaleExp(const Pack<N>& x, const Pack<N>& y, const Pack<N>& t) {
  if constexpr (N == kLeaf) {
    const Floats d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    const Vector n = hn::Sub(t.v, hn::Set(d, kExpMagic));
    const __mmask16 kept = _mm512_cmp_ps_mask(x.v.raw, _mm512_set1_ps(kExpMin), _CMP_NLT_UQ);
    return {Vector{_mm512_maskz_scalef_ps(kept, y.v.raw, n.raw)}};
#else
    const hn::Rebind<uint32_t, Floats> words;
    const auto bits = hn::Add(hn::BitCast(words, y.v), hn::ShiftLeft<23>(hn::BitCast(words, t.v)));
    Vector e = hn::BitCast(d, bits);
    e = hn::IfThenElse(hn::Lt(x.v, hn::Set(d, kExpMin)), hn::Zero(d), e);
    return {hn::IfThenElse(hn::Eq(x.v, x.v), e, x.v)};
#endif
  } else {
    return {ScaleExp(x.lo, y.lo, t.lo), ScaleExp(x.hi, y.hi, t.hi)};
  }
}

template <size_t N>
STRATA_INLINE Pack<N> Magnitude(const Pack<N>& a) {
  if constexpr (N == kLeaf) {
    return {hn::Abs(a.v)};
  } else {
    return {Magnitude(a.lo), Magnitude(a.hi)};
  }
}
// The low byte of each lane's bits.
template <size_t N>
STRATA_INLINE void StoreLowBytes(const Pack<N>& a, int8_t* to) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<uint32_t, Floats> words;
    const hn::Rebind<uint8_t, Floats> bytes;
    hn::StoreU(hn::TruncateTo(bytes, hn::BitCast(words, a.v)), bytes,
               reinterpret_cast<uint8_t*>(to));
  } else {
    StoreLowBytes(a.lo, to);
    StoreLowBytes(a.hi, to + N / 2);
  }
}
// Four rows of four 32-bit words, `from_stride` bytes apart, to four columns `to_stride` apart.
STRATA_INLINE void TransposeWords(const void* from, size_t from_stride, void* to,
                                  size_t to_stride) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d2;
  const auto row = [&](size_t i) {
    return hn::LoadU(
        d, reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(from) + i * from_stride));
  };
  const auto a = row(0);
  const auto b = row(1);
  const auto e = row(2);
  const auto f = row(3);
  const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, a, b));
  const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, a, b));
  const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, e, f));
  const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, e, f));
  const auto put = [&](size_t i, auto v) {
    hn::StoreU(hn::BitCast(d, v), d,
               reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(to) + i * to_stride));
  };
  put(0, hn::InterleaveLower(d2, low01, low23));
  put(1, hn::InterleaveUpper(d2, low01, low23));
  put(2, hn::InterleaveLower(d2, high01, high23));
  put(3, hn::InterleaveUpper(d2, high01, high23));
}

STRATA_INLINE Lanes Set(float x) { return SetN<16>(x); }
template <typename T>
STRATA_INLINE Lanes Load(const T* p) {
  return LoadN<16>(p);
}

// Bits `shift` and up of each lane's 32, as many as `mask` has, as numbers. `p` may be unaligned.
template <size_t N>
STRATA_INLINE Pack<N> LoadBitsN(const uint8_t* p, int shift, uint32_t mask) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<int32_t, Floats> ints;
    const hn::Rebind<uint32_t, Floats> words;
    const auto bits = hn::LoadU(words, reinterpret_cast<const uint32_t*>(p));
    const auto part = hn::And(hn::ShiftRightSame(bits, shift), hn::Set(words, mask));
    return {hn::ConvertTo(Floats(), hn::BitCast(ints, part))};
  } else {
    return {LoadBitsN<N / 2>(p, shift, mask), LoadBitsN<N / 2>(p + 2 * N, shift, mask)};
  }
}
STRATA_INLINE Lanes LoadBits(const uint8_t* line, int shift, uint32_t mask) {
  return LoadBitsN<16>(line, shift, mask);
}

// Of 16 bytes each: 2^(b - 127), no number of 255; an 8-bit float (E4M3), of which all are numbers;
// four bits from `shift` on.
struct Exponents {
  static STRATA_INLINE Vector Load(const uint8_t* p) {
    const hn::Rebind<uint8_t, Floats> bytes;
    const hn::Rebind<int32_t, Floats> words;
    const auto exponents = hn::PromoteTo(words, hn::LoadU(bytes, p));
    const auto last = hn::Eq(exponents, hn::Set(words, 255));
    const auto bits = hn::Max(hn::ShiftLeft<23>(exponents), hn::Set(words, 0x00400000));
    return hn::BitCast(Floats(), hn::IfThenElse(last, hn::Set(words, 0x7fc00000), bits));
  }
};
struct Floats8 {
  // As float16, whose exponents begin 8 lower: multiplications of subnormal numbers take long, and
  // many a small scale is one.
  static STRATA_INLINE Vector Load(const uint8_t* p) {
    const hn::Rebind<int8_t, Floats> bytes;
    const hn::Rebind<int16_t, Floats> shorts;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    // The sign, which comes to stand above the exponent too, and the seven bits below it.
    const auto all = hn::PromoteTo(shorts, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(p)));
    const auto kept = hn::Set(shorts, static_cast<int16_t>(0xbf80));
    const auto number = hn::And(hn::ShiftLeft<7>(all), kept);
    return hn::Mul(hn::PromoteTo(Floats(), hn::BitCast(halves, number)), hn::Set(Floats(), 256));
  }
};
template <typename Of, size_t N>
STRATA_INLINE Pack<N> LoadOfBytes(const uint8_t* p) {
  if constexpr (N == kLeaf) {
    return {Of::Load(p)};
  } else {
    return {LoadOfBytes<Of, N / 2>(p), LoadOfBytes<Of, N / 2>(p + N / 2)};
  }
}
STRATA_INLINE Lanes LoadExponents(const uint8_t* p) { return LoadOfBytes<Exponents, 16>(p); }
STRATA_INLINE Lanes LoadFloats8(const uint8_t* p) { return LoadOfBytes<Floats8, 16>(p); }
template <size_t N>
STRATA_INLINE Pack<N> LoadHalfBytesN(const uint8_t* p, int shift) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<uint8_t, Floats> bytes;
    const hn::Rebind<int32_t, Floats> words;
    const auto all = hn::PromoteTo(words, hn::LoadU(bytes, p));
    return {hn::ConvertTo(Floats(), hn::And(hn::ShiftRightSame(all, shift), hn::Set(words, 15)))};
  } else {
    return {LoadHalfBytesN<N / 2>(p, shift), LoadHalfBytesN<N / 2>(p + N / 2, shift)};
  }
}
STRATA_INLINE Lanes LoadHalfBytes(const uint8_t* p, int shift) {
  return LoadHalfBytesN<16>(p, shift);
}

// Of 16 values those that four bits of LoadBits's number.
template <size_t N>
STRATA_INLINE Pack<N> LookUpBitsN(const float* values, const uint8_t* p, int shift) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<int32_t, Floats> ints;
    const auto bits = hn::LoadU(ints, reinterpret_cast<const int32_t*>(p));
    const auto number = hn::And(hn::ShiftRightSame(bits, shift), hn::Set(ints, 15));
    if constexpr (kLeaf == 16) {
      return {
          hn::TableLookupLanes(hn::LoadU(Floats(), values), hn::IndicesFromVec(Floats(), number))};
    } else {
      return {hn::GatherIndex(Floats(), values, number)};
    }
  } else {
    return {LookUpBitsN<N / 2>(values, p, shift), LookUpBitsN<N / 2>(values, p + 2 * N, shift)};
  }
}
STRATA_INLINE Lanes LookUpBits(const float* values, const uint8_t* p, int shift) {
  return LookUpBitsN<16>(values, p, shift);
}

// To the nearest bfloat16 and float16, of two the even one; what float16 has not becomes infinite.
template <size_t N>
STRATA_INLINE Pack<N> RoundBf16(const Pack<N>& a) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<uint32_t, Floats> words;
    const auto bits = hn::BitCast(words, a.v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
    const auto next = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fff)));
    const Vector rounded = hn::BitCast(Floats(), hn::And(next, hn::Set(words, 0xffff0000u)));
    return {hn::IfThenElse(hn::Eq(a.v, a.v), rounded, a.v)};
  } else {
    return {RoundBf16(a.lo), RoundBf16(a.hi)};
  }
}
template <size_t N>
STRATA_INLINE Pack<N> RoundF16(const Pack<N>& a) {
  if constexpr (N == kLeaf) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return {hn::PromoteTo(Floats(), hn::DemoteTo(halves, a.v))};
  } else {
    return {RoundF16(a.lo), RoundF16(a.hi)};
  }
}
