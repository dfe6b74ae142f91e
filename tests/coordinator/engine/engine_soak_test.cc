// Thousands of random events, seeded: what must hold after each, and how every session must end.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

struct Client {
  SessionRequest request;
  std::shared_ptr<SinkRecord> sink;
  bool cancelled = false;
};

class Soak {
 public:
  Soak(uint64_t seed, bool faults)
      : random_(seed), with_faults_(faults), faults_(faults), cluster_(Config()) {
    cluster_.record_frames = false;
    cluster_.Start();
    if (faults_) {
      for (uint32_t s = 0; s < cluster_.stage_count(); ++s) {
        cluster_.fake(s).before_item = [this](v1::StepItem* item) { MaybeReject(item); };
      }
    }
  }

  // Returns how often what happened.
  EngineCounters Run(int events) {
    for (int i = 0; i < events; ++i) {
      Event();
      cluster_.ExpectSums();
      if (testing::Test::HasFailure()) {
        return cluster_.Snapshot().counters;
      }
    }
    faults_ = false;
    for (uint32_t s = 0; s < cluster_.stage_count(); ++s) {
      cluster_.fake(s).leaked_pages = 0;
    }
    for (const Client& client : clients_) {
      cluster_.engine().SetPaused(client.request.key, false, cluster_.now());
    }
    cluster_.RunToEnd();
    cluster_.Settle();
    Finish();
    return cluster_.Snapshot().counters;
  }

  uint64_t completed() const { return completed_; }

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  EngineConfig Config() {
    EngineConfig config = MakeConfig(1 + Below(4), 12 + Below(60));
    config.max_batch_tokens = 1 + Below(64);
    config.max_batch_items = 1 + Below(16);
    config.max_queued_requests = Below(20);
    config.step_timeout = std::chrono::seconds(2);
    config.kv_watermark = Below(3) * 0.05;
    for (EngineStage& stage : config.stages) {
      stage.kv_pages[0] += Below(10);
    }
    return config;
  }

  void MaybeReject(v1::StepItem* item) {
    if (!faults_ || Below(400) != 0) {
      return;
    }
    static constexpr absl::StatusCode kCodes[] = {absl::StatusCode::kNotFound,
                                                  absl::StatusCode::kFailedPrecondition,
                                                  absl::StatusCode::kInternal};
    *item->mutable_error() = Error(kCodes[Below(3)], "MADE_UP", "made up").Detail();
  }

  void Submit() {
    Client client;
    // Few names, so that ids are reused while older lives of them linger.
    client.request = MakeRequest("r" + std::to_string(Below(12)), 1 + Below(120), 1 + Below(60));
    client.request.prompt[0] = Below(97);
    client.request.return_logits = Below(10) == 0;
    client.request.prompt_logprobs = !client.request.return_logits && Below(10) == 0;
    client.request.guaranteed = Below(8) == 0;
    client.request.priority = static_cast<int32_t>(Below(3)) - 1;
    client.request.cache_salt = std::string(Below(3), 't');
    if (Below(10) == 0) {
      client.request.deadline = cluster_.now() + milliseconds(1 + Below(3000));
    }
    client.sink = std::make_shared<SinkRecord>();
    const absl::Status status = cluster_.TrySubmit(client.request, client.sink);
    if (status.ok()) {
      clients_.push_back(client);
      ++accepted_;
    } else {
      EXPECT_FALSE(client.sink->ended());
      EXPECT_NE(ReasonOf(status), "");
    }
  }

  void Cancel() {
    if (clients_.empty()) {
      return;
    }
    Client& client = clients_[Below(static_cast<uint32_t>(clients_.size()))];
    if (!client.sink->ended()) {
      client.cancelled = true;
      EXPECT_TRUE(cluster_.engine().Cancel(client.request.key, absl::OkStatus(), cluster_.now()));
    }
  }

  void PauseOrGoOn() {
    if (!clients_.empty()) {
      const Client& client = clients_[Below(static_cast<uint32_t>(clients_.size()))];
      const bool pause = Below(2) == 0;
      EXPECT_TRUE(cluster_.engine().SetPaused(client.request.key, pause, cluster_.now()));
    }
  }

  void Break() {
    const uint32_t stage = Below(cluster_.stage_count());
    switch (Below(7)) {
      case 0:
        cluster_.stage(stage).Restart();
        break;  // Found by whatever comes there next.
      case 1:
        cluster_.links[stage].clear();  // Frames are lost with the link.
        break;
      case 2:
        if (!cluster_.links[stage].empty()) {
          cluster_.links[stage].push_back(cluster_.links[stage].front());
        }
        return;  // A duplicate only.
      case 3:
        if (!cluster_.results.empty()) {
          cluster_.results.push_back(cluster_.results.front());
        }
        return;
      case 4:
        if (!cluster_.results.empty()) {
          cluster_.results.front().header.clear_items();
          cluster_.results.front().header.clear_stages();
        }
        return;
      case 5:
        if (leaks_ && Below(4) == 0) {
          cluster_.fake(stage).leaked_pages = 1;
        }
        return;
      default:
        break;
    }
    cluster_.BreakLink();
  }

