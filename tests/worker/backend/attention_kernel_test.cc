// Attention against a plain program of what attention-inl.h says, one query at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/numerics/math.h"
#include "tests/worker/backend/tables.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/kernels.h"

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
  uint32_t window = 0;
  float soft_cap = 0;
  uint32_t latent_values = 0;

  uint32_t value_dim() const { return latent_values != 0 ? latent_values : head_dim; }
};

float RandomFloat(std::mt19937* random) {
  return static_cast<float>((*random)()) * 0x1p-31f - 1.0f;
}

struct Shape {
  uint32_t head_dim;
  uint32_t group;
  uint32_t keys;
  uint32_t window = 0;
  float soft_cap = 0;
  uint32_t latent_values = 0;  // As AttendArgs has it.
};

// Writes one position to its page.
void Append(const Fixture& f, uint32_t key, const std::vector<float>& k,
            const std::vector<float>& v, uint8_t* memory) {
  uint8_t* const page = memory + f.pages[key / 16] * f.page_bytes;
  if (f.latent_values == 0) {
    ScalarKernels()->append_kv(k.data(), v.data(), f.head_dim, key % 16, f.f16, page,
                               f.value_bytes);
    return;
  }
  const size_t at = size_t{key % 16} * f.head_dim;
  for (uint32_t d = 0; d < f.head_dim; ++d) {
    if (f.f16) {
      reinterpret_cast<F16*>(page)[at + d] = ToF16(k[d]);
    } else {
      reinterpret_cast<float*>(page)[at + d] = k[d];
    }
  }
}

Fixture MakeFixture(const Shape& shape, bool f16, uint32_t seed) {
  const auto [head_dim, group, keys, window, soft_cap, latent_values] = shape;
  Fixture f{.head_dim = head_dim, .group = group, .keys = keys, .f16 = f16};
  f.window = window;
  f.soft_cap = soft_cap;
  f.latent_values = latent_values;
  f.scale = 1.0f / std::sqrt(static_cast<float>(head_dim)) * 3.0f;
  const size_t element = f16 ? 2 : 4;
  f.value_bytes = latent_values != 0 ? 0 : head_dim * 16 * element;
  f.page_bytes = latent_values != 0 ? head_dim * 16 * element
                                    : f.value_bytes + PaddedHeadDim(head_dim) * 16 * element;
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
      if (d < f.value_dim()) {
        f.v.push_back(latent_values != 0 ? f.k.back() : rounded(v.back()));
      }
      for (uint32_t g = 0; g < group; ++g) {
        f.q.push_back(RandomFloat(&random));
      }
    }
    Append(f, key, k, v, f.memory.data());
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

