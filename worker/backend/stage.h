// What a stage is, and what it computes at once.
#ifndef STRATA_WORKER_BACKEND_STAGE_H_
#define STRATA_WORKER_BACKEND_STAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/model/model_spec.h"
#include "strata/v1/types.pb.h"

namespace strata {

using PageId = uint32_t;

// What one stage is.
struct StageSpec {
  ModelSpec model;
  uint32_t first_layer = 0;        // Inclusive.
  uint32_t last_layer = 0;         // Inclusive.
  bool embeds = false;             // The first stage: has the embedding.
  bool heads = false;              // The last stage: has final norm and head.
  uint32_t context = 0;            // Tokens of the longest sequence.
  std::vector<uint64_t> kv_pages;  // By KV group of the model.
  v1::KvDtype kv_dtype = v1::KV_DTYPE_F16;
  // Of matrices stored as floats: layers in this format, embedding and head in int8.
  v1::Quantize quantize = v1::QUANTIZE_NONE;
  v1::Activations activations = v1::ACTIVATIONS_F32;  // Int8: where weights are quantized.
  uint32_t max_batch_tokens = 0;                      // Most rows of a batch.
  uint32_t max_batch_items = 0;
  // The longest that a rank of this process waits for another within a call; 0: a minute.
  nanoseconds rank_wait{0};
  // Rotary tables as shipped, see RopesOf.
  std::span<const float> rotary;
};

// One sequence's page table for one KV group. Page i of `pages` holds positions
// [(first_page + i) * 16, (first_page + i + 1) * 16).
struct PageTableView {
  uint32_t first_page = 0;  // Pages before it were freed behind a window.
  std::span<const PageId> pages;
};

// One sequence's rows of a batch. Its pages already cover position + rows. Items of a batch are of
// different sequences, and none sees a position that another one appends: they may be computed in
// any order.
struct BatchItem {
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t position = 0;                  // Of first_row; row r is at position + r - first_row.
  std::span<const PageTableView> tables;  // By KV group.
  uint32_t rotary_variant = 0;            // Of the model's ropes that have several.
};

// What is computed at once. Everything it points to stays valid until Shard::Read... returned.
struct Batch {
  uint32_t rows = 0;
  std::span<const uint32_t> token_ids;  // One a row; checked against the vocabulary before.
  std::span<const BatchItem> items;     // Cover the rows, in order, without overlap.
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_STAGE_H_