  void Event() {
    const uint32_t kind = Below(1000);
    if (kind < 60) {
      Submit();
    } else if (kind < 75) {
      Cancel();
    } else if (kind < 80 && faults_) {
      Break();
    } else if (kind < 82) {
      for (uint32_t s = 0; s < cluster_.stage_count(); ++s) {
        cluster_.fake(s).leaked_pages = 0;
      }
      cluster_.Advance(milliseconds(Below(faults_ ? 4000 : 500)));
    } else if (kind < 112) {
      PauseOrGoOn();
    } else if (kind < 150) {
      cluster_.AcknowledgeFence();
    } else {
      cluster_.Deliver(Below(cluster_.stage_count() + 1));
    }
    Reap();
  }

  // Checks sessions that ended, and forgets them.
  void Reap() {
    std::erase_if(clients_, [this](const Client& client) {
      if (!client.sink->ended()) {
        return false;
      }
      const std::vector<uint32_t> oracle = OracleAnswer(
          client.request.prompt, static_cast<uint32_t>(client.sink->tokens.size()), 97);
      EXPECT_EQ(client.sink->tokens, oracle);
      ++ended_;
      if (client.sink->done.has_value()) {
        EXPECT_EQ(client.sink->done->reason, client.cancelled ? "cancelled" : "length");
        if (!client.cancelled) {
          ++completed_;
          EXPECT_EQ(client.sink->tokens.size(), client.request.max_tokens);
          const uint32_t prompt = static_cast<uint32_t>(client.request.prompt.size());
          if (client.request.return_logits) {
            EXPECT_EQ(client.sink->next_row, prompt + client.request.max_tokens - 1);
          } else if (client.request.prompt_logprobs) {
            EXPECT_EQ(client.sink->next_row, prompt - 1);
          }
        }
      } else if (!with_faults_) {
        // Where few may be queued, few may wait for their readers without memory.
        EXPECT_TRUE(absl::IsDeadlineExceeded(*client.sink->failed) ||
                    ReasonOf(*client.sink->failed) == "SLOW_READER")
            << *client.sink->failed;
      }
      return true;
    });
  }

  void Finish() {
    if (!leaks_) {
      EXPECT_EQ(cluster_.Snapshot().counters.ledger_mismatches, 0u);
    }
    Reap();
    EXPECT_TRUE(clients_.empty());
    EXPECT_EQ(accepted_, ended_);
    EXPECT_TRUE(completed_ > 0 || with_faults_);
    // A fence may still be due, or the pipeline be down; it comes back and is empty.
    for (int i = 0; i < 100 && cluster_.Snapshot().state != PipelineState::kRunning; ++i) {
      cluster_.Advance(std::chrono::seconds(1));
      cluster_.Settle();
    }
    EXPECT_EQ(cluster_.Snapshot().state, PipelineState::kRunning);
    cluster_.ExpectEmpty();
  }

  std::mt19937_64 random_;
  const bool with_faults_;
  bool faults_;  // Still made.
  const bool leaks_ = random_() % 2 == 0;
  SimCluster cluster_;
  std::vector<Client> clients_;
  uint64_t accepted_ = 0, ended_ = 0, completed_ = 0;
};

TEST(EngineSoak, WithoutFaultsEverySessionIsAnswered) {
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Soak(seed, /*faults=*/false).Run(4000);
  }
}

TEST(EngineSoak, WithFaultsEverySessionEndsAndNoTokenIsWrong) {
  EngineCounters sum;
  uint64_t completed = 0;
  for (uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Soak soak(seed, /*faults=*/true);
    const EngineCounters counters = soak.Run(4000);
    completed += soak.completed();
    sum.replays += counters.replays;
    sum.rebuilds += counters.rebuilds;
    sum.preemptions += counters.preemptions;
    sum.faults += counters.faults;
    sum.fences_failed += counters.fences_failed;
    sum.item_errors += counters.item_errors;
    sum.results_discarded += counters.results_discarded;
    sum.ledger_mismatches += counters.ledger_mismatches;
    sum.done += counters.done;
    sum.failed += counters.failed;
    sum.refused += counters.refused;
    sum.steps_committed += counters.steps_committed;
  }
  // A soak in which something never happens shows nothing about it.
  for (const auto& [what, count] : std::initializer_list<std::pair<const char*, uint64_t>>{
           {"completed", completed},
           {"replays", sum.replays},
           {"rebuilds", sum.rebuilds},
           {"preemptions", sum.preemptions},
           {"faults", sum.faults},
           {"fences_failed", sum.fences_failed},
           {"item_errors", sum.item_errors},
           {"results_discarded", sum.results_discarded},
           {"ledger_mismatches", sum.ledger_mismatches},
           {"done", sum.done},
           {"failed", sum.failed},
           {"refused", sum.refused},
           {"steps_committed", sum.steps_committed}}) {
    EXPECT_GT(count, 20u) << what;
    RecordProperty(what, std::to_string(count));
  }
}

}  // namespace
}  // namespace strata
