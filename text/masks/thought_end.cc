#include "text/masks/thought_end.h"

namespace strata {

ThoughtEnd::ThoughtEnd(const std::string& close, std::span<const std::string> tokens)
    : close_(close), fallback_(close.size() + 1, 0), barred_(close.size()) {
  for (State state = 2; state <= close_.size(); ++state) {
    fallback_[state] = Step(fallback_[state - 1], close_[state - 1]);
  }
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    for (State begin = 0; begin < close_.size(); ++begin) {
      State state = begin;
      for (size_t i = 0; i + 1 < token.size() && !Ended(state); ++i) {
        state = Step(state, token[i]);
      }
      if (Ended(state)) {
        barred_[begin].push_back(id);
      }
    }
  }
}

ThoughtEnd::State ThoughtEnd::Step(State state, char byte) const {
  while (state > 0 && close_[state] != byte) {
    state = fallback_[state];
  }
  return close_[state] == byte ? state + 1 : 0;
}

ThoughtEnd::State ThoughtEnd::After(State state, const std::string& token) const {
  for (const char byte : token) {
    if (Ended(state)) {
      break;
    }
    state = Step(state, byte);
  }
  return state;
}

}  // namespace strata
