#include "coordinator/planner/replacement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/plan.h"
#include "common/status.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using testing::ExpectValid;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeModel;
using testing::MakeNode;
using testing::MakeRequest;

constexpr PlannerLink kLan{0.2, 1e8};
// Enough for half of the layers, and no more than that.
constexpr uint64_t kHalf = 1100 * kMiB;

// Layers a node holds in a plan, as "a:0-3".
std::string Placed(const v1::Plan& plan) {
  std::string text;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    text += (text.empty() ? "" : ",") + NodesOf(stage) + ":" + std::to_string(stage.first_layer()) +
            "-" + std::to_string(stage.last_layer());
  }
  return text;
}

class Replacing {
 public:
  explicit Replacing(std::vector<PlannerNode> nodes, uint32_t layers = 12)
      : all_(MakeCluster(std::move(nodes), kLan)),
        model_(MakeModel(layers, 2048, 5632, 16, 16, 32000)),
        request_(MakeRequest(v1::PLAN_GOAL_LATENCY, 2048)) {}

  v1::Plan Before(const std::vector<std::pair<std::string, uint32_t>>& last_layers) {
    PlannerRequest pinned = request_;
    uint32_t first = 0;
    for (const auto& [node, last] : last_layers) {
      auto* pin = pinned.options.add_layers();
      pin->set_node(node);
      pin->set_first_layer(first);
      pin->set_last_layer(last);
      first = last + 1;
    }
    return MakePlan(all_, model_, pinned).value();
  }

  absl::StatusOr<v1::Plan> Without(const v1::Plan& before, const std::vector<std::string>& lost) {
    PlannerCluster left = all_;
    for (const std::string& name : lost) {
      for (size_t i = 0; i < left.nodes.size(); ++i) {
        if (left.nodes[i].name == name) {
          left.nodes.erase(left.nodes.begin() + static_cast<ptrdiff_t>(i));
          left.links.pop_back();
          for (auto& row : left.links) row.pop_back();  // All links are alike.
        }
      }
    }
    ReplacementRequest request{.before = before,
                               .nodes = left.nodes,
                               .layer_bytes = model_.layer_bytes,
                               .caches = caches_,
                               .options = request_.options,
                               .other_class = other_class_,
                               .plan = [&](const v1::LoadOptions& options) {
                                 PlannerRequest asked = request_;
                                 asked.options = options;
                                 return MakePlan(left, model_, asked);
                               }};
    request.options.add_nodes("a");  // Named nodes bind no longer.
    const auto plan = PlanReplacement(request);
    if (plan.ok()) ExpectValid(left, model_, request_, *plan);
    return plan;
  }

  absl::StatusOr<std::optional<v1::Plan>> Better(const v1::Plan& runs) {
    return PlanBetter({.before = runs,
                       .nodes = all_.nodes,
                       .layer_bytes = model_.layer_bytes,
                       .options = request_.options,
                       .plan = [&](const v1::LoadOptions& options) {
                         PlannerRequest asked = request_;
                         asked.options = options;
                         return MakePlan(all_, model_, asked);
                       }});
  }

  PlannerCluster all_;
  PlannerModel model_;
  PlannerRequest request_;
  NodeCaches caches_ = {};
  bool other_class_ = false;
};

TEST(Replacement, WhatRunsIsLeftOnlyForAPlanThatIsAFifthFaster) {
  // One node with room for all, and one that reads so many times as fast.
  const auto better = [](double times, const std::string& numerics) {
    Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40 * times, 1000)});
    r.all_.nodes[1].numerics = r.all_.nodes[0].numerics + numerics;
    const auto plan = r.Better(r.Before({{"a", 11}}));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() && plan->has_value() ? Placed(**plan) : "";
  };
  EXPECT_EQ(better(1, ""), "");
  EXPECT_EQ(better(1.1, ""), "") << "too little";
  EXPECT_EQ(better(1.5, ""), "b:0-11");
  EXPECT_EQ(better(1.5, "-other"), "") << "other bits";
  EXPECT_EQ(better(0.5, ""), "");
}

