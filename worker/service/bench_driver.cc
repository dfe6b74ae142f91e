#include "worker/service/bench_driver.h"

#include <cstddef>
#include <utility>
#include <variant>

#include "common/sampling_params.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kDeployment = 1;
constexpr uint64_t kEpoch = 1;
constexpr char kDigest[] = "bench";

}  // namespace

BenchDriver::Sequence BenchDriver::NewSequence() {
  Sequence sequence;
  sequence.name.set_request_id("bench");
  sequence.name.set_generation(++generation_);
  sequence.fingerprint = FingerprintRoot(kDeployment, kDigest, "bench", "", 0);
  return sequence;
}

absl::StatusOr<double> BenchDriver::Step(const std::vector<Sequence*>& sequences, uint32_t tokens) {
  StepMessage message = NewFrame();
  for (Sequence* sequence : sequences) {
    v1::StepItem* item = message.header.add_items();
    *item->mutable_sequence() = sequence->name;
    item->set_position(sequence->length);
    item->set_fingerprint(sequence->fingerprint);
    if (sequence->length == 0) {
      *item->mutable_params() = Params();
    }
    for (uint32_t i = 0; i < tokens; ++i) {
      const uint32_t id =
          i == 0 ? sequence->next_id : (sequence->length + 7 * i) % spec_.model.vocab;
      item->add_token_ids(id);
      sequence->fingerprint = FingerprintLink(sequence->fingerprint, id);
    }
    item->set_sample(spec_.heads);
    sequence->length += tokens;
  }
  const auto rows = static_cast<uint32_t>(tokens * sequences.size());
  message.header.set_rows(rows);
  if (!spec_.embeds) {
    message.payload.assign(size_t{rows} * spec_.model.hidden, 0.01f);
  }
  const TimePoint begin = clock_->Now();
  ASSIGN_OR_RETURN(ShardRunner::Output output, runner_.Step(std::move(message)));
  const double seconds = ToMs(clock_->Now() - begin) / 1000;
  RETURN_IF_ERROR(Take(output, sequences));
  return seconds;
}

absl::StatusOr<BenchDriver::Sequence> BenchDriver::Fork(const Sequence& source) {
  Sequence fork = source;
  fork.name.set_generation(++generation_);
  StepMessage message = NewFrame();
  v1::ForkCommand* command = message.header.add_commands()->mutable_fork();
  *command->mutable_source() = source.name;
  *command->mutable_destination() = fork.name;
  command->set_length(source.length);
  command->set_fingerprint(source.fingerprint);
  *command->mutable_params() = Params();
  ASSIGN_OR_RETURN(ShardRunner::Output output, runner_.Step(std::move(message)));
  RETURN_IF_ERROR(Take(output, {}));
  return fork;
}

absl::Status BenchDriver::Release(const Sequence& sequence) {
  StepMessage message = NewFrame();
  *message.header.add_commands()->mutable_release()->mutable_sequence() = sequence.name;
  ASSIGN_OR_RETURN(ShardRunner::Output output, runner_.Step(std::move(message)));
  return Take(output, {});
}

ShardRunnerConfig BenchDriver::Config(const StageSpec& spec) {
  ShardRunnerConfig config;
  config.node = "bench";
  config.deployment = kDeployment;
  config.epoch = kEpoch;
  config.stage = spec.embeds ? 0 : 1;
  config.stage_count = config.stage + (spec.heads ? 1 : 2);
  config.spec = spec;
  config.weights_digest = kDigest;
  config.numerics_class = "bench";
  return config;
}

v1::SequenceParams BenchDriver::Params() {
  v1::SequenceParams params;
  *params.mutable_sampling() = PlainSampling(0, 1);
  params.set_prompt_length(1);
  return params;
}

StepMessage BenchDriver::NewFrame() {
  StepMessage message;
  if (!spec_.embeds) {
    message.header.add_stages()->set_stage(0);  // What the stage before would append.
  }
  message.header.set_deployment(kDeployment);
  message.header.set_epoch(kEpoch);
  message.header.set_committed_step(step_);
  message.header.set_step(++step_);
  return message;
}

absl::Status BenchDriver::Take(const ShardRunner::Output& output,
                               const std::vector<Sequence*>& sequences) {
  if (const auto* step = std::get_if<StepMessage>(&output)) {
    for (const v1::StepItem& item : step->header.items()) {
      if (item.has_error()) return StatusOf(item.error());
    }
    for (const v1::StepCommand& command : step->header.commands()) {
      if (command.has_error()) return StatusOf(command.error());
    }
    return absl::OkStatus();
  }
  const auto* result = std::get_if<ResultMessage>(&output);
  if (result == nullptr) {
    return absl::InternalError("the runner discarded a step");
  }
  for (const v1::CommandResult& command : result->header.commands()) {
    if (command.has_error()) return StatusOf(command.error());
  }
  for (int i = 0; i < result->header.items_size(); ++i) {
    const v1::ItemResult& item = result->header.items(i);
    if (item.has_error()) return StatusOf(item.error());
    if (item.tokens_size() > 0) sequences[i]->next_id = item.tokens(0).token_id();
  }
  return absl::OkStatus();
}

}  // namespace strata
