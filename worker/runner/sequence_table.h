// The KV state of every request on one stage: its tokens, pages, fingerprints and committed
// length. Says what is held; which changes are allowed is for the step rule to ask first.
#ifndef STRATA_WORKER_RUNNER_SEQUENCE_TABLE_H_
#define STRATA_WORKER_RUNNER_SEQUENCE_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "common/limits.h"
#include "strata/v1/shard.pb.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/kv_pool.h"

namespace strata {

// Pages of one KV group: page i holds positions [(first_page + i) * 16, (first_page + i + 1) * 16).
struct PageTable {
  uint32_t first_page = 0;
  std::vector<PageId> pages;  // Up to the one with the last token; empty for a group unused here.
};

// An item of which some layers are yet to be computed: its ids and pages are the sequence's
// already.
struct UnfinishedItem {
  uint32_t position = 0;
  uint32_t rows = 0;
  uint32_t next_layer = 0;  // Of the model: those before it are computed, or are by this step.
  // float32 [rows, hidden]: what the layer before next_layer made of them, on the stage that
  // computed it; empty elsewhere.
  std::vector<float> parked;
};

// One request's state, named (request id, number: what the protocol calls its generation). Only
// SequenceTable changes it.
struct Sequence {
  std::string request_id;
  uint64_t number = 0;
  v1::SequenceParams params;
  std::vector<uint32_t> ids;  // Tokens whose KV is held, from position 0.
  // Where rows of input embeddings took the place of tokens' embeddings: EmbeddingLink by position.
  std::map<uint32_t, uint64_t> embedded;
  Fingerprint fingerprint = 0;                 // At length().
  std::vector<Fingerprint> page_fingerprints;  // [i]: at length i * 16.
  std::vector<PageTable> tables;               // By KV group.
  // Tokens of committed steps. Windows are freed behind it.
  uint32_t committed_length = 0;
  // (step, length after it) of steps that are not known to be committed, ascending.
  std::vector<std::pair<uint64_t, uint32_t>> uncommitted;
  std::vector<UnfinishedItem> unfinished;  // By position, one behind the other, to length().

  uint32_t length() const { return static_cast<uint32_t>(ids.size()); }
  // Tokens whose KV is computed on all layers: others may begin on these only.
  uint32_t computed_length() const {
    return unfinished.empty() ? length() : unfinished.front().position;
  }
  // The unfinished item that begins there; null: there is none.
  const UnfinishedItem* FindUnfinished(uint32_t position) const;
  // The same, which there must be.
  UnfinishedItem* UnfinishedAt(uint32_t position);
};

// One thread at a time.
class SequenceTable {
 public:
  // `roots`: the fingerprint of no tokens, by rotary variant. The pool and shard are used and
  // outlive this. Of the spec, the KV groups and which of them the stage's layers use are kept.
  SequenceTable(const StageSpec& spec, std::vector<Fingerprint> roots, KvPool* pool, Shard* shard);
  ~SequenceTable();
  SequenceTable(const SequenceTable&) = delete;
  SequenceTable& operator=(const SequenceTable&) = delete;

  using Key = std::pair<std::string, uint64_t>;  // Request id and number.

  // Null when there is none. What this table gives is good until the sequence is released.
  Sequence* Find(std::string_view request_id, uint64_t number);
  // In the order of their names: the one behind `name`, which need not be there; null: the first.
  const Sequence* Next(const Key* name) const;
  size_t size() const { return sequences_.size(); }
  const KvPool& pool() const { return *pool_; }
  // The newest generation that ever was created here.
  uint64_t newest_number() const { return newest_number_; }
  // For a variant that there is not, that of the first.
  Fingerprint root(uint32_t rotary_variant) const {
    return roots_[rotary_variant < roots_.size() ? rotary_variant : 0];
  }

  // A sequence that another stage had, whose name must not exist here, with its ids, params, what
  // is committed, and pages of this pool, each of which it holds once more. Its fingerprints are
  // made of the ids.
  void Adopt(Sequence sequence);

  // A new sequence without tokens, of a rotary variant that there is; the name must not exist.
  Sequence* Create(std::string_view request_id, uint64_t number, const v1::SequenceParams& params);

  // Whether `tokens` more fit; `sequence` null: one that is yet to be created. RESOURCE_EXHAUSTED
  // (KV_PAGES) says how many pages were asked of which group and how many are free.
  absl::Status CheckPages(const Sequence* sequence, uint32_t tokens) const;
  // Takes the pages for `ids`, copies the last one first if others hold it too, and appends the
  // ids. CheckPages must have said ok. An error (the backend's copy) changes nothing.
  // `embedded`: their positions that have input embeddings, with the rows' EmbeddingLinks.
  absl::Status Append(Sequence* sequence, std::span<const uint32_t> ids,
                      const std::map<uint32_t, uint64_t>& embedded = {});

  // The fingerprint of the first `length` tokens, or of all if there are fewer.
  Fingerprint FingerprintAt(const Sequence& sequence, uint32_t length) const;
  // The first position whose keys the group still has.
  uint32_t FirstRetained(const Sequence& sequence, uint32_t group) const {
    return sequence.tables[group].first_page * kPageTokens;
  }
  // Whether the windows that a sequence cut to `length` looks at are still held. `group` gets the
  // first one that is not.
  bool WindowsRetained(const Sequence& sequence, uint32_t length, uint32_t* group) const;

  // Drops tokens from `length` on, which is at most the sequence's, and their pages. An unfinished
  // item is dropped as a whole: `length` is not within one.
  void Truncate(Sequence* sequence, uint32_t length);
  // A new sequence of the first `length` tokens of `source`, which has them, its pages shared; the
  // name must not exist.
  Sequence* Fork(const Sequence& source, std::string_view request_id, uint64_t number,
                 uint32_t length, const v1::SequenceParams& params);
  // Forgets the sequence and gives up its pages.
  void Release(Sequence* sequence);
  // The same for all that it is true of.
  void ReleaseIf(const std::function<bool(const Sequence&)>& condition);

  // Notes that `step` brought the sequence to this length.
  void NoteStep(Sequence* sequence, uint64_t step, uint32_t length);
  // Rows of all unfinished items that are held here between two steps.
  uint64_t ParkedRows() const;
  // Step `step` and those before it were committed: moves every committed length, and frees window
  // pages behind it.
  void Commit(uint64_t step);
  // What is held now is committed.
  void CommitAll(Sequence* sequence);
  // Forgets which steps brought sequences to their lengths: a fence ended those that are not
  // committed, and their numbers are given anew.
  void ForgetSteps();

  // The pages of a sequence as kernels see them; valid until it changes.
  std::vector<PageTableView> Views(const Sequence& sequence) const;

 private:
  struct GroupUse {
    KvGroupSpec spec;
    bool used = false;  // By a layer of this stage.
  };

  uint64_t PagesNeeded(const Sequence* sequence, uint32_t group, uint32_t tokens) const;
  bool LastPageIsShared(const Sequence& sequence, uint32_t group) const;
  absl::Status CopySharedPages(Sequence* sequence);
  void FreeBehindWindows(Sequence* sequence);
  void ReleasePages(Sequence* sequence);

  const std::vector<Fingerprint> roots_;
  KvPool* const pool_;
  Shard* const shard_;
  std::vector<GroupUse> groups_;
  std::map<Key, std::unique_ptr<Sequence>> sequences_;
  uint64_t newest_number_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_SEQUENCE_TABLE_H_
