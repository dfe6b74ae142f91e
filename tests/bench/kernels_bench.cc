// Each kernel by itself, and its share of what this machine can do: of the measured read bandwidth
// for few rows, which read weights and little else; of the measured arithmetic for many.
//
//   kernels_bench [Google Benchmark's flags]; STRATA_CPU_ISA chooses the instruction set.
//
// One thread. Weights, keys and values are larger than the caches where a kernel reads them once.
// Of what lies in a cache, as a row's activations do, GB/s are the bytes read and written, of which
// the share is that of what the first cache is read at. A row's logits are compared with it
// nevertheless, so that a sampler that takes longer than their part of the head's weights would is
// seen.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/model/block_formats.h"
#include "common/model/window.h"
#include "common/sampling_params.h"
#include "tests/worker/backend/row_blocks.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/measure.h"
#include "worker/backend/cpu/shard/rotate.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/packed_matrix.h"
#include "worker/sampler/sampler.h"

namespace strata::cpu {
namespace {

constexpr size_t kInputs = 2048;
constexpr size_t kMatrixBytes = size_t{1} << 30;  // Of few rows' weights: no cache holds them.
constexpr size_t kOutputs = 5632;                 // Of a matrix.

struct Machine {
  const Kernels* kernels = nullptr;
  double read_bytes_per_s = 0;
  double cache_bytes_per_s = 0;  // Of the first one.
  double float_ops_per_s = 0;    // A multiplication and an addition are two.
  double int8_ops_per_s = 0;
};

double Seconds(const std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best of a few short runs of `run(count)`, in `ops` a count.
template <typename Run>
double BestOps(double ops, const Run& run, size_t count = size_t{1} << 18) {
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(run(count));
    best = std::max(best, ops * static_cast<double>(count) / Seconds(start));
  }
  return best;
}

const Machine& ThisMachine() {
  static const Machine machine = [] {
    Machine m;
    const char* const isa = std::getenv("STRATA_CPU_ISA");
    const auto kernels = ChooseKernels(isa == nullptr ? "" : isa);
    if (!kernels.ok()) {
      std::fprintf(stderr, "%s\n", std::string(kernels.status().message()).c_str());
      std::exit(2);
    }
    m.kernels = *kernels;
    ThreadPool pool(1, 1);
    m.read_bytes_per_s = BestReadBandwidth(*m.kernels, &pool, size_t{1} << 30, 2.0);
    const std::vector<uint8_t> cached(size_t{16} << 10, 1);
    const auto read_cached = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) {
        benchmark::DoNotOptimize(m.kernels->read_all(cached.data(), cached.size(), 0));
      }
      return 0;
    };
    m.cache_bytes_per_s = BestOps(static_cast<double>(cached.size()), read_cached, 4096);
    m.float_ops_per_s = BestOps(2.0 * 8 * kLanes, m.kernels->run_fmas);
    m.int8_ops_per_s = BestOps(2.0 * 8 * kLanes * 4, m.kernels->run_dots);
    return m;
  }();
  return machine;
}

// A linear congruential generator, whose high bits are the random ones.
void Advance(uint64_t* state) { *state = *state * 6364136223846793005u + 1442695040888963407u; }

// Random numbers of some format: halves of +-1.x/128, or what else is made of them.
std::vector<uint16_t> RandomHalves(size_t count) {
  std::vector<uint16_t> halves(count);
  uint64_t state = 1;
  for (uint16_t& half : halves) {
    Advance(&state);
    half = static_cast<uint16_t>(0x3c00 + (state >> 56) + ((state >> 40) & 0x8000));
  }
  return halves;
}

template <typename T>
TensorView ViewOf(Dtype dtype, std::vector<uint64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), reinterpret_cast<const uint8_t*>(values.data()),
          values.size() * sizeof(T)};
}