TEST(Replacement, ASpareNodeTakesALostOnesLayersAndTheOthersKeepTheirs) {
  Replacing r({MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
               MakeNode("c", kHalf, 40, 1000)});
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"}).value()), "a:0-5,c:6-11");
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"a"}).value()), "c:0-5,b:6-11");
}

TEST(Replacement, TheFasterSpareIsTaken) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("slow", 8 * kGiB, 20, 500), MakeNode("fast", 8 * kGiB, 60, 2000)});
  const auto plan = r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"});
  EXPECT_EQ(Placed(plan.value()), "a:0-5,fast:6-11");
}

TEST(Replacement, ManyFasterNodesWithoutMemoryDoNotHideTheOneThatHasRoom) {
  std::vector<PlannerNode> nodes = {MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
                                    MakeNode("room", 8 * kGiB, 40, 1000)};
  for (int i = 0; i < 100; ++i) {
    nodes.push_back(MakeNode("full-" + std::to_string(i), kMiB, 60, 2000));
  }
  Replacing r(std::move(nodes));
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"}).value()), "a:0-5,room:6-11");
}

TEST(Replacement, WithoutASpareTheNeighboursTakeTheLayers) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("c", 8 * kGiB, 40, 1000)});
  const v1::Plan before = r.Before({{"a", 3}, {"b", 7}, {"c", 11}});
  const v1::Plan after = r.Without(before, {"b"}).value();
  uint64_t lost = 0;
  for (uint32_t layer = 4; layer <= 7; ++layer) lost += r.model_.layer_bytes[layer];
  EXPECT_EQ(MovedBytes(before, after, r.model_.layer_bytes), lost) << Placed(after);
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"a", "c"}).value()), "b:0-11");
}

TEST(Replacement, TwoLostNodesAreReplacedByTwoSpares) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("c", 8 * kGiB, 40, 1000), MakeNode("d", 8 * kGiB, 41, 1000),
               MakeNode("e", 8 * kGiB, 40, 1000)});
  const v1::Plan before = r.Before({{"a", 3}, {"b", 7}, {"c", 11}});
  EXPECT_EQ(Placed(r.Without(before, {"a", "c"}).value()), "d:0-3,b:4-7,e:8-11");
}

TEST(Replacement, MuchSlowerPlacesAreNotTakenForTheWeightsTheySave) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("snail", 8 * kGiB, 2, 100)});
  const v1::Plan after = r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"}).value();
  EXPECT_EQ(Placed(after), "a:0-11") << "as fast as it was; the spare would take most of the time";
}

// Of 12 layers, some as they are stored or packed.
std::vector<CachedLayer> Cached(const PlannerModel& model, uint32_t first, uint32_t last,
                                bool packed) {
  std::vector<CachedLayer> layers;
  for (uint32_t layer = 0; layer < model.layer_bytes.size(); ++layer) {
    const bool there = layer >= first && layer <= last;
    layers.push_back({there ? 0 : model.layer_bytes[layer], there && packed});
  }
  return layers;
}

TEST(Replacement, ANodeThatHasTheWeightsInItsCacheIsTakenBeforeAFasterOne) {
  Replacing r({MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
               MakeNode("fast", kHalf, 42, 1000), MakeNode("warm", kHalf, 40, 1000)});
  const v1::Plan before = r.Before({{"a", 5}, {"b", 11}});
  EXPECT_EQ(Placed(r.Without(before, {"b"}).value()), "a:0-5,fast:6-11");
  r.caches_["warm"] = Cached(r.model_, 6, 11, false);
  EXPECT_EQ(Placed(r.Without(before, {"b"}).value()), "a:0-5,warm:6-11");
  r.caches_["warm"] = Cached(r.model_, 0, 5, false);
  EXPECT_EQ(Placed(r.Without(before, {"b"}).value()), "a:0-5,fast:6-11") << "other layers";
}

