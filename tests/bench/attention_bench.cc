// Attention's kernels, over more keys than caches hold; kernels_bench.cc has the others.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/limits.h"
#include "common/model/window.h"
#include "tests/bench/bench_machine.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {
namespace {

AlignedBuffer Memory(size_t bytes) {
  AlignedBuffer buffer;
  const absl::Status status = buffer.Allocate(bytes, "a benchmark");
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return buffer;
}

// Of a layer, whose pages are f16.
struct AttentionShape {
  uint32_t kv_heads = 4;
  uint32_t group = 8;  // Query heads a KV head.
  uint32_t head_dim = 64;
  uint32_t latent_values = 0;  // As in AttendArgs.
  float soft_cap = 0;

  uint32_t value_dim() const { return latent_values != 0 ? latent_values : head_dim; }
  // Of a KV head's part of a page: its keys, and all of it.
  size_t key_bytes() const { return size_t{head_dim} * kPageTokens * sizeof(uint16_t); }
  size_t head_bytes() const { return (latent_values != 0 ? 1 : 2) * key_bytes(); }
};
constexpr AttentionShape kPlain;
constexpr AttentionShape kCapped{.soft_cap = 50.0f};
// DeepSeek's.
constexpr AttentionShape kLatent{
    .kv_heads = 1, .group = kLatentQueries, .head_dim = 512 + 64, .latent_values = 512};

// The query heads of a group with each KV head of layer after layer, more than the caches hold:
// state.range(0) rows, the last of which sees state.range(1) keys, or the last state.range(2) of
// them (0: all).
class Attention {
 public:
  Attention(const AttentionShape& shape, const benchmark::State& state)
      : shape_(shape),
        context_(static_cast<uint32_t>(state.range(1))),
        layer_bytes_(context_ / kPageTokens * shape.kv_heads * shape.head_bytes()),
        layers_(std::max<size_t>(1, (size_t{192} << 20) / layer_bytes_)),
        kv_(Memory(layer_bytes_ * layers_)),
        pages_(context_ / kPageTokens),
        scratch_(Memory(AttendScratchFloats(shape.head_dim, shape.latent_values) * sizeof(float))) {
    uint16_t* const halves = kv_.as<uint16_t>();
    for (size_t i = 0; i < layer_bytes_ * layers_ / sizeof(uint16_t); ++i) {
      halves[i] = static_cast<uint16_t>(0x3000 + i % 1021);  // 0.125 and up.
    }
    std::iota(pages_.begin(), pages_.end(), 0);
    const auto rows = static_cast<uint32_t>(state.range(0));
    const size_t width = size_t{shape.group} * shape.head_dim;
    const size_t out_width = size_t{shape.group} * shape.value_dim();
    q_.resize(rows * width);
    for (size_t i = 0; i < q_.size(); ++i) {
      q_[i] = static_cast<float>(i % 17) / 64.0f - 0.125f;
    }
    out_.resize(rows * out_width);
    args = {.q = q_.data(),
            .q_stride = width,
            .rows = rows,
            .group = shape.group,
            .position = context_ - rows,
            .window = static_cast<uint32_t>(state.range(2)),
            .head_dim = shape.head_dim,
            .scale = 0.125f,
            .soft_cap = shape.soft_cap,
            .latent_values = shape.latent_values,
            .page_bytes = shape.head_bytes(),
            .value_bytes = shape.latent_values != 0 ? 0 : shape.key_bytes(),
            .pages = pages_.data(),
            .out = out_.data(),
            .out_stride = out_width,
            .scratch = scratch_.as<float>()};
  }

  // `run` takes `args`, whose KV head is another one each time.
  template <typename Run>
  void Time(benchmark::State& state, const Run& run) {
    const Machine& machine = ThisMachine();
    size_t unit = 0;
    const auto start = std::chrono::steady_clock::now();
    for (auto _ : state) {
      args.kv = HeadAt(unit);
      args.turn = TurnOf(unit);
      next_ = args;
      next_.kv = HeadAt(++unit);
      next_.turn = TurnOf(unit);
      next_.next = nullptr;
      args.next = &next_;
      args.prefetched = &prefetched_;
      run();
      benchmark::ClobberMemory();
    }
    const double seconds = Seconds(start) / static_cast<double>(state.iterations());
    double keys = 0;  // That all queries see, together.
    for (uint32_t row = 0; row < args.rows; ++row) {
      const uint32_t position = args.position + row;
      keys += shape_.group * (position + 1.0 - FirstSeen(position, args.window));
    }
    const uint32_t pages =
        context_ / kPageTokens - FirstSeen(args.position, args.window) / kPageTokens;
    const double ops = 2.0 * keys * (shape_.head_dim + shape_.value_dim()) / seconds;
    const double bytes = static_cast<double>(shape_.head_bytes() * pages) / seconds;
    state.counters["GB/s"] = bytes / 1e9;
    state.counters["Gop/s"] = ops / 1e9;
    state.counters["of bandwidth"] = bytes / machine.read_bytes_per_s;
    state.counters["of peak"] = ops / machine.float_ops_per_s;
  }

  AttendArgs args;

