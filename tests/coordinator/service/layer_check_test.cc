#include "coordinator/service/running/layer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "common/status.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/models/models.h"
#include "coordinator/store/state_store.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Stages on the named nodes, two layers each.
v1::Plan PlanOn(const std::vector<std::string>& nodes) {
  v1::Plan plan;
  plan.mutable_numerics_class()->set_name("cpu-2/w=bf16,head=bf16,act=f32/kv=f16");
  v1::PlanPipeline* pipeline = plan.add_pipelines();
  uint32_t layer = 0;
  for (const std::string& node : nodes) {
    v1::PlanStage* stage = pipeline->add_stages();
    stage->add_ranks()->set_node(node);
    stage->set_first_layer(layer);
    stage->set_last_layer(layer + 1);
    layer += 2;
  }
  return plan;
}

PlannerNode NodeOf(const std::string& name, uint64_t free_bytes,
                   const std::string& numerics = "cpu-2") {
  PlannerNode node;
  node.name = name;
  node.numerics = numerics;
  node.free_bytes = free_bytes;
  return node;
}

std::string Chosen(const std::vector<PlannerNode>& nodes, const v1::Plan& plan, uint64_t bytes) {
  const PlannerNode* node = ChooseReference(nodes, plan, "cpu-2", bytes);
  return node == nullptr ? "" : node->name;
}

TEST(ChooseReference, IsRatherOneWithoutAStageAndWithMostMemory) {
  const v1::Plan plan = PlanOn({"a", "b"});
  EXPECT_EQ(
      Chosen({NodeOf("a", 900), NodeOf("b", 800), NodeOf("c", 200), NodeOf("d", 300)}, plan, 100),
      "d");
  EXPECT_EQ(Chosen({NodeOf("a", 800), NodeOf("b", 900)}, plan, 100), "b");
  // Room comes first.
  EXPECT_EQ(Chosen({NodeOf("a", 800), NodeOf("b", 900), NodeOf("c", 99)}, plan, 100), "b");
  // Where nobody has it, the worker that refuses says what is missing.
  EXPECT_EQ(Chosen({NodeOf("a", 8), NodeOf("c", 5)}, plan, 100), "c");
}

TEST(ChooseReference, IsOfThePlansNumerics) {
  const v1::Plan plan = PlanOn({"a"});
  EXPECT_EQ(
      Chosen({NodeOf("a", 10), NodeOf("c", 900, "cpu-1"), NodeOf("d", 900, "mlx-1")}, plan, 100),
      "a");
  EXPECT_EQ(Chosen({NodeOf("c", 900, "cpu-20")}, plan, 100), "");
  EXPECT_EQ(Chosen({}, plan, 100), "");
}

v1::LayersComputed Computed(uint32_t layer, std::vector<uint64_t> rows,
                            std::vector<uint64_t> logits = {}) {
  v1::LayersComputed computed;
  v1::LayerDigest* digest = computed.add_layers();
  digest->set_layer(layer);
  digest->mutable_rows()->Add(rows.begin(), rows.end());
  computed.set_done(!logits.empty());
  computed.mutable_logits()->Add(logits.begin(), logits.end());
  return computed;
}

TEST(AddComputed, TakesALayerWithItsRowsAndNothingElse) {
  LayerTable table;
  ASSERT_TRUE(AddComputed(Computed(0, {1, 2}), 0, 2, 2, &table).ok());
  EXPECT_EQ(ReasonOf(AddComputed(Computed(0, {1, 2}), 1, 2, 2, &table)), "BAD_RESULT");
  EXPECT_EQ(ReasonOf(AddComputed(Computed(1, {3}, {4, 5}), 1, 2, 2, &table)), "BAD_RESULT");
  EXPECT_EQ(ReasonOf(AddComputed(Computed(1, {3, 4}), 1, 2, 2, &table)), "BAD_RESULT");
  EXPECT_EQ(ReasonOf(AddComputed(Computed(1, {3, 4}, {5}), 1, 2, 2, &table)), "BAD_RESULT");
  EXPECT_EQ(ReasonOf(AddComputed(v1::LayersComputed(), 1, 2, 2, &table)), "BAD_RESULT");
  v1::LayersComputed twice = Computed(1, {3, 4}, {5, 6});
  *twice.add_layers() = twice.layers(0);
  EXPECT_EQ(ReasonOf(AddComputed(twice, 1, 2, 2, &table)), "BAD_RESULT");
  EXPECT_EQ(ReasonOf(AddComputed(Computed(0, {1, 2}, {3, 4}), 0, 2, 2, &table)), "BAD_RESULT");
  ASSERT_TRUE(AddComputed(Computed(1, {3, 4}, {5, 6}), 1, 2, 2, &table).ok());
  EXPECT_EQ(table, (LayerTable{{1, 2}, {3, 4}, {5, 6}}));
}