TEST(Replacement, OfTwoThatNeedFetchNothingTheOneWithPackedWeightsIsTaken) {
  Replacing r({MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
               MakeNode("stored", kHalf, 42, 1000), MakeNode("packed", kHalf, 40, 1000)});
  r.caches_["stored"] = Cached(r.model_, 6, 11, false);
  r.caches_["packed"] = Cached(r.model_, 6, 11, true);
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"}).value()), "a:0-5,packed:6-11");
}

TEST(Replacement, WithStandbyAPlaceThatMovesNothingIsTakenHoweverSlow) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("fast", 8 * kGiB, 400, 10000), MakeNode("keeps", 8 * kGiB, 10, 300)});
  const v1::Plan before = r.Before({{"a", 5}, {"b", 11}});
  r.caches_["keeps"] = Cached(r.model_, 6, 11, true);
  EXPECT_NE(Placed(r.Without(before, {"b"}).value()), "a:0-5,keeps:6-11");
  r.request_.options.set_standby(1);
  EXPECT_EQ(Placed(r.Without(before, {"b"}).value()), "a:0-5,keeps:6-11");
  r.caches_["keeps"] = Cached(r.model_, 6, 10, true);
  EXPECT_NE(Placed(r.Without(before, {"b"}).value()), "a:0-5,keeps:6-11") << "something moves";
}

TEST(Replacement, BytesThatMoveAreThoseThatANodesCacheLacks) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 8 * kGiB, 40, 1000),
               MakeNode("c", 8 * kGiB, 40, 1000)});
  const v1::Plan before = r.Before({{"a", 5}, {"b", 11}});
  const v1::Plan after = r.Before({{"a", 5}, {"c", 11}});
  const std::vector<uint64_t>& bytes = r.model_.layer_bytes;
  const uint64_t one = bytes[6];
  EXPECT_EQ(MovementOf(before, after, bytes, {}).fetched_bytes, 6 * one);
  NodeCaches caches;
  caches["c"] = Cached(r.model_, 6, 9, false);
  EXPECT_EQ(MovementOf(before, after, bytes, caches), (Movement{2 * one, 6 * one}));
  caches["c"] = Cached(r.model_, 6, 9, true);
  EXPECT_EQ(MovementOf(before, after, bytes, caches), (Movement{2 * one, 2 * one}));
}

TEST(Replacement, ADiskWithoutRoomIsLeftOut) {
  std::vector<PlannerNode> nodes = {MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
                                    MakeNode("full", kHalf, 60, 1000),
                                    MakeNode("c", kHalf, 40, 1000)};
  nodes[2].cache_bytes = kMiB;
  Replacing r(nodes);
  EXPECT_EQ(Placed(r.Without(r.Before({{"a", 5}, {"b", 11}}), {"b"}).value()), "a:0-5,c:6-11");
}

TEST(Replacement, NodesOfOtherNumericsDoNotTakeOver) {
  std::vector<PlannerNode> nodes = {MakeNode("a", 8 * kGiB, 40, 1000),
                                    MakeNode("other", 8 * kGiB, 400, 1000)};
  nodes[1].numerics = "mlx-1";
  Replacing r(nodes);
  const auto plan = r.Without(r.Before({{"a", 11}}), {"a"});
  EXPECT_EQ(ReasonOf(plan.status()), "NUMERICS_CHANGED");
}

// Who takes over from "lost" where other classes will do, and the class.
std::string InAnyClass(Replacing* r, const v1::Plan& before, const std::string& lost) {
  r->other_class_ = true;
  const auto plan = r->Without(before, {lost});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) {
    return "";
  }
  const std::string& name = plan->numerics_class().name();
  return Placed(*plan) + " as " + name.substr(0, name.find('/'));
}

