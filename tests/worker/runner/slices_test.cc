// Items that are computed over several steps, a slice of the layers in each.
#include <random>

#include "tests/worker/runner/chain.h"
#include "worker/sampler/sampler.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kLayers = 12;

// Of layers [from, end); end 0: to the last, with the token after it.
v1::StepItem Slice(const v1::SequenceName& name, std::span<const uint32_t> ids, uint32_t position,
                   uint32_t rows, uint32_t from, uint32_t end) {
  v1::StepItem item = Item(name, ids, position, position + rows);
  item.set_from_layer(from);
  item.set_end_layer(end);
  item.set_sample(end == 0);
  if (from > 0) {
    item.clear_params();
  }
  return item;
}

uint32_t Expected(const ModelSpec& model, std::span<const uint32_t> ids) {
  return Argmax(HashLogits(model, ids).back());
}

class Slices : public ::testing::TestWithParam<uint32_t> {
 protected:
  Slices()
      : chain_({.model = HashModel(kLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}}),
                .stages = GetParam(),
                .pages = {64, 64}}),
        steps_(&chain_) {}

  const ModelSpec& model() const { return chain_.options().model; }
  uint32_t FirstLayer(uint32_t stage) const { return kLayers * stage / GetParam(); }

  Chain chain_;
  Steps steps_;
  const v1::SequenceName a_ = Name("a", 1);
  const std::vector<uint32_t> ids_ = Prompt(200, 1);
};

INSTANTIATE_TEST_SUITE_P(Stages, Slices, ::testing::Values(1, 2, 3, 4));

TEST_P(Slices, AnItemsTokenIsThatOfTheWholeWhereverItIsCut) {
  for (uint32_t cut = 1; cut <= kLayers; ++cut) {
    const v1::SequenceName name = Name("cut", 2 * cut);
    EXPECT_EQ(steps_.Run({Slice(name, ids_, 0, 30, 0, cut)}).header.items(0).tokens_size(), 0);
    EXPECT_EQ(TokenOf(steps_.Run({Slice(name, ids_, 0, 30, cut, 0)})),
              Expected(model(), std::span(ids_).first(30)))
        << "cut at layer " << cut;
    EXPECT_EQ(TokenOf(steps_.Run({Item(name, ids_, 30, 31)})),
              Expected(model(), std::span(ids_).first(31)));
    // Nobody samples this one.
    const v1::SequenceName part = Name("part", 2 * cut + 1);
    v1::StepItem last = Slice(part, ids_, 0, 30, cut, 0);
    last.set_sample(false);
    steps_.Run({Slice(part, ids_, 0, 30, 0, cut)});
    EXPECT_EQ(ReasonOfItem(steps_.Run({last})), "");
    EXPECT_EQ(TokenOf(steps_.Run({Item(part, ids_, 30, 31)})),
              Expected(model(), std::span(ids_).first(31)));
    steps_.Run({}, {Release(name), Release(part)});
  }
}

