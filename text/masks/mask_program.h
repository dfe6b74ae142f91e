// The process that compiles grammars.
#ifndef STRATA_TEXT_MASKS_MASK_PROGRAM_H_
#define STRATA_TEXT_MASKS_MASK_PROGRAM_H_

#include <cstdint>

#include "common/clock.h"
#include "text/masks/mask_time.h"

namespace strata {

// Closes all that the process has open but its standard streams: connections of who started it end
// when that closes them.
void CloseInherited();

struct MaskProgramLimits {
  uint64_t cpu_seconds = 0;                      // Of the process; 0: none.
  uint64_t memory_bytes = 0;                     // Likewise; not limited under sanitizers.
  nanoseconds mask_time = MaskTimeLimits().one;  // Of the first mask.
};

// The limits that three numbers are: seconds, bytes and milliseconds, in that order.
MaskProgramLimits MaskProgramLimitsOf(char** arguments);

// Takes limits on its own process, reads one MaskRequest from the socket `in` up to its end, and
// writes one MaskAnswer to `out`. Returns the exit code. Beyond a limit the process ends as the
// system ends it.
int RunMaskProgram(int in, int out, const MaskProgramLimits& limits);

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_MASK_PROGRAM_H_
