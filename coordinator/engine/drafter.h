// Who guesses how an answer goes on. A guess costs rows and changes no token (docs/internals/
// drafts.md).
#ifndef STRATA_COORDINATOR_ENGINE_DRAFTER_H_
#define STRATA_COORDINATOR_ENGINE_DRAFTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata {

// Most drafted tokens of a session in a step.
inline constexpr uint32_t kMostDrafts = 15;
// Steps of a session in flight over several stages, each on the guess that those before it are
// right, and what is drafted for all of them.
inline constexpr uint32_t kMostSteps = 4;
inline constexpr uint32_t kMostGuesses = kMostSteps * (kMostDrafts + 1) - 1;

// Which drafters a session has.
enum class Speculate {
  kOff,     // None.
  kLookup,  // What its own tokens did before.
  kAuto,    // All that there are.
};

// "off", "lookup" or "auto"; `unsaid` for "". INVALID_ARGUMENT (BAD_SPECULATE) names others.
absl::StatusOr<Speculate> ParseSpeculate(std::string_view text, Speculate unsaid);

// How a model is loaded: what Speculate says, or a model that guesses for it too.
struct LoadSpeculate {
  Speculate by = Speculate::kOff;
  std::string model;  // "": none.
};

// As ParseSpeculate, and "model=NAME": kAuto with that model.
absl::StatusOr<LoadSpeculate> ParseLoadSpeculate(std::string_view text);

// Where drafted tokens are from.
enum class DraftSource { kRequest, kRecentAnswer, kConstraint, kModel };
inline constexpr DraftSource kDraftSources[] = {DraftSource::kRequest, DraftSource::kRecentAnswer,
                                                DraftSource::kConstraint, DraftSource::kModel};
std::string_view DraftSourceName(DraftSource source);

struct Draft {
  std::vector<uint32_t> tokens;
  // How many tokens before them spoke for it: more are to be trusted more. 0: the tokens go on with
  // a copy that was just changed.
  uint32_t matched = 0;
  DraftSource source = DraftSource::kRequest;
};

// Of one session. A pure function of the calls so far: no clock, nothing random. One thread.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most `most` > 0 tokens that may follow `tokens`, which begin with those of the call before;
  // none where nothing is known. Its time is bounded, whatever the number of tokens.
  virtual Draft Next(std::span<const uint32_t> tokens, uint32_t most) = 0;
  // At most `most` > 0 tokens that may follow `ahead`, should that follow the tokens of the newest
  // Next.
  virtual Draft Behind(std::span<const uint32_t> /*tokens*/, std::span<const uint32_t> /*ahead*/,
                       uint32_t /*most*/) {
    return {};
  }
};

// Of a session that will have `most_tokens` tokens at most; null: none.
using MakeDrafter = std::function<std::unique_ptr<Drafter>(Speculate, uint32_t most_tokens)>;
std::unique_ptr<Drafter> NewDrafter(Speculate speculate, uint32_t most_tokens);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_DRAFTER_H_
