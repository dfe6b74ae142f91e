#include "tests/worker/backend/kernel_cases.h"

#include <algorithm>
#include <bit>

#include "tests/worker/backend/random_panels.h"
#include "tests/worker/backend/row_blocks.h"

namespace strata::cpu {
namespace {

using cases::BytesOf;
using cases::Format;
using cases::Formats;
using cases::Inputs;
using cases::kNan;
using cases::MakeInputs;
using cases::Panels;
using cases::Put;
using cases::Random;

class Digest {
 public:
  void Add(const std::vector<float>& values) {
    for (const float x : values) {
      AddBits(x != x ? 0x7fc00000u : std::bit_cast<uint32_t>(x));
    }
  }
  void AddBits(uint32_t bits) { value_ = (value_ ^ bits) * 0x100000001b3u ^ value_ >> 29; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

class Runner {
 public:
  Runner(const Kernels& kernels, bool few) : kernels_(kernels), few_(few) {}

  void Products();
  void LongProducts();
  void ManyRows();
  void LongCodes();
  void LongSuperBlocks();
  void RowsInParts();
  void Elements();
  void Attention();
  std::vector<KernelCase> Take() { return std::move(cases_); }

 private:
  void Add(std::string name, const Digest& digest) {
    cases_.push_back({std::move(name), digest.value()});
  }
  void Product(const Format& format, const Panels& panels, uint32_t rows, Inputs kind, bool int8,
               Random* random, bool in_parts = false);
  void Attend(uint32_t head_dim, uint32_t group, uint32_t keys, uint32_t rows, uint32_t window,
              float soft_cap, bool f16, Random* random, uint32_t latent_values = 0,
              bool in_turn = false);

  const Kernels& kernels_;
  const bool few_;
  std::vector<KernelCase> cases_;
};

void Runner::Product(const Format& format, const Panels& panels, uint32_t rows, Inputs kind,
                     bool int8, Random* random, bool in_parts) {
  const size_t outputs = panels.view.outputs;
  const size_t inputs = panels.view.inputs;
  const std::vector<float> x = MakeInputs(kind, rows * inputs, random);
  const std::vector<uint8_t> packed = PackRowBlocks(kernels_, x, rows, inputs, int8, in_parts);
  const bool biased = random->Bits() % 2 == 0;
  const std::vector<float> bias = random->Floats(outputs);
  const size_t stride = outputs + random->In(0, 5);
  std::vector<float> out = random->Floats(rows * stride);
  const MatmulArgs args{.weights = panels.view,
                        .packed = packed.data(),
                        .int8 = int8,
                        .rows = rows,
                        .bias = biased ? bias.data() : nullptr,
                        .out = out.data(),
                        .out_stride = stride,
                        .add = random->Bits() % 2 == 0};
  // In two parts, as two threads would.
  const size_t count = panels.view.panels();
  const size_t part = random->In(0, static_cast<uint32_t>(count));
  kernels_.matmul(args, part, count);
  kernels_.matmul(args, 0, part);
  Digest digest;
  digest.Add(out);
  Add("matmul " + format.name() + (int8 ? " int8 [" : " f32 [") + std::to_string(outputs) + "," +
          std::to_string(inputs) + "] rows " + std::to_string(rows) + (in_parts ? " in parts" : ""),
      digest);
}

void Runner::Products() {
  uint64_t seed = 1;
  for (const Format& format : Formats()) {
    const bool quantized = format.group != 0;
    for (int shape = 0; shape < 5; ++shape, ++seed) {
      Random random(seed);
      // One panel; as many as are taken at once, and every smaller number that is left of them; and
      // whatever comes. The last panel is whole by chance only.
      const uint32_t outputs = shape == 0   ? random.In(1, 16)
                               : shape == 1 ? random.In(15 * 16 - 15, 15 * 16)
                                            : random.In(1, 120);
      uint32_t inputs = shape == 1 ? random.In(1, 70) : random.In(1, 200);
      if (IsSuper(format.format)) {
        inputs = inputs <= 100 ? 256 : 512;  // Whole super-blocks.
      } else if (IsCodes(format.format)) {
        inputs = inputs <= 100 ? inputs / 32 * 32 + 32 : 256 + inputs / 32 * 32;  // Whole blocks.
      }
      // The last of the shapes: the ends of what is stored, and the largest activations.
      const int byte = shape < 3 ? -1 : shape == 3 ? 0 : 255;
      const Panels panels(format, outputs, inputs, byte, &random);
      for (const uint32_t rows :
           {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 15u, 16u, 29u}) {
        const Inputs kind = shape >= 3      ? Inputs::kLargest
                            : rows % 4 == 1 ? Inputs::kRare
                            : rows % 4 == 2 ? Inputs::kNoNumber
                                            : Inputs::kUsual;
        if (few_ && seed % 5 != rows % 5) {
          continue;
        }
        if (quantized) {
          Product(format, panels, rows, kind, true, &random);
        }
        // Of quantized weights the int8 products matter more.
        if (!quantized || (shape < 3 && rows % 3 == seed % 3)) {
          Product(format, panels, rows, kind, false, &random);
        }
      }
    }
  }
}

// More inputs than most instruction sets take at once, and blocks of rows of both sizes; then more
// than tiles have room for, by whole groups, and groups that are larger than that.
void Runner::LongProducts() {
  for (const Format& format : {Format{WeightFormat::kInt8, Dtype::kF32, 128},
                               Format{WeightFormat::kAffine8, Dtype::kBF16, 96},
                               Format{WeightFormat::kAffine4, Dtype::kF16, 64}}) {
    Random random(format.group);
    const Panels panels(format, 70, random.In(2100, 2200), -1, &random);
    for (const uint32_t rows : {1u, 14u, 15u, 16u, 17u, 28u, 33u}) {
      Product(format, panels, rows, Inputs::kUsual, true, &random);
    }
    Product(format, panels, 13, Inputs::kUsual, false, &random);
  }
  for (const Format& format : {Format{WeightFormat::kInt8, Dtype::kF32, 128},
                               Format{WeightFormat::kInt8, Dtype::kF32, 8224},
                               Format{WeightFormat::kAffine8, Dtype::kBF16, 96},
                               Format{WeightFormat::kAffine4, Dtype::kF16, 64}}) {
    Random random(8000 + format.group);
    const Panels panels(format, 40, random.In(8300, 8400), -1, &random);
    for (const uint32_t rows : {13u, 29u}) {
      Product(format, panels, rows, Inputs::kUsual, true, &random);
    }
  }
  for (const Format& format :
       {Format{WeightFormat::kF32, Dtype::kF32}, Format{WeightFormat::kF16, Dtype::kF16},
        Format{WeightFormat::kBF16, Dtype::kBF16}}) {
    Random random(4000 + BytesOf(format.dtype));
    const Panels panels(format, 40, random.In(2100, 2200), -1, &random);
    for (const uint32_t rows : {1u, 16u, 33u}) {
      Product(format, panels, rows, Inputs::kUsual, false, &random);
    }
  }
}

// Chunks of prompts: far more blocks of rows than panels are kept for, and of 8-bit weights so many
// as are multiplied by tables: the fewest, the most in one part, and in two, with groups that the
// inputs end in, and groups of one block.
void Runner::ManyRows() {
  for (const Format& format : {Format{WeightFormat::kInt8, Dtype::kF32, 128},
                               Format{WeightFormat::kAffine4, Dtype::kF16, 64},
                               Format{WeightFormat::kBF16, Dtype::kBF16}}) {
    Random random(5000 + format.group);
    const Panels panels(format, 90, 160, -1, &random);
    Product(format, panels, 512, Inputs::kUsual, format.group != 0, &random);
  }
  for (const Format& format :
       {Format{WeightFormat::kInt8, Dtype::kF32, 32}, Format{WeightFormat::kInt8, Dtype::kF32, 96},
        Format{WeightFormat::kAffine8, Dtype::kBF16, 64},
        Format{WeightFormat::kAffine8, Dtype::kF32, 32}}) {
    Random random(6000 + format.group);
    // Five blocks of inputs, and parts of 17 panels and more.
    const Panels panels(format, 39 * 16 - 5, 150, -1, &random);
    for (const uint32_t rows : {144u, 151u, 575u, 577u}) {
      const Inputs kind = rows == 144   ? Inputs::kRare
                          : rows == 151 ? Inputs::kNoNumber
                                        : Inputs::kUsual;
      Product(format, panels, rows, kind, true, &random);
    }
    for (const int byte : {0, 255}) {
      const Panels ends(format, 40, 70, byte, &random);
      Product(format, ends, random.In(150, 170), Inputs::kLargest, true, &random);
    }
  }
}

// As many panels of codes as two threads take, and rows in several blocks.
void Runner::LongCodes() {
  for (const WeightFormat format :
       {WeightFormat::kMxfp4, WeightFormat::kNvfp4, WeightFormat::kIq4Nl, WeightFormat::kNf4}) {
    Random random(9000 + static_cast<size_t>(format));
    const Panels panels({format, Dtype::kF32, kCodeGroup}, 150, 2208, -1, &random);
    for (const uint32_t rows : {1u, 2u, 14u, 17u, 33u}) {
      Product({format, Dtype::kF32, kCodeGroup}, panels, rows, Inputs::kUsual, true, &random);
    }
    Product({format, Dtype::kF32, kCodeGroup}, panels, 13, Inputs::kUsual, false, &random);
  }
}

// Of many rows the integers of 3 panels are put together at once, of one, and, as one is too large,
// of none. One of the two parts always has more panels than that.
void Runner::LongSuperBlocks() {
  constexpr size_t kShapes[][2] = {{100, 2304}, {40, 4352}, {20, 8448}};
  const Format format{WeightFormat::kSuper6, Dtype::kF32, 256};
  for (const auto& [outputs, inputs] : kShapes) {
    Random random(inputs);
    const Panels panels(format, outputs, inputs, -1, &random);
    for (const uint32_t rows : {13u, 29u}) {
      Product(format, panels, rows, Inputs::kUsual, true, &random);
    }
  }
}

// As threads quantize them, each what it computed.
void Runner::RowsInParts() {
  for (const Format& format : Formats()) {
    if (format.group == 0 || IsSuper(format.format)) {
      continue;
    }
    Random random(4000 + format.group);
    for (const uint32_t inputs : {20u, 64u, 200u}) {
      const Panels panels(format, 24, inputs, -1, &random);
      for (const uint32_t rows : {1u, 2u, 4u, 5u, 7u, 8u, 9u}) {
        Product(format, panels, rows, Inputs::kUsual, true, &random, true);
      }
    }
  }
}

void Runner::Elements() {
  Random random(1000);
  for (uint32_t n = 1; n <= 40; ++n) {
    const uint32_t count = n <= 34 ? n : random.In(35, 700);
    const std::vector<float> x = MakeInputs(Inputs::kRare, count, &random);
    const std::vector<float> weight = random.Floats(count);
    std::vector<float> out(count);
    Digest digest;
    kernels_.rms_norm(x.data(), weight.data(), count, 1e-5f, static_cast<float>(n % 2), out.data());
    digest.Add(out);
    const std::vector<float> gate = random.Floats(count, 100);
    kernels_.swiglu(gate.data(), weight.data(), count, out.data());
    digest.Add(out);
    kernels_.geglu(gate.data(), weight.data(), count, out.data());
    digest.Add(out);
    kernels_.clamped_swiglu(gate.data(), weight.data(), count, 7.0f, 1.702f, out.data());
    digest.Add(out);
    out = gate;
    kernels_.soft_cap(out.data(), count, 30.0f);
    digest.Add(out);
    Add("norm, gated products and soft-cap of " + std::to_string(count), digest);
  }

  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += few_ ? 99991 : 16411) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (int i = 0; i < 2000; ++i) {
    x.push_back(random.Float(100));
  }
  for (const float limit : {88.72284f, -87.33654f, 65504.0f, -65520.0f, 0x1p-24f, 0x1p-14f}) {
    for (int i = -50; i < 50; ++i) {
      x.push_back(std::bit_cast<float>(std::bit_cast<int32_t>(limit) + i));
    }
  }
  std::vector<float> out(x.size());
  Digest digest;
  kernels_.exp(x.data(), x.size(), out.data());
  digest.Add(out);
  Add("exp", digest);
  std::vector<uint16_t> halves(x.size());
  kernels_.to_f16(x.data(), x.size(), halves.data());
  digest = {};
  for (const uint16_t half : halves) {
    digest.AddBits(half);
  }
  Add("to f16", digest);
  halves.resize(65536);
  out.resize(65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  digest = {};
  kernels_.from_f16(halves.data(), halves.size(), out.data());
  digest.Add(out);
  kernels_.from_bf16(halves.data(), halves.size(), out.data());
  digest.Add(out);
  Add("from f16 and bf16", digest);
  const std::vector<float> memory = random.Floats(128 * 5);
  digest = {};
  for (const size_t ahead : {size_t{0}, size_t{512}}) {
    digest.Add({kernels_.read_all(reinterpret_cast<const uint8_t*>(memory.data()),
                                  memory.size() * sizeof(float), ahead)});
  }
  Add("read all", digest);
}

// The last `rows` of a sequence of `keys`, on scattered pages whose other places are NaN.
void Runner::Attend(uint32_t head_dim, uint32_t group, uint32_t keys, uint32_t rows,
                    uint32_t window, float soft_cap, bool f16, Random* random,
                    uint32_t latent_values, bool in_turn) {
  const bool latent = latent_values != 0;
  const size_t element = f16 ? 2 : 4;
  const size_t value_bytes = latent ? 0 : head_dim * 16 * element;
  const size_t value_dim = latent ? latent_values : head_dim;
  const size_t page_bytes =
      latent ? head_dim * 16 * element : value_bytes + PaddedHeadDim(head_dim) * 16 * element;
  const uint32_t pages = (keys + 15) / 16;
  std::vector<float> memory((pages + 2) * page_bytes / sizeof(float) + 1, kNan);
  uint8_t* const kv = reinterpret_cast<uint8_t*>(memory.data());
  std::vector<uint32_t> table(pages);
  for (uint32_t i = 0; i < pages; ++i) {
    table[i] = i + 2;
    std::swap(table[i], table[random->In(0, i)]);
  }
  for (uint32_t key = 0; key < keys; ++key) {
    const std::vector<float> k = random->Floats(head_dim);
    const std::vector<float> v = random->Floats(head_dim);
    uint8_t* const page = kv + table[key / 16] * page_bytes;
    if (latent) {
      for (uint32_t d = 0; d < head_dim; ++d) {
        Put(f16 ? Dtype::kF16 : Dtype::kF32, k[d], page + (key % 16 * head_dim + d) * element);
      }
      continue;
    }
    kernels_.append_kv(k.data(), v.data(), head_dim, key % 16, f16, page, value_bytes);
  }
  const size_t width = size_t{group} * head_dim;
  const std::vector<float> q = random->Floats(rows * width, 3);
  const size_t out_width = size_t{group} * value_dim;
  std::vector<float> out(rows * out_width, kNan);
  std::vector<float> scratch(AttendScratchFloats(head_dim, latent_values), kNan);
  AttendArgs args{.q = q.data(),
                  .q_stride = width,
                  .rows = rows,
                  .group = group,
                  .position = keys - rows,
                  .window = window,
                  .head_dim = head_dim,
                  .scale = 0.3f,
                  .soft_cap = soft_cap,
                  .latent_values = latent_values,
                  .kv_f16 = f16,
                  .kv = kv,
                  .page_bytes = page_bytes,
                  .value_bytes = value_bytes,
                  .pages = table.data(),
                  .out = out.data(),
                  .out_stride = out_width,
                  .scratch = scratch.data()};
  Digest digest;
  const std::vector<float> sinks = random->Floats(in_turn ? group : 0, 3);
  PrefetchedPages prefetched;
  std::vector<float> next_out(in_turn ? out.size() : 0, kNan);
  AttendArgs next;
  if (in_turn) {
    args.sinks = sinks.data();
    args.prefetched = &prefetched;
    next = args;
    next.turn = args.turn + 1;
    next.out = next_out.data();
    args.next = &next;
  }
  kernels_.attend(args);
  digest.Add(out);
  if (in_turn) {
    kernels_.attend(next);
    digest.Add(next_out);
    args.prefetched = nullptr;
    args.next = nullptr;
  }
  const uint32_t spans = SpansOf(keys);
  std::vector<float> partial(size_t{rows} * group * spans * PartialFloats(value_dim), kNan);
  args.partial = partial.data();
  args.partial_spans = spans;
  const uint32_t seen = FirstSeen(args.position, window) / kSpanKeys;
  for (uint32_t span = spans; span-- > seen;) {
    args.first_span = span;
    args.end_span = span + 1;
    kernels_.attend(args);
  }
  std::fill(out.begin(), out.end(), kNan);
  kernels_.merge_spans(args);
  digest.Add(out);
  Add("attend head_dim " + std::to_string(head_dim) + " group " + std::to_string(group) + " keys " +
          std::to_string(keys) + " rows " + std::to_string(rows) + " window " +
          std::to_string(window) + (soft_cap == 0 ? "" : " capped") + (f16 ? " f16" : " f32") +
          (latent ? " latent " + std::to_string(latent_values) : "") +
          (in_turn ? " in turn, with sinks" : ""),
      digest);
}

void Runner::Attention() {
  constexpr uint32_t kHeadDims[] = {8, 16, 24, 40, 64, 80, 96, 128, 136, 256};
  for (uint32_t i = 0; i < (few_ ? 12 : 48); ++i) {
    Random random(2000 + i);
    const uint32_t head_dim = kHeadDims[i % 10];
    const uint32_t group = random.In(1, 9);
    const bool spans = i % 8 == 7;  // More than one.
    const uint32_t keys = spans ? random.In(500, 1100) : random.In(1, 90);
    const uint32_t rows = std::min(keys, random.In(1, spans ? 3 : 9));
    const uint32_t window = i % 3 == 1 ? random.In(1, keys) : 0;
    Attend(head_dim, group, keys, rows, window, i % 4 == 3 ? 2.0f : 0.0f, i % 2 == 0, &random);
  }
  for (uint32_t i = 0; i < (few_ ? 6 : 20); ++i) {
    Random random(3000 + i);
    const uint32_t values = 16 * random.In(1, 8);
    const uint32_t keys = i % 5 == 4 ? random.In(500, 1100) : random.In(1, 90);
    // One after another: compilers differ in the order of arguments.
    const uint32_t head_dim = values + random.In(1, 40);
    const uint32_t group = random.In(1, 16);
    const uint32_t rows = std::min(keys, random.In(1, i % 5 == 4 ? 2 : 5));
    Attend(head_dim, group, keys, rows, 0, 0, i % 2 == 0, &random, values);
  }
  for (uint32_t i = 0; i < (few_ ? 6 : 20); ++i) {
    Random random(5000 + i);
    const uint32_t group = random.In(1, 9);
    const uint32_t keys = i % 5 == 4 ? random.In(500, 1100) : random.In(1, 90);
    const uint32_t rows = std::min(keys, random.In(1, i % 5 == 4 ? 2 : 5));
    const uint32_t window = i % 3 == 1 ? random.In(1, keys) : 0;
    Attend(kHeadDims[i % 10], group, keys, rows, window, 0, i % 2 == 0, &random, 0, true);
  }
}

}  // namespace

std::vector<KernelCase> RunKernelCases(const Kernels& kernels, bool few) {
  Runner runner(kernels, few);
  runner.Products();
  runner.LongProducts();
  runner.ManyRows();
  runner.LongCodes();
  runner.LongSuperBlocks();
  runner.RowsInParts();
  runner.Elements();
  runner.Attention();
  return runner.Take();
}

std::string Difference(const std::vector<KernelCase>& expected,
                       const std::vector<KernelCase>& got) {
  size_t wrong = 0;
  std::string names;
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    if (!(expected[i] == got[i])) {
      names += ++wrong <= 5 ? "\n  " + got[i].name : "";
    }
  }
  if (wrong == 0 && expected.size() == got.size()) {
    return "";
  }
  return std::to_string(wrong) + " of " + std::to_string(got.size()) + " cases differ, " +
         std::to_string(expected.size()) + " were expected:" + names;
}

}  // namespace strata::cpu