 private:
  // With room for the spans of a unit.
  static uint32_t TurnOf(size_t unit) { return static_cast<uint32_t>(unit * 64 + 1); }
  const uint8_t* HeadAt(size_t unit) const {
    return kv_.as<uint8_t>() + unit % (layers_ * shape_.kv_heads) * pages_.size() * args.page_bytes;
  }

  const AttentionShape shape_;
  const uint32_t context_;
  const size_t layer_bytes_;
  const size_t layers_;
  const AlignedBuffer kv_;
  std::vector<uint32_t> pages_;
  AttendArgs next_;  // What is attended after `args`.
  PrefetchedPages prefetched_;
  std::vector<float> q_, out_;
  const AlignedBuffer scratch_;
};

void Attend(benchmark::State& state, const AttentionShape& shape) {
  const Kernels& kernels = *ThisMachine().kernels;
  Attention attention(shape, state);
  attention.Time(state, [&] { kernels.attend(attention.args); });
}

size_t PartialsOf(const AttentionShape& shape, uint32_t queries, uint32_t spans) {
  return size_t{queries} * spans * PartialFloats(shape.value_dim());
}

// As threads share it, a span each and then the merging, but by one.
void AttendBySpans(benchmark::State& state, const AttentionShape& shape) {
  const Kernels& kernels = *ThisMachine().kernels;
  Attention attention(shape, state);
  AttendArgs& args = attention.args;
  const uint32_t end = SpansOf(args.position + args.rows);
  const uint32_t first = FirstSeen(args.position, args.window) / kSpanKeys;
  std::vector<float> partial(PartialsOf(shape, args.rows * args.group, end));
  args.partial = partial.data();
  args.partial_spans = end;
  args.first_span = first;
  args.end_span = first + 1;
  attention.Time(state, [&] {
    const AttendArgs* const other = args.next;
    for (uint32_t span = first; span < end; ++span) {
      AttendArgs then = args;
      then.first_span = span + 1;
      then.end_span = span + 2;
      then.turn = args.turn + 1;
      then.next = other;
      args.first_span = span;
      args.end_span = span + 1;
      args.next = span + 1 < end ? &then : other;
      kernels.attend(args);
      ++args.turn;
    }
    args.first_span = first;
    args.end_span = first + 1;
    kernels.merge_spans(args);
  });
}

// Of one row. The spans are merged into the first, whose sums grow turn by turn, and stay finite.
void MergeSpans(benchmark::State& state, const AttentionShape& shape) {
  const Kernels& kernels = *ThisMachine().kernels;
  const auto context = static_cast<uint32_t>(state.range(0));
  std::vector<float> partial(PartialsOf(shape, shape.group, SpansOf(context)), 1.0f);
  std::vector<float> out(size_t{shape.group} * shape.value_dim());
  const AttendArgs args{.rows = 1,
                        .group = shape.group,
                        .position = context - 1,
                        .head_dim = shape.head_dim,
                        .latent_values = shape.latent_values,
                        .out = out.data(),
                        .out_stride = out.size(),
                        .partial = partial.data(),
                        .partial_spans = SpansOf(context)};
  TimeCached(state, static_cast<double>((partial.size() + out.size()) * sizeof(float)),
             [&] { kernels.merge_spans(args); });
}

// One position of one KV head.
void AppendKv(benchmark::State& state) {
  constexpr uint32_t kHeadDim = kPlain.head_dim;
  const Kernels& kernels = *ThisMachine().kernels;
  const std::vector<float> k(kHeadDim, 0.5f), v(kHeadDim, 0.25f);
  std::vector<uint8_t> page(kPlain.head_bytes());
  uint32_t slot = 0;
  TimeCached(state, 2.0 * kHeadDim * (sizeof(float) + sizeof(uint16_t)), [&] {
    kernels.append_kv(k.data(), v.data(), kHeadDim, slot, true, page.data(), kPlain.key_bytes());
    slot = (slot + 1) % kPageTokens;
  });
}

void OneRow(benchmark::internal::Benchmark* attend) {
  attend->ArgNames({"rows", "context", "window"})
      ->Args({1, 8192, 0})
      ->Unit(benchmark::kMicrosecond);
}

void Contexts(benchmark::internal::Benchmark* attend) {
  attend->Apply(OneRow)->Args({32, 8192, 0});
}

BENCHMARK_CAPTURE(Attend, plain, kPlain)
    ->Apply(Contexts)
    ->Args({1, 512, 0})
    ->Args({4, 512, 0})
    ->Args({512, 512, 0})
    ->Args({1, 8192, 1024})
    ->Args({32, 8192, 1024});
BENCHMARK_CAPTURE(Attend, capped, kCapped)->Apply(Contexts)->Args({1, 8192, 1024});
BENCHMARK_CAPTURE(Attend, latent, kLatent)->Apply(Contexts)->Args({1, 512, 0});
BENCHMARK_CAPTURE(AttendBySpans, plain, kPlain)->Apply(OneRow);
BENCHMARK_CAPTURE(AttendBySpans, latent, kLatent)->Apply(OneRow);
BENCHMARK_CAPTURE(MergeSpans, plain, kPlain)->ArgName("context")->Arg(8192);
BENCHMARK_CAPTURE(MergeSpans, latent, kLatent)->ArgName("context")->Arg(8192);
BENCHMARK(AppendKv);

}  // namespace
}  // namespace strata::cpu
