// What the CPU keeps of its panels, and maps, and where it puts them. That a load from a store
// gives the same bits is conformance's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "tests/can_map.h"
#include "tests/worker/backend/models/forward.h"
#include "tests/worker/backend/models/golden_model.h"
#include "tests/worker/backend/models/made_up_model.h"
#include "tests/worker/backend/models/memory_store.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/weights/packed_files.h"
#include "worker/weights/weight_cache.h"

namespace strata::testing {
namespace {

const std::vector<uint32_t> kIds = {1, 5, 9, 2, 30, 7, 7, 11};

std::vector<float> Logits(const ModelSpec& spec, const TensorSource& weights,
                          const ForwardOptions& options) {
  auto backend = MakeCpuBackend({.threads = 2});
  EXPECT_TRUE(backend.ok()) << backend.status();
  auto forward = ForwardModel::Load(backend->get(), spec, weights, options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) {
    return {};
  }
  auto rows = (*forward)->Run(kIds);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
}

TEST(PackedStoreTest, TheExpertsOfALayerAreKeptAsOne) {
  const MadeUpModel model({.layers = 3, .experts = 6, .router = {.used = 2}});
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    MemoryStore store;
    options.context = 256;
    options.packed = &store;
    Logits(model.spec(), DigestedTensors(model), options);
    // Of each layer q, k, v, o; then gate, up and down, or router and experts; and both ends.
    EXPECT_EQ(store.files.size(), 3u * 4 + 3 + 2 * 2 + 2);
  }
}

TEST(PackedStoreTest, SpoiltExpertsArePackedAgainFromTheirTensors) {
  const MadeUpModel model({.layers = 2, .experts = 6, .router = {.used = 2}});
  ForwardOptions options;
  options.context = 256;
  MemoryStore store;
  options.packed = &store;
  const std::vector<float> expected = Logits(model.spec(), DigestedTensors(model), options);
  const std::map<std::string, std::string> files = store.files;
  size_t most = 0;
  for (const auto& [key, bytes] : files) {
    store.spoilt = key;
    const DigestedTensors tensors(model);
    EXPECT_EQ(Logits(model.spec(), tensors, options), expected);
    most = std::max(most, tensors.matrices.size());
    EXPECT_TRUE(tensors.prepared().empty());
    EXPECT_EQ(store.files, files);
  }
  EXPECT_EQ(most, 6u * 3);
}

TEST(PackedStoreTest, WhatProvesSpoiltIsPackedAgainFromItsTensors) {
  const MadeUpModel model({});
  ForwardOptions options;
  options.context = 256;
  options.quantize = v1::QUANTIZE_INT8;
  MemoryStore store;
  options.packed = &store;
  const std::vector<float> expected = Logits(model.spec(), DigestedTensors(model), options);
  const std::map<std::string, std::string> files = store.files;
  ASSERT_GT(files.size(), 10u);
  for (const auto& [key, bytes] : files) {
    store.spoilt = key;
    store.writes = 0;
    const DigestedTensors tensors(model);
    EXPECT_EQ(Logits(model.spec(), tensors, options), expected);
    EXPECT_EQ(tensors.matrices.size(), 1u);
    EXPECT_EQ(store.writes, 1);
    EXPECT_EQ(store.files, files);
  }
}

// Files whose maps are counted, and spoilt ones.
class CountedFiles : public PackedFiles {
 public:
  using PackedFiles::PackedFiles;
  absl::StatusOr<bool> Map(const PackedForm& form, std::span<uint8_t> out,
                           const SplitFn& split) override {
    const absl::StatusOr<bool> mapped = PackedFiles::Map(form, out, split);
    maps += mapped.ok() && *mapped ? 1 : 0;
    spoilt += mapped.ok() ? 0 : 1;
    return mapped;
  }

  int maps = 0;
  int spoilt = 0;
};

// The first steps run at once; what is mapped may move meanwhile.
TEST(PackedStoreTest, MatricesThatAreMappedGiveTheSameBits) {
  if (!CanMap() || PageBytes() > 4096) {
    GTEST_SKIP() << "files are not mapped here, or none as small as these";
  }
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "strata-mapped";
  const auto flip = [](const std::filesystem::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    file.put(static_cast<char>(byte ^ 1));
  };
  // Matrices of a MiB and more, none whole pages in panels but for the experts', beside small ones.
  for (const uint32_t experts : {0u, 3u}) {
    const MadeUpModel model({.hidden = 1040,
                             .heads = 4,
                             .kv_heads = 1,
                             .ffn = 1050,
                             .vocab = 1061,
                             .experts = experts,
                             .router = {.used = 2}});
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8}) {
      SCOPED_TRACE(v1::Quantize_Name(quantize));
      std::filesystem::remove_all(dir);
      auto cache = WeightCache::Open(dir.string(), 0);
      ASSERT_TRUE(cache.ok()) << cache.status();
      ForwardOptions options;
      options.context = 256;
      options.quantize = quantize;
      options.activations =
          quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
      const std::vector<float> expected = Logits(model.spec(), model, options);
      const auto run = [&](int* maps, int* spoilt) {
        CountedFiles files(cache->get(), [](const std::string&) {});
        options.packed = &files;
        const DigestedTensors tensors(model);
        EXPECT_EQ(Logits(model.spec(), tensors, options), expected);
        *maps = files.maps;
        *spoilt = files.spoilt;
        return tensors.matrices.size();
      };
      int maps = 0;
      int spoilt = 0;
      EXPECT_GT(run(&maps, &spoilt), 0u);
      EXPECT_EQ(maps, 0);
      EXPECT_EQ(run(&maps, &spoilt), 0u);
      EXPECT_GT(maps, 0);
      for (const auto& entry : std::filesystem::recursive_directory_iterator(dir / "packed")) {
        if (entry.is_regular_file()) {
          flip(entry.path());
        }
      }
      const int all = maps;
      EXPECT_GT(run(&maps, &spoilt), 0u);
      EXPECT_EQ(maps, 0);
      EXPECT_EQ(spoilt, all);
      EXPECT_EQ(run(&maps, &spoilt), 0u);
      EXPECT_EQ(maps, all);
    }
  }
  std::filesystem::remove_all(dir);
}

