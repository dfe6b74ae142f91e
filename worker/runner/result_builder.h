// The last stage's answer: samples and log-probabilities of wanted rows, and raw logits.
#ifndef STRATA_WORKER_RUNNER_RESULT_BUILDER_H_
#define STRATA_WORKER_RUNNER_RESULT_BUILDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/frame.h"
#include "worker/runner/sequence_table.h"
#include "worker/sampler/sampler.h"

namespace strata {

// One thread. Rows come item by item, ascending.
class ResultBuilder {
 public:
  explicit ResultBuilder(uint32_t vocab) : vocab_(vocab), sampler_(vocab) {}

  // Begins the result of a frame with so many items.
  void Begin(int items);
  // One wanted row of an item whose ids `sequence` has already. After an error the item's rows are
  // to be dropped with Drop.
  absl::Status AddRow(int index, const v1::StepItem& item, const Sequence& sequence, uint32_t row,
                      std::span<const float> logits);
  // Takes back what was added for the item; only for the newest one with rows.
  void Drop(int index);
  // The result of `frame`, whose items and commands have their errors.
  ResultMessage Finish(const v1::StepFrame& frame);

 private:
  absl::Status AddLogprob(const v1::StepItem& item, const Sequence& sequence, uint32_t row,
                          std::span<const float> logits, v1::ItemResult* result);
  absl::Status AddSample(const Sequence& sequence, std::span<const float> logits,
                         v1::ItemResult* result);

  const uint32_t vocab_;
  Sampler sampler_;
  std::vector<v1::ItemResult> items_;
  std::vector<float> payload_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_RESULT_BUILDER_H_
