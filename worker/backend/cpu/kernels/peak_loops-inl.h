// Loops that do nothing but read, or compute, as fast as this instruction set can: what the kernels
// are measured against (measure.h). Included before table-inl.h.

float ReadAll(const uint8_t* data, size_t bytes, size_t ahead) {
  const float* p = reinterpret_cast<const float*>(data);
  Lanes sum[8];
  Clear(sum);
  for (size_t k = 0; k + 128 <= bytes / sizeof(float); k += 128) {
    STRATA_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (ahead != 0) {
        __builtin_prefetch(reinterpret_cast<const uint8_t*>(p + k + i * kLanes) + ahead);
      }
      sum[i] = Add(sum[i], Load(p + k + i * kLanes));
    }
  }
  for (int i = 1; i < 8; ++i) {
    sum[0] = Add(sum[0], sum[i]);
  }
  return TreeSum(sum[0]);
}

float RunFmas(size_t count) {
  constexpr int kChains = kTiling.register_lanes < 8 ? kTiling.register_lanes : 8;
  Lanes acc[kChains];
  STRATA_UNROLL
  for (int i = 0; i < kChains; ++i) {
    acc[i] = Set(static_cast<float>(i));
  }
  const Lanes a = Set(0.999f);
  const Lanes b = Set(0.001f);
  for (size_t k = 0; k < count * 8 / kChains; ++k) {
    STRATA_UNROLL
    for (int i = 0; i < kChains; ++i) {
      acc[i] = Fma(acc[i], a, b);
    }
  }
  for (int i = 1; i < kChains; ++i) {
    acc[0] = Add(acc[0], acc[i]);
  }
  return TreeSum(acc[0]);
}

float RunDots(size_t count) {
  constexpr int kChains = kTiling.dot_chains;
  DotSum sums[kChains];
  DotWeights weights[kChains];  // Of their own, or chains could share products.
  STRATA_UNROLL
  for (int i = 0; i < kChains; ++i) {
    alignas(64) uint8_t line[64];
    std::memset(line, 3 + i, sizeof(line));
    weights[i] = LoadDotWeights(line);
    // Each begins with another sum, or the compiler would make one chain of all.
    const int8_t q[4] = {1, -1, 2, static_cast<int8_t>(i)};
    const DotWord word = MakeDotWord(q);
    sums[i] = DotStep(DotBegin(0), weights[i], &word);
  }
  constexpr int kWords = 8;
  DotWord words[kWords];
  for (int i = 0; i < kWords; ++i) {
    const int8_t q[4] = {1, -1, static_cast<int8_t>(i), static_cast<int8_t>(-i)};
    words[i] = MakeDotWord(q);
  }
  for (size_t k = 0; k < count / kChains; ++k) {
    const DotWord* at = words;
    __asm__ volatile("" : "+r"(at));  // Or the compiler multiplies once, before the loop.
    STRATA_UNROLL
    for (int word = 0; word < kWords; ++word) {
      STRATA_UNROLL
      for (int i = 0; i < kChains; ++i) {
        sums[i] = DotStep(sums[i], weights[i], at + word);
      }
    }
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) {
    total += TreeSum(DotFloats(sums[i]));
  }
  return total;
}
