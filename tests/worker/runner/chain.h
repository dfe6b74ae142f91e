// A pipeline of shard runners in one process, on hash shards, and frames for it.
#ifndef STRATA_TESTS_WORKER_RUNNER_CHAIN_H_
#define STRATA_TESTS_WORKER_RUNNER_CHAIN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/fingerprint.h"
#include "common/frame.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/runner/shard_runner.h"

namespace strata::testing {

inline constexpr uint64_t kDeployment = 7;
inline constexpr uint64_t kEpoch = 3;
inline constexpr char kDigest[] = "weights";
inline constexpr char kClass[] = "hash-1";

class FakeClock : public Clock {
 public:
  // Every look takes a millisecond.
  TimePoint Now() const override { return now_ += milliseconds(1); }

 private:
  mutable TimePoint now_{0};
};

struct ChainOptions {
  ModelSpec model = HashModel(6);
  uint32_t stages = 1;
  std::vector<uint64_t> pages = {64};  // By group, on every stage.
  uint32_t context = 1024;
  uint32_t max_batch_tokens = 256;
  uint32_t max_batch_items = 16;
};

class Chain {
 public:
  explicit Chain(ChainOptions options = {}) : options_(std::move(options)) {
    const auto layers = static_cast<uint32_t>(options_.model.layers.size());
    for (uint32_t s = 0; s < options_.stages; ++s) {
      StageSpec spec;
      spec.model = options_.model;
      spec.first_layer = layers * s / options_.stages;
      spec.last_layer = layers * (s + 1) / options_.stages - 1;
      spec.embeds = s == 0;
      spec.heads = s + 1 == options_.stages;
      spec.context = options_.context;
      spec.kv_pages = options_.pages;
      spec.max_batch_tokens = options_.max_batch_tokens;
      spec.max_batch_items = options_.max_batch_items;
      shards_.push_back(std::make_unique<HashShard>(spec));
      runners_.push_back(std::make_unique<ShardRunner>(
          ShardRunnerConfig{"node" + std::to_string(s), kDeployment, kEpoch, s, options_.stages,
                            spec, kDigest, kClass},
          shards_.back().get(), &clock_));
    }
  }

  // Through all stages. What stage `s` sends on is kept in sent(s).
  absl::StatusOr<ResultMessage> Run(StepMessage frame) {
    sent_.clear();
    for (auto& runner : runners_) {
      auto output = runner->Step(std::move(frame));
      if (!output.ok()) {
        return output.status();
      }
      if (std::holds_alternative<ResultMessage>(*output)) {
        return std::get<ResultMessage>(std::move(*output));
      }
      if (std::holds_alternative<ShardRunner::Discarded>(*output)) {
        return absl::AlreadyExistsError("discarded");
      }
      frame = std::get<StepMessage>(std::move(*output));
      sent_.push_back(frame);
    }
    return absl::InternalError("no result");
  }

  void Fence(uint64_t epoch) {
    for (auto& runner : runners_) {
      EXPECT_TRUE(runner->Fence(epoch).ok());
    }
  }

  const ChainOptions& options() const { return options_; }
  ShardRunner& runner(size_t stage) { return *runners_[stage]; }
  HashShard& shard(size_t stage) { return *shards_[stage]; }
  const StepMessage& sent(size_t stage) const { return sent_.at(stage); }

 private:
  const ChainOptions options_;
  FakeClock clock_;
  std::vector<std::unique_ptr<HashShard>> shards_;
  std::vector<std::unique_ptr<ShardRunner>> runners_;
  std::vector<StepMessage> sent_;
};

inline Fingerprint FingerprintOf(std::span<const uint32_t> ids) {
  Fingerprint fingerprint = FingerprintRoot(kDeployment, kDigest, kClass, "", 0);
  for (const uint32_t id : ids) {
    fingerprint = FingerprintLink(fingerprint, id);
  }
  return fingerprint;
}

// A row of input embeddings, as the first stage gets it.
inline v1::EmbeddingRow EmbeddingRowAt(uint32_t position, std::span<const float> values) {
  v1::EmbeddingRow row;
  row.set_position(position);
  row.set_values(values.data(), values.size_bytes());
  row.set_digest(EmbeddingLink(row.values()));
  return row;
}

inline v1::SequenceName Name(const std::string& id, uint64_t generation) {
  v1::SequenceName name;
  name.set_request_id(id);
  name.set_generation(generation);
  return name;
}

inline v1::SequenceParams Greedy() {
  v1::SequenceParams params;
  *params.mutable_sampling() = PlainSampling(0, 11);
  return params;
}

// The item that computes ids[position, end) of a sequence, and samples after them.
inline v1::StepItem Item(const v1::SequenceName& name, std::span<const uint32_t> ids,
                         uint32_t position, uint32_t end) {
  v1::StepItem item;
  *item.mutable_sequence() = name;
  item.set_position(position);
  item.mutable_token_ids()->Add(ids.begin() + position, ids.begin() + end);
  item.set_fingerprint(FingerprintOf(ids.first(position)));
  if (position == 0) {
    *item.mutable_params() = Greedy();
    item.mutable_params()->set_prompt_length(end);
  }
  item.set_sample(true);
  return item;
}

inline v1::StepCommand Fork(const v1::SequenceName& source, const v1::SequenceName& destination,
                            std::span<const uint32_t> prefix) {
  v1::StepCommand command;
  v1::ForkCommand* fork = command.mutable_fork();
  *fork->mutable_source() = source;
  *fork->mutable_destination() = destination;
  fork->set_length(static_cast<uint32_t>(prefix.size()));
  fork->set_fingerprint(FingerprintOf(prefix));
  *fork->mutable_params() = Greedy();
  return command;
}

inline v1::StepCommand Truncate(const v1::SequenceName& name, std::span<const uint32_t> prefix) {
  v1::StepCommand command;
  *command.mutable_truncate()->mutable_sequence() = name;
  command.mutable_truncate()->set_length(static_cast<uint32_t>(prefix.size()));
  command.mutable_truncate()->set_fingerprint(FingerprintOf(prefix));
  return command;
}

inline v1::StepCommand Release(const v1::SequenceName& name) {
  v1::StepCommand command;
  *command.mutable_release()->mutable_sequence() = name;
  return command;
}

// Numbers frames, and sends them through a chain. Every step is committed by the next one.
class Steps {
 public:
  explicit Steps(Chain* chain, uint64_t epoch = kEpoch) : chain_(chain), epoch_(epoch) {}