TEST(Replacement, WhereOtherClassesWillDoTheSameKindIsTakenFirst) {
  std::vector<PlannerNode> nodes = {MakeNode("a", kHalf, 40, 1000), MakeNode("b", kHalf, 40, 1000),
                                    MakeNode("alike", kHalf, 38, 900),
                                    MakeNode("other", 8 * kGiB, 400, 10000)};
  nodes[3].numerics = "mlx-1";
  Replacing r(nodes);
  const v1::Plan before = r.Before({{"a", 5}, {"b", 11}});
  EXPECT_EQ(InAnyClass(&r, before, "b"), "a:0-5,alike:6-11 as cpu-2")
      << "however much faster the other is";
  r.all_.nodes[2].free_bytes = kMiB;
  r.all_.nodes[3].free_bytes = kHalf;
  EXPECT_EQ(InAnyClass(&r, before, "b"), "a:0-5,other:6-11 as cpu-2:0-5+mlx-1:6-11");
  r.other_class_ = false;
  EXPECT_EQ(ReasonOf(r.Without(before, {"b"}).status()), "NUMERICS_CHANGED");
}

TEST(Replacement, APlanThatMixesKindsHasEachLostPartTakenByItsKind) {
  std::vector<PlannerNode> nodes = {
      MakeNode("mac", kHalf, 40, 1000), MakeNode("box", kHalf, 40, 1000),
      MakeNode("mac2", kHalf, 60, 2000), MakeNode("box2", kHalf, 50, 1000)};
  nodes[0].numerics = nodes[2].numerics = "mlx-1";
  Replacing r(nodes);
  const v1::Plan before = r.Before({{"mac", 5}, {"box", 11}});
  EXPECT_EQ(Placed(r.Without(before, {"mac"}).value()), "mac2:0-5,box:6-11");
  EXPECT_EQ(Placed(r.Without(before, {"box"}).value()), "mac:0-5,box2:6-11");
  EXPECT_EQ(Placed(r.Without(before, {"box", "mac"}).value()), "mac2:0-5,box2:6-11");
}

TEST(Replacement, APlanFromNothingIsMadeOfTheSameKindThoughTheOtherIsFaster) {
  // Neither has a place of its own: three of them take what one had.
  std::vector<PlannerNode> nodes = {MakeNode("a", 8 * kGiB, 40, 1000)};
  for (const char* name : {"b", "c", "d"}) nodes.push_back(MakeNode(name, kHalf, 10, 1000));
  nodes.push_back(MakeNode("other", 8 * kGiB, 400, 10000));
  nodes.back().numerics = "mlx-1";
  Replacing r(nodes);
  EXPECT_THAT(InAnyClass(&r, r.Before({{"a", 11}}), "a"), ::testing::EndsWith(" as cpu-2"));
}

TEST(Replacement, WhereNothingFitsItSaysWhatIsMissing) {
  Replacing r({MakeNode("a", 8 * kGiB, 40, 1000), MakeNode("b", 200 * kMiB, 40, 1000)});
  const auto plan = r.Without(r.Before({{"a", 11}}), {"a"});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Replacement, RandomClustersMoveNoMoreThanAPlanFromNothingAndAreAboutAsFast) {
  std::mt19937_64 random(7);
  int replaced = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<PlannerNode> nodes;
    const size_t count = 2 + random() % 5;
    for (size_t n = 0; n < count; ++n) {
      nodes.push_back(MakeNode("n" + std::to_string(n), (1 + random() % 8) * kGiB,
                               static_cast<double>(5 + random() % 100), 1000));
    }
    Replacing r(nodes);
    const auto before = MakePlan(r.all_, r.model_, r.request_);
    if (!before.ok()) continue;
    const std::string lost = OnlyRank(OnlyPipeline(*before).stages(0)).node();
    const auto after = r.Without(*before, {lost});
    PlannerRequest open = r.request_;
    for (const PlannerNode& node : r.all_.nodes) {
      if (node.name != lost) open.options.add_nodes(node.name);
    }
    const auto anew = MakePlan(r.all_, r.model_, open);
    ASSERT_EQ(after.ok(), anew.ok());
    if (!after.ok()) continue;
    ++replaced;
    EXPECT_GE(after->predicted_tokens_per_s(), 0.8 * anew->predicted_tokens_per_s());
    EXPECT_LE(MovedBytes(*before, *after, r.model_.layer_bytes),
              MovedBytes(*before, *anew, r.model_.layer_bytes))
        << Placed(*after) << " and not " << Placed(*anew);
  }
  EXPECT_GT(replaced, 50);
}

}  // namespace
}  // namespace strata