// A prompt in parts that follow one another through the layers, each as far behind as it likes,
// beside another request that answers in every step.
TEST_P(Slices, PartsOfAPromptFollowOneAnotherThroughTheLayers) {
  std::mt19937 random(GetParam());
  for (uint64_t round = 1; round <= 30; ++round) {
    const v1::SequenceName prompt = Name("prompt", 2 * round + 1);
    const v1::SequenceName other = Name("other", 2 * round);
    struct Part {
      uint32_t position, rows, reached;
    };
    std::vector<Part> parts;
    std::vector<uint32_t> answered = Prompt(5, static_cast<uint32_t>(round));
    steps_.Run({Item(other, answered, 0, 4)});
    uint32_t begun = 0;
    uint32_t token = ~0u;
    while (token == ~0u) {
      std::vector<v1::StepItem> items;
      uint32_t most = kLayers;  // What the part before has,
      bool finished = true;     // and whether that is all.
      for (Part& part : parts) {
        const uint32_t end = std::min<uint32_t>(part.reached + random() % 5, most);
        most = end;
        if (end > part.reached) {
          const bool last = end == kLayers && finished && random() % 2 == 0;
          items.push_back(
              Slice(prompt, ids_, part.position, part.rows, part.reached, last ? 0 : end));
          part.reached = last ? kLayers + 1 : end;
        } else if (part.reached == kLayers && finished) {
          items.push_back(Slice(prompt, ids_, part.position, part.rows, kLayers, 0));
          part.reached = kLayers + 1;
        }
        finished = part.reached > kLayers;
      }
      if (begun < ids_.size() && most > 0 && random() % 2 == 0) {
        const auto rows = std::min<uint32_t>(1 + random() % 40, ids_.size() - begun);
        const uint32_t end = 1 + random() % most;
        items.push_back(Slice(prompt, ids_, begun, rows, 0, end));
        parts.push_back({begun, rows, end});
        begun += rows;
      }
      const auto position = static_cast<uint32_t>(answered.size()) - 1;
      items.push_back(Item(other, answered, position, position + 1));
      const ResultMessage result = steps_.Run(items);
      for (int i = 0; i < result.header.items_size(); ++i) {
        ASSERT_FALSE(result.header.items(i).has_error())
            << result.header.items(i).error().ShortDebugString();
      }
      answered.push_back(TokenOf(result, result.header.items_size() - 1));
      ASSERT_EQ(answered.back(), Expected(model(), std::span(answered).first(position + 1)));
      for (int i = 0; i + 1 < result.header.items_size(); ++i) {
        const uint32_t end = items[i].position() + static_cast<uint32_t>(items[i].token_ids_size());
        if (items[i].end_layer() == 0) {
          ASSERT_EQ(TokenOf(result, i), Expected(model(), std::span(ids_).first(end)));
          token = end == ids_.size() ? TokenOf(result, i) : token;
        }
      }
      std::erase_if(parts, [](const Part& part) { return part.reached > kLayers; });
    }
    const ResultMessage result = steps_.Run({}, {Release(prompt), Release(other)});
    for (uint32_t stage = 0; stage < GetParam(); ++stage) {
      EXPECT_EQ(FreePages(result, static_cast<int>(stage)), 64u);
    }
  }
}

TEST_P(Slices, RowsTravelWithTheStepThatTakesThemOnOnly) {
  const uint32_t stages = GetParam();
  const v1::SequenceName b = Name("b", 2);
  steps_.Run({Slice(a_, ids_, 0, 30, 0, 2), Item(b, ids_, 0, 3)});
  for (uint32_t stage = 1; stage < stages; ++stage) {
    EXPECT_EQ(chain_.sent(stage - 1).payload.size(), 3u * kHashHidden) << "those of b";
  }
  steps_.Run({Slice(a_, ids_, 0, 30, 2, 7)});
  for (uint32_t stage = 1; stage < stages; ++stage) {
    EXPECT_EQ(chain_.sent(stage - 1).payload.size(),
              FirstLayer(stage) < 7 ? 30u * kHashHidden : 0u);
  }
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 0, 30, 7, 0)})),
            Expected(model(), std::span(ids_).first(30)));
}

TEST_P(Slices, WhatDoesNotGoOnFromWhereItWasLeftIsRefusedAndHurtsNothing) {
  steps_.Run({Slice(a_, ids_, 0, 30, 0, 5)});
  std::vector<uint32_t> others = ids_;
  others[29] = (others[29] + 1) % 97;
  const auto reason = [this](const v1::StepItem& item) { return ReasonOfItem(steps_.Run({item})); };
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 4, 8)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 6, 8)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 29, 5, 8)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, ids_, 1, 29, 5, 8)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, others, 0, 30, 5, 8)), "SLICE_MISMATCH");
  v1::StepItem foreign = Slice(a_, ids_, 0, 30, 5, 8);
  foreign.set_fingerprint(foreign.fingerprint() + 1);
  EXPECT_EQ(reason(foreign), "FINGERPRINT_MISMATCH");
  EXPECT_EQ(reason(Slice(Name("a", 2), ids_, 0, 30, 5, 8)), "SEQUENCE_NOT_FOUND");
  // Tokens after it may come as far as it did.
  EXPECT_EQ(reason(Item(a_, ids_, 30, 31)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, ids_, 30, 3, 0, 6)), "SLICE_MISMATCH");
  EXPECT_EQ(reason(Slice(a_, ids_, 30, 3, 0, 4)), "");
  EXPECT_EQ(reason(Slice(a_, ids_, 30, 3, 4, 6)), "SLICE_MISMATCH");
  // What is not computed nobody begins on.
  for (const v1::StepCommand& command : {Fork(a_, Name("b", 3), std::span(ids_).first(16)),
                                         Truncate(a_, std::span(ids_).first(30))}) {
    EXPECT_EQ(ReasonOfCommand(steps_.Run({}, {command})), "POSITION_MISMATCH");
  }
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 5, 8)), "");
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 0, 30, 8, 0), Slice(a_, ids_, 30, 3, 4, 0)}), 1),
            Expected(model(), std::span(ids_).first(33)));
  EXPECT_EQ(TokenOf(steps_.Run({Item(a_, ids_, 33, 34)})),
            Expected(model(), std::span(ids_).first(34)));
}