// Random blocks of a GGUF file, but for what scales them: d = e = 2^-10.
absl::Status MakeSuper(WeightFormat format, size_t outputs, PackedMatrix* packed,
                       ThreadPool* pool) {
  const bool six = format == WeightFormat::kSuper6;
  const Dtype dtype = six                               ? Dtype::kQ6_K
                      : format == WeightFormat::kSuper5 ? Dtype::kQ5_K
                                                        : Dtype::kQ4_K;
  std::vector<uint8_t> blocks(outputs * StoredRowBytes(dtype, kInputs));
  uint64_t state = 1;
  for (uint8_t& byte : blocks) {
    Advance(&state);
    byte = static_cast<uint8_t>(state >> 56);
  }
  constexpr uint16_t kScales[] = {0x1400, 0x1400};
  for (size_t at = six ? 208 : 0; at < blocks.size(); at += BlockBytes(dtype)) {
    std::memcpy(blocks.data() + at, kScales, six ? 2 : 4);
  }
  return packed->PackBlocks(ViewOf(dtype, {outputs, kInputs}, blocks), pool);
}

absl::Status Make(WeightFormat format, size_t outputs, PackedMatrix* packed) {
  ThreadPool pool(2, 2);
  if (format == WeightFormat::kF32) {
    std::vector<float> weights(outputs * kInputs);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(i % 251) / 1024.0f - 0.125f;
    }
    return packed->Pack(ViewOf(Dtype::kF32, {outputs, kInputs}, weights), &pool);
  }
  if (format >= WeightFormat::kSuper4) {
    return MakeSuper(format, outputs, packed, &pool);
  }
  if (format == WeightFormat::kAffine8) {
    constexpr uint32_t kGroup = 64;
    const std::vector<uint16_t> weights = RandomHalves(outputs * kInputs / 2);
    const std::vector<uint16_t> scales(outputs * kInputs / kGroup, 0x3c00);
    AffineTensor tensor;
    tensor.weight = ViewOf(Dtype::kU32, {outputs, kInputs / 4}, weights);
    tensor.scales = ViewOf(Dtype::kF16, {outputs, kInputs / kGroup}, scales);
    tensor.biases = tensor.scales;
    tensor.bits = 8;
    tensor.group = kGroup;
    return packed->PackAffine(tensor, &pool);
  }
  const std::vector<uint16_t> halves = RandomHalves(outputs * kInputs);
  const TensorView view =
      ViewOf(format == WeightFormat::kF16 ? Dtype::kF16 : Dtype::kBF16, {outputs, kInputs}, halves);
  return format == WeightFormat::kInt8 || format == WeightFormat::kAffine4
             ? packed->Quantize(view, format, *ThisMachine().kernels, &pool)
             : packed->Pack(view, &pool);
}

const PackedMatrix& MatrixOf(WeightFormat format, size_t outputs) {
  static std::map<std::pair<WeightFormat, size_t>, std::unique_ptr<PackedMatrix>> made;
  std::unique_ptr<PackedMatrix>& matrix = made[{format, outputs}];
  if (matrix != nullptr) {
    return *matrix;
  }
  // One at a time: each is a gigabyte.
  std::erase_if(made, [&](const auto& entry) { return entry.second != nullptr; });
  auto packed = std::make_unique<PackedMatrix>();
  const absl::Status status = Make(format, outputs, packed.get());
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return *(made[{format, outputs}] = std::move(packed));
}

size_t OutputsFor(WeightFormat format, uint32_t rows) {
  if (rows > 16) {
    return kOutputs;
  }
  constexpr size_t kBits[] = {32, 16, 16, 8, 8, 4, 4, 5, 6};  // Of a weight, by format.
  const size_t bits = kBits[static_cast<size_t>(format)];
  return kMatrixBytes * 8 / bits / kInputs / kLanes * kLanes;
}

