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
STRATA_LANES_BINARY(Max, hn::IfThenElse(hn::Gt(a.v, b.v), a.v, b.v))
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
    return hn::IfThenElse(hn::Gt(a, b), a, b);
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
STRATA_INLINE float TreeSum(const Lanes& a) { return Fold<SumOf>(a); }
STRATA_INLINE float LargestLane(const Lanes& a) { return Fold<LargerOf>(a); }

// The first n lanes of a, then those of b.
template <size_t N>
STRATA_INLINE Pack<N> FirstN(const Pack<N>& a, const Pack<N>& b, uint32_t n) {
  if constexpr (N == kLeaf) {
    return {hn::IfThenElse(hn::FirstN(Floats(), n), a.v, b.v)};
  } else {
    return {FirstN(a.lo, b.lo, n), FirstN(a.hi, b.hi, n > N / 2 ? n - uint32_t{N / 2} : 0)};
  }
}

template <size_t N>
STRATA_INLINE Pack<N> Exp(const Pack<N>& x) {
  if constexpr (N == kLeaf) {
    const Floats d;
    const hn::Rebind<uint32_t, Floats> words;
    const Vector magic = hn::Set(d, kExpMagic);
    const Vector t = hn::MulAdd(x.v, hn::Set(d, kExpLog2e), magic);
    const Vector n = hn::Sub(t, magic);
    Vector r = hn::NegMulAdd(n, hn::Set(d, kExpLn2High), x.v);
    r = hn::NegMulAdd(n, hn::Set(d, kExpLn2Low), r);
    Vector q = hn::Set(d, kExpQ5);
    q = hn::MulAdd(q, r, hn::Set(d, kExpQ4));
    q = hn::MulAdd(q, r, hn::Set(d, kExpQ3));
    q = hn::MulAdd(q, r, hn::Set(d, kExpQ2));
    q = hn::MulAdd(q, r, hn::Set(d, kExpQ1));
    q = hn::MulAdd(q, r, hn::Set(d, kExpQ0));
    const Vector y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(q, hn::Mul(r, r), r));
    const auto bits = hn::Add(hn::BitCast(words, y), hn::ShiftLeft<23>(hn::BitCast(words, t)));
    const Vector infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    Vector e = hn::BitCast(d, bits);
    e = hn::IfThenElse(hn::Gt(x.v, hn::Set(d, kExpMax)), infinity, e);
    e = hn::IfThenElse(hn::Lt(x.v, hn::Set(d, kExpMin)), hn::Zero(d), e);
    return {hn::IfThenElse(hn::Eq(x.v, x.v), e, x.v)};
  } else {
    return {Exp(x.lo), Exp(x.hi)};
  }
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
