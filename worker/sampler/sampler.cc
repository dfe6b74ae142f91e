#include "worker/sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "common/numerics/math.h"
#include "common/random.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "common/token_mask_form.h"

namespace strata {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// How many a sort takes first; more only when their mass does not reach.
constexpr size_t kFirstSort = 256;

// The first of the largest of `values`, of which there are some and none is NaN. Of each block the
// largest is found by chains that do not wait for each other.
template <typename T>
size_t FirstLargest(std::span<const T> values) {
  constexpr size_t kChains = 16;
  constexpr size_t kBlock = 512;
  static_assert(kBlock % kChains == 0);
  T largest = values[0];
  size_t in_block = 0;
  size_t begin = 0;
  for (; begin + kBlock <= values.size(); begin += kBlock) {
    const T* const block = values.data() + begin;
    T chains[kChains];
    std::copy_n(block, kChains, chains);
    for (size_t i = kChains; i < kBlock; i += kChains) {
      for (size_t c = 0; c < kChains; ++c) {
        chains[c] = block[i + c] > chains[c] ? block[i + c] : chains[c];
      }
    }
    const T here = *std::max_element(chains, chains + kChains);
    if (here > largest) {
      largest = here;
      in_block = begin;
    }
  }
  const auto rest = std::max_element(values.begin() + static_cast<ptrdiff_t>(begin), values.end());
  if (rest != values.end() && *rest > largest) {
    return static_cast<size_t>(rest - values.begin());
  }
  const auto from = values.begin() + static_cast<ptrdiff_t>(in_block);
  return static_cast<size_t>(std::find(from, values.end(), largest) - values.begin());
}

template <typename T>
T Largest(const std::vector<T>& values) {
  return values[FirstLargest(std::span<const T>(values))];
}

Error NonFinite(const std::string& message) {
  return Error(absl::StatusCode::kInternal, "NON_FINITE", message);
}

}  // namespace

Sampler::Sampler(uint32_t vocab) : vocab_(vocab), logits_(vocab), counts_(vocab, 0) {}

absl::StatusOr<uint32_t> Sampler::Sample(const SampleRequest& request,
                                         std::span<const float> logits) {
  RETURN_IF_ERROR(Prepare(request, logits));
  const double u = UniformDouble(Philox(request.params->seed(), request.params->choice(),
                                        static_cast<uint32_t>(request.ids.size())));
  const double target = u * TotalWeight();
  double cumulated = 0;
  for (const Candidate& candidate : candidates_) {
    cumulated += candidate.weight;
    if (cumulated > target) {
      return candidate.id;
    }
  }
  return candidates_.back().id;  // The product was rounded up to the whole.
}

bool Sampler::TakesLargest(const SampleRequest& request) const {
  return CheckRequest(request).ok() && request.params->temperature() == 0 && request.mask.empty() &&
         !Adjusts(request);
}

absl::StatusOr<std::vector<TokenProbability>> Sampler::Distribution(const SampleRequest& request,
                                                                    std::span<const float> logits) {
  RETURN_IF_ERROR(Prepare(request, logits));
  const double total = TotalWeight();
  std::vector<TokenProbability> distribution;
  distribution.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_) {
    distribution.push_back({candidate.id, candidate.weight / total});
  }
  return distribution;
}

