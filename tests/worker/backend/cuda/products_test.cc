// Products of experts' rows, of which the device alone knows how many each has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/worker/backend/random_panels.h"
#include "worker/backend/cuda/emulation/emulation.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kInputs = 512;
constexpr uint32_t kOutputs = 40;

// Rows as a kernel quantizes them.
struct RowsOfTest {
  RowsOfTest(uint32_t rows, cpu::cases::Random* random)
      : blocks(QuantBlocks(kInputs)),
        x(random->Floats(size_t{rows} * kInputs, 3)),
        values(size_t{rows} * kInputs),
        numbers(size_t{rows} * blocks * 2),
        integers(size_t{rows} * blocks * 2) {
    Quantize(nullptr, x.data(), kInputs, rows, kInputs, From(0));
  }
  QuantizedRows From(uint32_t row) {
    const size_t at = size_t{row} * blocks;
    return {.values = values.data() + at * cpu::kQuantBlock,
            .scales = numbers.data() + at,
            .scaled_sums = numbers.data() + numbers.size() / 2 + at,
            .sums = integers.data() + at,
            .half_sums = integers.data() + integers.size() / 2 + at,
            .blocks = blocks};
  }

  uint32_t blocks;
  std::vector<float> x;
  std::vector<int8_t> values;
  std::vector<float> numbers;
  std::vector<int32_t> integers;
};

Matrix MatrixOf(const cpu::PanelView& view) {
  return {.format = view.format,
          .scale_dtype = view.scale_dtype,
          .group = view.group,
          .data = view.data,
          .panel_bytes = view.panel_bytes,
          .outputs = kOutputs,
          .inputs = kInputs};
}

// Experts' groups of so many rows, each place of which takes an input row of its own; what tensor
// cores did for them, by how many products.
uint64_t ExpectEachRowAsAlone(const cpu::cases::Format& format,
                              const std::vector<uint32_t>& counts) {
  cpu::cases::Random random(counts.size());
  std::vector<cpu::cases::Panels> panels;
  std::vector<Matrix> matrices;
  std::vector<ExpertGroup> groups;
  uint32_t places = 0;
  uint32_t most = 0;
  for (uint32_t expert = 0; expert < counts.size(); ++expert) {
    panels.emplace_back(format, kOutputs, kInputs, -1, &random);
    if (counts[expert] > 0) {
      groups.push_back({expert, places, counts[expert]});
    }
    places += counts[expert];
    most = std::max(most, counts[expert]);
  }
  for (const cpu::cases::Panels& one : panels) {
    matrices.push_back(MatrixOf(one.view));
  }
  groups.resize(counts.size());  // Those without rows are last.
  RowsOfTest rows(places, &random);
  std::vector<uint32_t> row_at(places);
  std::iota(row_at.rbegin(), row_at.rend(), 0);
  const QuantizedRows all = rows.From(0);
  std::vector<float> out(size_t{places} * kOutputs, -1.0f);
  const uint64_t before = cuda_emulation::MmaCount();
  Multiply(nullptr, {.matrix = matrices[0],
                     .matrices = matrices.data(),
                     .parts = static_cast<uint32_t>(counts.size()),
                     .groups = groups.data(),
                     .row_at = row_at.data(),
                     .rows = most,
                     .quantized = &all,
                     .out = out.data(),
                     .out_stride = kOutputs});
  const uint64_t products = cuda_emulation::MmaCount() - before;
  for (const ExpertGroup& group : groups) {
    for (uint32_t place = group.first; place < group.first + group.count; ++place) {
      const QuantizedRows own = rows.From(row_at[place]);
      std::array<float, kOutputs> alone = {};
      Multiply(nullptr, {.matrix = matrices[group.expert],
                         .rows = 1,
                         .quantized = &own,
                         .out = alone.data(),
                         .out_stride = kOutputs});
      EXPECT_EQ(std::memcmp(alone.data(), out.data() + size_t{place} * kOutputs, sizeof(alone)), 0)
          << format.name() << ", place " << place << " of " << group.count << " rows";
    }
  }
  return products;
}

TEST(CudaProducts, ExpertsWithManyRowsGoToTensorCoresAndEachRowHasTheBitsThatItHasAlone) {
  for (const cpu::cases::Format& format : cpu::cases::Formats()) {
    if (format.group != 0) {
      EXPECT_EQ(ExpectEachRowAsAlone(format, {7, 1, 0, 3}), 0u) << format.name();
      EXPECT_GT(ExpectEachRowAsAlone(format, {3, 8, 0, 21, 7, 70}), 0u) << format.name();
    }
  }
}

}  // namespace
}  // namespace strata::cuda
