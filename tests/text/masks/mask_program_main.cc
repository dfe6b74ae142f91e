// mask_program CPU_SECONDS MEMORY_BYTES
#include <cstdlib>

#include "text/masks/mask_program.h"

int main(int argc, char** argv) {
  return argc != 3 ? 2
                   : strata::RunMaskProgram(0, 1, std::strtoull(argv[1], nullptr, 10),
                                            std::strtoull(argv[2], nullptr, 10));
}
