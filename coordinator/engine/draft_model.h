// Guesses of a draft model: a smaller model with the same vocabulary, which another engine runs,
// goes on with a session's tokens. It is asked beside the steps and answers later, or never.
#ifndef STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_H_
#define STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// What is asked of one session.
struct GuessRequest {
  std::string key;               // SessionRequest::key, for Engine::OnGuesses.
  std::string cache_salt;        // SessionRequest::cache_salt: guesses share prefixes like answers.
  v1::SequenceParams params;     // The session's: alike models draw alike by the same seed.
  std::vector<uint32_t> tokens;  // Prompt, and what the answer has.
  uint32_t most = 0;             // Guesses that are wanted behind them. > 0.
};

// How long guesses take to come, and how many are worth waiting for. Of an engine's sessions. One
// thread.
class GuessPace {
 public:
  // So many guesses came `took` after they were asked for.
  void Observe(uint32_t guesses, nanoseconds took);
  // None came, though some were asked for: nobody is asked until this long after.
  void NoteNone(TimePoint now);
  bool may_ask(TimePoint now) const { return now >= none_until_; }

  // How many to ask for, of at most `most`: as many as give the most tokens a second where each is
  // right with `chance` if those before it are, and a step with so many drafted rows takes
  // `cycle_ms` after them. 0 where that gains less than kLeastDraftGain. As long as nothing is
  // known of their time or of the steps', a few.
  uint32_t Worth(double chance, uint32_t most,
                 const std::function<double(uint32_t)>& cycle_ms) const;
  // How long a step may wait for so many.
  nanoseconds Patience(uint32_t guesses) const;

 private:
  double guess_ms_ = 0;  // A guess, of the newest asks above all; 0: not known.
  TimePoint none_until_{0};
};

// What became of asking for one session. One thread.
class SessionGuesses {
 public:
  // `asks`: a draft model is asked for it.
  explicit SessionGuesses(bool asks = false) : asks_(asks) {}

  // Whether it may be asked about `known` tokens: it was not yet, and no answer is outstanding.
  bool MayAsk(uint32_t known) const { return asks_ && !asked_at_.has_value() && known > known_; }
  // `most` guesses behind `known` tokens were asked for, and are waited for until `until`.
  void Asked(uint32_t known, uint32_t most, TimePoint now, TimePoint until);
  // None are asked for behind these.
  void Skip(uint32_t known) { known_ = known; }
  // The answer came: how many had been asked for, and when. Nullopt: nobody had asked.
  std::optional<std::pair<uint32_t, TimePoint>> Answered();
  // Until when a step of `known` tokens waits; nullopt: it does not.
  std::optional<TimePoint> AwaitedUntil(uint32_t known, TimePoint now) const;

 private:
  bool asks_;
  uint32_t known_ = 0;  // Tokens that it was asked about last.
  uint32_t most_ = 0;
  std::optional<TimePoint> asked_at_;  // Its answer is outstanding.
  TimePoint until_{0};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_DRAFT_MODEL_H_
