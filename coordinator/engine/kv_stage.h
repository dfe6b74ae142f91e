// What a stage was granted of KV memory, and what a sequence takes of it.
#ifndef STRATA_COORDINATOR_ENGINE_KV_STAGE_H_
#define STRATA_COORDINATOR_ENGINE_KV_STAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/limits.h"

namespace strata {

// One stage's grant.
struct KvStage {
  std::string node;             // Named in errors.
  std::vector<uint64_t> pages;  // By KV group; 0 where no layer of the stage uses the group.
};

// Pages of a sequence of `length` tokens in each full group that a stage uses.
inline uint32_t FullGroupPages(uint32_t length) {
  return static_cast<uint32_t>((uint64_t{length} + kPageTokens - 1) / kPageTokens);
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_KV_STAGE_H_
