#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

uint64_t HistoryHash(const std::vector<uint32_t>& tokens, size_t count) {
  uint64_t hash = 1;
  for (size_t i = 0; i < count; ++i) {
    hash = Mix64(hash ^ (uint64_t{tokens[i]} << 32 | i));
  }
  return hash;
}

absl::Status Mismatch(const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, "POSITION_MISMATCH", what);
}

}  // namespace

uint32_t OracleToken(const std::vector<uint32_t>& tokens, uint32_t vocab) {
  return static_cast<uint32_t>(HistoryHash(tokens, tokens.size()) % vocab);
}

std::vector<uint32_t> OracleAnswer(std::vector<uint32_t> prompt, uint32_t tokens, uint32_t vocab) {
  std::vector<uint32_t> answer;
  for (uint32_t i = 0; i < tokens; ++i) {
    answer.push_back(OracleToken(prompt, vocab));
    prompt.push_back(answer.back());
  }
  return answer;
}

FakeStage::FakeStage(const EngineConfig& config, uint32_t stage)
    : config_(config),
      stage_(stage),
      root_(FingerprintRoot(config.deployment, config.weights_digest, config.numerics_class, "",
                            0)) {}

Fingerprint FakeStage::State::FingerprintAt(Fingerprint root, size_t length) const {
  for (size_t i = 0; i < length; ++i) {
    root = FingerprintLink(root, tokens[i]);
  }
  return root;
}

absl::Status FakeStage::Fence(uint64_t epoch) {
  if (epoch < epoch_) {
    return Mismatch("old epoch");
  }
  if (epoch > epoch_) {
    epoch_ = epoch;
    last_step_ = 0;
  }
  return absl::OkStatus();
}

void FakeStage::Restart() {
  sequences_.clear();
  newest_generation_ = 0;
  epoch_ = 0;
  last_step_ = 0;
}

absl::StatusOr<SimStage::Output> FakeStage::Step(StepMessage frame) {
  v1::StepFrame& header = frame.header;
  if (header.epoch() < epoch_ || (header.epoch() == epoch_ && header.step() <= last_step_)) {
    return Output{};
  }
  if (header.epoch() > epoch_ || header.step() != last_step_ + 1 ||
      header.resync() != (header.step() == 1) || header.committed_step() >= header.step()) {
    return Error(absl::StatusCode::kDataLoss, "GAP", "a gap in the steps");
  }
  last_step_ = header.step();
  std::vector<Name> named;
  for (v1::StepCommand& command : *header.mutable_commands()) {
    const absl::Status status = RunCommand(command, &named);
    if (!status.ok() && !command.has_error()) {
      *command.mutable_error() = DetailOf(status);
      command.set_error_stage(stage_);
    }
  }
  if (header.resync()) {
    std::erase_if(sequences_, [&](const auto& entry) {
      return std::find(named.begin(), named.end(), entry.first) == named.end();
    });
  }
  for (v1::StepItem& item : *header.mutable_items()) {
    if (item.has_error()) {
      continue;
    }
    if (before_item) {
      before_item(&item);
    }
    const absl::Status status = item.has_error() ? absl::OkStatus() : RunItem(item);
    if (!status.ok()) {
      *item.mutable_error() = DetailOf(status);
    }
    if (item.has_error()) {
      item.set_error_stage(stage_);
    }
  }
  ReportKv(header.add_stages(), header.rows());
  if (stage_ + 1 < config_.stages.size()) {
    return Output{std::move(frame)};
  }
  return Output{MakeResult(frame)};
}