// `floats`: quantized weights meet activations that are not.
void Matmul(benchmark::State& state, WeightFormat format, bool floats = false) {
  const Machine& machine = ThisMachine();
  const Kernels& kernels = *machine.kernels;
  const auto rows = static_cast<uint32_t>(state.range(0));
  const PackedMatrix& matrix = MatrixOf(format, OutputsFor(format, rows));
  const bool int8 = matrix.view().group != 0 && !floats;
  const std::vector<float> x(rows * kInputs, 0.5f);
  const std::vector<uint8_t> packed = PackRowBlocks(kernels, x, rows, kInputs, int8);
  const size_t outputs = matrix.view().outputs;
  std::vector<float> out(rows * std::min(kOutputs, outputs));
  MatmulArgs args{.weights = matrix.view(),
                  .packed = packed.data(),
                  .int8 = int8,
                  .rows = rows,
                  .out = out.data()};
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    // As many matrices one after another, each of which writes where the one before did.
    for (size_t first = 0; first < outputs; first += kOutputs) {
      args.weights.data = matrix.view().data + first / kLanes * matrix.view().panel_bytes;
      args.weights.outputs = std::min(kOutputs, outputs - first);
      args.out_stride = args.weights.outputs;
      kernels.matmul(args, 0, args.weights.panels());
    }
    benchmark::ClobberMemory();
  }
  const double seconds = Seconds(start) / static_cast<double>(state.iterations());
  const double ops = 2.0 * rows * static_cast<double>(outputs * kInputs) / seconds;
  state.counters["GB/s"] = static_cast<double>(matrix.bytes()) / seconds / 1e9;
  state.counters["Gop/s"] = ops / 1e9;
  state.counters["of bandwidth"] =
      static_cast<double>(matrix.bytes()) / seconds / machine.read_bytes_per_s;
  state.counters["of peak"] = ops / (int8 ? machine.int8_ops_per_s : machine.float_ops_per_s);
}

// ---- What lies in a cache.

// `bytes`: what a run reads and writes.
template <typename Run>
void TimeCached(benchmark::State& state, double bytes, const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  const double per_s = bytes * static_cast<double>(state.iterations()) / Seconds(start);
  state.counters["GB/s"] = per_s / 1e9;
  state.counters["of cache"] = per_s / ThisMachine().cache_bytes_per_s;
}

// A block of rows for a product, the most that there is if `rows` are more.
void PackBlock(benchmark::State& state, bool int8) {
  const Kernels& kernels = *ThisMachine().kernels;
  const auto rows = std::min(static_cast<uint32_t>(state.range(0)), kernels.block_rows.alone);
  const std::vector<float> x(rows * kInputs, 0.5f);
  const size_t row_bytes = int8 ? kernels.quantized_row_bytes(kInputs) : kInputs * sizeof(float);
  std::vector<uint8_t> packed(rows * row_bytes);
  const auto pack = int8 ? kernels.quantize_rows : kernels.pack_rows;
  TimeCached(state, static_cast<double>(x.size() * sizeof(float) + packed.size()),
             [&] { pack(x.data(), kInputs, rows, kInputs, packed.data()); });
}

void QuantizeRows(benchmark::State& state) { PackBlock(state, true); }
void PackRows(benchmark::State& state) { PackBlock(state, false); }

// Half of a block's inputs, as each of two threads quantizes what it computed.
void QuantizePart(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  const auto rows = std::min(static_cast<uint32_t>(state.range(0)), kernels.block_rows.alone);
  const std::vector<float> x(rows * kInputs, 0.5f);
  std::vector<uint8_t> packed(rows * kernels.quantized_row_bytes(kInputs));
  TimeCached(state, static_cast<double>(x.size() * sizeof(float) + packed.size()) / 2, [&] {
    kernels.quantize_part(x.data(), kInputs, rows, kInputs, 0, kInputs / kQuantBlock / 2,
                          packed.data());
  });
}

