#include "tests/cluster/threaded_cluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "common/status.h"
#include "tests/eventually.h"

namespace strata::testing {
namespace {

using std::chrono::seconds;

DeploymentOptions Options(nanoseconds step_timeout = kGiveUpAfter) {
  DeploymentOptions options;
  options.step_timeout = step_timeout;
  return options;
}

std::vector<uint32_t> Prompt(std::mt19937* rng, size_t length, uint32_t vocab) {
  std::vector<uint32_t> prompt(length);
  for (uint32_t& id : prompt) {
    id = static_cast<uint32_t>((*rng)() % vocab);
  }
  return prompt;
}

void ExpectAllFree(ThreadedCluster* cluster) {
  const auto all_free = [&] {
    for (const KvSnapshot& kv : cluster->Snapshot().kv) {
      if (kv.free + kv.cached != kv.total) {
        return false;
      }
    }
    return true;
  };
  EXPECT_TRUE(Eventually(all_free));
  EXPECT_EQ(cluster->Snapshot().counters.ledger_mismatches, 0u);
}

// One client: sends requests one after another, each to be right, abandoned or refused with a type.
void Client(ThreadedCluster* cluster, int number, int requests, bool faults,
            std::atomic<int>* answered) {
  std::mt19937 rng(static_cast<uint32_t>(number));
  for (int i = 0; i < requests; ++i) {
    const std::string id = "client" + std::to_string(number);
    const std::vector<uint32_t> prompt = Prompt(&rng, 1 + rng() % 40, cluster->vocab());
    const uint32_t max_tokens = 1 + rng() % 12;
    auto sink = std::make_shared<WaitingSink>();
    const absl::Status submitted = cluster->Submit(id, prompt, max_tokens, sink);
    if (!submitted.ok()) {
      ASSERT_TRUE(faults) << submitted;
      ASSERT_NE(ReasonOf(submitted), "");
      ASSERT_TRUE(cluster->WaitReady(kGiveUpAfter));
      continue;
    }
    if (rng() % 5 == 0) {
      sink->WaitFor(rng() % (max_tokens + 1), kGiveUpAfter);
      cluster->Cancel(id);
    }
    ASSERT_TRUE(sink->WaitForEnd(kGiveUpAfter)) << "a request that never ends";
    if (!sink->status().ok()) {
      ASSERT_TRUE(faults) << sink->status();
      ASSERT_NE(ReasonOf(sink->status()), "");
      continue;
    }
    std::vector<uint32_t> right = cluster->Oracle(prompt, max_tokens);
    if (sink->reason() == "cancelled") {
      right.resize(std::min(right.size(), sink->tokens().size()));
    } else {
      ++*answered;
    }
    ASSERT_EQ(sink->tokens(), right);
  }
}

void RunClients(ThreadedCluster* cluster, int clients, int requests, bool faults,
                std::atomic<int>* answered) {
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([=] { Client(cluster, i, requests, faults, answered); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ThreadedCluster, ExoAShorterRequestAfterALongerOneHasItsOwnAnswer) {
  ThreadedCluster cluster(4, 64, Options());
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  std::mt19937 rng(1);
  std::vector<uint32_t> first = Prompt(&rng, 39, cluster.vocab());
  std::vector<uint32_t> second(first.begin(), first.begin() + 20);
  const std::vector<uint32_t> rest = Prompt(&rng, 18, cluster.vocab());
  second.insert(second.end(), rest.begin(), rest.end());
  for (const auto& prompt : {first, second, first}) {
    auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(cluster.Submit("same", prompt, 8, sink).ok());
    ASSERT_TRUE(sink->WaitForEnd(kGiveUpAfter));
    EXPECT_EQ(sink->tokens(), cluster.Oracle(prompt, 8));
  }
  ExpectAllFree(&cluster);
}

TEST(ThreadedCluster, MiniCpmOfTwoWithOneIdOneIsServed) {
  ThreadedCluster cluster(2, 64, Options());
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  std::mt19937 rng(2);
  for (int round = 0; round < 20; ++round) {
    const std::vector<uint32_t> prompt = Prompt(&rng, 30, cluster.vocab());
    std::atomic<int> served = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        auto sink = std::make_shared<WaitingSink>();
        const absl::Status status = cluster.Submit("same", prompt, 30, sink);
        if (!status.ok()) {
          EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
          return;
        }
        ++served;
        EXPECT_TRUE(sink->WaitForEnd(kGiveUpAfter));
        EXPECT_EQ(sink->tokens(), cluster.Oracle(prompt, 30));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_GE(served, 1);
  }
  ExpectAllFree(&cluster);
}

TEST(ThreadedCluster, CandleShortAndLongPromptsAtOnceOnOneModel) {
  ThreadedCluster cluster(3, 128, Options());
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  std::atomic<int> answered = 0;
  RunClients(&cluster, 10, 15, /*faults=*/false, &answered);
  EXPECT_GT(answered, 75);
  ExpectAllFree(&cluster);
}

TEST(ThreadedCluster, LoraxManyRequestsOnAPoolForFewAreAllAnswered) {
  ThreadedCluster cluster(2, 24, Options());  // Six of 52 tokens.
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  std::mt19937 rng(3);
  std::vector<std::vector<uint32_t>> prompts;
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < 64; ++i) {
    prompts.push_back(Prompt(&rng, 1 + rng() % 40, cluster.vocab()));
    sinks.push_back(std::make_shared<WaitingSink>());
    ASSERT_TRUE(cluster.Submit("r" + std::to_string(i), prompts.back(), 12, sinks.back()).ok());
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->WaitForEnd(kGiveUpAfter));
    EXPECT_EQ(sinks[i]->tokens(), cluster.Oracle(prompts[i], 12));
  }
  ExpectAllFree(&cluster);
}

TEST(ThreadedCluster, UnderFaultsEveryRequestIsRightOrTyped) {
  // As long as a fault may go unnoticed: who is failed for it is told so.
  ThreadedCluster cluster(3, 64, Options(seconds(5)));
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  std::atomic<bool> stop = false;
  std::thread chaos([&] {
    std::mt19937 rng(9);
    while (!stop) {
      std::this_thread::sleep_for(milliseconds(1 + rng() % 20));
      switch (rng() % 4) {
        case 0:
          cluster.RestartWorker(rng() % 3);
          break;
        case 1:
          cluster.Resize(48 + 16 * (rng() % 3)).IgnoreError();
          break;
        default:
          cluster.BreakLink(rng() % 8);
      }
    }
  });
  std::atomic<int> answered = 0;
  RunClients(&cluster, 6, 300, /*faults=*/true, &answered);
  stop = true;
  chaos.join();
  EXPECT_GT(answered, 0);
  ASSERT_TRUE(cluster.WaitReady(kGiveUpAfter));
  RunClients(&cluster, 4, 5, /*faults=*/true, &answered);
  ExpectAllFree(&cluster);
}

}  // namespace
}  // namespace strata::testing
