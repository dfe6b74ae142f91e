// Attention with latent vectors (LatentSpec), in one form for any number of rows. Numerics, of each
// row and head: the query's dimensions that do not rotate become rank ones, each a chain over them
// in ascending order (a product as any other); behind those are the ones that rotate; the scores
// with what is kept and the weighted sums of its latent vectors are attention's as it is
// documented, with these as queries and keys; and the sums become values, each a chain over rank.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_LATENT_ATTENTION_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_LATENT_ATTENTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/attender.h"
#include "worker/backend/cpu/shard/attention_rows.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/residual_stream.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Owns what is between its products; is handed the rows of queries, of what is kept, and attended.
class LatentAttention {
 public:
  LatentAttention(const StageState& stage, Products* products, ResidualStream* residual,
                  Attender* attender, AttentionRows* rows)
      : stage_(stage),
        products_(*products),
        residual_(*residual),
        attender_(*attender),
        rows_(*rows) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return query_latent_.bytes() + absorbed_.bytes() + summed_.bytes(); }

  // Projects the batch's rows, and appends what is kept of them to the pages.
  void Append(uint32_t layer);
  // Only these rows stay, ascending, as the first ones.
  void KeepRows(std::span<const uint32_t> rows);
  // To AttentionRows::attended.
  void Attend(uint32_t layer);

 private:
  void Keep(uint32_t layer, const BatchItem& item, uint32_t row);
  // Where the heads of a row begin, and one after another.
  struct HeadRows {
    float* at = nullptr;
    size_t row = 0;
    size_t head = 0;
  };
  // out = weights * in, each head by itself.
  void MultiplyHeads(const std::vector<Linear>& weights, HeadRows in, HeadRows out);

  const StageState& stage_;
  Products& products_;
  ResidualStream& residual_;
  Attender& attender_;
  AttentionRows& rows_;
  AlignedBuffer query_latent_, absorbed_, summed_;  // [rows][sizes.query_rank, .absorbed, .summed]
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_LATENT_ATTENTION_H_
