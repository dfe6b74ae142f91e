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

#include "common/model/block_formats.h"
#include "common/sampling_params.h"
#include "tests/bench/bench_machine.h"
#include "tests/worker/backend/row_blocks.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/rotate.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/weights/packed_matrix.h"
#include "worker/sampler/sampler.h"

namespace strata::cpu {
namespace {

constexpr size_t kInputs = 2048;
constexpr size_t kMatrixBytes = size_t{1} << 30;  // Of few rows' weights: no cache holds them.
constexpr size_t kOutputs = 5632;                 // Of a matrix.

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

// Of a weight, without its part of a scale.
size_t BitsOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return 16;
    case WeightFormat::kInt8:
    case WeightFormat::kAffine8:
      return 8;
    case WeightFormat::kSuper6:
      return 6;
    case WeightFormat::kSuper5:
      return 5;
    case WeightFormat::kSuper2:
      return 2;
    default:
      return 4;
  }
}

size_t OutputsFor(WeightFormat format, uint32_t rows) {
  return rows > 16 ? kOutputs : kMatrixBytes * 8 / BitsOf(format) / kInputs / kLanes * kLanes;
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
BENCHMARK_CAPTURE(Matmul, super4, WeightFormat::kSuper4)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super5, WeightFormat::kSuper5)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super6, WeightFormat::kSuper6)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, int8_by_floats, WeightFormat::kInt8, true)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, int4_by_floats, WeightFormat::kAffine4, true)->Apply(SomeRowCounts);
BENCHMARK_CAPTURE(Matmul, super4_by_floats, WeightFormat::kSuper4, true)->Apply(SomeRowCounts);
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