// Of the keys [first, end), which are of one span.
Sums PlainSpan(const Fixture& f, const float* q, uint32_t first, uint32_t end) {
  Sums sums;
  sums.o.assign(f.value_dim(), 0.0f);
  for (uint32_t page = first / 16 * 16; page < end; page += 16) {
    const uint32_t from = page < first ? first - page : 0;
    const uint32_t to = std::min(16u, end - page);
    float s[16];
    float m = sums.m;
    for (uint32_t j = from; j < to; ++j) {
      float acc = 0.0f;
      for (uint32_t d = 0; d < f.head_dim; ++d) {
        acc = std::fma(q[d], f.k[(page + j) * f.head_dim + d], acc);
      }
      s[j] = acc * f.scale;
      if (f.soft_cap != 0) {
        s[j] = f.soft_cap * TanhF32(s[j] / f.soft_cap);
      }
      m = std::max(m, s[j]);
    }
    const float a = ExpF32(sums.m - m);
    float p[16] = {};
    for (uint32_t j = from; j < to; ++j) {
      p[j] = ExpF32(s[j] - m);
    }
    sums.l = std::fma(sums.l, a, TreeSum(p));
    for (uint32_t d = 0; d < f.value_dim(); ++d) {
      float o = sums.o[d] * a;
      for (uint32_t j = from; j < to; ++j) {
        o = std::fma(p[j], f.v[(page + j) * f.value_dim() + d], o);
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
  uint32_t end = 0;
  for (uint32_t first = FirstSeen(row, f.window); first <= row; first = end) {
    end = std::min(row + 1, first / kSpanKeys * kSpanKeys + kSpanKeys);
    const Sums span = PlainSpan(f, q, first, end);
    if (total.o.empty()) {
      total = span;
      continue;
    }
    const float m = std::max(total.m, span.m);
    const float a = ExpF32(total.m - m);
    const float b = ExpF32(span.m - m);
    for (uint32_t d = 0; d < f.value_dim(); ++d) {
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

std::vector<float> PlainAttention(const Fixture& f) {
  std::vector<float> all;
  for (uint32_t row = 0; row < f.keys; ++row) {
    for (uint32_t head = 0; head < f.group; ++head) {
      const std::vector<float> one = PlainAttention(f, row, head);
      all.insert(all.end(), one.begin(), one.end());
    }
  }
  return all;
}

// The pages, but for the keys [from, end) all NaN.
std::vector<uint8_t> PoisonedBeside(const Fixture& f, uint32_t from, uint32_t end) {
  std::vector<uint8_t> memory = f.memory;
  const std::vector<float> poison(f.head_dim, kNan);
  for (uint32_t key = 0; key < f.keys; ++key) {
    if (key < from || key >= end) {
      Append(f, key, poison, poison, memory.data());
    }
  }
  return memory;
}

// A call for the rows [first, end), whose answers are [rows][group][value_dim].
AttendArgs ArgsOf(const Fixture& f, uint32_t first, uint32_t end,
                  const std::vector<uint8_t>& memory, float* out, float* scratch) {
  const size_t width = size_t{f.group} * f.head_dim;
  const uint32_t first_page = FirstSeen(first, f.window) / 16;
  return {.q = f.q.data() + first * width,
          .q_stride = width,
          .rows = end - first,
          .group = f.group,
          .position = first,
          .window = f.window,
          .head_dim = f.head_dim,
          .scale = f.scale,
          .soft_cap = f.soft_cap,
          .latent_values = f.latent_values,
          .kv_f16 = f.f16,
          .kv = memory.data(),
          .page_bytes = f.page_bytes,
          .value_bytes = f.value_bytes,
          .pages = f.pages.data() + first_page,
          .first_page = first_page,
          .out = out,
          .out_stride = size_t{f.group} * f.value_dim(),
          .scratch = scratch};
}

// The rows [first, end) by one call of a table's kernel. What they do not see is not there: behind
// them or before their window in a page, or the page itself.
std::vector<float> Attend(const Kernels& kernels, const Fixture& f, uint32_t first, uint32_t end,
                          bool by_spans = false) {
  const std::vector<uint8_t> memory = PoisonedBeside(f, FirstSeen(first, f.window), end);
  std::vector<float> out((end - first) * size_t{f.group} * f.value_dim(), kNan);
  std::vector<float> scratch(AttendScratchFloats(f.head_dim, f.latent_values), kNan);
  AttendArgs args = ArgsOf(f, first, end, memory, out.data(), scratch.data());
  if (!by_spans) {
    kernels.attend(args);
    return out;
  }
  const uint32_t spans = (end + kSpanKeys - 1) / kSpanKeys;
  std::vector<float> partial(size_t{end - first} * f.group * spans * PartialFloats(f.value_dim()),
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

class AttentionKernelTest : public ::testing::TestWithParam<Shape> {};

TEST_P(AttentionKernelTest, EveryPathGivesThePlainProgramsBits) {
  const Shape shape = GetParam();
  for (const bool f16 : {true, false}) {
    const Fixture f = MakeFixture(shape, f16, shape.keys);
    const size_t width = size_t{f.group} * f.value_dim();
    const std::vector<float> plain = PlainAttention(f);
    for (const Kernels* kernels : RunnableTables()) {
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
  const Fixture f = MakeFixture(shape, false, 77);
  const uint32_t row = f.keys - 1;
  const uint32_t from = FirstSeen(row, f.window);
  const std::vector<float> got = Attend(*RunnableTables().back(), f, row, row + 1);
  for (uint32_t head = 0; head < f.group; ++head) {
    const float* const q = f.q.data() + (size_t{row} * f.group + head) * f.head_dim;
    std::vector<double> weights(f.keys);
    double sum = 0;
    for (uint32_t key = from; key < f.keys; ++key) {
      double dot = 0;
      for (uint32_t d = 0; d < f.head_dim; ++d) {
        dot += double{q[d]} * f.k[key * f.head_dim + d];
      }
      const double score = dot * f.scale;
      weights[key] = std::exp(f.soft_cap == 0 ? score : f.soft_cap * std::tanh(score / f.soft_cap));
      sum += weights[key];
    }
    for (uint32_t d = 0; d < f.value_dim(); ++d) {
      double o = 0;
      for (uint32_t key = from; key < f.keys; ++key) {
        o += weights[key] / sum * f.v[key * f.value_dim() + d];
      }
      EXPECT_NEAR(got[head * f.value_dim() + d], o, f.soft_cap == 0 ? 2e-6 : 5e-6)
          << head << " " << d;
    }
  }
}

std::string ShapeName(const ::testing::TestParamInfo<Shape>& info) {
  const Shape& shape = info.param;
  std::string name = "head_dim" + std::to_string(shape.head_dim) + "_group" +
                     std::to_string(shape.group) + "_keys" + std::to_string(shape.keys);
  if (shape.window != 0) {
    name += "_window" + std::to_string(shape.window);
  }
  if (shape.latent_values != 0) {
    name += "_latent" + std::to_string(shape.latent_values);
  }
  return shape.soft_cap == 0 ? name : name + "_capped";
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionKernelTest,
                         ::testing::Values(Shape{8, 1, 1}, Shape{16, 2, 16}, Shape{24, 3, 35},
                                           Shape{64, 4, 130}, Shape{80, 5, 70}, Shape{128, 8, 50},
                                           Shape{32, 1, 512}, Shape{16, 2, 513}, Shape{8, 3, 1100}),
                         ShapeName);
INSTANTIATE_TEST_SUITE_P(Windows, AttentionKernelTest,
                         ::testing::Values(Shape{8, 1, 40, 1}, Shape{24, 3, 70, 15, 2.0f},
                                           Shape{16, 2, 70, 16}, Shape{80, 5, 70, 17, 30.0f},
                                           Shape{10, 2, 100, 33}, Shape{64, 4, 130, 1000},
                                           Shape{40, 8, 530, 20, 5.0f},
                                           Shape{8, 1, 1100, 511, 1.0f}, Shape{16, 1, 1100, 512},
                                           Shape{10, 1, 1100, 513}, Shape{8, 1, 1700, 1030, 3.0f},
                                           Shape{24, 1, 560, 0, 4.0f}),
                         ShapeName);

// Numbers of queries on both sides of what is scored at once.
INSTANTIATE_TEST_SUITE_P(Latents, AttentionKernelTest,
                         ::testing::Values(Shape{24, 1, 1, 0, 0, 16}, Shape{40, 4, 70, 0, 0, 32},
                                           Shape{18, 16, 33, 0, 0, 16}, Shape{96, 7, 50, 0, 0, 64},
                                           Shape{24, 3, 1100, 0, 0, 16},
                                           Shape{20, 15, 530, 0, 2.0f, 16},
                                           Shape{24, 5, 90, 21, 0, 16}),
                         ShapeName);

// Tiles begin and end anywhere in a page, and their rows' windows do.
TEST(AttentionTileTest, NoTileChangesABitOfAWindow) {
  for (const uint32_t window : {1u, 15u, 16u, 17u, 40u}) {
    const Fixture f = MakeFixture({10, 3, 90, window, window % 2 == 0 ? 0.0f : 3.0f}, true, window);
    const size_t width = size_t{f.group} * f.head_dim;
    const std::vector<float> plain = PlainAttention(f);
    for (const Kernels* kernels : RunnableTables()) {
      for (const uint32_t rows : {1u, 2u, 3u, 7u, 16u, 21u}) {
        for (uint32_t first = 0; first + rows <= f.keys; ++first) {
          const std::vector<float> got = Attend(*kernels, f, first, first + rows);
          ASSERT_EQ(
              std::memcmp(got.data(), plain.data() + first * width, got.size() * sizeof(float)), 0)
              << kernels->isa << " window " << window << " rows " << first << " on, " << rows;
        }
      }
    }
  }
}

// Pages of calls of one thread are prefetched at one pace, whatever each of them has.
TEST(AttentionCallsTest, CallsInTurnAskAheadForThoseToComeAndKeepTheirBits) {
  // The fewest pages that are on their way, as far as there are any, and some for rounding.
  constexpr int kFewest = 24;
  constexpr int kMost = 28;
  const Fixture f = MakeFixture({16, 9, 1100}, true, 5);
  const std::vector<uint32_t> rows = {1060, 20, 1099, 3, 530, 531};
  const size_t width = size_t{f.group} * f.value_dim();
  const std::vector<float> plain = PlainAttention(f);
  for (const Kernels* kernels : RunnableTables()) {
    PrefetchedPages prefetched;
    std::vector<std::vector<float>> out(rows.size(), std::vector<float>(width, kNan));
    std::vector<float> scratch(AttendScratchFloats(f.head_dim), kNan);
    std::vector<AttendArgs> calls;
    std::vector<int> pages_before = {0};
    for (size_t i = 0; i < rows.size(); ++i) {
      calls.push_back(ArgsOf(f, rows[i], rows[i] + 1, f.memory, out[i].data(), scratch.data()));
      calls[i].turn = static_cast<uint32_t>(10 * (i + 1));
      calls[i].prefetched = &prefetched;
      pages_before.push_back(pages_before[i] + static_cast<int>(rows[i] / 16 + 1));
    }
    for (size_t i = 0; i + 1 < calls.size(); ++i) {
      calls[i].next = &calls[i + 1];
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      kernels->attend(calls[i]);
      EXPECT_EQ(std::memcmp(out[i].data(), plain.data() + rows[i] * width, width * sizeof(float)),
                0)
          << kernels->isa << " row " << rows[i];
      const int left = pages_before.back() - pages_before[i + 1];
      EXPECT_GE(prefetched.ahead, std::min(kFewest, left)) << kernels->isa << " row " << rows[i];
      EXPECT_LE(prefetched.ahead, std::min(kMost, left)) << kernels->isa << " row " << rows[i];
      EXPECT_EQ(prefetched.ahead, pages_before[prefetched.turn / 10 - 1] +
                                      static_cast<int>(prefetched.page) - pages_before[i + 1])
          << kernels->isa << " row " << rows[i];
    }
  }
}

}  // namespace
}  // namespace strata::cpu
