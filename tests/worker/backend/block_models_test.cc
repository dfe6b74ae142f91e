// Whole models in blocks: with float activations bit for bit what their dequantized weights give,
// and with integer ones the same bits however they are computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "common/block_formats.h"
#include "common/checkpoint/checkpoint.h"
#include "common/random.h"
#include "tests/worker/backend/forward.h"
#include "tests/worker/backend/made_up_model.h"
#include "worker/backend/cpu/convert.h"
#include "worker/backend/cpu/isa.h"

namespace strata::testing {
namespace {

// A format, and scales that make weights of about 0.1 at most: fp16 numbers at places of a block.
struct BlockCase {
  Dtype dtype;
  std::map<size_t, float> scales;
};
const BlockCase kCases[] = {
    {Dtype::kQ8_0, {{0, 8e-4f}}},
    {Dtype::kQ4_0, {{0, -0.012f}}},
    {Dtype::kQ4_1, {{0, 0.012f}, {2, -0.09f}}},
    {Dtype::kQ5_0, {{0, 6e-3f}}},
    {Dtype::kQ5_1, {{0, -6e-3f}, {2, 0.09f}}},
    {Dtype::kQ4_K, {{0, 3e-4f}, {2, 2e-3f}}},
    {Dtype::kQ5_K, {{0, 1.5e-4f}, {2, 2e-3f}}},
    {Dtype::kQ6_K, {{208, 4e-5f}}},
};
constexpr size_t kHeadDim = 32;

// A made-up model whose matrices are random blocks, rows of q and k in pairs; or, `plain`, the
// same weights as floats in order.
class BlockModel : public TensorSource {
 public:
  BlockModel(const BlockCase& one, bool tied, bool plain)
      : made_({.hidden = 256,
               .heads = 8,
               .kv_heads = 2,
               .head_dim = kHeadDim,
               .rotary_dim = kHeadDim,
               .ffn = 512,
               .tied = tied,
               .dtype = Dtype::kF32}),
        spec_(made_.spec()) {
    for (LayerSpec& layer : spec_.layers) {
      layer.attention.qk_rows_in_pairs = !plain;
    }
    for (const StageTensor& tensor :
         TensorsOf(spec_, 0, static_cast<uint32_t>(spec_.layers.size()) - 1, true, true)) {
      if (tensor.shape.size() == 2) {
        Add(one, tensor, plain);
      }
    }
  }
  const ModelSpec& spec() const { return spec_; }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    const auto found = views_.find(std::string(name));
    return found == views_.end() ? made_.Find(name) : found->second;
  }

 private:
  void Add(const BlockCase& one, const StageTensor& tensor, bool plain) {
    std::string& bytes = bytes_[tensor.name];
    bytes.resize(TensorBytes(one.dtype, tensor.shape).value());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(Philox(tensor.name.size(), 5, static_cast<uint32_t>(i)) >> 9);
    }
    for (size_t block = 0; block < bytes.size(); block += BlockBytes(one.dtype)) {
      for (const auto& [at, scale] : one.scales) {
        const cpu::F16 half = cpu::ToF16(scale);
        std::memcpy(bytes.data() + block + at, &half, sizeof(half));
      }
    }
    Dtype dtype = one.dtype;
    if (plain) {
      bytes = Floats(one.dtype, tensor, bytes);
      dtype = Dtype::kF32;
    }
    views_[tensor.name] = {dtype, tensor.shape, reinterpret_cast<const uint8_t*>(bytes.data()),
                           bytes.size()};
  }

  static std::string Floats(Dtype dtype, const StageTensor& tensor, const std::string& blocks) {
    const bool pairs = tensor.name.find("q_proj") != std::string::npos ||
                       tensor.name.find("k_proj") != std::string::npos;
    const size_t row_bytes = blocks.size() / tensor.shape[0];
    std::string floats;
    for (size_t row = 0; row < tensor.shape[0]; ++row) {
      const size_t within = row % kHeadDim;
      const size_t from =
          pairs ? row - within + within % (kHeadDim / 2) * 2 + within / (kHeadDim / 2) : row;
      for (size_t part = 0; part < tensor.shape[1] / kBlockPart; ++part) {
        float values[kBlockPart];
        DecodePart(dtype, reinterpret_cast<const uint8_t*>(blocks.data()) + from * row_bytes, part,
                   values);
        floats.append(reinterpret_cast<const char*>(values), sizeof(values));
      }
    }
    return floats;
  }

  const MadeUpModel made_;
  ModelSpec spec_;
  std::map<std::string, std::string> bytes_;
  std::map<std::string, TensorView> views_;
};

std::vector<float> Logits(const BlockModel& model, ForwardOptions options,
                          const std::string& isa = "", uint32_t chunk = 0) {
  options.context = 64;
  options.kv_tokens = 128;
  auto backend = MakeCpuBackend({.threads = 2, .isa = isa});
  EXPECT_TRUE(backend.ok()) << backend.status();
  auto forward = ForwardModel::Load(backend->get(), model.spec(), model, options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) {
    return {};
  }
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 20; ++i) {
    ids.push_back((i * i + 5) % model.spec().vocab);
  }
  const auto rows = (*forward)->Run(ids, chunk);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}

TEST(BlockModels, FloatActivationsGiveTheBitsOfTheDequantizedModel) {
  for (const BlockCase& one : kCases) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(std::string(DtypeName(one.dtype)) + (tied ? " tied" : ""));
      const std::vector<float> got = Logits(BlockModel(one, tied, false), {});
      EXPECT_EQ(got, Logits(BlockModel(one, tied, true), {}));
      EXPECT_FALSE(got.empty());
    }
  }
}

TEST(BlockModels, IntegerActivationsAreNearAndTheSameBitsEverywhere) {
  const ForwardOptions options{.activations = v1::ACTIVATIONS_INT8};
  for (const BlockCase& one : kCases) {
    SCOPED_TRACE(DtypeName(one.dtype));
    const BlockModel model(one, false, false);
    const std::vector<float> got = Logits(model, options);
    const std::vector<float> exact = Logits(model, {});
    ASSERT_EQ(got.size(), exact.size());
    // Q6_K is computed as floats.
    EXPECT_EQ(got == exact, one.dtype == Dtype::kQ6_K);
    float largest = 0, furthest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      furthest = std::max(furthest, std::abs(got[i] - exact[i]));
    }
    EXPECT_LT(furthest, 0.1f * largest);
    for (const std::string& isa : cpu::MachineIsas()) {
      EXPECT_EQ(Logits(model, options, isa), got) << isa;
    }
    for (const uint32_t chunk : {1u, 7u}) {
      EXPECT_EQ(Logits(model, options, "", chunk), got) << chunk;
    }
    ForwardOptions cut = options;
    cut.cuts = {1};
    EXPECT_EQ(Logits(model, cut), got);
  }
}

}  // namespace
}  // namespace strata::testing
