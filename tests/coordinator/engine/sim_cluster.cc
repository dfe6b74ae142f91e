#include "tests/coordinator/engine/sim_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/limits.h"
#include "common/sampling_params.h"
#include "common/status.h"

namespace strata {

EngineConfig MakeConfig(uint32_t stages, uint64_t pages) {
  EngineConfig config;
  config.deployment = 7;
  config.epoch = 3;
  for (uint32_t s = 0; s < stages; ++s) {
    config.stages.push_back(
        {.node = "node" + std::to_string(s), .kv_pages = {pages}, .predicted_ms = 0.5});
  }
  config.kv_groups = {KvGroupSpec{}};
  config.vocab = 97;
  config.context = 512;
  config.prefix_cache = false;  // But for the tests that are about it.
  config.weights_digest = "digest";
  config.numerics_class = "test-1";
  return config;
}

SessionRequest MakeRequest(const std::string& id, uint32_t prompt_tokens, uint32_t max_tokens) {
  SessionRequest request;
  request.key = "scope/" + id;
  request.request_id = id;
  uint64_t state = prompt_tokens;
  for (char c : id) {
    state = Mix64(state + static_cast<uint8_t>(c));
  }
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    state = Mix64(state + 1);
    request.prompt.push_back(static_cast<uint32_t>(state % 97));
  }
  request.max_tokens = max_tokens;
  *request.params.mutable_sampling() = PlainSampling(0, 1);
  return request;
}

void SinkRecord::OnStarted(const StartedInfo& info) {
  EXPECT_FALSE(started.has_value() || ended());
  started = info;
}

void SinkRecord::OnRows(const RowsInfo& rows) {
  EXPECT_TRUE(started.has_value() && !ended());
  EXPECT_EQ(rows.first_position, next_row) << "rows come in order, each once";
  for (const v1::TokenLogprob* logprob : rows.prompt_logprobs) {
    prompt_logprobs.push_back(*logprob);
  }
  logits.insert(logits.end(), rows.logits.begin(), rows.logits.end());
  layer_digests.resize(rows.layer_digests.size());
  for (size_t i = 0; i < layer_digests.size(); ++i) {
    layer_digests[i].insert(layer_digests[i].end(), rows.layer_digests[i].begin(),
                            rows.layer_digests[i].end());
  }
  next_row += static_cast<uint32_t>(
      std::max({rows.prompt_logprobs.size(), rows.logits.size() / 97,
                rows.layer_digests.empty() ? 0 : rows.layer_digests[0].size()}));
}

Verdict SinkRecord::OnToken(const TokenInfo& token) {
  EXPECT_TRUE(started.has_value() && !ended());
  EXPECT_EQ(token.index, tokens.size());
  tokens.push_back(token.token.token_id());
  return stop_after == tokens.size() ? Verdict::kStop : Verdict::kContinue;
}

void SinkRecord::OnDone(const FinishInfo& info) {
  EXPECT_FALSE(ended());
  done = info;
}

void SinkRecord::OnFailed(const absl::Status& status) {
  EXPECT_FALSE(ended());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(ReasonOf(status), "") << status;
  failed = status;
}

SimCluster::SimCluster(EngineConfig config, const StageFactory& factory)
    : config_(std::move(config)),
      factory_(factory ? factory
                       : [](const EngineConfig& config, uint32_t s) -> std::unique_ptr<SimStage> {
        return std::make_unique<FakeStage>(config, s);
      }),
      sequence_numbers_(1) {
  for (uint32_t s = 0; s < config_.stages.size(); ++s) {
    stages_.push_back(factory_(config_, s));
  }
  links.resize(stages_.size());
  engine_ = std::make_unique<Engine>(config_, &sequence_numbers_, this);
}

void SimCluster::Suspend(uint64_t pages) {
  for (EngineStage& stage : config_.stages) {
    stage.kv_pages.assign(stage.kv_pages.size(), pages);
  }
  engine_->Suspend(config_.stages, now_);
}

void SimCluster::SuspendToMove(uint32_t stages, uint64_t pages, const std::string& numerics_class) {
  if (!numerics_class.empty()) {
    config_.numerics_class = numerics_class;
  }
  config_.stages = MakeConfig(stages, pages).stages;
  for (EngineStage& stage : config_.stages) {
    stage.node += "-other";
  }
  links.assign(stages, {});
  results.clear();
  pending_fence.reset();
  stages_.clear();
  engine_->Suspend(config_.stages, now_, numerics_class);
}

