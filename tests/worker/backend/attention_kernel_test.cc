// Attention against a plain program of what attention-inl.h says, one query at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/numerics/math.h"
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/isa.h"
#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One sequence's KV of one head, on scattered pages whose other places are NaN.
struct Fixture {
  uint32_t head_dim;
  uint32_t group;
  uint32_t keys;
  bool f16;
  size_t value_bytes = {};
  size_t page_bytes = {};
  std::vector<uint8_t> memory = {};
  std::vector<uint32_t> pages = {};
  std::vector<float> k = {}, v = {};  // As rounded: [keys][head_dim].
  std::vector<float> q = {};          // [keys][group][head_dim]
  float scale = {};
};

float RandomFloat(std::mt19937* random) {
  return static_cast<float>((*random)()) * 0x1p-31f - 1.0f;
}

Fixture MakeFixture(uint32_t head_dim, uint32_t group, uint32_t keys, bool f16, uint32_t seed) {
  Fixture f{.head_dim = head_dim, .group = group, .keys = keys, .f16 = f16};
  f.scale = 1.0f / std::sqrt(static_cast<float>(head_dim)) * 3.0f;
  const size_t element = f16 ? 2 : 4;
  f.value_bytes = head_dim * 16 * element;
  f.page_bytes = f.value_bytes + PaddedHeadDim(head_dim) * 16 * element;
  const uint32_t count = (keys + 15) / 16;
  f.memory.resize(f.page_bytes * (count + 3));
  for (size_t i = 0; i < f.memory.size() / element; ++i) {
    if (f16) {
      reinterpret_cast<F16*>(f.memory.data())[i] = F16{0x7e00};
    } else {
      reinterpret_cast<float*>(f.memory.data())[i] = kNan;
    }
  }
  std::mt19937 random(seed);
  for (uint32_t i = 0; i < count; ++i) {
    f.pages.push_back(i + 2);
  }
  std::shuffle(f.pages.begin(), f.pages.end(), random);
  const auto rounded = [&](float x) { return f16 ? ToF32(ToF16(x)) : x; };
  for (uint32_t key = 0; key < keys; ++key) {
    std::vector<float> k, v;
    for (uint32_t d = 0; d < head_dim; ++d) {
      k.push_back(RandomFloat(&random));
      v.push_back(RandomFloat(&random));
      f.k.push_back(rounded(k.back()));
      f.v.push_back(rounded(v.back()));
      for (uint32_t g = 0; g < group; ++g) {
        f.q.push_back(RandomFloat(&random));
      }
    }
    MachineKernels()[0]->append_kv(k.data(), v.data(), head_dim, key % 16, f16,
                                   f.memory.data() + f.pages[key / 16] * f.page_bytes,
                                   f.value_bytes);
  }
  return f;
}

float TreeSum(const float* lanes) {
  float t[16];
  std::copy(lanes, lanes + 16, t);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      t[i] = t[i] + t[i + width];
    }
  }
  return t[0];
}

struct Sums {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  std::vector<float> o;
};

Sums PlainSpan(const Fixture& f, const float* q, uint32_t first, uint32_t end) {
  Sums sums;
  sums.o.assign(f.head_dim, 0.0f);
  for (uint32_t page = first; page < end; page += 16) {
    const uint32_t count = std::min(16u, end - page);
    float s[16];
    float m = sums.m;
    for (uint32_t j = 0; j < count; ++j) {
      float acc = 0.0f;
      for (uint32_t d = 0; d < f.head_dim; ++d) {
        acc = std::fma(q[d], f.k[(page + j) * f.head_dim + d], acc);
      }
      s[j] = acc * f.scale;
      m = std::max(m, s[j]);
    }
    const float a = ExpF32(sums.m - m);
    float p[16] = {};
    for (uint32_t j = 0; j < count; ++j) {
      p[j] = ExpF32(s[j] - m);
    }
    sums.l = std::fma(sums.l, a, TreeSum(p));
    for (uint32_t d = 0; d < f.head_dim; ++d) {
      float o = sums.o[d] * a;
      for (uint32_t j = 0; j < count; ++j) {
        o = std::fma(p[j], f.v[(page + j) * f.head_dim + d], o);
      }
      sums.o[d] = o;
    }
    sums.m = m;
  }
  return sums;
}

std::vector<float> PlainAttention(const Fixture& f, uint32_t row, uint32_t head) {
  const float* const q = f.q.data() + (size_t{row} * f.group + head) * f.head_dim;
  Sums total;
  for (uint32_t first = 0; first <= row; first += kSpanKeys) {
    const Sums span = PlainSpan(f, q, first, std::min(row + 1, first + kSpanKeys));
    if (first == 0) {
      total = span;
      continue;
    }
    const float m = std::max(total.m, span.m);
    const float a = ExpF32(total.m - m);
    const float b = ExpF32(span.m - m);
    for (uint32_t d = 0; d < f.head_dim; ++d) {
      total.o[d] = std::fma(total.o[d], a, span.o[d] * b);
    }
    total.l = std::fma(total.l, a, span.l * b);
    total.m = m;
  }
  for (float& o : total.o) {
    o = o / total.l;
  }
  return total.o;
}

