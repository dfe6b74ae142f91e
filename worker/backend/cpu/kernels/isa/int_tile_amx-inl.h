// Matrix tiles by AMX. Instructions rather than intrinsics: those of GCC take numbers only as they
// are written, and do not say that a load reads memory.

STRATA_INLINE void LoadTileConfig(const void* config) {
  asm volatile("ldtilecfg (%0)" : : "r"(config) : "memory");
}
STRATA_INLINE void ReleaseTiles() { asm volatile("tilerelease" : : : "memory"); }
template <int T>
STRATA_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(T));
}
template <int T>
STRATA_INLINE void TileLoad(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
STRATA_INLINE void TileStore(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
}
template <int C, int A, int B>
STRATA_INLINE void TileDot() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

template <int C, int A, int B>
STRATA_INLINE void TileDotSigned() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

STRATA_INLINE DotWeights Minus128(const DotWeights& weights) {
  return _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
}
