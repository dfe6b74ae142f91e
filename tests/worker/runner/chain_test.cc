// What a pipeline answers, whatever the number of stages, chunks and neighbours.
#include "tests/worker/runner/chain.h"

#include "worker/sampler/sampler.h"

namespace strata {
namespace {

using namespace strata::testing;  // NOLINT(google-build-using-namespace)

TEST(Chain, OneTwoThreeAndPerLayerStagesGiveTheSameTokens) {
  for (const uint32_t stages : {1u, 2u, 3u, 6u}) {
    for (const uint32_t chunk : {1u, 7u, 16u, 200u}) {
      Chain chain({.stages = stages});
      Steps steps(&chain);
      const auto prompt = Prompt(39, 1);
      EXPECT_EQ(Generate(&steps, Name("a", 1), prompt, chunk, 12),
                ExpectedTokens(chain.options().model, prompt, 12))
          << stages << " stages, chunks of " << chunk;
    }
  }
}

TEST(Chain, BatchNeighboursChangeNothing) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  std::vector<std::vector<uint32_t>> ids;
  std::vector<std::vector<uint32_t>> want;
  std::vector<uint32_t> held(5, 0);
  for (uint32_t i = 0; i < 5; ++i) {
    ids.push_back(Prompt(5 + 11 * i, i));
    want.push_back(ids.back());
    for (const uint32_t id : ExpectedTokens(chain.options().model, ids.back(), 10)) {
      want.back().push_back(id);
    }
  }
  for (int step = 0; step < 10; ++step) {
    std::vector<v1::StepItem> items;
    for (uint32_t i = 0; i < 5; ++i) {
      const auto end = static_cast<uint32_t>(ids[i].size());
      items.push_back(Item(Name("r", 1 + i), ids[i], held[i], end));
      held[i] = end;
    }
    const ResultMessage result = steps.Run(items);
    for (uint32_t i = 0; i < 5; ++i) {
      ids[i].push_back(TokenOf(result, static_cast<int>(i)));
    }
  }
  EXPECT_EQ(ids, want);
}

TEST(Chain, LogitsRowsComeInItemOrderFromTheRowsWanted) {
  Chain chain({.stages = 3});
  Steps steps(&chain);
  const ModelSpec& model = chain.options().model;
  const auto a = Prompt(20, 1);
  const auto b = Prompt(6, 2);
  v1::StepItem first = Item(Name("a", 1), a, 0, 20);
  first.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  first.set_rows_from(17);
  first.set_sample(false);
  v1::StepItem second = Item(Name("b", 2), b, 0, 6);  // Samples only.
  v1::StepItem third = Item(Name("c", 3), b, 0, 6);
  third.set_rows_wanted(v1::ROWS_WANTED_LOGITS);
  const ResultMessage result = steps.Run({first, second, third});
  std::vector<float> want;
  const auto of_a = HashLogits(model, a);
  for (size_t row = 17; row < 20; ++row) {
    want.insert(want.end(), of_a[row].begin(), of_a[row].end());
  }
  for (const auto& row : HashLogits(model, b)) {
    want.insert(want.end(), row.begin(), row.end());
  }
  EXPECT_EQ(result.payload, want);
  EXPECT_EQ(result.header.items(0).payload_rows(), 3u);
  EXPECT_EQ(result.header.items(1).payload_rows(), 0u);
  EXPECT_EQ(result.header.items(2).payload_rows(), 6u);
  EXPECT_EQ(result.header.items(0).tokens_size(), 0);
  EXPECT_EQ(TokenOf(result, 1), TokenOf(result, 2));
  // Rows of which nobody asked for logits went through no head, and ended with the last layer's
  // keys and values.
  EXPECT_EQ(chain.shard(2).head_rows(), 3u + 1 + 6);
  EXPECT_EQ(chain.shard(2).last_mlp_rows(), 3u + 1 + 6);
}

TEST(Chain, PartsThatNobodySamplesLeaveTheLastLayersKeysAndValues) {
  for (const uint32_t stages : {1u, 3u}) {
    Chain chain({.stages = stages});
    Steps steps(&chain);
    const auto ids = Prompt(30, 1);
    for (uint32_t at = 0; at < 24; at += 8) {
      v1::StepItem part = Item(Name("a", 1), ids, at, at + 8);
      part.set_sample(false);
      EXPECT_EQ(ReasonOfItem(steps.Run({part}), 0), "");
    }
    const HashShard& last = chain.shard(stages - 1);
    EXPECT_EQ(last.last_mlp_rows(), 0u);
    EXPECT_EQ(TokenOf(steps.Run({Item(Name("a", 1), ids, 24, 30)}), 0),
              Argmax(HashLogits(chain.options().model, ids).back()));
    EXPECT_EQ(last.last_mlp_rows(), 1u);
    EXPECT_EQ(last.rows_computed(), 30u);
  }
}

TEST(Chain, LogprobsAreOfTheIdThatFollowsEachRow) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const ModelSpec& model = chain.options().model;
  const auto ids = Prompt(10, 3);
  Sampler sampler(model.vocab);
  const auto logits = HashLogits(model, ids);
  auto want = [&](uint32_t row) {
    return sampler.Logprob(logits[row], ids[row + 1], 2)->SerializeAsString();
  };
  v1::StepItem head = Item(Name("a", 1), ids, 0, 6);
  head.mutable_params()->set_prompt_top_logprobs(2);
  head.mutable_params()->set_prompt_length(10);
  head.mutable_params()->set_logprobs(true);
  head.mutable_params()->set_top_logprobs(3);
  head.set_rows_wanted(v1::ROWS_WANTED_LOGPROBS);
  head.set_rows_from(1);
  head.set_following_id(ids[6]);
  head.set_sample(false);
  ResultMessage result = steps.Run({head});
  ASSERT_EQ(result.header.items(0).row_logprobs_size(), 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(result.header.items(0).row_logprobs(i).SerializeAsString(),
              want(static_cast<uint32_t>(i) + 1));
  }
  v1::StepItem tail = Item(Name("a", 1), ids, 6, 10);
  tail.set_rows_wanted(v1::ROWS_WANTED_LOGPROBS);
  result = steps.Run({tail});
  // Nothing follows the last row, but a token is sampled after it, with its logprobs.
  ASSERT_EQ(result.header.items(0).row_logprobs_size(), 3);
  EXPECT_EQ(result.header.items(0).row_logprobs(2).SerializeAsString(), want(8));
  ASSERT_EQ(result.header.items(0).tokens_size(), 1);
  const uint32_t token = Argmax(logits[9]);
  EXPECT_EQ(result.header.items(0).tokens(0).SerializeAsString(),
            sampler.Logprob(logits[9], token, 3)->SerializeAsString());
}

