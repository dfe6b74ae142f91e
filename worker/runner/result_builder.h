// The last stage's answer: samples and log-probabilities of wanted rows, and raw logits.
#ifndef STRATA_WORKER_RUNNER_RESULT_BUILDER_H_
#define STRATA_WORKER_RUNNER_RESULT_BUILDER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/frame.h"
#include "worker/runner/sequence_table.h"
#include "worker/runner/token_masks.h"
#include "worker/sampler/sampler.h"

namespace strata {

// Of an item with drafted tokens a token is sampled behind each row by what the rows before it
// have, which is what it would be sampled by, one step after the other, as long as drafts are
// right. What is behind the first wrong one is neither sampled nor told, nor is what is wrong with
// its logits.
//
// One thread. Rows of an item come in ascending order, those of AddLargest before those of AddRow;
// items in any.
class ResultBuilder {
 public:
  // `masks`, of which items name some, outlive it.
  ResultBuilder(uint32_t vocab, const TokenMasks* masks) : sampler_(vocab), masks_(*masks) {}

  // Begins the result of a frame with so many items.
  void Begin(int items);
  // One wanted row of an item whose ids `sequence` has already. After an error the item's rows are
  // to be dropped with Drop.
  absl::Status AddRow(int index, const v1::StepItem& item, const Sequence& sequence, uint32_t row,
                      std::span<const float> logits);
  // Whether of this row, which is wanted, nothing is but the largest logit's id.
  bool WantsOnlyLargest(const v1::StepItem& item, const Sequence& sequence, uint32_t row) const;
  // In place of AddRow for such a row.
  void AddLargest(int index, const v1::StepItem& item, uint32_t row, uint32_t token_id);
  // Takes back what was added for the item.
  void Drop(int index);
  // The result of `frame`, whose items and commands have their errors.
  ResultMessage Finish(const v1::StepFrame& frame);

 private:
  struct Item {
    v1::ItemResult result;  // Without its sampled tokens.
    // Those behind the rows that Samples() is true of; none where there is nothing yet, or behind a
    // draft that came out otherwise.
    std::vector<std::optional<v1::TokenLogprob>> sampled;
    std::vector<float> payload;
  };

  static bool WantsRowLogprob(const v1::StepItem& item, uint32_t row);
  // What is sampled behind the row.
  static std::optional<v1::TokenLogprob>* SampleAt(Item* added, const v1::StepItem& item,
                                                   uint32_t row);
  // Whether a draft at or before the row is known to have come out otherwise.
  static bool IsBehindWrongDraft(const Item& added, const v1::StepItem& item, uint32_t row);
  // What is sampled behind the row by.
  SampleRequest RequestAfter(const v1::StepItem& item, const Sequence& sequence,
                             uint32_t row) const;
  absl::Status AddLogprob(const v1::StepItem& item, const Sequence& sequence, uint32_t row,
                          std::span<const float> logits, v1::ItemResult* result);
  absl::Status AddSample(const v1::StepItem& item, const Sequence& sequence, uint32_t row,
                         std::span<const float> logits, Item* added);

  Sampler sampler_;
  const TokenMasks& masks_;
  std::vector<Item> items_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_RESULT_BUILDER_H_