void SimCluster::Repoint() {
  for (EngineStage& stage : config_.stages) {
    stage.node += "-other";
  }
  for (auto& link : links) {
    link.clear();
  }
  results.clear();
  pending_fence.reset();
  engine_->Repoint(config_.stages, now_);
}

void SimCluster::ResumeInPlace() {
  config_.epoch = newest_fence_ + 1;
  engine_->Resume(config_.epoch, now_);
}

void SimCluster::Resume() {
  config_.epoch = newest_fence_ + 1;
  stages_.resize(config_.stages.size());
  for (uint32_t s = 0; s < config_.stages.size(); ++s) {
    stages_[s] = factory_(config_, s);
  }
  engine_->Resume(config_.epoch, now_);
}

void SimCluster::SendStep(StepMessage step) {
  EXPECT_LE(step.header.rows(), config_.max_batch_tokens);
  EXPECT_LE(step.header.items_size(), static_cast<int>(config_.max_batch_items));
  EXPECT_TRUE(step.header.items_size() > 0 || step.header.commands_size() > 0 ||
              step.header.resync());
  if (record_frames) {
    sent.push_back(step.header);
  }
  links[0].push_back(std::move(step));
}

void SimCluster::SendFence(uint64_t epoch) {
  // What is under way stays under way: stages and engine must discard it.
  EXPECT_GT(epoch, newest_fence_);
  newest_fence_ = epoch;
  pending_fence = epoch;
}

std::string SimCluster::StateOf(const std::string& request_id) {
  for (const SessionSnapshot& session : Snapshot().sessions) {
    if (session.request_id == request_id) {
      return session.state;
    }
  }
  return "ended";
}

bool SimCluster::AcknowledgeFence() {
  if (!pending_fence.has_value()) {
    return false;
  }
  const uint64_t epoch = *pending_fence;
  pending_fence.reset();
  for (auto& stage : stages_) {
    EXPECT_TRUE(stage->Fence(epoch).ok());
  }
  engine_->OnFenced(epoch, now_);
  return true;
}

bool SimCluster::Deliver(uint32_t stage) {
  if (stage == stages_.size()) {
    if (results.empty()) {
      return false;
    }
    ResultMessage result = std::move(results.front());
    results.pop_front();
    engine_->OnResult(std::move(result), now_);
    return true;
  }
  if (links[stage].empty()) {
    return false;
  }
  StepMessage frame = std::move(links[stage].front());
  links[stage].pop_front();
  const uint64_t epoch = frame.header.epoch();
  absl::StatusOr<SimStage::Output> output = stages_[stage]->Step(std::move(frame));
  if (!output.ok()) {
    engine_->OnLinkFault(epoch, output.status(), now_);
  } else if (auto* next = std::get_if<StepMessage>(&*output)) {
    links[stage + 1].push_back(std::move(*next));
  } else if (auto* result = std::get_if<ResultMessage>(&*output)) {
    results.push_back(std::move(*result));
  }
  return true;
}

void SimCluster::Settle() {
  for (bool moved = true; moved;) {
    moved = AcknowledgeFence();
    for (uint32_t s = 0; s <= stages_.size(); ++s) {
      moved = Deliver(s) || moved;
    }
  }
}

void SimCluster::RunToEnd() {
  for (int i = 0; i < 10000; ++i) {
    Settle();
    if (engine_->live_sessions() == 0) {
      return;
    }
    const std::optional<TimePoint> wake = engine_->NextWake();
    ASSERT_TRUE(wake.has_value()) << "sessions wait for nothing";
    now_ = std::max(now_, *wake);
    engine_->Tick(now_);
  }
  FAIL() << "no end";
}

std::shared_ptr<SinkRecord> SimCluster::Submit(SessionRequest request) {
  auto sink = std::make_shared<SinkRecord>();
  const absl::Status status = TrySubmit(std::move(request), sink);
  EXPECT_TRUE(status.ok()) << status;
  return sink;
}

void SimCluster::ExpectSums() {
  for (const KvSnapshot& kv : Snapshot().kv) {
    EXPECT_EQ(kv.free + kv.live + kv.cached + kv.fenced, kv.total);
    EXPECT_LE(kv.free, kv.total);
  }
}

void SimCluster::ExpectEmpty() {
  for (const KvSnapshot& kv : Snapshot().kv) {
    EXPECT_EQ(kv.free, kv.total) << "stage " << kv.stage;
  }
  for (const auto& stage : stages_) {
    EXPECT_EQ(stage->sequences(), 0u);
  }
}

absl::Status BrokenLink() {
  return Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "connection reset").Node("node1");
}

}  // namespace strata