TEST_P(Slices, WhatNoModelHasIsRefused) {
  const auto reason = [this](const v1::StepItem& item) { return ReasonOfItem(steps_.Run({item})); };
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 0, kLayers + 1)), "ITEM_SLICE");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, kLayers + 1, 0)), "ITEM_SLICE");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 5, 5)), "ITEM_SLICE");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 5, 3)), "ITEM_SLICE");
  EXPECT_EQ(reason(Slice(a_, ids_, 0, 30, 0, UINT32_MAX)), "ITEM_SLICE");
  v1::StepItem digested = Slice(a_, ids_, 0, 30, 0, 3);
  digested.set_digest_layers(true);
  EXPECT_EQ(reason(digested), "ITEM_SLICE");
  const ResultMessage result = steps_.Run({Slice(a_, ids_, 0, 30, 0, 3), Item(a_, ids_, 30, 31)});
  EXPECT_EQ(ReasonOfItem(result, 0), "");
  EXPECT_EQ(ReasonOfItem(result, 1), "SEQUENCE_TWICE");
}

TEST_P(Slices, AStageKeepsNoMoreRowsThanAStepMayHave) {
  // 256 rows.
  const auto ids = Prompt(256, 5);
  EXPECT_EQ(ReasonOfItem(steps_.Run({Slice(a_, ids, 0, 200, 0, 1)})), "");
  const v1::SequenceName b = Name("b", 2);
  const ResultMessage result = steps_.Run({Slice(b, ids, 0, 57, 0, 1)});
  EXPECT_EQ(ReasonOfItem(result), "PARKED_ROWS");
  EXPECT_EQ(result.header.items(0).error_stage(), 0u);
  // It has taken nothing.
  EXPECT_EQ(FreePages(result), 64u - 13);
  EXPECT_EQ(ReasonOfItem(steps_.Run({Slice(Name("b", 3), ids, 0, 56, 0, 1)})), "");
}

TEST_P(Slices, AReleaseOrAFenceDropsWhatIsUnfinished) {
  steps_.Run({Item(a_, ids_, 0, 20)});
  steps_.Run({Slice(a_, ids_, 20, 100, 0, 4)});
  steps_.Run({Slice(a_, ids_, 120, 56, 0, 2), Slice(Name("b", 2), ids_, 0, 56, 0, 1)});
  steps_.Run({}, {Release(Name("b", 2))});
  ResultMessage result = steps_.Resync(kEpoch + 1, {Truncate(a_, std::span(ids_).first(20))});
  EXPECT_EQ(ReasonOfCommand(result), "");
  EXPECT_EQ(FreePages(result), 64u - 2);
  // All that was parked is given up: as much may be again.
  EXPECT_EQ(ReasonOfItem(steps_.Run({Slice(a_, ids_, 20, 180, 0, 7)})), "");
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 20, 180, 7, 0)})), Expected(model(), ids_));
}

TEST_P(Slices, AFailureInASliceTakesWhatFollowsWithItAndNothingElse) {
  const auto last = GetParam() - 1;
  const v1::SequenceName b = Name("b", 2);
  const auto bad = std::find_if(ids_.begin() + 20, ids_.begin() + 30, [this](uint32_t id) {
    return std::find(ids_.begin() + 30, ids_.begin() + 40, id) == ids_.begin() + 40;
  });
  const std::vector<uint32_t> good(30, (*bad + 1) % 97);
  steps_.Run({Item(a_, ids_, 0, 20), Item(b, good, 0, 20)});
  steps_.Run({Slice(a_, ids_, 20, 10, 0, kLayers - 1), Slice(a_, ids_, 30, 10, 0, kLayers - 1)});
  chain_.shard(last).FailAtToken(*bad);
  const ResultMessage result =
      steps_.Run({Slice(a_, ids_, 20, 10, kLayers - 1, 0), Slice(a_, ids_, 30, 10, kLayers - 1, 0),
                  Item(b, good, 20, 21)});
  EXPECT_EQ(ReasonOfItem(result, 0), "BACKEND_FAILED");
  EXPECT_EQ(ReasonOfItem(result, 1), "SLICE_MISMATCH");
  EXPECT_EQ(TokenOf(result, 2), Expected(model(), std::span(good).first(21)));
  EXPECT_EQ(FreePages(result, static_cast<int>(last)), 64u - 2 - 2);
}