void RmsNorm(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  const std::vector<float> x(kInputs, 0.5f), weight(kInputs, 1.0f);
  std::vector<float> out(kInputs);
  TimeCached(state, 3.0 * kInputs * sizeof(float),
             [&] { kernels.rms_norm(x.data(), weight.data(), kInputs, 1e-5f, 0, out.data()); });
}

// `limit`: what else a product takes, or nothing.
template <typename Product, typename... Limit>
void Gated(benchmark::State& state, Product Kernels::*product, Limit... limit) {
  const Kernels& kernels = *ThisMachine().kernels;
  const std::vector<float> gate(kInputs, 0.5f), up(kInputs, 1.0f);
  std::vector<float> out(kInputs);
  TimeCached(state, 3.0 * kInputs * sizeof(float),
             [&] { (kernels.*product)(gate.data(), up.data(), kInputs, limit..., out.data()); });
}

// One head of 64.
void Rotation(benchmark::State& state,
              void (*rotate)(const float* cosines, const float* sines, uint32_t half, float* x)) {
  constexpr uint32_t kHalf = 32;
  // Sines of zero, or the numbers would wander off to infinity or to denormal ones.
  const std::vector<float> cosines(kHalf, 1.0f), sines(kHalf, 0.0f);
  std::vector<float> x(2 * kHalf, 0.5f);
  TimeCached(state, 6.0 * kHalf * sizeof(float),
             [&] { rotate(cosines.data(), sines.data(), kHalf, x.data()); });
}

void SoftCap(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> logits(kInputs, 3.0f);
  TimeCached(state, 2.0 * kInputs * sizeof(float),
             [&] { kernels.soft_cap(logits.data(), kInputs, 30.0f); });
}

// Of numbers one by one. Halves are ones.
template <typename In, typename Out>
void Elementwise(benchmark::State& state,
                 void (*Kernels::*convert)(const In* x, size_t n, Out* out)) {
  const Kernels& kernels = *ThisMachine().kernels;
  const std::vector<In> x(kInputs, static_cast<In>(sizeof(In) == sizeof(float) ? 1 : 0x3c00));
  std::vector<Out> out(kInputs);
  TimeCached(state, static_cast<double>(kInputs * (sizeof(In) + sizeof(Out))),
             [&] { (kernels.*convert)(x.data(), kInputs, out.data()); });
}

// ---- What follows the head: a row of logits becomes a token.

// `bytes`: what a turn reads.
void ReportBytes(benchmark::State& state, double bytes,
                 std::chrono::steady_clock::time_point start) {
  const double per_s = bytes * static_cast<double>(state.iterations()) / Seconds(start);
  state.counters["GB/s"] = per_s / 1e9;
  state.counters["of bandwidth"] = per_s / ThisMachine().read_bytes_per_s;
}

std::vector<float> RandomLogits(size_t vocab) {
  std::vector<float> logits(vocab);
  uint64_t state = 7;
  for (float& logit : logits) {
    Advance(&state);
    logit = static_cast<float>(state >> 40) / float{1 << 21} - 4.0f;
  }
  return logits;
}

void Sample(benchmark::State& state, float temperature, uint32_t top_k, float top_p) {
  const auto vocab = static_cast<uint32_t>(state.range(0));
  v1::SamplingParams params = PlainSampling(temperature, 1);
  params.set_top_k(top_k);
  params.set_top_p(top_p);
  const std::vector<float> logits = RandomLogits(vocab);
  const std::vector<uint32_t> ids(64, 5);
  Sampler sampler(vocab);
  const SampleRequest request{.params = &params, .prompt_length = 32, .ids = ids};
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Sample(request, logits).value());
  }
  ReportBytes(state, static_cast<double>(vocab * sizeof(float)), start);
}

void TopLogprobs(benchmark::State& state) {
  const auto vocab = static_cast<uint32_t>(state.range(0));
  const std::vector<float> logits = RandomLogits(vocab);
  Sampler sampler(vocab);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Logprob(logits, 5, 20).value());
  }
  ReportBytes(state, static_cast<double>(vocab * sizeof(float)), start);
}

