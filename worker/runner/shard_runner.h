// The step protocol at one stage: checks frames, runs commands and items on the sequences it
// holds, computes on a Shard, and says what to send on. A core: no thread, clock or socket in it.
#ifndef STRATA_WORKER_RUNNER_SHARD_RUNNER_H_
#define STRATA_WORKER_RUNNER_SHARD_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/frame.h"
#include "strata/v1/kv.pb.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/carry_rounds.h"

namespace strata {

class SequenceTable;

// What a stage's runner must know besides its shard.
struct ShardRunnerConfig {
  std::string node;  // Named in errors.
  uint64_t deployment = 0;
  uint64_t epoch = 0;  // Of the first frames.
  uint32_t stage = 0;
  uint32_t stage_count = 1;
  StageSpec spec;
  std::string weights_digest;
  std::string numerics_class;
};

struct RunnerStats {
  uint64_t frames_computed = 0;
  uint64_t frames_discarded = 0;  // Seen before, or of an old epoch.
  uint64_t items_computed = 0;
  uint64_t items_rejected = 0;
  uint64_t backend_failures = 0;  // After which items were computed again, in halves or alone.
  uint64_t sequences = 0;
  std::vector<uint64_t> free_pages;  // By KV group, as total_pages.
  std::vector<uint64_t> total_pages;
};

// Errors of items and commands, by reason:
//   FAILED_PRECONDITION POSITION_MISMATCH, FINGERPRINT_MISMATCH: not the state that is held; both
//                       values are in the facts
//                       STALE_GENERATION: not newer than the newest generation created here
//                       WINDOW_NOT_RETAINED: a fork or truncation needs keys that were freed
//                       SLICE_MISMATCH: an item's next slice does not go on where it was left, with
//                       the same tokens, or would overtake the tokens before it
//                       MASK_NOT_FOUND: the last stage does not keep the token mask that is named
//   NOT_FOUND           SEQUENCE_NOT_FOUND: position > 0 (or a command) and no such sequence
//   RESOURCE_EXHAUSTED  KV_PAGES (the coordinator's ledger rules it out), LOGITS_ROWS,
//                       PARKED_ROWS: between two steps a stage keeps max_batch_tokens rows
//   INVALID_ARGUMENT    SEQUENCE_NAME, SEQUENCE_TWICE, NO_TOKENS, TOKEN_OUT_OF_RANGE, ROWS_FROM,
//                       CONTEXT_EXCEEDED, TOP_LOGPROBS, SAMPLING_PARAMETER, SAMPLING_INCOMPLETE,
//                       EMBEDDING_ROWS, LAYER_DIGESTS, ITEM_SLICE, TOKEN_MASK, DRAFT_TOKENS,
//                       DRAFT_MASKS
//   UNIMPLEMENTED       what the protocol has and this version has not, by name
//   INTERNAL            NON_FINITE, BACKEND_FAILED: the sequence is as it was before the item (one
//                       that the item created has no tokens). A backend that fails at a step is
//                       asked again for halves of its items, so that only those fail that it fails
//                       at alone, twice; all of them where it computes none
//
// A Release runs on every stage, whatever an earlier one said of it, so that nothing is left
// behind; any other command or item that an earlier stage refused is left alone.
//
// One thread at a time, but for stats().
class ShardRunner {
 public:
  // A frame that was seen already, or is of an older epoch: nothing to send.
  struct Discarded {};
  // To the next stage, or, from the last one, to the coordinator.
  using Output = std::variant<Discarded, StepMessage, ResultMessage>;

  // Does not take the clock or shard; both outlive it.
  ShardRunner(ShardRunnerConfig config, Shard* shard, const Clock* clock);
  ~ShardRunner();

  // Runs one step. An error breaks the link that the frame came on and is reported as a LinkFault;
  // no state was changed, but by UNAVAILABLE (kDeviceFailed, kRanksBroken), after which nothing is
  // computed any more. FAILED_PRECONDITION: STEP_GAP, EPOCH_NOT_LOADED. INVALID_ARGUMENT:
  // WRONG_DEPLOYMENT, RESYNC_MISPLACED, FRAME_STAGES, FRAME_COMMITTED, FRAME_LIMIT, FRAME_ROWS,
  // FRAME_PAYLOAD. Errors of items and commands are in the output.
  absl::StatusOr<Output> Step(StepMessage frame);

  // From now on only frames of `epoch` are computed, beginning at step 1 with `resync`, whose
  // Truncates say what each sequence that stays had committed; the others are released then. An
  // epoch older than the present one is FAILED_PRECONDITION (EPOCH_OLD); the same one is ok and
  // does nothing.
  absl::Status Fence(uint64_t epoch);

  // KV that goes to the stage that is to take this one's place (kv_giver.h); between steps. The
  // next parts of what is asked for: with `begins` the first ones, which waits for nothing of an
  // earlier request. None: that was all, as it is after the first ones with `final`.
  // FAILED_PRECONDITION (KV_UNLIKE): who asks has none of these layers, or another class; or this
  // stage has no pages to give.
  absl::StatusOr<std::vector<v1::CarryKvPart>> GiveKv(const v1::CarryKvRequest& request,
                                                      bool begins);
  // The other end (kv_taker.h): what this stage has itself of what a request says; a part of the
  // answers of a stage, one of those numbered from 0, which are of use until the first frame of an
  // epoch; and what there is of that.
  v1::CarryKvRequest DescribeKv() const;
  absl::Status TakeKv(uint32_t source, const v1::CarryKvPart& part);
  TakenKv taken_kv() const;
  // Others follow, from the beginning, or none.
  void ForgetTakenKv();

  // Any thread.
  RunnerStats stats() const;

  // Between steps: drops every sequence, as their KV is lost.
  void DropAllSequences();
  // What is held, to be looked at or damaged.
  SequenceTable& sequences_for_test();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_SHARD_RUNNER_H_