TEST_P(Slices, AStepHasOneSliceOfAnItem) {
  steps_.Run({Slice(a_, ids_, 0, 30, 0, 1)});
  const ResultMessage result =
      steps_.Run({Slice(a_, ids_, 0, 30, 1, 2), Slice(a_, ids_, 0, 30, 2, 3)});
  EXPECT_EQ(ReasonOfItem(result, 0), "");
  EXPECT_EQ(ReasonOfItem(result, 1), "SEQUENCE_TWICE");
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 0, 30, 2, 0)})),
            Expected(model(), std::span(ids_).first(30)));
}

TEST_P(Slices, RowsOfLogitsAreInTheOrderOfTheItems) {
  const v1::SequenceName b = Name("b", 2);
  steps_.Run({Slice(a_, ids_, 0, 30, 0, 5), Item(b, ids_, 0, 3)});
  v1::StepItem whole = Item(b, ids_, 3, 4);
  whole.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  v1::StepItem last = Slice(a_, ids_, 0, 30, 5, 0);
  last.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  last.set_rows_from(29);
  const ResultMessage result = steps_.Run({whole, last});
  std::vector<float> expected = HashLogits(model(), std::span(ids_).first(4)).back();
  const std::vector<float> of_a = HashLogits(model(), std::span(ids_).first(30)).back();
  expected.insert(expected.end(), of_a.begin(), of_a.end());
  EXPECT_EQ(result.payload, expected);
}

TEST_P(Slices, WhatIsBehindAFailureHasNeitherTokensNorLogits) {
  const uint32_t last = GetParam() - 1;
  const auto bad = std::find_if(ids_.begin(), ids_.begin() + 20, [this](uint32_t id) {
    return std::find(ids_.begin() + 20, ids_.begin() + 30, id) == ids_.begin() + 30;
  });
  steps_.Run({Slice(a_, ids_, 0, 20, 0, kLayers - 1), Slice(a_, ids_, 20, 10, 0, kLayers - 1)});
  chain_.shard(last).FailAtToken(*bad);
  v1::StepItem second = Slice(a_, ids_, 20, 10, kLayers - 1, 0);
  second.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  const ResultMessage result = steps_.Run({Slice(a_, ids_, 0, 20, kLayers - 1, 0), second});
  EXPECT_EQ(ReasonOfItem(result, 1), "SLICE_MISMATCH");
  EXPECT_EQ(result.header.items(1).tokens_size(), 0);
  EXPECT_EQ(result.header.items(1).payload_rows(), 0u);
  EXPECT_TRUE(result.payload.empty());
}

TEST_P(Slices, ATokenIsDrawnAsIfNothingAfterItHadBegun) {
  v1::StepItem first = Slice(a_, ids_, 0, 20, 0, 4);
  *first.mutable_params()->mutable_sampling() = PlainSampling(1, 5);
  first.mutable_params()->mutable_sampling()->set_repetition_penalty(1.5f);
  steps_.Run({first, Slice(a_, ids_, 20, 10, 0, 2)});
  const std::span<const uint32_t> ids = std::span(ids_).first(20);
  Sampler sampler(model().vocab);
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 0, 20, 4, 0)})),
            sampler.Sample(SampleRequestOf(first.params(), ids), HashLogits(model(), ids).back())
                .value());
}

TEST_P(Slices, WindowsAreFreedBehindWhatIsCommittedOfAllLayers) {
  steps_.Run({Item(a_, ids_, 0, 48)});
  ResultMessage result = steps_.Run({Slice(a_, ids_, 48, 100, 0, 3)});
  const uint64_t free = FreePages(result, 0, 1);
  for (uint32_t layer = 3; layer < 9; ++layer) {
    result = steps_.Run({Slice(a_, ids_, 48, 100, layer, layer + 1)});
    EXPECT_EQ(FreePages(result, 0, 1), free);
  }
  EXPECT_EQ(TokenOf(steps_.Run({Slice(a_, ids_, 48, 100, 9, 0)})),
            Expected(model(), std::span(ids_).first(148)));
  EXPECT_GT(FreePages(steps_.Run({}), 0, 1), free + 4);
}

}  // namespace
}  // namespace strata
