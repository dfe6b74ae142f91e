// Each kernel by itself, and its share of what this machine can do: of the measured read bandwidth
// for few rows, which read weights and little else; of the measured arithmetic for many.
//
//   kernels_bench [Google Benchmark's flags]; STRATA_CPU_ISA chooses the instruction set.
//
// One thread. Weights are larger than the caches where a kernel reads them once. What is done to a
// row's activations, or to its logits, lies in a cache: its bytes, read and written, are compared
// with the bandwidth too, so that what takes longer than its row's weights would is seen.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/window.h"
#include "tests/worker/backend/row_blocks.h"
#include "worker/backend/cpu/aligned_buffer.h"
#include "worker/backend/cpu/choose_kernels.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/measure.h"
#include "worker/backend/cpu/packed_matrix.h"
#include "worker/backend/cpu/thread_pool.h"
#include "worker/sampler/sampler.h"

namespace strata::cpu {
namespace {

constexpr size_t kInputs = 2048;
constexpr size_t kMatrixBytes = size_t{1} << 30;  // Of few rows' weights: no cache holds them.
constexpr size_t kOutputs = 5632;                 // Of a matrix.

struct Machine {
  const Kernels* kernels = nullptr;
  double read_bytes_per_s = 0;
  double float_ops_per_s = 0;  // A multiplication and an addition are two.
  double int8_ops_per_s = 0;
};

double Seconds(const std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best of a few short runs of `run(count)`, in `ops` a count.
template <typename Run>
double BestOps(double ops, const Run& run) {
  constexpr size_t kCount = size_t{1} << 18;
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(run(kCount));
    best = std::max(best, ops * static_cast<double>(kCount) / Seconds(start));
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

absl::Status Make(WeightFormat format, size_t outputs, PackedMatrix* packed) {
  ThreadPool pool(2, 2);
  if (format == WeightFormat::kF32) {
    std::vector<float> weights(outputs * kInputs);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(i % 251) / 1024.0f - 0.125f;
    }
    return packed->Pack(ViewOf(Dtype::kF32, {outputs, kInputs}, weights), &pool);
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
  const size_t bits = format == WeightFormat::kAffine4                                    ? 4
                      : format == WeightFormat::kInt8 || format == WeightFormat::kAffine8 ? 8
                      : format == WeightFormat::kF32                                      ? 32
                                                                                          : 16;
  return kMatrixBytes * 8 / bits / kInputs / kLanes * kLanes;
}

void Matmul(benchmark::State& state, WeightFormat format) {
  const Machine& machine = ThisMachine();
  const Kernels& kernels = *machine.kernels;
  const auto rows = static_cast<uint32_t>(state.range(0));
  const PackedMatrix& matrix = MatrixOf(format, OutputsFor(format, rows));
  const bool int8 = matrix.view().group != 0;
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

// `bytes`: what a turn reads and writes.
void ReportBytes(benchmark::State& state, double bytes,
                 std::chrono::steady_clock::time_point start) {
  const double per_s = bytes * static_cast<double>(state.iterations()) / Seconds(start);
  state.counters["GB/s"] = per_s / 1e9;
  state.counters["of bandwidth"] = per_s / ThisMachine().read_bytes_per_s;
}

void QuantizeRows(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  const auto rows = std::min(static_cast<uint32_t>(state.range(0)), kernels.block_rows);
  std::vector<float> x(rows * kInputs, 0.5f);
  std::vector<uint8_t> packed(rows * kernels.quantized_row_bytes(kInputs));
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernels.quantize_rows(x.data(), kInputs, rows, kInputs, packed.data());
    benchmark::ClobberMemory();
  }
  ReportBytes(state, static_cast<double>(x.size() * sizeof(float) + packed.size()), start);
}

void RmsNorm(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> x(kInputs, 0.5f), weight(kInputs, 1.0f), out(kInputs);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernels.rms_norm(x.data(), weight.data(), kInputs, 1e-5f, 0, out.data());
    benchmark::ClobberMemory();
  }
  ReportBytes(state, 3.0 * kInputs * sizeof(float), start);
}

void Gated(benchmark::State& state,
           void (*Kernels::*product)(const float* gate, const float* up, size_t n, float* out)) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> gate(kInputs, 0.5f), up(kInputs, 1.0f), out(kInputs);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    (kernels.*product)(gate.data(), up.data(), kInputs, out.data());
    benchmark::ClobberMemory();
  }
  ReportBytes(state, 3.0 * kInputs * sizeof(float), start);
}

void SoftCap(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> logits(kInputs, 3.0f);
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernels.soft_cap(logits.data(), kInputs, 30.0f);
    benchmark::ClobberMemory();
  }
  ReportBytes(state, 2.0 * kInputs * sizeof(float), start);
}

// ---- What follows the head: a row of logits becomes a token.

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

AlignedBuffer Memory(size_t bytes) {
  AlignedBuffer buffer;
  const absl::Status status = buffer.Allocate(bytes, "a benchmark");
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return buffer;
}

// KV heads' pages of several layers, more than the caches hold: 4 heads of 64, f16.
struct KvPages {
  static constexpr uint32_t kHeads = 4;
  static constexpr uint32_t kHeadDim = 64;
  static constexpr size_t kHalf = size_t{kHeadDim} * kPageTokens * sizeof(uint16_t);
  static constexpr size_t kPageBytes = 2 * kHalf * kHeads;