TEST(PackedStoreTest, TheSameBytesOfAnotherDtypeAreAnotherForm) {
  MadeUpModel model({.dtype = Dtype::kBF16});
  MemoryStore store;
  ForwardOptions options;
  options.context = 256;
  options.quantize = v1::QUANTIZE_INT8;
  options.packed = &store;
  Logits(model.spec(), DigestedTensors(model), options);
  const size_t forms = store.files.size();
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  model.Edit(name).dtype = Dtype::kF16;
  const DigestedTensors tensors(model);
  Logits(model.spec(), tensors, options);
  EXPECT_THAT(tensors.matrices, ::testing::ElementsAre(name));
  EXPECT_EQ(store.files.size(), forms + 1);
}

using Pieces = std::vector<std::pair<std::vector<size_t>, uint32_t>>;  // {begin, end}, node.

// What was asked of the memory of a matrix, in panels.
Pieces PiecesOf(const cpu::PackedMatrix& matrix,
                const std::vector<std::pair<std::span<uint8_t>, uint32_t>>& placed) {
  Pieces pieces;
  for (const auto& [memory, node] : placed) {
    const std::span<const uint8_t> packed = matrix.packed();
    if (memory.data() >= packed.data() && memory.data() < packed.data() + packed.size()) {
      const size_t begin = static_cast<size_t>(memory.data() - packed.data());
      const size_t panel = matrix.view().panel_bytes;
      pieces.push_back({{begin / panel, (begin + memory.size()) / panel}, node});
    }
  }
  return pieces;
}

TEST(PackedStoreTest, PackedOrReadPanelsAreOnTheNodeOfTheThreadThatReadsThem) {
  const MadeUpModel model({.layers = 1});
  StageSpec spec;
  spec.model = model.spec();
  spec.embeds = true;
  spec.heads = true;
  MemoryStore store;
  const auto kernels = cpu::ChooseKernels("");
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  for (const bool kept : {false, true}) {
    SCOPED_TRACE(kept ? "from the store" : "from tensors");
    const DigestedTensors tensors(model);
    std::vector<std::pair<std::span<uint8_t>, uint32_t>> placed;
    const cpu::WeightPlacer placer({4, 4, 7}, [&](uint8_t* data, size_t bytes, uint32_t node) {
      placed.push_back({{data, bytes}, node});
    });
    cpu::StageWeights weights;
    cpu::WeightLoader loader(spec, tensors, &store, &placer, /*may_map=*/false, &weights);
    ASSERT_TRUE(loader.Check().ok());
    cpu::ThreadPool pool(2, 2);
    ASSERT_TRUE(loader.Load(**kernels, &pool, nullptr).ok());
    EXPECT_EQ(tensors.matrices.empty(), kept);
    // 9, 3 and 3 panels are multiplied as 15: the third thread has the last 5.
    const cpu::LayerWeights& layer = weights.layers[0];
    EXPECT_EQ(PiecesOf(layer.q.weight, placed), (Pieces{{{0, 9}, 4}}));
    EXPECT_EQ(PiecesOf(layer.k.weight, placed), (Pieces{{{0, 1}, 4}, {{1, 3}, 7}}));
    EXPECT_EQ(PiecesOf(layer.v.weight, placed), (Pieces{{{0, 3}, 7}}));
    EXPECT_EQ(PiecesOf(layer.o.weight, placed), (Pieces{{{0, 2}, 4}, {{2, 3}, 7}}));
    EXPECT_EQ(PiecesOf(layer.gate.weight, placed), (Pieces{{{0, 2}, 4}, {{2, 4}, 7}}));
    EXPECT_EQ(PiecesOf(layer.up.weight, placed), (Pieces{{{0, 2}, 4}, {{2, 4}, 7}}));
    EXPECT_EQ(PiecesOf(layer.down.weight, placed), (Pieces{{{0, 2}, 4}, {{2, 3}, 7}}));
    EXPECT_EQ(PiecesOf(weights.head.weight, placed), (Pieces{{{0, 2}, 4}, {{2, 3}, 7}}));
    EXPECT_EQ(placed.size(), 14u);
  }
}

// Files outlive the program that wrote them: a change of what packing makes must change the keys.
// So if this fails, raise kPackingVersion in packed_key.cc before the digest here.
TEST(PackedStoreTest, WhatIsPackedUnderAKeyHasNotChanged) {
  MemoryStore store;
  ForwardOptions options;
  options.context = 256;
  options.kv_tokens = 512;
  options.packed = &store;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    const MadeUpModel model({.dtype = dtype});
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
      options.quantize = quantize;
      Logits(model.spec(), DigestedTensors(model), options);
    }
  }
  options.quantize = v1::QUANTIZE_NONE;
  for (const char* name : {"llama31-mlx4", "llama31-mlx8"}) {
    const GoldenModel model = LoadGoldenModel(name);
    Logits(model.spec, DigestedTensors(model.weights), options);
  }
  Sha256 sha;
  for (const auto& [key, bytes] : store.files) {
    sha.Update(key);
    sha.Update(bytes);
  }
  EXPECT_EQ(ToHex(sha.Finish()),
            "b79add6ecf3d7df08bcf4b18ffd76ead5edef1f3cc498bf12c3e41c66fb1d9be");
}

}  // namespace
}  // namespace strata::testing
