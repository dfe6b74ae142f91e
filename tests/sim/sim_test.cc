// What the simulation stands on: its arithmetic, its reproducibility, its shrinking.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/exact_model.h"
#include "tests/sim/random.h"
#include "tests/sim/shrink.h"
#include "tests/sim/simulation.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/runner/sequence_table.h"
#include "worker/sampler/sampler.h"

namespace strata::sim {
namespace {

// One worker with all layers, less the step rule: a sequence table over the hash arithmetic.
class OneWorker {
 public:
  static constexpr uint64_t kPages = 24;

  explicit OneWorker(uint32_t layers) : sampler_(kVocab) {
    spec_.model = ExactModelSpec(layers);
    spec_.last_layer = layers - 1;
    spec_.embeds = spec_.heads = true;
    spec_.kv_pages = {kPages};
    pool_ = std::make_unique<KvPool>(spec_.kv_pages);
    shard_ = std::make_unique<testing::HashShard>(spec_);
    table_ = std::make_unique<SequenceTable>(spec_, std::vector<Fingerprint>{1}, pool_.get(),
                                             shard_.get());
  }

  Sequence* Create(const std::string& id, const v1::SequenceParams& params) {
    return table_->Create(id, ++generation_, params);
  }

  // Computes `ids` after what the sequence has; the token that follows.
  uint32_t Run(Sequence* sequence, const std::vector<uint32_t>& ids) {
    const uint32_t position = sequence->length();
    EXPECT_TRUE(table_->CheckPages(sequence, static_cast<uint32_t>(ids.size())).ok());
    EXPECT_TRUE(table_->Append(sequence, ids).ok());
    const auto rows = static_cast<uint32_t>(ids.size());
    const std::vector<PageTableView> views = table_->Views(*sequence);
    const std::vector<BatchItem> items = {{0, rows, position, views}};
    EXPECT_TRUE(shard_->Begin({rows, ids, items}).ok() && shard_->Embed().ok());
    for (uint32_t layer = 0; layer <= spec_.last_layer; ++layer) {
      EXPECT_TRUE(shard_->Attention(layer).ok() && shard_->Mlp(layer).ok());
    }
    const std::vector<uint32_t> last = {rows - 1};
    std::vector<float> logits(kVocab);
    EXPECT_TRUE(shard_->Head(last).ok() && shard_->ReadLogits(logits).ok());
    return sampler_.Sample(SampleRequestOf(sequence->params, sequence->ids), logits).value();
  }

  std::vector<uint32_t> Generate(Sequence* sequence, std::vector<uint32_t> next, size_t count) {
    std::vector<uint32_t> answer;
    while (answer.size() < count) {
      answer.push_back(Run(sequence, next));
      next = {answer.back()};
    }
    return answer;
  }

