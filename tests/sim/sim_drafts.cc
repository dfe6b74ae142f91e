#include "tests/sim/sim_drafts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "common/fingerprint.h"
#include "tests/sim/exact_model.h"

namespace strata::sim {
namespace {

// No session has more.
constexpr uint32_t kMostTokens = 200;

// What the scenario's requests must be answered with, each worked out once.
class Answers {
 public:
  explicit Answers(const Scenario& scenario)
      : requests_(scenario.requests), model_(ExactModelSpec(scenario.layers)) {}

  // What must follow `tokens`, if they are the beginning of a request and its answer.
  std::vector<uint32_t> After(std::span<const uint32_t> tokens) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const std::vector<uint32_t>& prompt = requests_[i].prompt;
      if (tokens.size() < prompt.size() ||
          !std::equal(prompt.begin(), prompt.end(), tokens.begin())) {
        continue;
      }
      const std::vector<uint32_t>& answer = AnswerOf(i);
      const std::span<const uint32_t> said = tokens.subspan(prompt.size());
      if (said.size() <= answer.size() && std::equal(said.begin(), said.end(), answer.begin())) {
        return {answer.begin() + static_cast<ptrdiff_t>(said.size()), answer.end()};
      }
    }
    return {};
  }

 private:
  const std::vector<uint32_t>& AnswerOf(size_t request) {
    const auto [known, is_new] = known_.try_emplace(request);
    if (is_new) {
      const ClientRequest& asked = requests_[request];
      const uint32_t count = std::min(asked.max_tokens, kMostTokens);
      known->second = ExactAnswer(model_, asked.prompt, asked.params, count, asked.held);
    }
    return known->second;
  }

  const std::vector<ClientRequest> requests_;
  const ModelSpec model_;
  std::map<size_t, std::vector<uint32_t>> known_;
};

class SimDrafter : public Drafter {
 public:
  SimDrafter(std::shared_ptr<Answers> answers, uint32_t right)
      : answers_(std::move(answers)), right_(right) {}

  Draft Next(std::span<const uint32_t> tokens, uint32_t most) override {
    const std::vector<uint32_t> rest = answers_->After(tokens);
    Draft draft;
    draft.matched = tokens.size() % 2 == 0 ? 3 : 30;
    for (uint32_t i = 0; i < most; ++i) {
      const uint64_t drawn = Mix64(tokens.size() << 8 | i);
      const bool right = i < rest.size() && rest[i] != kPoisonToken && drawn % 100 < right_;
      draft.tokens.push_back(right ? rest[i] : static_cast<uint32_t>(Mix64(drawn) % kPoisonToken));
    }
    return draft;
  }

 private:
  const std::shared_ptr<Answers> answers_;
  const uint32_t right_;
};

}  // namespace

MakeDrafter DraftersOf(const Scenario& scenario) {
  return [answers = std::make_shared<Answers>(scenario), right = scenario.drafts_right](
             Speculate speculate, uint32_t) -> std::unique_ptr<Drafter> {
    if (speculate == Speculate::kOff) {
      return nullptr;
    }
    return std::make_unique<SimDrafter>(answers, right);
  };
}

std::vector<uint32_t> GuessesFor(const Scenario& scenario, const GuessRequest& request) {
  const auto guesser = DraftersOf(scenario)(Speculate::kAuto, 0);
  return guesser->Next(request.tokens, request.most).tokens;
}

}  // namespace strata::sim
