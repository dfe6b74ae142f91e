// The fence's decisions, each a question with one answer, in a translation unit of their own: a
// test links another one to show that taking any of them away serves a request from wrong state.
#ifndef STRATA_WORKER_RUNNER_STEP_POLICY_H_
#define STRATA_WORKER_RUNNER_STEP_POLICY_H_

#include <cstdint>

#include "common/fingerprint.h"

namespace strata::step_policy {

// A frame of `epoch` while `loaded` is the present one: of the past, discarded.
bool EpochIsOld(uint64_t epoch, uint64_t loaded);
// Of the future, never computed.
bool EpochIsNotLoaded(uint64_t epoch, uint64_t loaded);

// Steps of one epoch count up by one from 1; `last` is the newest taken.
bool StepWasSeen(uint64_t step, uint64_t last);
bool StepFollows(uint64_t step, uint64_t last);

// An item or command names the state that it means by length and fingerprint.
bool PositionMatches(uint32_t position, uint32_t length);
// A fork or truncation to `length` of a sequence that has `present` tokens.
bool LengthIsHeld(uint32_t length, uint32_t present);
bool FingerprintMatches(Fingerprint named, Fingerprint held);

// Whether a name may be created: `newest` is the newest number ever created.
bool NumberIsNew(uint64_t number, uint64_t newest);
// A sequence begins at its first token.
bool PositionBegins(uint32_t position);

// Whether a page with so many holders must be copied before it is written.
bool PageNeedsCopy(uint32_t references);

// Whether positions from `first_retained` on suffice for a sequence of `length` tokens whose next
// query sees `window` keys, its own included.
bool WindowIsRetained(uint32_t first_retained, uint32_t length, uint32_t window);

// A slice of an item begins at the layer where the one before it ended.
bool SliceFollows(uint32_t from, uint32_t next_layer);
// And ends where the tokens before it are computed: at most at their next layer.
bool SliceStaysBehind(uint32_t end, uint32_t before);

// Whether KV that comes from another stage, `said` to be of some tokens, is of those that are named
// with it.
bool CarriedIsMeant(Fingerprint said, Fingerprint computed);

// Whether a page is of use that has come from the stages `there` (a bit each), and that those
// `needed` hold layers of.
bool CarriedIsWhole(uint64_t there, uint64_t needed);

// After a fence, whether a sequence stays that the first frame does (not) name.
bool SurvivesResync(bool named);

}  // namespace strata::step_policy

#endif  // STRATA_WORKER_RUNNER_STEP_POLICY_H_