 private:
  StageSpec spec_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<testing::HashShard> shard_;
  std::unique_ptr<SequenceTable> table_;
  Sampler sampler_;
  uint64_t generation_ = 0;
};

std::vector<uint32_t> DrawPrompt(Random* random, uint32_t length) {
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < length; ++i) {
    prompt.push_back(random->Below(kVocab));
  }
  return prompt;
}

TEST(ExactModel, IsWhatPagedArithmeticComputes) {
  Random random(1);
  for (uint32_t length = 1; length < 60; length += 7) {
    OneWorker worker(1 + length % 4);
    v1::SequenceParams params = GreedyParams();
    params.mutable_sampling()->set_temperature(static_cast<float>(length % 2));
    params.mutable_sampling()->set_seed(length);
    params.set_prompt_length(length);
    const std::vector<uint32_t> prompt = DrawPrompt(&random, length);
    EXPECT_EQ(worker.Generate(worker.Create("r", params), prompt, 12),
              ExactAnswer(ExactModelSpec(1 + length % 4), prompt, params, 12));
  }
}

// Twelve tokens: one of 127 may come out right by chance, not twelve.
TEST(ExactModel, OneWrongPageTableEntryChangesTheTokensThatFollow) {
  constexpr size_t kTokens = 12;
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    const uint32_t layers = random.Between(1, 4);
    OneWorker worker(layers);
    v1::SequenceParams params = GreedyParams();
    params.set_prompt_length(1);
    // Somebody else's pages are there to be read too.
    worker.Run(worker.Create("other", params), DrawPrompt(&random, random.Between(1, 100)));
    Sequence* sequence = worker.Create("r", params);
    const std::vector<uint32_t> prompt = DrawPrompt(&random, random.Between(1, 100));
    std::vector<uint32_t> expected =
        ExactAnswer(ExactModelSpec(layers), prompt, params, kTokens + 1);
    const uint32_t next = worker.Run(sequence, prompt);
    ASSERT_EQ(next, expected.front());
    expected.erase(expected.begin());
    std::vector<PageId>& pages = sequence->tables[0].pages;
    PageId& entry = pages[random.Below(pages.size())];
    entry = (entry + random.Between(1, OneWorker::kPages - 1)) % OneWorker::kPages;
    EXPECT_NE(worker.Generate(sequence, {next}, kTokens), expected) << "round " << round;
  }
}

TEST(Simulation, ASeedReproducesARunExactly) {
  for (uint64_t seed = 591; seed <= 620; ++seed) {
    const Scenario scenario = MakeScenario(seed);
    const Outcome once = Simulate(scenario, /*tell=*/true);
    const Outcome again = Simulate(MakeScenario(seed), /*tell=*/true);
    EXPECT_EQ(once.finding, std::nullopt);
    EXPECT_EQ(once.events, again.events);
    EXPECT_TRUE(once.story == again.story) << "seed " << seed;
    EXPECT_FALSE(once.story.empty());
  }
}

TEST(Scenario, HasRanksInAQuarter) {
  constexpr int kSeeds = 4000;
  int with_ranks = 0;
  int everywhere = 0;
  for (uint64_t seed = 1001; seed <= 1000 + kSeeds; ++seed) {
    const Scenario scenario = MakeScenario(seed);
    with_ranks += scenario.ranks > 1 ? 1 : 0;
    everywhere += scenario.ranks_everywhere ? 1 : 0;
    if (scenario.ranks > 1) {
      EXPECT_EQ(scenario.standby, 0u) << "seed " << seed;
      EXPECT_GE(scenario.workers, scenario.stages + scenario.ranks - 1) << "seed " << seed;
    }
  }
  EXPECT_NEAR(with_ranks, kSeeds / 4, kSeeds / 50);
  EXPECT_NEAR(everywhere, with_ranks / 2, kSeeds / 50);
}

TEST(Shrink, KeepsWhatTheFailureNeedsAndNothingElse) {
  Scenario scenario;
  scenario.requests.resize(30);
  scenario.faults.resize(9);
  const auto has = [](const std::vector<size_t>& list, size_t entry) {
    return std::find(list.begin(), list.end(), entry) != list.end();
  };
  const auto fails = [&has](const Part& part) {
    return has(part.requests, 3) && has(part.requests, 17) && has(part.faults, 8);
  };
  const Part part = Shrink(scenario, fails, /*budget=*/1000);
  EXPECT_EQ(part.requests, (std::vector<size_t>{3, 17}));
  EXPECT_EQ(part.faults, (std::vector<size_t>{8}));
}

TEST(Counts, NameWhatNeverHappened) {
  Counts counts;
  counts.faults.fill(1);
  counts.rules.fill(1);
  EXPECT_EQ(counts.Missing(), "");
  counts.rules[static_cast<size_t>(Rule::kStepGap)] = 0;
  EXPECT_EQ(counts.Missing(), std::string(NameOf(Rule::kStepGap)));
}

}  // namespace
}  // namespace strata::sim