absl::StatusOr<v1::TokenLogprob> Sampler::Logprob(std::span<const float> logits, uint32_t token_id,
                                                  uint32_t top) {
  RETURN_IF_ERROR(CheckLogits(logits));
  if (token_id >= vocab_) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKEN_OUT_OF_RANGE",
                 "token id " + std::to_string(token_id) + " is not below the vocabulary's " +
                     std::to_string(vocab_));
  }
  const double largest = logits[FirstLargest(logits)];
  selection_.assign(logits.begin(), logits.end());
  for (double& logit : selection_) {
    logit -= largest;
  }
  ExpsF64(selection_.data(), selection_.size(), selection_.data());
  const double sum = std::accumulate(selection_.begin(), selection_.end(), 0.0);
  const double log_sum = LogF64(sum);
  auto logprob = [&](uint32_t id) { return static_cast<float>((logits[id] - largest) - log_sum); };
  v1::TokenLogprob result;
  result.set_token_id(token_id);
  result.set_logprob(logprob(token_id));
  if (top == 0) {
    return result;
  }
  order_.resize(vocab_);
  std::iota(order_.begin(), order_.end(), 0);
  const auto end = order_.begin() + std::min(top, vocab_);
  std::partial_sort(order_.begin(), end, order_.end(), [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (auto id = order_.begin(); id != end && std::isfinite(logits[*id]); ++id) {
    v1::TokenLogprob::Top* entry = result.add_top();
    entry->set_token_id(*id);
    entry->set_logprob(logprob(*id));
  }
  return result;
}

absl::Status Sampler::Prepare(const SampleRequest& request, std::span<const float> logits) {
  RETURN_IF_ERROR(CheckLogits(logits));
  RETURN_IF_ERROR(CheckRequest(request));
  if (!request.mask.empty()) {
    RETURN_IF_ERROR(Mask(request.mask, logits));
    logits = masked_;
  }
  const v1::SamplingParams& params = *request.params;
  if (params.temperature() == 0 && !Adjusts(request)) {
    candidates_.assign(1, {0, 1, static_cast<uint32_t>(FirstLargest(logits))});
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Adjust(request, logits));
  if (params.temperature() == 0) {
    const size_t best = FirstLargest(std::span<const double>(logits_));
    candidates_.assign(1, {0, 1, static_cast<uint32_t>(best)});
    return absl::OkStatus();
  }
  Weigh(params.top_k() > 0 && params.top_k() < vocab_ ? KthLargest(params.top_k())
                                                      : kMinusInfinity);
  if (params.top_p() < 1) {
    KeepTopP(params.top_p());
  }
  if (params.min_p() > 0) {
    KeepMinP(params.min_p());
  }
  if (params.typical_p() < 1) {
    KeepTypical(params.typical_p());
  }
  return absl::OkStatus();
}

absl::Status Sampler::CheckRequest(const SampleRequest& request) const {
  RETURN_IF_ERROR(CheckSamplingComplete(*request.params));
  RETURN_IF_ERROR(ValidateSampling(*request.params, vocab_));
  for (const std::span<const uint32_t> ids : {request.ids, request.stop_ids}) {
    for (const uint32_t id : ids) {
      if (id >= vocab_) {
        return Error(absl::StatusCode::kInvalidArgument, "TOKEN_OUT_OF_RANGE",
                     "token id " + std::to_string(id) + " is not below the vocabulary's " +
                         std::to_string(vocab_));
      }
    }
  }
  if (!request.mask.empty() && request.mask.size() != MaskWords(vocab_)) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKEN_MASK",
                 "a token mask of " + std::to_string(request.mask.size()) +
                     " words for a vocabulary of " + std::to_string(vocab_));
  }
  return absl::OkStatus();
}

absl::Status Sampler::Mask(std::span<const uint32_t> mask, std::span<const float> logits) {
  constexpr float kBarred = -std::numeric_limits<float>::infinity();
  masked_.resize(vocab_);
  float most = kBarred;
  for (size_t word = 0; word < mask.size(); ++word) {
    const size_t begin = word * 32;
    const size_t count = std::min<size_t>(32, vocab_ - begin);
    for (size_t i = 0; i < count; ++i) {
      const float logit = (mask[word] >> i & 1) != 0 ? logits[begin + i] : kBarred;
      masked_[begin + i] = logit;
      most = logit > most ? logit : most;
    }
  }
  return most > kBarred ? absl::OkStatus()
                        : NonFinite("every logit of a token that the mask admits is -inf");
}

absl::Status Sampler::CheckLogits(std::span<const float> logits) const {
  if (logits.size() != vocab_ || vocab_ == 0) {
    return Error(
        absl::StatusCode::kInternal, "LOGITS_SIZE",
        std::to_string(logits.size()) + " logits for a vocabulary of " + std::to_string(vocab_));
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // No branches, so that several are looked at at once.
  uint32_t below = 0;
  uint32_t above = 0;
  for (const float logit : logits) {
    below += logit < kInfinity;  // No NaN is.
    above += logit > -kInfinity;
  }
  if (below != logits.size()) {
    const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                      [](float logit) { return logit < kInfinity; });
    return NonFinite("the logit of token " + std::to_string(bad - logits.begin()) + " is " +
                     (std::isnan(*bad) ? "NaN" : "+inf"));
  }
  return above > 0 ? absl::OkStatus() : NonFinite("every logit is -inf");
}

bool Sampler::Adjusts(const SampleRequest& request) {
  const v1::SamplingParams& params = *request.params;
  return params.logit_bias_size() > 0 || params.frequency_penalty() != 0 ||
         params.presence_penalty() != 0 || params.repetition_penalty() != 1 || Bars(request);
}

bool Sampler::Bars(const SampleRequest& request) {
  return !request.stop_ids.empty() &&
         request.ids.size() < uint64_t{request.prompt_length} + request.min_tokens;
}

