#include "tests/worker/backend/models/made_up_stage.h"

#include "common/checkpoint/checkpoint.h"

namespace strata::testing {

MadeUpStage WholeModel(const MadeUpModel& model) {
  MadeUpStage stage;
  StageSpec& spec = stage.spec;
  spec.model = model.spec();
  spec.last_layer = static_cast<uint32_t>(spec.model.layers.size()) - 1;
  spec.embeds = true;
  spec.heads = true;
  spec.context = 256;
  spec.kv_pages = {64};
  spec.max_batch_tokens = 32;
  spec.max_batch_items = 4;
  stage.rotary = MakeRotaryTables(spec.model, spec.context);
  spec.rotary = stage.rotary;
  return stage;
}

}  // namespace strata::testing
