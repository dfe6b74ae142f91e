// A load that reads what an earlier one packed: the same bits, without the tensors' bytes.
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
#include "tests/worker/backend/forward.h"
#include "tests/worker/backend/golden_model.h"
#include "tests/worker/backend/made_up_model.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/weights/packed_files.h"
#include "worker/weights/weight_cache.h"

namespace strata::testing {
namespace {

// Another's tensors with their digests, and only those that were prepared.
class DigestedTensors : public TensorSource {
 public:
  explicit DigestedTensors(const TensorSource& source) : source_(source) {}

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override {
    ASSIGN_OR_RETURN(const TensorView view, source_.Find(name));
    return TensorInfo{view.dtype, view.shape, view.bytes,
                      Sha256Hex({reinterpret_cast<const char*>(view.data), view.bytes})};
  }
  absl::Status Prepare(const std::vector<std::string>& names) const override {
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const TensorView view, source_.Find(name));
      prepared_.insert(name);
      if (view.shape.size() >= 2 && !name.ends_with("bias")) {
        matrices.insert(name);
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<TensorView> Find(std::string_view name) const override {
    if (prepared_.count(std::string(name)) == 0) {
      return absl::FailedPreconditionError(std::string(name) + " was not prepared");
    }
    return source_.Find(name);
  }
  void Release(std::string_view name, size_t bytes) const override {
    const auto view = Find(name);
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_LE(bytes, view->bytes);
    if (bytes == view->bytes) {
      prepared_.erase(std::string(name));
    }
  }
  // What was prepared and is not yet released.
  const std::set<std::string>& prepared() const { return prepared_; }

  mutable std::set<std::string> matrices;  // That were ever prepared.

 private:
  const TensorSource& source_;
  mutable std::set<std::string> prepared_;
};

class MemoryStore : public PackedStore {
 public:
  bool Has(const PackedForm& form) override {
    const auto it = files.find(form.key);
    return it != files.end() && it->second.size() == form.bytes;
  }
  absl::Status Read(const PackedForm& form, std::span<uint8_t> out, const SplitFn& split) override {
    const std::string bytes = files.at(form.key);
    if (form.key == spoilt) {
      std::fill(out.begin(), out.end(), 0x55);
      files.erase(form.key);
      return absl::DataLossError("spoilt");
    }
    EXPECT_EQ(out.size(), bytes.size());
    split(out.size(), [&](size_t begin, size_t end) {
      std::copy(bytes.begin() + begin, bytes.begin() + end, out.begin() + begin);
    });
    return absl::OkStatus();
  }
  void Write(const PackedForm& form, std::span<const uint8_t> packed) override {
    EXPECT_EQ(packed.size(), form.bytes);
    files[form.key] = std::string(packed.begin(), packed.end());
    ++writes;
  }

  std::map<std::string, std::string> files;
  std::string spoilt;  // A key.
  int writes = 0;
};

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

void ExpectTheSameBitsFromTheStore(const ModelSpec& spec, const TensorSource& source,
                                   ForwardOptions options) {
  options.context = 256;
  options.kv_tokens = 512;
  const std::vector<float> expected = Logits(spec, source, options);
  MemoryStore store;
  options.packed = &store;
  const DigestedTensors first(source);
  EXPECT_EQ(Logits(spec, first, options), expected);
  EXPECT_FALSE(first.matrices.empty());
  EXPECT_TRUE(first.prepared().empty()) << "not all was released";
  const int writes = store.writes;
  EXPECT_GT(writes, 0);

  const DigestedTensors second(source);
  EXPECT_EQ(Logits(spec, second, options), expected);
  EXPECT_THAT(second.matrices, ::testing::IsEmpty());
  EXPECT_TRUE(second.prepared().empty());
  EXPECT_EQ(store.writes, writes);
}

TEST(PackedStoreTest, EveryFormatGivesTheSameBitsFromTheStoreWithoutItsMatrices) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(std::string(DtypeName(dtype)) + " " + v1::Quantize_Name(quantize) +
                     (tied ? " tied" : ""));
        const MadeUpModel model({.tied = tied, .biases = true, .dtype = dtype});
        ForwardOptions options;
        options.quantize = quantize;
        options.activations =
            quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
        options.cuts = {1};
        ExpectTheSameBitsFromTheStore(model.spec(), model, options);
      }
    }
  }
}

TEST(PackedStoreTest, CheckpointsOfOtherFormatsGiveTheSameBitsFromTheStore) {
  for (const char* name :
       {"llama31-mlx4", "llama31-mlx8", "gguf/llama-f16", "gguf/llama-q8_0", "gguf/llama-q4_0",
        "gguf/phi3-q4_0", "gguf/qwen3-moe-q8_0", "gguf/gpt-oss-mxfp4", "mixtral-mlx4-mixed",
        "gpt-oss", "gpt-oss-mxfp4", "mixtral-awq", "qwen3-moe-gptq8", "mixtral-gptq4-actorder",
        "deepseek-v2-packed4"}) {
    SCOPED_TRACE(name);
    const GoldenModel model = LoadGoldenModel(name);
    ExpectTheSameBitsFromTheStore(model.spec, model.weights, {});
  }
}

// Of a square part, which is packed as it is and transposed, both are kept.
TEST(PackedStoreTest, HeadsOfLatentLayersAreKeptEachByItself) {
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    const MadeUpModel model(
        {.latent = {.rank = 16, .query_rank = 12, .nope_dim = 16, .rope_dim = 4, .value_dim = 16}});
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec(), model, options);
  }
}

TEST(PackedStoreTest, PartsOfOneTensorAreKeptEachByItself) {
  const GoldenModel model = LoadGoldenModel("phi3");
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8}) {
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec, model.weights, options);
  }
}

TEST(PackedStoreTest, TheExpertsOfALayerAreKeptAsOne) {
  const MadeUpModel model({.layers = 3, .experts = 6, .router = {.used = 2}});
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec(), model, options);
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

TEST(PackedStoreTest, TensorsOfUnknownContentAreNotKept) {
  const MadeUpModel model({});
  MemoryStore store;
  ForwardOptions options;
  options.context = 256;
  options.packed = &store;
  EXPECT_FALSE(Logits(model.spec(), model, options).empty());
  EXPECT_TRUE(store.files.empty());
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
