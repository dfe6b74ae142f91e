// What a test binary allocates by operator new. counting_allocator.cc replaces that in the binary
// whose sources list it; so such tests are binaries of their own.
#ifndef STRATA_TESTS_COUNTING_ALLOCATOR_H_
#define STRATA_TESTS_COUNTING_ALLOCATOR_H_

#include <cstdint>

namespace strata::testing {

// False under sanitizers, whose allocators cannot be replaced: then all below is 0.
bool CountsAllocations();
uint64_t Allocations();     // Since the process began.
uint64_t AllocatedBytes();  // By these, given back or not.
uint64_t LiveBytes();
// The most since the last call of ResetPeak.
uint64_t PeakBytes();
void ResetPeak();

}  // namespace strata::testing

#endif  // STRATA_TESTS_COUNTING_ALLOCATOR_H_
