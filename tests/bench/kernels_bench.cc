// Each kernel by itself, and its share of what this machine can do: of the measured read bandwidth
// for few rows, which read weights and little else; of the measured arithmetic for many.
//
//   kernels_bench [Google Benchmark's flags]; STRATA_CPU_ISA chooses the instruction set.
//
// One thread. Weights are larger than the caches where a kernel reads them once.
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
#include "tests/worker/backend/row_blocks.h"
#include "worker/backend/cpu/aligned_buffer.h"
#include "worker/backend/cpu/choose_kernels.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/measure.h"
#include "worker/backend/cpu/packed_matrix.h"
#include "worker/backend/cpu/thread_pool.h"

namespace strata::cpu {
namespace {

constexpr size_t kInputs = 2048;
constexpr size_t kMatrixBytes = size_t{1} << 30;  // Of few rows' weights: no cache holds them.
constexpr size_t kFewOutputs = 5632;              // Of many rows'.

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

const PackedMatrix& MatrixOf(WeightFormat format, size_t outputs) {
  static std::map<std::pair<WeightFormat, size_t>, std::unique_ptr<PackedMatrix>> made;
  std::unique_ptr<PackedMatrix>& matrix = made[{format, outputs}];
  if (matrix != nullptr) {
    return *matrix;
  }
  // One at a time: each is a gigabyte.
  std::erase_if(made, [&](const auto& entry) { return entry.second != nullptr; });
  std::vector<uint16_t> halves(outputs * kInputs);
  uint64_t state = 1;
  for (uint16_t& half : halves) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    half = static_cast<uint16_t>(0x3c00 + (state >> 56) + ((state >> 40) & 0x8000));  // +-1.x/128
  }
  const TensorView view = {format == WeightFormat::kF16 ? Dtype::kF16 : Dtype::kBF16,
                           {outputs, kInputs},
                           reinterpret_cast<const uint8_t*>(halves.data()),
                           halves.size() * sizeof(uint16_t)};
  ThreadPool pool(2, 2);
  auto packed = std::make_unique<PackedMatrix>();
  const absl::Status status = format == WeightFormat::kInt8 || format == WeightFormat::kAffine4
                                  ? packed->Quantize(view, format, *ThisMachine().kernels, &pool)
                                  : packed->Pack(view, &pool);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return *(made[{format, outputs}] = std::move(packed));
}

size_t OutputsFor(WeightFormat format, uint32_t rows) {
  if (rows > 16) {
    return kFewOutputs;
  }
  const size_t bits = format == WeightFormat::kAffine4 ? 4 : format == WeightFormat::kInt8 ? 8 : 16;
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
  std::vector<float> out(rows * outputs);
  const MatmulArgs args{.weights = matrix.view(),
                        .packed = packed.data(),
                        .int8 = int8,
                        .rows = rows,
                        .out = out.data(),
                        .out_stride = outputs};
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernels.matmul(args, 0, matrix.view().panels());
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

void QuantizeRows(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  const auto rows = std::min(static_cast<uint32_t>(state.range(0)), kernels.block_rows);
  std::vector<float> x(rows * kInputs, 0.5f);
  std::vector<uint8_t> packed(rows * kernels.quantized_row_bytes(kInputs));
  for (auto _ : state) {
    kernels.quantize_rows(x.data(), kInputs, rows, kInputs, packed.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * rows * kInputs));
}

void RmsNorm(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> x(kInputs, 0.5f), weight(kInputs, 1.0f), out(kInputs);
  for (auto _ : state) {
    kernels.rms_norm(x.data(), weight.data(), kInputs, 1e-5f, 0, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kInputs));
}

void SwiGlu(benchmark::State& state) {
  const Kernels& kernels = *ThisMachine().kernels;
  std::vector<float> gate(kInputs, 0.5f), up(kInputs, 1.0f), out(kInputs);
  for (auto _ : state) {
    kernels.swiglu(gate.data(), up.data(), kInputs, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kInputs));
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

// A group of 8 query heads with each KV head of layer after layer: `rows` rows, the last of which
// sees `context` keys.
void Attend(benchmark::State& state) {
  constexpr uint32_t kGroup = 8;
  const Machine& machine = ThisMachine();
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto context = static_cast<uint32_t>(state.range(1));
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
    keys += kGroup * (context - rows + row + 1.0);
  }
  const double ops = 4.0 * keys * KvPages::kHeadDim / seconds;
  const double bytes = 2.0 * KvPages::kHalf * (context / kPageTokens) / seconds;
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

BENCHMARK_CAPTURE(Matmul, int8, WeightFormat::kInt8)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, int4, WeightFormat::kAffine4)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, bf16, WeightFormat::kBF16)->Apply(EveryRowCount);
BENCHMARK_CAPTURE(Matmul, f16, WeightFormat::kF16)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Attend)
    ->ArgNames({"rows", "context"})
    ->Args({1, 512})
    ->Args({1, 8192})
    ->Args({4, 512})
    ->Args({512, 512})
    ->Args({32, 8192})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(QuantizeRows)->Arg(1)->Arg(12);
BENCHMARK(RmsNorm);
BENCHMARK(SwiGlu);

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