v1::ModelCheck Compared(const std::vector<std::string>& nodes, const LayerTable& stages,
                        const LayerTable& reference, const std::string& reference_node = "c") {
  v1::ModelCheck check;
  CompareLayers(
      "m", PlanOn(nodes), stages, reference, [&](uint32_t /*layer*/) { return reference_node; },
      &check);
  return check;
}

TEST(CompareLayers, NamesTheFirstLayerPositionStageAndNode) {
  const LayerTable right = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}, {13, 14, 15}};
  const v1::ModelCheck equal = Compared({"a", "b"}, right, right);
  EXPECT_TRUE(equal.equal());
  EXPECT_EQ(equal.layers(), 4u);
  EXPECT_EQ(equal.tokens(), 3u);
  EXPECT_EQ(equal.hint(), "");
  for (uint32_t layer = 0; layer <= 4; ++layer) {
    for (uint32_t position = 0; position < 3; ++position) {
      LayerTable wrong = right;
      ++wrong[layer][position];
      wrong[4][2] = 0;  // What follows from it is of no account.
      const v1::ModelCheck check = Compared({"a", "b"}, wrong, right);
      EXPECT_FALSE(check.equal());
      EXPECT_EQ(check.layer(), layer);
      EXPECT_EQ(check.position(), position);
      EXPECT_EQ(check.stage(), layer < 2 ? 0u : 1u);
      EXPECT_EQ(check.node(), layer < 2 ? "a" : "b");
    }
  }
}

TEST(CompareLayers, TheHintSaysHowToTellWhichOfTheTwoNodesIsWrong) {
  const LayerTable right = {{1}, {2}, {3}};
  const LayerTable wrong = {{1}, {9}, {3}};
  EXPECT_THAT(Compared({"a"}, wrong, right).hint(),
              AllOf(HasSubstr("third --node"), HasSubstr("`strata node drain a`"),
                    HasSubstr("`strata model load m`"), HasSubstr("'c'")));
  EXPECT_THAT(Compared({"a"}, wrong, right, "a").hint(),
              AllOf(HasSubstr("memory of 'a'"), HasSubstr("another --node")));
}

std::string Rows(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(DifferenceOf, IsTheLargestOfAnyValueByItsRowsLargest) {
  const std::string plain = Rows({1, -4, 2, 10, 0, 5});
  EXPECT_EQ(DifferenceOf(plain, plain, 2).largest, 0);
  const RowDifference one = DifferenceOf(plain, Rows({1, -4, 2.5, 10, 0, 5.5}), 2);
  EXPECT_DOUBLE_EQ(one.largest, 0.5 / 4);
  EXPECT_EQ(one.row, 0u);
  EXPECT_EQ(DifferenceOf(plain, Rows({1, -4, 2, 10, 3, 5}), 2).row, 1u);
  EXPECT_EQ(DifferenceOf(Rows({0, 0}), Rows({0, 0}), 1).largest, 0);
  // What cannot be compared is as far apart as can be.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string& other :
       {Rows({1, -4, 2, 10, 0}), Rows({1, -4, nan, 10, 0, 5}), Rows({})}) {
    EXPECT_EQ(DifferenceOf(plain, other, 2).largest, std::numeric_limits<double>::infinity());
  }
}

