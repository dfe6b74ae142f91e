// The process that compiles grammars.
#ifndef STRATA_TEXT_MASKS_MASK_PROGRAM_H_
#define STRATA_TEXT_MASKS_MASK_PROGRAM_H_

#include <cstdint>

namespace strata {

// Closes all that the process has open but its standard streams: connections of who started it end
// when that closes them.
void CloseInherited();

// Takes limits on its own process (0: none; memory is not limited under sanitizers), reads one
// MaskRequest from the socket `in` up to its end, and writes one MaskAnswer to `out`. Returns the
// exit code. Beyond a limit the process ends as the system ends it.
int RunMaskProgram(int in, int out, uint64_t cpu_seconds, uint64_t memory_bytes);

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_MASK_PROGRAM_H_
