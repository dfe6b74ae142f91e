// Drafters that know the answers, for tests: one that always lies, one that is always right, and
// what is between.
#ifndef STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_DRAFTER_H_
#define STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_DRAFTER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/fingerprint.h"
#include "coordinator/engine/drafter.h"

namespace strata {

// Answers by their prompts; several where sampling differs.
using KnownAnswers = std::multimap<std::vector<uint32_t>, std::vector<uint32_t>>;

// Says of each token the right one with this probability, and else another one. Of a prompt that is
// not known, or behind the end of its answer, any.
class ScriptedDrafter : public Drafter {
 public:
  ScriptedDrafter(std::shared_ptr<const KnownAnswers> answers, double right, uint32_t vocab)
      : answers_(std::move(answers)), right_(right), vocab_(vocab) {}

  Draft Next(std::span<const uint32_t> tokens, uint32_t most) override {
    return After(RestOf(tokens), tokens.size(), most);
  }
  Draft Behind(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
               uint32_t most) override {
    std::vector<uint32_t> all(tokens.begin(), tokens.end());
    all.insert(all.end(), ahead.begin(), ahead.end());
    return After(RestOf(all), all.size(), most);
  }

 private:
  Draft After(const std::vector<uint32_t>& rest, size_t known, uint32_t most) const {
    Draft draft;
    draft.matched = 32;
    for (uint32_t i = 0; i < most; ++i) {
      const uint64_t drawn = Mix64(known << 8 | i);
      const auto any = static_cast<uint32_t>(drawn % vocab_);
      if (i >= rest.size()) {
        draft.tokens.push_back(any);
      } else {
        const bool lies = static_cast<double>(Mix64(drawn) % 1000) >= 1000 * right_;
        draft.tokens.push_back(lies ? (rest[i] + 1 + any % (vocab_ - 1)) % vocab_ : rest[i]);
      }
    }
    return draft;
  }
  // What is known to follow.
  std::vector<uint32_t> RestOf(std::span<const uint32_t> tokens) const {
    for (const auto& [prompt, answer] : *answers_) {
      if (tokens.size() < prompt.size() ||
          !std::equal(prompt.begin(), prompt.end(), tokens.begin())) {
        continue;
      }
      const std::span<const uint32_t> said = tokens.subspan(prompt.size());
      if (said.size() <= answer.size() && std::equal(said.begin(), said.end(), answer.begin())) {
        return {answer.begin() + static_cast<ptrdiff_t>(said.size()), answer.end()};
      }
    }
    return {};
  }

  const std::shared_ptr<const KnownAnswers> answers_;
  const double right_;
  const uint32_t vocab_;
};

// For EngineConfig::make_drafter.
inline MakeDrafter Scripted(std::shared_ptr<const KnownAnswers> answers, double right,
                            uint32_t vocab) {
  return [answers = std::move(answers), right, vocab](Speculate speculate, uint32_t) {
    return speculate == Speculate::kOff ? nullptr
                                        : std::make_unique<ScriptedDrafter>(answers, right, vocab);
  };
}

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_ENGINE_SCRIPTED_DRAFTER_H_
