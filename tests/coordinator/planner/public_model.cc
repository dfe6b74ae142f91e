#include "tests/coordinator/planner/public_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "coordinator/planner/planner.h"
#include "coordinator/registry/manifest.h"

namespace strata::testing {
namespace {

Dtype DtypeOf(const StageTensor& tensor) {
  if (tensor.name.ends_with(".e_score_correction_bias")) {
    return Dtype::kF32;
  }
  return tensor.dtypes.empty() ? Dtype::kBF16 : tensor.dtypes.front();
}

PlannerCluster TwoGiants() {
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  PlannerCluster cluster;
  for (const char* name : {"a", "b"}) {
    PlannerNode& node = cluster.nodes.emplace_back();
    node.name = name;
    node.numerics = "cpu-2";
    node.free_bytes = 4 * kTiB;
    node.read_bytes_per_s = node.flops_per_s = 1e12;
  }
  cluster.links.assign(3, std::vector<PlannerLink>(3));
  return cluster;
}

// The most pages that so many positions in a row lie in, wherever they begin.
uint64_t MostPages(uint64_t positions) {
  uint64_t most = 0;
  for (uint64_t first = 0; first < kPageTokens; ++first) {
    most = std::max(most, (first + positions - 1) / kPageTokens + 1);
  }
  return most;
}

// What a plan of so many stages grants a layer: two sessions of 4096 tokens, and a page for each to
// grow into. A layer with a window keeps what the oldest token in flight sees, and those in flight:
// one micro-batch of 256 tokens for each stage, and one more.
uint64_t GrantedPages(const PublicSizes& sizes, uint32_t layer, uint64_t stages) {
  const bool full =
      sizes.window == 0 || (sizes.full_every != 0 && (layer + 1) % sizes.full_every == 0);
  const uint64_t all = 2 * (4096 / kPageTokens + 1);
  return full ? all : std::min(all, 2 * MostPages(sizes.window - 1 + (stages + 1) * 256));
}

}  // namespace

ModelRuntime PublicModel(const std::string& name, const std::string& config,
                         const std::function<bool(const std::string&)>& has) {
  auto manifest = std::make_shared<ModelManifest>();
  auto spec = ParseModelConfig(config, "");
  EXPECT_TRUE(spec.ok()) << name << ": " << spec.status();
  manifest->spec = spec.ok() ? *std::move(spec) : ModelSpec{};
  manifest->config_json = config;
  const auto last = static_cast<uint32_t>(manifest->spec.layers.size()) - 1;
  for (const StageTensor& tensor : TensorsOf(manifest->spec, 0, last, true, true, has)) {
    ManifestTensor& out = manifest->tensors.emplace_back();
    out.name = tensor.name;
    out.dtype = DtypeOf(tensor);
    out.shape = tensor.shape;
    out.bytes = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                uint64_t{DtypeBytes(out.dtype)}, std::multiplies<>());
  }
  std::sort(manifest->tensors.begin(), manifest->tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  manifest->tensors.erase(
      std::unique(manifest->tensors.begin(), manifest->tensors.end()),  // A tied embedding.
      manifest->tensors.end());
  ModelRuntime runtime;
  runtime.name = name;
  runtime.manifest = std::move(manifest);
  return runtime;
}

v1::LoadOptions PublicOptions() {
  v1::LoadOptions options;
  options.set_context(4096);
  options.set_sessions(2);
  options.set_kv_tokens(8192);
  options.set_max_batch_tokens(256);
  options.set_kv_dtype(v1::KV_DTYPE_F16);
  return options;
}

void ExpectSizes(const ModelRuntime& runtime, const PublicSizes& sizes) {
  const PlannerModel model = runtime.ForPlanner(PublicOptions());
  ASSERT_EQ(model.layer_bytes.size(), sizes.layers.size());
  for (uint32_t layer = 0; layer < sizes.layers.size(); ++layer) {
    EXPECT_EQ(model.layer_bytes[layer], sizes.layers[layer]) << layer;
    uint64_t kv = 0;
    for (uint32_t group = 0; group < model.spec.kv_groups.size(); ++group) {
      kv += KvBytesPerToken(model.spec, layer, layer, group, 2);
    }
    EXPECT_EQ(kv, sizes.kv_of_layer) << layer;
  }
  EXPECT_EQ(model.embed_bytes, sizes.embedding);
  EXPECT_EQ(model.head_bytes, sizes.head);
  EXPECT_EQ(TotalKvBytesPerToken(model.spec, 2), sizes.layers.size() * sizes.kv_of_layer);
}

void ExpectPlan(const ModelRuntime& runtime, const PublicSizes& sizes) {
  PlannerRequest request;
  request.options = PublicOptions();
  const size_t middle = sizes.layers.size() / 2;
  auto* pin = request.options.add_layers();
  pin->set_node("a");
  pin->set_last_layer(static_cast<uint32_t>(middle) - 1);
  pin = request.options.add_layers();
  pin->set_node("b");
  pin->set_first_layer(static_cast<uint32_t>(middle));
  pin->set_last_layer(static_cast<uint32_t>(sizes.layers.size()) - 1);
  const auto plan = MakePlan(TwoGiants(), runtime.ForPlanner(request.options), request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto& stages = plan->pipelines(0).stages();
  ASSERT_EQ(stages.size(), 2);
  const auto first_half = sizes.layers.begin() + static_cast<std::ptrdiff_t>(middle);
  EXPECT_EQ(stages[0].weight_bytes(),
            std::accumulate(sizes.layers.begin(), first_half, sizes.embedding));
  EXPECT_EQ(stages[1].weight_bytes(), std::accumulate(first_half, sizes.layers.end(), sizes.head));
  for (const v1::PlanStage& stage : stages) {
    uint64_t bytes = 0;
    for (uint32_t i = stage.first_layer(); i <= stage.last_layer(); ++i) {
      const uint32_t group = runtime.spec().layers[i].attention.kv_group;
      const uint64_t pages = GrantedPages(sizes, i, 2);
      EXPECT_EQ(stage.kv_pages(static_cast<int>(group)), pages) << "layer " << i;
      bytes += pages * kPageTokens * sizes.kv_of_layer;
    }
    EXPECT_EQ(stage.kv_bytes(), bytes);
  }
}

}  // namespace strata::testing
