// AMX's instructions for machines without them, so that kernels are tested as they are compiled.
#ifndef STRATA_TESTS_WORKER_BACKEND_TILE_EMULATOR_H_
#define STRATA_TESTS_WORKER_BACKEND_TILE_EMULATOR_H_

#include <cstdint>

namespace strata::cpu {

// From now on what this process may not execute is looked at, and computed by Tiles (tiles.h) if it
// is one of AMX's instructions that the kernels have; anything else ends the process. False on
// systems where it cannot be done.
bool EmulateTiles();
// How many there were so far.
uint64_t EmulatedTileInstructions();

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_TILE_EMULATOR_H_
