// Chooses the next token from a row of raw logits: a pure function of the sampling parameters, the
// prompt's length, the ids so far, and the row. Nothing of the machine, the batch or the time
// reaches it, so the same arguments give the same token everywhere.
//
// Where a mask is given, the logits of tokens that are not in it count as -inf. Steps, in this
// order (each filter sees the distribution that the one before left, normalized):
//   1. logit_bias is added.
//   2. logit -= count * frequency_penalty + (count > 0) * presence_penalty, counting output ids.
//   3. Repetition, once for every id of prompt or output: a logit below 0 is multiplied by the
//      penalty, another divided.
//   4. As long as there are less than min_tokens output ids, the logits of stop_ids become -inf.
//   5. Logits are divided by the temperature; at 0 the largest wins, the lowest id among equals,
//      and nothing below applies.
//   6. top_k drops what is less than the k-th largest logit. 0 is off.
//   7. top_p keeps, from the most probable down (ties: lowest id first), whatever has less than
//      top_p of the mass before it; the first always stays.
//   8. min_p drops what is less than min_p times the largest probability.
//   9. typical_p orders by |-log p - H|, keeps the fewest whose mass reaches typical_p, and
//      whatever is as typical as the last of them.
//  10. The draw: u in [0, 1) from Philox(seed, choice, position of the new token); the first id,
//      ascending, whose cumulated weight exceeds u times the whole.
// A logit of -inf stays out whatever the bias. Arithmetic is in double, with exp and log of ours;
// sums run in ascending order of ids (steps 5, 9, 10) or in the order that the step sorts by (7,
// 9).
#ifndef STRATA_WORKER_SAMPLER_SAMPLER_H_
#define STRATA_WORKER_SAMPLER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/shard.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// What a token is chosen for. `ids` are all tokens before it, those of the prompt first, so the
// new token's position is ids.size().
struct SampleRequest {
  const v1::SamplingParams* params = nullptr;  // Complete and valid; not owned.
  uint32_t prompt_length = 0;                  // The ids before it are the prompt's.
  std::span<const uint32_t> ids;
  uint32_t min_tokens = 0;                  // For so many output tokens none of stop_ids is chosen.
  std::span<const uint32_t> stop_ids = {};  // In any order; what is named twice counts once.
  // One bit for each id, the lowest bit of the first word being id 0: only tokens of it are chosen.
  // Empty: any.
  std::span<const uint32_t> mask = {};
};

// What `params` ask for after `ids`; both outlive it.
inline SampleRequest SampleRequestOf(const v1::SequenceParams& params,
                                     std::span<const uint32_t> ids) {
  return {&params.sampling(),
          params.prompt_length(),
          ids,
          params.min_tokens(),
          {params.stop_ids().data(), static_cast<size_t>(params.stop_ids_size())}};
}

// An id that may be drawn.
struct TokenProbability {
  uint32_t token_id = 0;
  double probability = 0;  // > 0; they add up to 1 within rounding.
};

// Holds scratch memory only; no call depends on the ones before. One thread at a time.
class Sampler {
 public:
  // For rows of `vocab` logits.
  explicit Sampler(uint32_t vocab);

  // The token. Errors: INVALID_ARGUMENT for parameters (see sampling_params.h) and ids outside of
  // the vocabulary; INTERNAL (NON_FINITE) for logits that are empty, NaN, +inf, or -inf throughout,
  // and for those of which the mask or step 4 leaves none.
  absl::StatusOr<uint32_t> Sample(const SampleRequest& request, std::span<const float> logits);

  // Whether Sample would take the largest of any logits as they are, the lowest id among equals:
  // valid parameters with temperature 0, no mask, and steps 1 to 4 change nothing.
  bool TakesLargest(const SampleRequest& request) const;

  // What Sample draws from, by ascending id. Errors as Sample.
  absl::StatusOr<std::vector<TokenProbability>> Distribution(const SampleRequest& request,
                                                             std::span<const float> logits);

  // log softmax(logits)[token_id], natural, and the `top` most probable ids with theirs, in
  // descending order, ties by ascending id, without those of probability 0. Sampling parameters
  // play no part. Errors as Sample.
  absl::StatusOr<v1::TokenLogprob> Logprob(std::span<const float> logits, uint32_t token_id,
                                           uint32_t top);

 private:
  struct Candidate {
    double logit;   // After step 5, less the largest: <= 0.
    double weight;  // exp(logit): the largest has 1.
    uint32_t id;
  };
  struct Ranked {
    double rank;  // What a step sorts by, ascending; ties by id.
    double weight;
    uint32_t id;
    bool operator<(const Ranked& other) const {
      return rank != other.rank ? rank < other.rank : id < other.id;
    }
  };

  // Steps 1 to 9: leaves the survivors in candidates_, by ascending id.
  absl::Status Prepare(const SampleRequest& request, std::span<const float> logits);
  absl::Status CheckRequest(const SampleRequest& request) const;
  absl::Status CheckLogits(std::span<const float> logits) const;
  // masked_: the logits, and -inf of what is not in the mask.
  absl::Status Mask(std::span<const uint32_t> mask, std::span<const float> logits);
  // Whether steps 1 to 4 change anything; whether the last of them does.
  static bool Adjusts(const SampleRequest& request);
  static bool Bars(const SampleRequest& request);
  absl::Status Adjust(const SampleRequest& request, std::span<const float> logits);
  void Penalize(const SampleRequest& request);
  absl::Status BarStops(const SampleRequest& request);
  double KthLargest(uint32_t k);
  void Weigh(double threshold);
  void KeepTopP(double top_p);
  void KeepMinP(double min_p);
  void KeepTypical(double typical_p);
  // The last of the fewest of ranked_, in order, whose weights add up to `mass`. Sorts no more
  // than it needs.
  Ranked LastToReach(double mass);
  double TotalWeight() const;

  const uint32_t vocab_;
  std::vector<float> masked_;
  std::vector<double> logits_;
  std::vector<double> selection_;  // What a step works on: logits, or their exponentials.
  std::vector<Candidate> candidates_;
  std::vector<Ranked> ranked_;
  std::vector<uint32_t> counts_;  // By id; all 0 between calls.
  std::vector<uint32_t> order_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SAMPLER_SAMPLER_H_