  KvPages(uint32_t context, size_t layers)
      : layer_bytes(context / kPageTokens * kPageBytes),
        kv(Memory(layer_bytes * layers)),
        pages(context / kPageTokens) {
    uint16_t* const halves = kv.as<uint16_t>();
    for (size_t i = 0; i < layer_bytes * layers / sizeof(uint16_t); ++i) {
      halves[i] = static_cast<uint16_t>(0x3000 + i % 1021);  // 0.125 and up.
    }
    std::iota(pages.begin(), pages.end(), 0);
  }

  size_t layer_bytes;
  AlignedBuffer kv;
  std::vector<uint32_t> pages;
};

// One position of one KV head.
void AppendKv(benchmark::State& state) {
  constexpr uint32_t kHeadDim = KvPages::kHeadDim;
  const Kernels& kernels = *ThisMachine().kernels;
  const std::vector<float> k(kHeadDim, 0.5f), v(kHeadDim, 0.25f);
  std::vector<uint8_t> page(2 * KvPages::kHalf);
  uint32_t slot = 0;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernels.append_kv(k.data(), v.data(), kHeadDim, slot, true, page.data(), KvPages::kHalf);
    slot = (slot + 1) % kPageTokens;
    benchmark::ClobberMemory();
  }
  ReportBytes(state, 2.0 * kHeadDim * (sizeof(float) + sizeof(uint16_t)), start);
}

// A group of 8 query heads with each KV head of layer after layer: `rows` rows, the last of which
// sees `context` keys, or the last `window` of them (0: all).
void Attend(benchmark::State& state) {
  constexpr uint32_t kGroup = 8;
  const Machine& machine = ThisMachine();
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto context = static_cast<uint32_t>(state.range(1));
  const auto window = static_cast<uint32_t>(state.range(2));
  const size_t layers = std::max<size_t>(1, (size_t{192} << 20) / (context * 1024));
  const KvPages kv(context, layers);
  const size_t floats = size_t{rows} * kGroup * KvPages::kHeadDim;
  std::vector<float> q(floats), out(floats);
  for (size_t i = 0; i < floats; ++i) {
    q[i] = static_cast<float>(i % 17) / 64.0f - 0.125f;
  }
  const AlignedBuffer scratch = Memory(AttendScratchFloats(KvPages::kHeadDim) * sizeof(float));
  AttendArgs args{.q = q.data(),
                  .q_stride = kGroup * KvPages::kHeadDim,
                  .rows = rows,
                  .group = kGroup,
                  .position = context - rows,
                  .window = window,
                  .head_dim = KvPages::kHeadDim,
                  .scale = 0.125f,
                  .page_bytes = KvPages::kPageBytes,
                  .value_bytes = KvPages::kHalf,
                  .pages = kv.pages.data(),
                  .out = out.data(),
                  .out_stride = kGroup * KvPages::kHeadDim,
                  .scratch = scratch.as<float>()};
  size_t unit = 0;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    args.kv = kv.kv.as<uint8_t>() + unit / KvPages::kHeads % layers * kv.layer_bytes +
              unit % KvPages::kHeads * 2 * KvPages::kHalf;
    ++unit;
    machine.kernels->attend(args);
    benchmark::ClobberMemory();
  }
  const double seconds = Seconds(start) / static_cast<double>(state.iterations());
  double keys = 0;  // That all queries see, together.
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t position = context - rows + row;
    keys += kGroup * (position + 1.0 - FirstSeen(position, window));
  }
  const uint32_t first = FirstSeen(context - rows, window) / kPageTokens;
  const double ops = 4.0 * keys * KvPages::kHeadDim / seconds;
  const double bytes = 2.0 * KvPages::kHalf * (context / kPageTokens - first) / seconds;
  state.counters["GB/s"] = bytes / 1e9;
  state.counters["Gop/s"] = ops / 1e9;
  state.counters["of bandwidth"] = bytes / machine.read_bytes_per_s;
  state.counters["of peak"] = ops / machine.float_ops_per_s;
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

void Vocabularies(benchmark::internal::Benchmark* sample) {
  sample->ArgName("vocab")->Arg(32000)->Arg(128256)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(Matmul, int8, WeightFormat::kInt8)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, int4, WeightFormat::kAffine4)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, bf16, WeightFormat::kBF16)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, f16, WeightFormat::kF16)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, f32, WeightFormat::kF32)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, affine8, WeightFormat::kAffine8)->Apply(SomeRowCounts);
BENCHMARK(Attend)
    ->ArgNames({"rows", "context", "window"})
    ->Args({1, 512, 0})
    ->Args({1, 8192, 0})
    ->Args({1, 8192, 1024})
    ->Args({4, 512, 0})
    ->Args({512, 512, 0})
    ->Args({32, 8192, 0})
    ->Args({32, 8192, 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(QuantizeRows)->Arg(1)->Arg(12);
BENCHMARK(RmsNorm);
BENCHMARK_CAPTURE(Gated, swiglu, &Kernels::swiglu);
BENCHMARK_CAPTURE(Gated, geglu, &Kernels::geglu);
BENCHMARK(SoftCap);
BENCHMARK(AppendKv);
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
               "%s, one thread: reads %.1f GB/s; %.0f Gop/s in float32, %.0f Gop/s in int8\n",
               machine.kernels->isa, machine.read_bytes_per_s / 1e9, machine.float_ops_per_s / 1e9,
               machine.int8_ops_per_s / 1e9);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
