// Token masks at the last stage: they are kept by slot, sampled by, and never gone without.
#include "common/token_mask_form.h"
#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kVocab = 97;

std::vector<uint32_t> Only(const std::vector<uint32_t>& ids) {
  std::vector<uint32_t> words(MaskWords(kVocab), 0);
  for (const uint32_t id : ids) {
    words[id / 32] |= uint32_t{1} << (id % 32);
  }
  return words;
}

v1::TokenMask MaskAt(uint32_t slot, const std::vector<uint32_t>& words) {
  v1::TokenMask mask = EncodeTokenMask(words, kVocab);
  mask.mutable_name()->set_slot(slot);
  mask.mutable_name()->set_digest(TokenMaskDigest(words));
  return mask;
}

class TokenMasks : public ::testing::TestWithParam<uint32_t> {
 protected:
  TokenMasks() : chain_({.stages = GetParam()}), steps_(&chain_) {}

  // The item's result of a step that brings these masks, where the item names `name`.
  ResultMessage Run(v1::StepItem item, const std::vector<v1::TokenMask>& masks,
                    const v1::TokenMaskName& name) {
    *item.mutable_mask() = name;
    StepMessage frame = steps_.Frame({std::move(item)});
    for (const v1::TokenMask& mask : masks) {
      *frame.header.add_masks() = mask;
    }
    return steps_.Send(std::move(frame));
  }
  v1::StepItem NewItem() {
    const auto number = ++number_;
    return Item(Name("r" + std::to_string(number), number), ids_, 0, 12);
  }

  Chain chain_;
  Steps steps_;
  const std::vector<uint32_t> ids_ = Prompt(12, 4);
  uint64_t number_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Stages, TokenMasks, ::testing::Values(1, 3));

TEST_P(TokenMasks, OnlyTheirTokensAreSampled) {
  for (uint32_t id = 0; id < kVocab; id += 7) {
    const auto mask = MaskAt(3, Only({id}));
    EXPECT_EQ(TokenOf(Run(NewItem(), {mask}, mask.name())), id);
  }
}

TEST_P(TokenMasks, AreKeptForLaterSteps) {
  const auto first = MaskAt(0, Only({5}));
  const auto second = MaskAt(255, Only({6}));
  Run(NewItem(), {first, second}, first.name());
  EXPECT_EQ(TokenOf(Run(NewItem(), {}, first.name())), 5u);
  EXPECT_EQ(TokenOf(Run(NewItem(), {}, second.name())), 6u);
}

TEST_P(TokenMasks, OneThatIsNotThereIsAnErrorOfItsItemAlone) {
  const auto mask = MaskAt(0, Only({5}));
  auto other = MaskAt(0, Only({6}));
  const auto refused = [&](const v1::TokenMaskName& name) {
    StepMessage frame = steps_.Frame({NewItem(), NewItem()});
    *frame.header.mutable_items(0)->mutable_mask() = name;
    const ResultMessage result = steps_.Send(std::move(frame));
    EXPECT_EQ(result.header.items(0).tokens_size(), 0);
    EXPECT_EQ(result.header.items(0).error_stage(), GetParam() - 1);
    EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(chain_.options().model, ids_, 1)[0]);
    return ReasonOfItem(result, 0);
  };
  EXPECT_EQ(refused(mask.name()), "MASK_NOT_FOUND");
  EXPECT_EQ(TokenOf(Run(NewItem(), {mask}, mask.name())), 5u);
  // Replaced, and named by what was in the slot before.
  EXPECT_EQ(TokenOf(Run(NewItem(), {other}, other.name())), 6u);
  EXPECT_EQ(refused(mask.name()), "MASK_NOT_FOUND");
  // Another epoch.
  EXPECT_EQ(TokenOf(Run(NewItem(), {mask}, mask.name())), 5u);
  steps_.Resync(kEpoch + 1, {});
  EXPECT_EQ(refused(mask.name()), "MASK_NOT_FOUND");
}