absl::Status Sampler::Adjust(const SampleRequest& request, std::span<const float> logits) {
  const v1::SamplingParams& params = *request.params;
  std::copy(logits.begin(), logits.end(), logits_.begin());
  for (const auto& [id, bias] : params.logit_bias()) {
    logits_[id] += bias;
  }
  Penalize(request);
  RETURN_IF_ERROR(BarStops(request));
  if (const double temperature = params.temperature(); temperature != 0 && temperature != 1) {
    for (double& logit : logits_) {
      logit /= temperature;
    }
  }
  return absl::OkStatus();
}

void Sampler::Penalize(const SampleRequest& request) {
  const v1::SamplingParams& params = *request.params;
  const double frequency = params.frequency_penalty();
  const double presence = params.presence_penalty();
  const double repetition = params.repetition_penalty();
  if (frequency != 0 || presence != 0) {
    const auto output =
        request.ids.subspan(std::min<size_t>(request.prompt_length, request.ids.size()));
    for (const uint32_t id : output) {
      ++counts_[id];
    }
    for (const uint32_t id : output) {
      if (counts_[id] > 0) {
        logits_[id] -= counts_[id] * frequency + presence;
        counts_[id] = 0;
      }
    }
  }
  if (repetition != 1) {
    for (const uint32_t id : request.ids) {
      if (counts_[id] == 0) {
        counts_[id] = 1;
        logits_[id] = logits_[id] < 0 ? logits_[id] * repetition : logits_[id] / repetition;
      }
    }
    for (const uint32_t id : request.ids) {
      counts_[id] = 0;
    }
  }
}

absl::Status Sampler::BarStops(const SampleRequest& request) {
  if (!Bars(request)) {
    return absl::OkStatus();
  }
  for (const uint32_t id : request.stop_ids) {
    logits_[id] = kMinusInfinity;
  }
  return Largest(logits_) > kMinusInfinity
             ? absl::OkStatus()
             : NonFinite("every logit but those that min_tokens bars is -inf");
}

double Sampler::KthLargest(uint32_t k) {
  selection_ = logits_;
  const auto kth = selection_.begin() + (k - 1);
  std::nth_element(selection_.begin(), kth, selection_.end(), std::greater<>());
  return *kth;
}

void Sampler::Weigh(double threshold) {
  const double largest = Largest(logits_);
  candidates_.clear();
  selection_.clear();
  for (uint32_t id = 0; id < vocab_; ++id) {
    const double logit = logits_[id];
    if (logit >= threshold && logit != kMinusInfinity) {
      candidates_.push_back({logit - largest, 0, id});
      selection_.push_back(logit - largest);
    }
  }
  ExpsF64(selection_.data(), selection_.size(), selection_.data());
  size_t kept = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (selection_[i] > 0) {
      candidates_[kept] = candidates_[i];
      candidates_[kept++].weight = selection_[i];
    }
  }
  candidates_.resize(kept);
}

void Sampler::KeepTopP(double top_p) {
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    ranked_.push_back({-candidate.logit, candidate.weight, candidate.id});
  }
  const Ranked last = LastToReach(top_p * TotalWeight());
  std::erase_if(candidates_, [&last](const Candidate& candidate) {
    return last < Ranked{-candidate.logit, candidate.weight, candidate.id};
  });
}

void Sampler::KeepMinP(double min_p) {
  // The largest weight is 1: its token passes every filter before this one.
  std::erase_if(candidates_,
                [min_p](const Candidate& candidate) { return candidate.weight < min_p; });
}

void Sampler::KeepTypical(double typical_p) {
  const double total = TotalWeight();
  const double log_total = LogF64(total);
  double entropy = 0;
  for (const Candidate& candidate : candidates_) {
    entropy -= candidate.weight / total * (candidate.logit - log_total);
  }
  auto surprise = [&](const Candidate& candidate) {
    return std::abs(log_total - candidate.logit - entropy);
  };
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    ranked_.push_back({surprise(candidate), candidate.weight, candidate.id});
  }
  const double limit = LastToReach(typical_p * total).rank;
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return surprise(candidate) > limit; });
}

Sampler::Ranked Sampler::LastToReach(double mass) {
  double cumulated = 0;
  size_t begin = 0;
  for (size_t chunk = kFirstSort; begin < ranked_.size(); chunk *= 4) {
    const size_t end = std::min(ranked_.size(), begin + chunk);
    const auto first = ranked_.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = ranked_.begin() + static_cast<ptrdiff_t>(end);
    std::nth_element(first, last - 1, ranked_.end());
    std::sort(first, last);
    for (; begin < end; ++begin) {
      cumulated += ranked_[begin].weight;
      if (cumulated >= mass) {
        return ranked_[begin];
      }
    }
  }
  return ranked_.back();
}

double Sampler::TotalWeight() const {
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.weight;
  }
  return total;
}

}  // namespace strata
