// Values that are not finite, and devices that fail: item errors, with the state as before.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kPoison = 96;

std::vector<uint32_t> CleanPrompt(uint32_t length, uint32_t salt) {
  return Prompt(length, salt, kPoison);  // Ids below it.
}

// Token kPoison becomes NaN on the stage given by the parameter, of 3.
class NonFinite : public ::testing::TestWithParam<uint32_t> {
 protected:
  NonFinite() : chain_({.stages = 3}), steps_(&chain_) {
    chain_.shard(GetParam()).PoisonToken(kPoison, 2 * GetParam());
  }
  Chain chain_;
  Steps steps_;
};

INSTANTIATE_TEST_SUITE_P(Stage, NonFinite, ::testing::Values(0, 1, 2));

TEST_P(NonFinite, IsAnErrorOfThatItemAloneAndLeavesNothing) {
  const ModelSpec& model = chain_.options().model;
  auto a = CleanPrompt(20, 1);
  auto b = CleanPrompt(30, 2);
  steps_.Run({Item(Name("a", 1), a, 0, 20), Item(Name("b", 2), b, 0, 30)});
  auto poisoned = a;
  poisoned.insert(poisoned.end(), {1, 2, kPoison, 3});
  b.push_back(4);
  const ResultMessage result =
      steps_.Run({Item(Name("a", 1), poisoned, 20, 24), Item(Name("b", 2), b, 30, 31)});
  EXPECT_EQ(ReasonOfItem(result, 0), "NON_FINITE");
  EXPECT_EQ(result.header.items(0).error_stage(), GetParam());
  EXPECT_EQ(result.header.items(0).error().node(), "node" + std::to_string(GetParam()));
  EXPECT_EQ(result.header.items(0).tokens_size(), 0);
  EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(model, b, 1)[0]);
  // Stages before it computed and kept the item; it and those after hold what was there before.
  for (uint32_t s = 0; s < 3; ++s) {
    EXPECT_EQ(FreePages(result, static_cast<int>(s)), 64u - 2 - 2);
  }
  const auto name = Name("a", 1);
  EXPECT_EQ(ReasonOfCommand(steps_.Run({}, {Truncate(name, a)})), "");
  a.push_back(7);
  EXPECT_EQ(TokenOf(steps_.Run({Item(name, a, 20, 21)})), ExpectedTokens(model, a, 1)[0]);
}

TEST_P(NonFinite, APrefillThatWantsNoRowsIsCheckedToo) {
  auto ids = CleanPrompt(20, 1);
  ids[10] = kPoison;
  v1::StepItem item = Item(Name("a", 1), ids, 0, 20);
  item.set_sample(false);
  const ResultMessage result = steps_.Run({item});
  EXPECT_EQ(ReasonOfItem(result), "NON_FINITE");
  EXPECT_EQ(FreePages(result, static_cast<int>(GetParam())), 64u);
  // What it created is there, without tokens, until it is released; later stages never saw it.
  EXPECT_EQ(chain_.runner(GetParam()).stats().sequences, 1u);
  steps_.Run({}, {Release(Name("a", 1))});
  for (uint32_t s = 0; s < 3; ++s) {
    EXPECT_EQ(chain_.runner(s).stats().sequences, 0u);
  }
}

