// mask_program CPU_SECONDS MEMORY_BYTES MASK_MS
#include "text/masks/mask_program.h"

int main(int argc, char** argv) {
  return argc != 4 ? 2 : strata::RunMaskProgram(0, 1, strata::MaskProgramLimitsOf(argv + 1));
}
