// The shapes that `strata-worker bench` has random weights of.
#include "worker/service/bench_weights.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/status.h"

namespace strata {
namespace {

struct NamedShape {
  const char* name;
  uint32_t layers, hidden, ffn, heads, kv_heads, vocab;
  bool tied;
  uint64_t parameters;  // As those who published models of these sizes count them.
};

constexpr NamedShape kShapes[] = {
    {"tiny11", 22, 2048, 5632, 32, 4, 32000, false, 1'100'048'384},
    {"l321b", 16, 2048, 8192, 32, 8, 128256, true, 1'235'814'400},
    {"l318b", 32, 4096, 14336, 32, 8, 128256, false, 8'030'261'248},
};

TEST(BenchWeightsTest, ShapesHaveTheSizesThatTheyAreKnownFor) {
  for (const NamedShape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    const auto spec = ShapeSpec(shape.name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->family, "llama");
    EXPECT_EQ(spec->hidden, shape.hidden);
    EXPECT_EQ(spec->vocab, shape.vocab);
    EXPECT_EQ(spec->tied_head, shape.tied);
    ASSERT_EQ(spec->layers.size(), shape.layers);
    for (const LayerSpec& layer : spec->layers) {
      EXPECT_EQ(layer.attention.heads, shape.heads);
      EXPECT_EQ(layer.attention.kv_heads, shape.kv_heads);
      EXPECT_EQ(layer.attention.head_dim, shape.hidden / shape.heads);
      EXPECT_EQ(layer.mlp.ffn, shape.ffn);
    }
    uint64_t parameters = 0;
    for (const StageTensor& tensor : TensorsOf(*spec, 0, shape.layers - 1, true, true,
                                               [](const std::string&) { return false; })) {
      uint64_t elements = 1;
      for (const uint64_t size : tensor.shape) {
        elements *= size;
      }
      parameters += elements;
    }
    EXPECT_EQ(parameters, shape.parameters);
  }
}

TEST(BenchWeightsTest, AnotherShapeIsRefusedByTheNamesOfThoseThereAre) {
  const auto spec = ShapeSpec("l321");
  EXPECT_EQ(ReasonOf(spec.status()), "BAD_SHAPE");
  for (const NamedShape& shape : kShapes) {
    EXPECT_NE(Describe(spec.status()).find(shape.name), std::string::npos) << shape.name;
  }
}

}  // namespace
}  // namespace strata