TEST(NoteAcross, TheFirstLayerThatIsNotWithinTheToleranceMakesItUnequal) {
  v1::ModelCheck check;
  check.set_equal(true);
  check.set_across_node("mac");
  check.set_tolerance(0.01);
  const v1::Plan plan = PlanOn({"a", "b"});
  NoteAcross("m", plan, 0, {.largest = 0.004, .row = 3}, &check);
  NoteAcross("m", plan, 1, {.largest = 0.01, .row = 3}, &check);
  EXPECT_TRUE(check.equal());
  EXPECT_EQ(check.largest_difference(), 0.01);
  NoteAcross("m", plan, 2, {.largest = 0.02, .row = 1}, &check);
  NoteAcross("m", plan, 3, {.largest = 0.5, .row = 0}, &check);
  EXPECT_FALSE(check.equal());
  EXPECT_EQ(check.layer(), 2u);
  EXPECT_EQ(check.position(), 1u);
  EXPECT_EQ(check.node(), "b");
  EXPECT_EQ(check.largest_difference(), 0.5);
  EXPECT_THAT(check.hint(), AllOf(HasSubstr("'mac'"), HasSubstr("`strata model load m`")));
}

TEST(NoteAcross, TheToleranceFollowsFromTheActivations) {
  v1::Plan plan = PlanOn({"a"});
  EXPECT_EQ(ToleranceOf(plan), kTolerance);
  plan.mutable_numerics_class()->set_name("cpu-2/w=int8,head=int8,act=int8/kv=f16");
  EXPECT_EQ(ToleranceOf(plan), kInt8Tolerance);
}

TEST(NumericsByLayer, OfAPlanThatMixesThemAreThoseOfEachStage) {
  v1::Plan plan = PlanOn({"a", "b"});
  EXPECT_EQ(NumericsByLayer(plan, 3), std::vector<std::string>(3, "cpu-2"));
  plan.mutable_numerics_class()->set_name("cpu-2:0-1+mlx-1:2-3/w=bf16,head=bf16,act=f32/kv=f16");
  EXPECT_EQ(NumericsByLayer(plan, 4),
            (std::vector<std::string>{"cpu-2", "cpu-2", "mlx-1", "mlx-1"}));
}

class CheckTokensTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ModelRuntime> Model(const std::string& path) {
    auto model = models_.Add(path, "m", "path", [](uint64_t, uint64_t) { return true; });
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *model : nullptr;
  }
  const std::unique_ptr<StateStore> store_ = MakeMemoryStore(std::string(32, 'c'));
  BlobStore blobs_;
  Models models_{store_.get(), &blobs_};
};

TEST_F(CheckTokensTest, AreTheSameEachTimeSpreadAndNotSpecial) {
  // With a tokenizer and without.
  for (const std::string& path :
       {testing::SourcePath("models/recall"), testing::GoldenPath("models/qwen2")}) {
    const auto model = Model(path);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->tokenizer != nullptr, path.ends_with("recall"));
    const std::vector<uint32_t> ids = CheckTokens(*model, 256);
    ASSERT_EQ(ids.size(), 256u);
    EXPECT_EQ(CheckTokens(*model, 256), ids);
    EXPECT_EQ(CheckTokens(*model, 24), std::vector(ids.begin(), ids.begin() + 24));
    for (const uint32_t id : ids) {
      EXPECT_LT(id, model->spec().vocab);
      for (const uint32_t eos : model->spec().eos_ids) {
        EXPECT_NE(id, eos);
      }
    }
    EXPECT_GT(std::set(ids.begin(), ids.end()).size(), 40u);
    if (model->tokenizer != nullptr) {
      EXPECT_EQ(model->tokenizer->Decode(ids, true), model->tokenizer->Decode(ids, false));
    }
    ASSERT_TRUE(models_.Forget("m").ok());
  }
}

TEST_F(CheckTokensTest, TheLargestLayerHasEmbeddingOrHead) {
  const auto model = Model(testing::GoldenPath("models/llama"));
  ASSERT_NE(model, nullptr);
  v1::LoadOptions options;
  options.set_context(256);
  const PlannerModel planned = model->ForPlanner(options);
  EXPECT_GT(LargestLayerBytes(*model, options),
            planned.layer_bytes.front() + std::max(planned.embed_bytes, planned.head_bytes));
  v1::LoadOptions int4 = options;
  int4.set_quantize(v1::QUANTIZE_INT4);
  EXPECT_LT(LargestLayerBytes(*model, int4), LargestLayerBytes(*model, options));
}

}  // namespace
}  // namespace strata