TEST_P(NonFinite, LogitsOfAFailedItemAreNotSent) {
  auto bad = CleanPrompt(8, 1);
  bad[5] = kPoison;  // Its first rows are good.
  const auto good = CleanPrompt(4, 2);
  v1::StepItem first = Item(Name("a", 1), good, 0, 4);
  v1::StepItem second = Item(Name("b", 2), bad, 0, 8);
  v1::StepItem third = Item(Name("c", 3), good, 0, 4);
  for (v1::StepItem* item : {&first, &second, &third}) {
    item->set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  }
  const ResultMessage result = steps_.Run({first, second, third});
  EXPECT_EQ(ReasonOfItem(result, 1), "NON_FINITE");
  EXPECT_EQ(result.header.items(1).payload_rows(), 0u);
  std::vector<float> want;
  for (int twice = 0; twice < 2; ++twice) {
    for (const auto& row : HashLogits(chain_.options().model, good)) {
      want.insert(want.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ(result.payload, want);
}

TEST(Failure, ActivationsThatArriveNonFiniteAreNotComputed) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const auto ids = Prompt(6, 1);
  auto first = chain.runner(0).Step(
      steps.Frame({Item(Name("a", 1), ids, 0, 3), Item(Name("b", 2), ids, 0, 6)}));
  ASSERT_TRUE(first.ok());
  StepMessage frame = std::get<StepMessage>(*first);
  frame.payload[1] = std::numeric_limits<float>::infinity();
  auto second = chain.runner(1).Step(frame);
  ASSERT_TRUE(second.ok());
  const ResultMessage result = std::get<ResultMessage>(*second);
  EXPECT_EQ(ReasonOfItem(result, 0), "NON_FINITE");
  EXPECT_EQ(result.header.items(0).error_stage(), 1u);
  EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(chain.options().model, ids, 1)[0]);
  EXPECT_EQ(chain.shard(1).rows_computed(), 6u);
  EXPECT_EQ(chain.runner(1).stats().sequences, 1u);
}

TEST(Failure, ADeviceThatFailsOnceIsAskedAgainAndNoRequestFails) {
  for (const uint32_t failing : {0u, 1u}) {
    Chain chain({.stages = 2});
    Steps steps(&chain);
    const auto ids = Prompt(20, 1);
    steps.Run({Item(Name("a", 1), ids, 0, 18)});
    for (const bool alone : {true, false}) {
      chain.shard(failing).FailNextRead();
      std::vector<v1::StepItem> items = {Item(Name("a", 1), ids, 18, 20)};
      if (!alone) {
        items.push_back(Item(Name("b", 2), ids, 0, 20));
      }
      const ResultMessage result = steps.Run(items);
      for (int item = 0; item < result.header.items_size(); ++item) {
        EXPECT_EQ(ReasonOfItem(result, item), "");
        EXPECT_EQ(TokenOf(result, item), ExpectedTokens(chain.options().model, ids, 1)[0]);
      }
      steps.Run({}, {Truncate(Name("a", 1), std::span(ids).first(18))});
    }
    EXPECT_EQ(chain.runner(failing).stats().backend_failures, 2u);
  }
}

// `count` requests of which those at `bad` hold a token that stage `failing` of 2 fails at.
void ExpectOnlyTheseFail(int count, const std::vector<int>& bad, uint32_t failing, bool logits) {
  SCOPED_TRACE(std::to_string(count) + " items, the first bad one " + std::to_string(bad[0]));
  Chain chain({.stages = 2, .pages = {256}});
  Steps steps(&chain);
  chain.shard(failing).FailAtToken(kPoison);
  std::vector<v1::StepItem> items;
  std::vector<std::vector<uint32_t>> prompts;
  for (int i = 0; i < count; ++i) {
    auto& ids = prompts.emplace_back(CleanPrompt(3 + static_cast<uint32_t>(i) % 5, 1 + i));
    if (std::find(bad.begin(), bad.end(), i) != bad.end()) {
      ids[1] = kPoison;
    }
    items.push_back(Item(Name("r", 1 + i), ids, 0, static_cast<uint32_t>(ids.size())));
    items.back().set_rows_wanted(logits ? v1::ROWS_WANTED_LOGITS : v1::ROWS_WANTED_NONE);
  }
  const ResultMessage result = steps.Run(items);
  std::vector<float> want;
  uint64_t good_tokens = 0;
  for (int i = 0; i < count; ++i) {
    const auto& ids = prompts[static_cast<size_t>(i)];
    if (std::find(bad.begin(), bad.end(), i) != bad.end()) {
      EXPECT_EQ(ReasonOfItem(result, i), "BACKEND_FAILED");
      EXPECT_EQ(result.header.items(i).error_stage(), failing);
      EXPECT_EQ(result.header.items(i).error().node(), "node" + std::to_string(failing));
      continue;
    }
    ++good_tokens;
    EXPECT_EQ(ReasonOfItem(result, i), "") << i;
    EXPECT_EQ(TokenOf(result, i), ExpectedTokens(chain.options().model, ids, 1)[0]) << i;
    for (const auto& row : HashLogits(chain.options().model, ids)) {
      want.insert(want.end(), row.begin(), row.end());
    }
  }
  if (logits) {
    EXPECT_EQ(result.payload, want);
  }
  // What failed holds nothing where it failed, and what did not can go on.
  EXPECT_EQ(FreePages(result, static_cast<int>(failing)), 256u - good_tokens);
  // Each costs its halves, and itself once more.
  const auto halves = static_cast<uint64_t>(std::ceil(std::log2(count)));
  EXPECT_LE(chain.runner(failing).stats().backend_failures, bad.size() * (halves + 2));
}

TEST(Failure, ADeviceThatFailsOnlyAtTheLastLayersKeysIsAskedAgainToo) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const auto ids = Prompt(20, 1);
  v1::StepItem part = Item(Name("a", 1), ids, 0, 18);
  part.set_sample(false);
  chain.shard(1).FailNextRead(/*others=*/1);
  EXPECT_EQ(ReasonOfItem(steps.Run({part}), 0), "");
  EXPECT_EQ(chain.runner(1).stats().backend_failures, 1u);
  EXPECT_EQ(TokenOf(steps.Run({Item(Name("a", 1), ids, 18, 20)})),
            ExpectedTokens(chain.options().model, ids, 1)[0]);
}

