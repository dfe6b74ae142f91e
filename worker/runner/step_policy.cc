#include "worker/runner/step_policy.h"

#include "common/model/model_spec.h"

namespace strata::step_policy {

bool EpochIsOld(uint64_t epoch, uint64_t loaded) { return epoch < loaded; }

bool EpochIsNotLoaded(uint64_t epoch, uint64_t loaded) { return epoch > loaded; }

bool StepWasSeen(uint64_t step, uint64_t last) { return step <= last; }

bool StepFollows(uint64_t step, uint64_t last) { return step == last + 1; }

bool PositionMatches(uint32_t position, uint32_t length) { return position == length; }

bool LengthIsHeld(uint32_t length, uint32_t present) { return length <= present; }

bool FingerprintMatches(Fingerprint named, Fingerprint held) { return named == held; }

bool NumberIsNew(uint64_t number, uint64_t newest) { return number > newest; }

bool PositionBegins(uint32_t position) { return position == 0; }

bool PageNeedsCopy(uint32_t references) { return references > 1; }

bool WindowIsRetained(uint32_t first_retained, uint32_t length, uint32_t window) {
  return first_retained <= FirstSeen(length, window);
}

bool SliceFollows(uint32_t from, uint32_t next_layer) { return from == next_layer; }

bool SliceStaysBehind(uint32_t end, uint32_t before) { return end <= before; }

bool CarriedIsMeant(Fingerprint said, Fingerprint computed) { return said == computed; }

bool CarriedIsWhole(uint64_t there, uint64_t needed) { return (there & needed) == needed; }

bool SurvivesResync(bool named) { return named; }

}  // namespace strata::step_policy
