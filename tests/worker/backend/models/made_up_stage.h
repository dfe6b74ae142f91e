// A made-up model whole, as one small stage.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_STAGE_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_STAGE_H_

#include <vector>

#include "tests/worker/backend/models/made_up_model.h"
#include "worker/backend/stage.h"

namespace strata::testing {

// 256 tokens of context, 64 pages of its one KV group, batches of 32 rows and 4 items.
struct MadeUpStage {
  std::vector<float> rotary;  // What spec.rotary is of.
  StageSpec spec;
};

MadeUpStage WholeModel(const MadeUpModel& model);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_MADE_UP_STAGE_H_