absl::Status FakeStage::RunCommand(const v1::StepCommand& command, std::vector<Name>* named) {
  if (command.has_release()) {
    const v1::SequenceName& name = command.release().sequence();
    return sequences_.erase({name.request_id(), name.generation()}) == 1
               ? absl::OkStatus()
               : Error(absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND", "not held here");
  }
  const v1::TruncateCommand& truncate = command.truncate();
  const Name name{truncate.sequence().request_id(), truncate.sequence().generation()};
  const auto it = sequences_.find(name);
  if (it == sequences_.end()) {
    return Error(absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND", "not held here");
  }
  named->push_back(name);
  State& state = it->second;
  if (truncate.length() > state.tokens.size() ||
      state.FingerprintAt(root_, truncate.length()) != truncate.fingerprint()) {
    return Mismatch("truncate");
  }
  state.tokens.resize(truncate.length());
  return absl::OkStatus();
}

absl::Status FakeStage::RunItem(const v1::StepItem& item) {
  const Name name{item.sequence().request_id(), item.sequence().generation()};
  auto it = sequences_.find(name);
  if (it == sequences_.end()) {
    if (item.position() > 0) {
      return Error(absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND", "resend from 0");
    }
    if (name.second <= newest_generation_) {
      return Error(absl::StatusCode::kFailedPrecondition, "STALE_GENERATION", "stale");
    }
  } else if (item.position() != it->second.tokens.size()) {
    return Mismatch("position " + std::to_string(item.position()) + ", length " +
                    std::to_string(it->second.tokens.size()));
  }
  const Fingerprint held =
      it == sequences_.end() ? root_ : it->second.FingerprintAt(root_, item.position());
  if (held != item.fingerprint()) {
    return Mismatch("fingerprint");
  }
  if (it == sequences_.end()) {
    newest_generation_ = name.second;
    it = sequences_.emplace(name, State{}).first;
    it->second.params = item.params();
  }
  it->second.tokens.insert(it->second.tokens.end(), item.token_ids().begin(),
                           item.token_ids().end());
  return absl::OkStatus();
}

void FakeStage::ReportKv(v1::StageKv* kv, uint32_t rows) const {
  kv->set_stage(stage_);
  kv->set_compute_ms(fixed_ms + row_ms * rows);
  for (size_t g = 0; g < config_.kv_groups.size(); ++g) {
    const uint64_t total = config_.stages[stage_].kv_pages[g];
    uint64_t used = 0;
    for (const auto& [name, state] : sequences_) {
      used += total == 0 ? 0 : (state.tokens.size() + kPageTokens - 1) / kPageTokens;
    }
    // More than there are: a real pool would have refused the item.
    STRATA_CHECK(used <= total || total == 0);
    kv->add_free_pages(total - std::min(total, used + leaked_pages));
    kv->add_total_pages(total);
  }
}

ResultMessage FakeStage::MakeResult(const StepMessage& frame) const {
  ResultMessage result;
  result.header.set_deployment(frame.header.deployment());
  result.header.set_epoch(frame.header.epoch());
  result.header.set_step(frame.header.step());
  *result.header.mutable_stages() = frame.header.stages();
  for (const v1::StepCommand& command : frame.header.commands()) {
    v1::CommandResult* out = result.header.add_commands();
    if (command.has_error()) {
      *out->mutable_error() = command.error();
      out->set_error_stage(command.error_stage());
    }
  }
  for (const v1::StepItem& item : frame.header.items()) {
    v1::ItemResult* out = result.header.add_items();
    *out->mutable_sequence() = item.sequence();
    if (item.has_error()) {
      *out->mutable_error() = item.error();
      out->set_error_stage(item.error_stage());
    } else {
      FillItem(item, out, &result.payload);
    }
  }
  return result;
}

void FakeStage::FillItem(const v1::StepItem& item, v1::ItemResult* result,
                         std::vector<float>* payload) const {
  const State& state = sequences_.at({item.sequence().request_id(), item.sequence().generation()});
  const uint32_t end = item.position() + static_cast<uint32_t>(item.token_ids_size());
  for (uint32_t p = item.position() + item.rows_from(); p < end; ++p) {
    const bool both = item.rows_wanted() == v1::ROWS_WANTED_LOGITS_AND_LOGPROBS;
    if (both || item.rows_wanted() == v1::ROWS_WANTED_LOGITS) {
      // Row p tells from which history it comes.
      for (uint32_t v = 0; v < config_.vocab; ++v) {
        payload->push_back(static_cast<float>(HistoryHash(state.tokens, p + 1) % 1000 + v));
      }
      result->set_payload_rows(result->payload_rows() + 1);
    }
    if ((both || item.rows_wanted() == v1::ROWS_WANTED_LOGPROBS) &&
        (p + 1 < end || item.has_following_id())) {
      v1::TokenLogprob* logprob = result->add_row_logprobs();
      logprob->set_token_id(p + 1 < end ? state.tokens[p + 1] : item.following_id());
      logprob->set_logprob(-static_cast<float>(HistoryHash(state.tokens, p + 1) % 1000));
    }
  }
  // Behind the last known token, and behind each draft that is right.
  for (uint32_t known = end - item.draft_tokens(); item.sample() && known <= end; ++known) {
    const std::vector<uint32_t> history(state.tokens.begin(), state.tokens.begin() + known);
    const uint32_t token = OracleToken(history, config_.vocab);
    result->add_tokens()->set_token_id(token);
    if (known == end || state.tokens[known] != token) {
      break;
    }
  }
}

}  // namespace strata