TEST(Chain, ParametersTravelWithTheCreationAndPenaltiesSeeTheWholeHistory) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const ModelSpec& model = chain.options().model;
  auto ids = Prompt(9, 4);
  v1::SequenceParams params = Greedy();
  params.set_prompt_length(9);
  params.mutable_sampling()->set_temperature(0.9f);
  params.mutable_sampling()->set_repetition_penalty(1.4f);
  params.mutable_sampling()->set_frequency_penalty(0.7f);
  params.mutable_sampling()->set_choice(3);
  Sampler sampler(model.vocab);
  uint32_t position = 0;
  for (int i = 0; i < 20; ++i) {
    v1::StepItem item = Item(Name("a", 1), ids, position, static_cast<uint32_t>(ids.size()));
    if (position == 0) {
      *item.mutable_params() = params;
    }
    const uint32_t token = TokenOf(steps.Run({item}));
    EXPECT_EQ(token, *sampler.Sample({&params.sampling(), 9, ids}, HashLogits(model, ids).back()));
    position = static_cast<uint32_t>(ids.size());
    ids.push_back(token);
  }
}

TEST(Chain, EveryStageAppendsItsPagesAndTime) {
  Chain chain({.stages = 3});
  Steps steps(&chain);
  const auto ids = Prompt(33, 1);
  ResultMessage result = steps.Run({Item(Name("a", 1), ids, 0, 33)});
  ASSERT_EQ(result.header.stages_size(), 3);
  for (uint32_t s = 0; s < 3; ++s) {
    const v1::StageKv& kv = result.header.stages(static_cast<int>(s));
    EXPECT_EQ(kv.stage(), s);
    EXPECT_EQ(kv.total_pages(0), 64u);
    EXPECT_EQ(kv.free_pages(0), 61u);
    EXPECT_EQ(kv.compute_ms(), 1.0);
  }
  result = steps.Run({}, {Release(Name("a", 1))});
  EXPECT_EQ(FreePages(result, 2), 64u);
}

// A step of commands only, or of nothing, has a result too, and needs no arithmetic.
TEST(Chain, AStepWithoutItemsHasAResult) {
  Chain chain({.stages = 2});
  Steps steps(&chain);
  const ResultMessage result = steps.Run({});
  EXPECT_EQ(result.header.step(), 1u);
  EXPECT_EQ(result.header.epoch(), kEpoch);
  EXPECT_EQ(result.header.deployment(), kDeployment);
  EXPECT_EQ(chain.shard(0).rows_computed(), 0u);
}

// Pages go round among requests of mixed lengths; each answer is that of an empty pool.
TEST(Chain, ConsecutiveRequestsReuseIdsAndPages) {
  Chain chain({.stages = 2, .pages = {8}});
  Steps steps(&chain);
  auto first = Prompt(39, 1);
  auto second = Prompt(38, 2);
  std::copy(first.begin(), first.begin() + 20, second.begin());
  for (uint64_t generation = 1; generation < 40; ++generation) {
    const auto& prompt = generation % 2 == 0 ? second : first;
    const auto want = ExpectedTokens(chain.options().model, prompt, 5);
    EXPECT_EQ(Generate(&steps, Name("same", generation), prompt, 10 + generation, 5), want);
    const ResultMessage result = steps.Run({}, {Release(Name("same", generation))});
    EXPECT_EQ(FreePages(result, 0), 8u);
    EXPECT_EQ(FreePages(result, 1), 8u);
  }
}

}  // namespace
}  // namespace strata
