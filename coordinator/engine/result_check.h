// Checks a step's result against what was sent, before anything of it is believed.
#ifndef STRATA_COORDINATOR_ENGINE_RESULT_CHECK_H_
#define STRATA_COORDINATOR_ENGINE_RESULT_CHECK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/fingerprint.h"
#include "common/frame.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/stage_cost.h"
#include "coordinator/engine/token_constraint.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// What the engine remembers of an item in flight.
struct SentItem {
  uint64_t session = 0;   // The engine's own number.
  uint64_t sequence = 0;  // The number of its sequence.
  std::string request_id;
  uint32_t position = 0;
  uint32_t rows = 0;             // Drafts included,
  std::vector<uint32_t> drafts;  // the last of them.
  // Where they are from; of an item ahead of a result, its first token before them.
  std::vector<DraftSource> sources;
  double slowdown = 1;  // ScheduledStep::slowdown of its step.
  // Of an item that is computed over several steps; both of one that is not.
  bool first_slice = true;
  bool last_slice = true;
  bool sample = false;
  std::shared_ptr<const NextTokens> mask;  // Of the token that is sampled; null: any.
  // Of those behind the drafts; none: any.
  std::vector<std::shared_ptr<const NextTokens>> draft_masks;
  v1::RowsWanted rows_wanted = v1::ROWS_WANTED_NONE;
  uint32_t first_wanted = 0;  // Index of the first wanted row.
  uint32_t row_logprobs = 0;  // Entries that the result must have.
  uint32_t payload_rows = 0;
  bool digest_layers = false;
  uint32_t top_logprobs = 0;  // Most top entries of a sampled token, and of a row.
  uint32_t prompt_top_logprobs = 0;
};

enum class CommandKind {
  kFork,
  kTruncate,  // To what is kept or committed.
  kCutDrafts,
  kRelease,
};

// Of a command.
struct SentCommand {
  CommandKind kind = CommandKind::kRelease;
  uint64_t sequence = 0;  // The number of the sequence; of the new one for a Fork.
  uint64_t source = 0;    // Of a Fork.
  uint32_t length = 0;    // But for a Release, with the fingerprint there.
  Fingerprint fingerprint = 0;
};

// Of a step.
struct SentStep {
  uint64_t step = 0;
  uint64_t committed_step = 0;  // As the stages were told with it.
  bool resync = false;
  std::vector<SentCommand> commands;
  std::vector<SentItem> items;
  StepWork work;  // Of items that are no slices.
  std::vector<SliceWork> slices;
  uint32_t rows_begun = 0;  // Of all items but further slices.
  TimePoint sent{0};
  bool first = false;  // No other step was in flight when it was sent,
  bool alone = false;  // nor was one sent until its result came.
};

struct ResultShape {
  uint32_t stages = 0;
  uint32_t kv_groups = 0;
  uint32_t layers = 0;
  uint32_t vocab = 0;
};

// DATA_LOSS, reason BAD_RESULT, says what does not fit: counts, names, order, ids out of the
// vocabulary, numbers that are none.
absl::Status CheckResult(const SentStep& sent, const ResultShape& shape,
                         const ResultMessage& result);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_RESULT_CHECK_H_
