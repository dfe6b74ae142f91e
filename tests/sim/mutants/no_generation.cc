// A worker that creates a sequence under any generation.
#define GenerationIsNew GuardedGenerationIsNew
#include "worker/runner/step_policy.cc"
#undef GenerationIsNew

namespace strata::step_policy {

bool GenerationIsNew(uint64_t generation, uint64_t newest) { return true; }

}  // namespace strata::step_policy