  StepMessage Frame(std::vector<v1::StepItem> items, std::vector<v1::StepCommand> commands = {}) {
    StepMessage frame;
    frame.header.set_deployment(kDeployment);
    frame.header.set_epoch(epoch_);
    frame.header.set_step(++step_);
    frame.header.set_committed_step(commits_ ? step_ - 1 : 0);
    uint32_t rows = 0;
    for (v1::StepItem& item : items) {
      rows += static_cast<uint32_t>(item.token_ids_size());
      *frame.header.add_items() = std::move(item);
    }
    for (v1::StepCommand& command : commands) {
      *frame.header.add_commands() = std::move(command);
    }
    frame.header.set_rows(rows);
    return frame;
  }

  ResultMessage Run(std::vector<v1::StepItem> items, std::vector<v1::StepCommand> commands = {}) {
    return Send(Frame(std::move(items), std::move(commands)));
  }
  ResultMessage Send(StepMessage frame) {
    auto result = chain_->Run(std::move(frame));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : ResultMessage();
  }

  // Fences, and sends the first frame of the new epoch with these commands.
  ResultMessage Resync(uint64_t epoch, std::vector<v1::StepCommand> truncates) {
    chain_->Fence(epoch);
    epoch_ = epoch;
    step_ = 0;
    StepMessage frame = Frame({}, std::move(truncates));
    frame.header.set_resync(true);
    return Send(std::move(frame));
  }

  // Whether frames say that the step before was committed.
  void set_commits(bool commits) { commits_ = commits; }

 private:
  Chain* chain_;
  uint64_t epoch_;
  uint64_t step_ = 0;
  bool commits_ = true;
};

inline std::vector<uint32_t> Prompt(uint32_t length, uint32_t salt, uint32_t vocab = 97) {
  std::vector<uint32_t> ids(length);
  for (uint32_t i = 0; i < length; ++i) {
    ids[i] = static_cast<uint32_t>(Mix64(uint64_t{salt} << 32 | i) % vocab);
  }
  return ids;
}

// The lowest of the largest.
inline uint32_t Argmax(std::span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// What a greedy request must answer.
inline std::vector<uint32_t> ExpectedTokens(const ModelSpec& model, std::vector<uint32_t> ids,
                                            uint32_t count) {
  std::vector<uint32_t> answer;
  for (uint32_t i = 0; i < count; ++i) {
    answer.push_back(Argmax(HashLogits(model, ids).back()));
    ids.push_back(answer.back());
  }
  return answer;
}

// The one token of an item that must be ok.
inline uint32_t TokenOf(const ResultMessage& result, int item = 0) {
  if (item >= result.header.items_size()) {
    ADD_FAILURE() << "no result for item " << item;
    return ~0u;
  }
  const v1::ItemResult& r = result.header.items(item);
  EXPECT_FALSE(r.has_error()) << r.error().ShortDebugString();
  EXPECT_EQ(r.tokens_size(), 1);
  return r.tokens_size() == 1 ? r.tokens(0).token_id() : ~0u;
}

inline std::string ReasonOfItem(const ResultMessage& result, int item = 0) {
  return item < result.header.items_size() ? result.header.items(item).error().reason() : "none";
}

inline std::string ReasonOfCommand(const ResultMessage& result, int command = 0) {
  return command < result.header.commands_size() ? result.header.commands(command).error().reason()
                                                 : "none";
}

// Free pages as the last frame's result says.
inline uint64_t FreePages(const ResultMessage& result, int stage = 0, int group = 0) {
  return result.header.stages(stage).free_pages(group);
}

// Computes `ids` in chunks and then `count` more tokens, greedily.
inline std::vector<uint32_t> Generate(Steps* steps, const v1::SequenceName& name,
                                      std::vector<uint32_t> ids, uint32_t chunk, uint32_t count) {
  uint32_t position = 0;
  std::vector<uint32_t> answer;
  while (answer.size() < count) {
    const auto end = std::min<uint32_t>(position + chunk, static_cast<uint32_t>(ids.size()));
    v1::StepItem item = Item(name, ids, position, end);
    item.set_sample(end == ids.size());
    const ResultMessage result = steps->Run({item});
    position = end;
    if (end == ids.size()) {
      answer.push_back(TokenOf(result));
      ids.push_back(answer.back());
    } else {
      EXPECT_FALSE(result.header.items(0).has_error())
          << result.header.items(0).error().ShortDebugString();
    }
  }
  return answer;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_RUNNER_CHAIN_H_
