#include "coordinator/planner/standby.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/footprint/footprint.h"
#include "common/plan.h"
#include "common/status.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeModel;
using testing::MakeNode;
using testing::MakeRequest;

constexpr PlannerLink kStandbyLan{0.2, 1e8};
constexpr uint64_t kHalfOfThem =
    1100 * kMiB;  // Enough for half of the layers, and no more than that.

class Standby {
 public:
  explicit Standby(std::vector<PlannerNode> nodes)
      : cluster_(MakeCluster(std::move(nodes), kStandbyLan)),
        model_(MakeModel(12, 2048, 5632, 16, 16, 32000)),
        request_(MakeRequest(v1::PLAN_GOAL_LATENCY, 2048)) {}

  // As "6-11 of b on c"; "of b on -: REASON" where no node keeps them.
  std::vector<std::string> Parts(const std::vector<std::pair<std::string, uint32_t>>& last_layers,
                                 uint32_t copies) {
    PlannerRequest pinned = request_;
    uint32_t first = 0;
    for (const auto& [node, last] : last_layers) {
      auto* pin = pinned.options.add_layers();
      pin->set_node(node);
      pin->set_first_layer(first);
      pin->set_last_layer(last);
      first = last + 1;
    }
    StandbyRequest request{
        .plan = MakePlan(cluster_, model_, pinned).value(),
        .cluster = cluster_,
        .layer_bytes = model_.layer_bytes,
        .options = request_.options,
        .copies = copies,
        .plan_over = [this](const PlannerCluster& cluster, const v1::LoadOptions& options) {
          PlannerRequest asked = request_;
          asked.options = options;
          return MakePlan(cluster, model_, asked);
        }};
    for (const v1::PlanStage& stage : OnlyPipeline(request.plan).stages()) {
      request.stage_bytes.push_back(
          stage.weight_bytes() + stage.kv_bytes() +
          FootprintOf("cpu").BufferBytes(model_.spec, request_.options.max_batch_tokens(), true,
                                         request_.options.context()));
    }
    std::vector<std::string> parts;
    for (const StandbyPart& part : PlanStandby(request)) {
      parts.push_back(std::to_string(part.first_layer) + "-" + std::to_string(part.last_layer) +
                      " of " + part.of_node + " on " +
                      (part.node.empty() ? "-: " + ReasonOf(part.why) : part.node));
    }
    return parts;
  }

  PlannerCluster cluster_;
  PlannerModel model_;
  PlannerRequest request_;
};

TEST(PlanStandby, ASpareKeepsWhatItWouldTakeFromEither) {
  Standby s({MakeNode("a", kHalfOfThem, 40, 1000), MakeNode("b", kHalfOfThem, 40, 1000),
             MakeNode("c", kHalfOfThem, 40, 1000)});
  EXPECT_THAT(s.Parts({{"a", 5}, {"b", 11}}, 1), ElementsAre("0-5 of a on c", "6-11 of b on c"));
}

TEST(PlanStandby, AFastNodeThatWouldTakeEverythingKeepsWhatIsLostAlone) {
  Standby s({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
             MakeNode("fast", 8 * kGiB, 4000, 100000)});
  EXPECT_THAT(s.Parts({{"a", 5}, {"b", 11}}, 1),
              ElementsAre("0-5 of a on fast", "6-11 of b on fast"));
}

TEST(PlanStandby, WithoutASpareTheOthersKeepEachOthersLayers) {
  Standby s({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000)});
  EXPECT_THAT(s.Parts({{"a", 5}, {"b", 11}}, 1), ElementsAre("0-5 of a on b", "6-11 of b on a"));
}

TEST(PlanStandby, EachCopyIsOnAnotherNode) {
  Standby s({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
             MakeNode("c", 8 * kGiB, 40, 1000), MakeNode("d", 8 * kGiB, 40, 1000)});
  const std::vector<std::string> parts = s.Parts({{"a", 5}, {"b", 11}}, 3);
  EXPECT_EQ(parts.size(), 6u);
  EXPECT_EQ(std::set<std::string>(parts.begin(), parts.end()),
            (std::set<std::string>{"0-5 of a on b", "0-5 of a on c", "0-5 of a on d",
                                   "6-11 of b on a", "6-11 of b on c", "6-11 of b on d"}));
}

TEST(PlanStandby, WhereNoNodeHasRoomItSaysSo) {
  Standby s({MakeNode("a", kHalfOfThem, 40, 1000), MakeNode("b", kHalfOfThem, 40, 1000)});
  const std::vector<std::string> parts = s.Parts({{"a", 5}, {"b", 11}}, 1);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(parts[0].starts_with("0-5 of a on -: ")) << parts[0];
  EXPECT_TRUE(parts[1].starts_with("6-11 of b on -: ")) << parts[1];
}

TEST(PlanStandby, ADiskWithoutRoomForWhatElseIsKeptThereIsLeftOut) {
  std::vector<PlannerNode> nodes = {
      MakeNode("a", kHalfOfThem, 40, 1000), MakeNode("b", kHalfOfThem, 40, 1000),
      MakeNode("c", kHalfOfThem, 41, 1000), MakeNode("d", kHalfOfThem, 40, 1000)};
  Standby s(nodes);
  EXPECT_THAT(s.Parts({{"a", 5}, {"b", 11}}, 1), ElementsAre("0-5 of a on c", "6-11 of b on c"));
  uint64_t half = 0;
  for (uint32_t layer = 0; layer < 6; ++layer) half += s.model_.layer_bytes[layer];
  // With the embedding's share of the first stage, but not for both.
  s.cluster_.nodes[2].cache_bytes = half + half / 2 + s.model_.embed_bytes;
  EXPECT_THAT(s.Parts({{"a", 5}, {"b", 11}}, 1), ElementsAre("0-5 of a on c", "6-11 of b on d"));
}

}  // namespace
}  // namespace strata