// The rows [first, end) by one call of a table's kernel, [rows][group][head_dim].
std::vector<float> Attend(const Kernels& kernels, const Fixture& f, uint32_t first, uint32_t end,
                          bool by_spans = false) {
  const size_t width = size_t{f.group} * f.head_dim;
  std::vector<float> out((end - first) * width, kNan);
  std::vector<float> scratch(AttendScratchFloats(f.head_dim), kNan);
  AttendArgs args{.q = f.q.data() + first * width,
                  .q_stride = width,
                  .rows = end - first,
                  .group = f.group,
                  .position = first,
                  .head_dim = f.head_dim,
                  .scale = f.scale,
                  .kv_f16 = f.f16,
                  .kv = f.memory.data(),
                  .page_bytes = f.page_bytes,
                  .value_bytes = f.value_bytes,
                  .pages = f.pages.data(),
                  .out = out.data(),
                  .out_stride = width,
                  .scratch = scratch.data()};
  if (!by_spans) {
    kernels.attend(args);
    return out;
  }
  const uint32_t spans = (end + kSpanKeys - 1) / kSpanKeys;
  std::vector<float> partial(size_t{end - first} * f.group * spans * PartialFloats(f.head_dim),
                             kNan);
  args.partial = partial.data();
  args.partial_spans = spans;
  for (uint32_t span = spans; span-- > 0;) {
    args.first_span = span;
    args.end_span = span + 1;
    kernels.attend(args);
  }
  kernels.merge_spans(args);
  return out;
}

struct Shape {
  uint32_t head_dim;
  uint32_t group;
  uint32_t keys;
};

class AttentionKernelTest : public ::testing::TestWithParam<Shape> {};

TEST_P(AttentionKernelTest, EveryPathGivesThePlainProgramsBits) {
  const Shape shape = GetParam();
  for (const bool f16 : {true, false}) {
    const Fixture f = MakeFixture(shape.head_dim, shape.group, shape.keys, f16, shape.keys);
    const size_t width = size_t{f.group} * f.head_dim;
    std::vector<float> plain;
    for (uint32_t row = 0; row < f.keys; ++row) {
      for (uint32_t head = 0; head < f.group; ++head) {
        const std::vector<float> one = PlainAttention(f, row, head);
        plain.insert(plain.end(), one.begin(), one.end());
      }
    }
    for (const Kernels* kernels : MachineKernels()) {
      for (const uint32_t tile : {1u, 3u, 8u, 33u, f.keys}) {
        for (const bool by_spans : {false, true}) {
          // From the end, and not every tile of long sequences: the last ones see the most.
          uint32_t done = 0;
          for (uint32_t end = f.keys; end > 0 && done < 24; end -= std::min(tile, end), ++done) {
            const uint32_t first = end - std::min(tile, end);
            const std::vector<float> got = Attend(*kernels, f, first, end, by_spans);
            ASSERT_EQ(
                std::memcmp(got.data(), plain.data() + first * width, got.size() * sizeof(float)),
                0)
                << kernels->isa << " rows " << first << " to " << end
                << (by_spans ? " by spans" : "") << (f16 ? " f16" : " f32");
          }
        }
      }
    }
  }
}

TEST_P(AttentionKernelTest, IsSoftmaxTimesValues) {
  const Shape shape = GetParam();
  const Fixture f = MakeFixture(shape.head_dim, shape.group, shape.keys, false, 77);
  const uint32_t row = f.keys - 1;
  const std::vector<float> got = Attend(*MachineKernels().back(), f, row, row + 1);
  for (uint32_t head = 0; head < f.group; ++head) {
    const float* const q = f.q.data() + (size_t{row} * f.group + head) * f.head_dim;
    std::vector<double> weights(f.keys);
    double sum = 0;
    for (uint32_t key = 0; key < f.keys; ++key) {
      double dot = 0;
      for (uint32_t d = 0; d < f.head_dim; ++d) {
        dot += double{q[d]} * f.k[key * f.head_dim + d];
      }
      weights[key] = std::exp(dot * f.scale);
      sum += weights[key];
    }
    for (uint32_t d = 0; d < f.head_dim; ++d) {
      double o = 0;
      for (uint32_t key = 0; key < f.keys; ++key) {
        o += weights[key] / sum * f.v[key * f.head_dim + d];
      }
      EXPECT_NEAR(got[head * f.head_dim + d], o, 2e-6) << head << " " << d;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionKernelTest,
                         ::testing::Values(Shape{8, 1, 1}, Shape{16, 2, 16}, Shape{24, 3, 35},
                                           Shape{64, 4, 130}, Shape{80, 5, 70}, Shape{128, 8, 50},
                                           Shape{32, 1, 512}, Shape{16, 2, 513}, Shape{8, 3, 1100}),
                         [](const auto& info) {
                           return "head_dim" + std::to_string(info.param.head_dim) + "_group" +
                                  std::to_string(info.param.group) + "_keys" +
                                  std::to_string(info.param.keys);
                         });

}  // namespace
}  // namespace strata::cpu