TEST_P(TokenMasks, OneBehindADraftThatIsNotThereIsAnErrorToo) {
  const auto mask = MaskAt(0, Only({5}));
  const auto behind = MaskAt(1, Only({6}));
  const auto drafted = [&] {
    v1::StepItem item = NewItem();
    item.set_draft_tokens(1);
    *item.add_draft_masks() = behind.name();
    return item;
  };
  EXPECT_EQ(ReasonOfItem(Run(drafted(), {mask}, mask.name())), "MASK_NOT_FOUND");
  EXPECT_EQ(ReasonOfItem(Run(drafted(), {mask, behind}, mask.name())), "");
}

TEST_P(TokenMasks, OneThatMakesNoSenseIsNotKept) {
  const auto good = MaskAt(2, Only({5}));
  const auto spoil = [&](auto change) {
    v1::TokenMask mask = good;
    change(&mask);
    return ReasonOfItem(Run(NewItem(), {mask}, mask.name()));
  };
  EXPECT_EQ(spoil([](v1::TokenMask* m) { m->mutable_name()->set_slot(256); }), "MASK_NOT_FOUND");
  EXPECT_EQ(spoil([](v1::TokenMask* m) { m->mutable_name()->set_digest(1); }), "MASK_NOT_FOUND");
  EXPECT_EQ(spoil([](v1::TokenMask* m) { m->mutable_allowed()->set_gaps(0, 97); }),
            "MASK_NOT_FOUND");
  EXPECT_EQ(spoil([](v1::TokenMask*) {}), "");
}

TEST_P(TokenMasks, AnItemThatSamplesNothingNamesNone) {
  const auto mask = MaskAt(0, Only({5}));
  v1::StepItem item = NewItem();
  item.set_sample(false);
  EXPECT_EQ(ReasonOfItem(Run(item, {mask}, mask.name())), "TOKEN_MASK");
}

TEST_P(TokenMasks, AStepBringsNoMoreThanThereAreSlots) {
  StepMessage frame = steps_.Frame({});
  for (uint32_t i = 0; i < 257; ++i) {
    frame.header.add_masks();
  }
  EXPECT_EQ(ReasonOf(chain_.Run(std::move(frame)).status()), "FRAME_LIMIT");
}

// A device that finds the largest logit itself knows no masks.
TEST_P(TokenMasks, HoldWhereTheDeviceFindsTheLargest) {
  chain_.shard(GetParam() - 1).FindLargest();
  const auto mask = MaskAt(0, Only({5, 6}));
  const uint32_t token = TokenOf(Run(NewItem(), {mask}, mask.name()));
  EXPECT_TRUE(token == 5 || token == 6) << token;
  EXPECT_EQ(TokenOf(steps_.Run({NewItem()})), ExpectedTokens(chain_.options().model, ids_, 1)[0]);
}

// Logprobs and logits are those of the row as it is.
TEST_P(TokenMasks, LogprobsAndLogitsAreOfTheRawRow) {
  v1::StepItem plain = NewItem();
  plain.mutable_params()->set_logprobs(true);
  plain.mutable_params()->set_top_logprobs(5);
  plain.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  plain.set_rows_from(11);
  v1::StepItem masked = plain;
  *masked.mutable_sequence() = NewItem().sequence();
  const ResultMessage raw = steps_.Run({plain});
  const uint32_t second = raw.header.items(0).tokens(0).top(1).token_id();
  const auto mask = MaskAt(0, Only({second}));
  const ResultMessage held = Run(masked, {mask}, mask.name());
  EXPECT_EQ(held.payload, raw.payload);
  const v1::TokenLogprob& token = held.header.items(0).tokens(0);
  EXPECT_EQ(token.token_id(), second);
  EXPECT_EQ(token.logprob(), raw.header.items(0).tokens(0).top(1).logprob());
  EXPECT_EQ(token.top(0).token_id(), raw.header.items(0).tokens(0).top(0).token_id());
}

}  // namespace
}  // namespace strata
