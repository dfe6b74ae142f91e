// The pages that a pipeline's stages must have handed out, which is compared with what they report.
#ifndef STRATA_COORDINATOR_ENGINE_HELD_KV_H_
#define STRATA_COORDINATOR_ENGINE_HELD_KV_H_

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "coordinator/engine/kv_stage.h"
#include "coordinator/engine/window_pages.h"
#include "coordinator/prefix/page_book.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// What sequences hold on the stages after the newest committed step. It promises nothing: that is
// the ledger's (kv_ledger.h). Sequences go by their numbers. Of a window group a sequence has the
// newest pages alone. One thread.
class HeldKv {
 public:
  HeldKv(std::vector<KvStage> stages, std::vector<KvGroupSpec> groups);

  // Other stages have what these had.
  void Regrant(std::vector<KvStage> stages) { stages_ = std::move(stages); }

  // The sequence has from `least` to `most` tokens on every stage: equal but for sequences with a
  // rejected item, which no stage before the rejecting one took back.
  void SetHeld(uint64_t sequence, uint32_t least, uint32_t most);
  void DropHeld(uint64_t sequence);
  // A Fork is committed: `destination` has the first `length` tokens of `source`, in the same
  // pages; on every stage, or on some that nobody can tell (`everywhere` false). A page that they
  // fill in part is copied when either writes to it first, which is `destination`: the source's is
  // full.
  void HoldFork(uint64_t source, uint64_t destination, uint32_t length, bool everywhere);

  // The stages know that `length` tokens of it are committed, and free what is behind a window.
  void SetRetained(uint64_t sequence, uint32_t length) { windows_.SetRetained(sequence, length); }
  // `step` committed `length` tokens of it, which the stages do not know yet. Steps come in their
  // order.
  void NoteCommitted(uint64_t step, uint64_t sequence, uint32_t length);
  // The stages know of this step's commit, and of those before it.
  void RetainCommitted(uint64_t committed_step);
  // An epoch begins: its first step tells the stages what is committed, of all sequences.
  void ForgetCommitted() { committed_.clear(); }

  // Whether the stages' counts after the newest committed step are the expected ones. `reported`
  // has one entry a stage, in order, with one count a group. DATA_LOSS, reason KV_MISMATCH, names
  // stage, group and both numbers.
  absl::Status Compare(const google::protobuf::RepeatedPtrField<v1::StageKv>& reported) const;

 private:
  // How long a step left a sequence.
  struct LengthAfter {
    uint64_t step = 0;
    uint64_t sequence = 0;
    uint32_t length = 0;
  };

  // Of this stage and group; `free` of `total` pages are reported.
  absl::Status CompareOne(uint32_t stage, uint32_t group, uint64_t free, uint64_t total) const;

  std::vector<KvStage> stages_;
  std::vector<KvGroupSpec> groups_;
  HeldWindowPages windows_;
  // At least and at most. Forks share pages, so that counting tokens is not enough.
  PageBook least_;
  PageBook most_;
  // By number: its length when it was forked, while it may share the page that this fills in part.
  std::unordered_map<uint64_t, uint32_t> part_shared_;
  std::deque<LengthAfter> committed_;  // With window groups, in the order of the steps.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_HELD_KV_H_