TEST(Failure, OnlyTheItemThatADeviceFailsAtFailsWhereverItStands) {
  for (const uint32_t failing : {0u, 1u}) {
    for (int bad = 0; bad < 8; ++bad) {
      ExpectOnlyTheseFail(8, {bad}, failing, /*logits=*/bad % 2 == 0);
    }
    ExpectOnlyTheseFail(1, {0}, failing, false);
    ExpectOnlyTheseFail(2, {1}, failing, true);
    ExpectOnlyTheseFail(7, {0, 1, 2}, failing, true);
    ExpectOnlyTheseFail(13, {3, 12}, failing, true);
  }
}

TEST(Failure, ADeviceThatComputesNothingIsNotAskedForEveryItem) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  chain.shard(1).FailReads(true);
  std::vector<v1::StepItem> items;
  for (uint64_t i = 1; i <= 16; ++i) {
    items.push_back(Item(Name("r", i), Prompt(3, 1), 0, 3));
  }
  const ResultMessage result = steps.Run(items);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(ReasonOfItem(result, i), "BACKEND_FAILED");
  }
  EXPECT_LE(chain.runner(1).stats().backend_failures, 12u);
  chain.shard(1).FailReads(false);
  const auto ids = Prompt(3, 2);
  EXPECT_EQ(TokenOf(steps.Run({Item(Name("after", 99), ids, 0, 3)})),
            ExpectedTokens(chain.options().model, ids, 1)[0]);
}

// No request is to blame: the step has no results, and is not tried in halves.
TEST(Failure, ADeviceThatFailsForGoodFailsTheStepAndNoItem) {
  for (const uint32_t failing : {0u, 1u}) {
    Chain chain({.stages = 2});
    Steps steps(&chain);
    std::vector<v1::StepItem> items;
    for (uint64_t i = 1; i <= 6; ++i) {
      items.push_back(Item(Name("r", i), Prompt(3, 1), 0, 3));
    }
    chain.shard(failing).FailForGood();
    StepMessage frame = steps.Frame(items);
    if (failing == 1) {
      auto first = chain.runner(0).Step(std::move(frame));
      ASSERT_TRUE(first.ok()) << first.status();
      frame = std::get<StepMessage>(*std::move(first));
    }
    const auto output = chain.runner(failing).Step(std::move(frame));
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(output.status()), "DEVICE_FAILED");
    EXPECT_EQ(DetailOf(output.status()).node(), "node" + std::to_string(failing));
    EXPECT_EQ(chain.shard(failing).reads_failed_for_good(), 1u);
    EXPECT_EQ(chain.runner(failing).stats().backend_failures, 1u);
  }
}

// As of a lost rank of the stage.
TEST(Failure, ARankThatIsLostFailsTheStepAndNoItem) {
  Chain chain;
  Steps steps(&chain);
  chain.shard(0).FailForGood(kRanksBroken);
  const auto output = chain.runner(0).Step(steps.Frame(
      {Item(Name("a", 1), Prompt(3, 1), 0, 3), Item(Name("b", 2), Prompt(3, 1), 0, 3)}));
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(output.status()), "RANKS_BROKEN");
  EXPECT_EQ(chain.shard(0).reads_failed_for_good(), 1u);
}

TEST(Failure, ADeviceThatFailsForGoodAtAPageCopyFailsTheStepToo) {
  Chain chain;
  Steps steps(&chain);
  auto ids = Prompt(20, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 20)});
  steps.Run({}, {Fork(Name("a", 1), Name("b", 2), ids)});
  ids.push_back(3);
  chain.shard(0).FailForGood();
  const auto output = chain.runner(0).Step(steps.Frame({Item(Name("b", 2), ids, 20, 21)}));
  EXPECT_EQ(ReasonOf(output.status()), "DEVICE_FAILED");
}

TEST(Failure, AFailedPageCopyChangesNothing) {
  Chain chain;
  Steps steps(&chain);
  auto ids = Prompt(20, 1);
  steps.Run({Item(Name("a", 1), ids, 0, 20)});
  steps.Run({}, {Fork(Name("a", 1), Name("b", 2), ids)});
  ids.push_back(3);
  chain.shard(0).FailNextCopy();
  ResultMessage result = steps.Run({Item(Name("b", 2), ids, 20, 21)});
  EXPECT_TRUE(result.header.items(0).has_error());
  EXPECT_EQ(FreePages(result), 64u - 2);
  result = steps.Run({Item(Name("b", 2), ids, 20, 21)});
  EXPECT_EQ(TokenOf(result), ExpectedTokens(chain.options().model, ids, 1)[0]);
  EXPECT_EQ(FreePages(result), 64u - 3);
}

}  // namespace
}  // namespace strata
