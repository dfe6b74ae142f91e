// Where a thought ends, token by token: at a token whose bytes complete its end, never within one.
#ifndef STRATA_TEXT_MASKS_THOUGHT_END_H_
#define STRATA_TEXT_MASKS_THOUGHT_END_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

// Immutable; any thread.
class ThoughtEnd {
 public:
  // `close`: at least a byte. `tokens`: by id, as bytes.
  ThoughtEnd(const std::string& close, std::span<const std::string> tokens);

  // Bytes of `close` that the thought ends with.
  using State = uint32_t;
  // After one more token that the state does not bar.
  State After(State state, const std::string& token) const;
  bool Ended(State state) const { return state == close_.size(); }
  // Tokens that would go on behind `close`.
  const std::vector<uint32_t>& Barred(State state) const { return barred_[state]; }

 private:
  State Step(State state, char byte) const;

  const std::string close_;
  std::vector<State> fallback_;  // The longest shorter state that is a suffix.
  std::vector<std::vector<uint32_t>> barred_;
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_THOUGHT_END_H_
