// A device that finds the largest logit itself is asked for no logits where nothing else is wanted
// of them, and answers are the same.
#include <string>

#include "tests/worker/runner/chain.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kPoison = 96;

// The same steps through a chain whose last stage finds the largest, and through one that does not.
class Largest : public ::testing::Test {
 protected:
  Largest() { finds().FindLargest(); }
  HashShard& finds() { return found_.shard(1); }

  // The result of both, which are equal.
  ResultMessage Run(const std::vector<v1::StepItem>& items) {
    ResultMessage found = found_steps_.Run(items);
    const ResultMessage read = read_steps_.Run(items);
    for (int i = 0; i < read.header.items_size(); ++i) {
      EXPECT_EQ(found.header.items(i).DebugString(), read.header.items(i).DebugString()) << i;
    }
    EXPECT_EQ(found.payload, read.payload);
    return found;
  }

  Chain found_{{.stages = 2}};
  Chain read_{{.stages = 2}};
  Steps found_steps_{&found_};
  Steps read_steps_{&read_};
};

TEST_F(Largest, IsReadInPlaceOfLogitsAtTemperatureZero) {
  auto ids = Prompt(20, 1);
  const auto name = Name("a", 1);
  ids.push_back(TokenOf(Run({Item(name, ids, 0, 20)})));
  for (uint32_t i = 21; i < 26; ++i) {
    ids.push_back(TokenOf(Run({Item(name, ids, i - 1, i)})));
  }
  const std::vector<uint32_t> prompt(ids.begin(), ids.begin() + 20);
  EXPECT_EQ(std::vector<uint32_t>(ids.begin() + 20, ids.end()),
            ExpectedTokens(found_.options().model, prompt, 6));
  EXPECT_EQ(finds().largest_rows(), 6u);
  EXPECT_EQ(finds().head_rows(), 0u);
}

TEST_F(Largest, OthersOfTheStepGetTheirLogits) {
  const auto ids = Prompt(12, 2);
  const auto item = [&](uint64_t number) {
    return Item(Name("r" + std::to_string(number), number), ids, 0, 12);
  };
  v1::StepItem plain = item(1);
  v1::StepItem drawn = item(2);
  drawn.mutable_params()->mutable_sampling()->set_temperature(1);
  v1::StepItem with_logprobs = item(3);
  with_logprobs.mutable_params()->set_logprobs(true);
  v1::StepItem biased = item(4);
  (*biased.mutable_params()->mutable_sampling()->mutable_logit_bias())[5] = 1e6f;
  v1::StepItem barred = item(5);
  barred.mutable_params()->set_min_tokens(2);
  barred.mutable_params()->add_stop_ids(ExpectedTokens(found_.options().model, ids, 1)[0]);
  v1::StepItem raw = item(6);
  raw.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  raw.set_rows_from(10);
  v1::StepItem digested = item(7);
  digested.set_digest_layers(true);
  const ResultMessage result = Run({plain, drawn, with_logprobs, biased, barred, raw, item(8)});
  EXPECT_EQ(finds().largest_rows(), 2u);
  EXPECT_EQ(finds().head_rows(), 4u + 2);  // Of `raw` two rows.
  EXPECT_EQ(TokenOf(result, 3), 5u);
  EXPECT_NE(TokenOf(result, 4), TokenOf(result, 0));
  Run({digested});
  EXPECT_EQ(finds().largest_rows(), 2u);
}

TEST_F(Largest, OfARowThatIsNotFiniteTheLogitsSayWhatIsWrong) {
  for (Chain* chain : {&found_, &read_}) {
    chain->shard(1).PoisonToken(kPoison, 5);
  }
  const auto good = Prompt(8, 1, kPoison);
  auto bad = good;
  bad.back() = kPoison;
  const ResultMessage result = Run({Item(Name("a", 1), bad, 0, 8), Item(Name("b", 2), good, 0, 8)});
  EXPECT_EQ(ReasonOfItem(result, 0), "NON_FINITE");
  EXPECT_EQ(TokenOf(result, 1), ExpectedTokens(found_.options().model, good, 1)[0]);
  EXPECT_EQ(finds().largest_rows(), 2u);
  EXPECT_EQ(finds().head_rows(), 1u);
}

TEST_F(Largest, ADeviceThatFailsAtItIsTriedAgain) {
  const auto ids = Prompt(8, 1);
  finds().FailNextRead();
  const ResultMessage result =
      found_steps_.Run({Item(Name("a", 1), ids, 0, 8), Item(Name("b", 2), ids, 0, 8)});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(TokenOf(result, i), ExpectedTokens(found_.options().model, ids, 1)[0]);
  }
}

}  // namespace
}  // namespace strata
