// What all steps of a loaded stage read.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_STAGE_STATE_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_STAGE_STATE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/kv_cache.h"
#include "worker/backend/cpu/shard/rank_link.h"
#include "worker/backend/cpu/shard/rotary_tables.h"
#include "worker/backend/cpu/shard/scratch_sizes.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/stage.h"

namespace strata::cpu {

// Rows that one thread embeds, norms, turns, routes or adds faster than it wakes the others.
inline constexpr size_t kSmallRows = 4;

// The stage, what computes it, and the batch that is computed. The shard changes it between calls;
// a step reads it, and writes KV. What a step computes in besides is its own.
struct StageState {
  // `whole` is the stage's spec, of which this is the link's rank.
  StageState(const StageSpec& whole, const Kernels* kernels, std::shared_ptr<ThreadPool> pool,
             std::unique_ptr<RankLink> link)
      : spec(OfRank(whole, *link)),
        kernels(kernels),
        pool(std::move(pool)),
        link(std::move(link)),
        kv_f16(spec.kv_dtype != v1::KV_DTYPE_F32),
        sizes(spec, *kernels, this->pool->threads(),
              this->link->AttendedWidth(whole.first_layer, whole.last_layer)),
        rotary(spec) {}

  // `layer` is the model's index.
  const LayerSpec& layer(uint32_t layer) const { return spec.model.layers[layer]; }
  const LayerWeights& layer_weights(uint32_t layer) const {
    return weights.layers[layer - spec.first_layer];
  }

  // Of the stage, but that its layers have this rank's heads alone. Only ResizeKv changes it:
  // kv_pages.
  StageSpec spec;
  const Kernels* const kernels;
  const std::shared_ptr<ThreadPool> pool;
  const std::unique_ptr<RankLink> link;
  const bool kv_f16;
  const ScratchSizes sizes;
  RotaryTables rotary;
  StageWeights weights;
  KvCache kv;
  Batch batch;

 private:
  static StageSpec OfRank(StageSpec spec, const RankLink& link) {
    spec.model = WithHeadsOf(link.outputs(), std::move(spec.model));
    return spec;
  }
};

// function(item, row) for every row of the batch.
template <typename Function>
void EachRow(const StageState& stage, const Function& function) {
  stage.pool->Split(
      stage.batch.rows,
      [&](size_t begin, size_t end) {
        const BatchItem* item = stage.batch.items.data();
        for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
          while (row >= item->first_row + item->rows) {
            ++item;
          }
          function(*item, row);
        }
      },
      kSmallRows);
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_STAGE_STATE_H_