// ---- Attention.

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
      args.asked = &asked_;
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
  AskedPages asked_;
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

void EveryRowCount(benchmark::internal::Benchmark* matmul) {
  for (const int rows : {1, 2, 4, 8, 16, 64, 512}) {
    matmul->Arg(rows);
  }
  matmul->Unit(benchmark::kMillisecond);
}

void SomeRowCounts(benchmark::internal::Benchmark* matmul) {
  for (const int rows : {1, 8, 64}) {
    matmul->Arg(rows);
  }
  matmul->Unit(benchmark::kMillisecond);
}

void OneRow(benchmark::internal::Benchmark* attend) {
  attend->ArgNames({"rows", "context", "window"})
      ->Args({1, 8192, 0})
      ->Unit(benchmark::kMicrosecond);
}

void Contexts(benchmark::internal::Benchmark* attend) {
  attend->Apply(OneRow)->Args({32, 8192, 0});
}

void Vocabularies(benchmark::internal::Benchmark* sample) {
  sample->ArgName("vocab")->Arg(32000)->Arg(128256)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(Matmul, int8, WeightFormat::kInt8)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, int4, WeightFormat::kAffine4)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, bf16, WeightFormat::kBF16)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, f16, WeightFormat::kF16)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, f32, WeightFormat::kF32)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, affine8, WeightFormat::kAffine8)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super4, WeightFormat::kSuper4)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super5, WeightFormat::kSuper5)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super6, WeightFormat::kSuper6)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, int8_by_floats, WeightFormat::kInt8, true)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, int4_by_floats, WeightFormat::kAffine4, true)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super4_by_floats, WeightFormat::kSuper4, true)->Apply(SomeRowCounts);
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
BENCHMARK(QuantizeRows)->Arg(1)->Arg(12);
BENCHMARK(QuantizePart)->Arg(1)->Arg(8);
BENCHMARK(PackRows)->Arg(1)->Arg(12);
BENCHMARK(RmsNorm);
BENCHMARK_CAPTURE(Rotation, halves, Rotate);
BENCHMARK_CAPTURE(Rotation, neighbours, RotateNeighbours);
BENCHMARK_CAPTURE(Gated, swiglu, &Kernels::swiglu);
BENCHMARK_CAPTURE(Gated, geglu, &Kernels::geglu);
BENCHMARK_CAPTURE(Gated, clamped_swiglu, &Kernels::clamped_swiglu, 7.0f, 1.702f);
BENCHMARK(SoftCap);
BENCHMARK_CAPTURE(Elementwise, exp, &Kernels::exp);
BENCHMARK_CAPTURE(Elementwise, to_f16, &Kernels::to_f16);
BENCHMARK_CAPTURE(Elementwise, from_f16, &Kernels::from_f16);
BENCHMARK_CAPTURE(Elementwise, from_bf16, &Kernels::from_bf16);
BENCHMARK_CAPTURE(Sample, greedy, 0.0f, 0, 1.0f)->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, all, 1.0f, 0, 1.0f)->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, top_k_40, 1.0f, 40, 1.0f)->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, top_p_90, 1.0f, 0, 0.9f)->Apply(Vocabularies);
BENCHMARK(TopLogprobs)->Apply(Vocabularies);

}  // namespace
}  // namespace strata::cpu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  const strata::cpu::Machine& machine = strata::cpu::ThisMachine();
  std::fprintf(stderr,
               "%s, one thread: reads %.1f GB/s, the first cache %.0f; %.0f Gop/s in float32, %.0f "
               "Gop/s in int8\n",
               machine.kernels->isa, machine.read_bytes_per_s / 1e9,
               machine.cache_bytes_per_s / 1e9, machine.float_ops_per_s / 1e9,
               machine.int8_ops_per_s / 1e9);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
