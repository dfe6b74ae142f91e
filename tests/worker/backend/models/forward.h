// Computes a model on a backend in one process, without coordinator or runner: any cut into
// stages, any chunking, any mixture of sequences in a batch. Knows only the seam
// (worker/backend/backend.h), so that it runs every backend.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_FORWARD_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_FORWARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "worker/backend/backend.h"

namespace strata::testing {

struct ForwardOptions {
  v1::KvDtype kv_dtype = v1::KV_DTYPE_F32;
  v1::Quantize quantize = v1::QUANTIZE_NONE;
  v1::Activations activations = v1::ACTIVATIONS_F32;
  // The first layer of each stage after the first; empty: one stage.
  std::vector<uint32_t> cuts = {};
  uint32_t context = 2048;
  uint32_t kv_tokens = 4096;
  uint32_t max_batch_tokens = 512;
  uint32_t max_batch_items = 16;
  bool keep_hidden = false;
  PackedStore* packed = nullptr;  // Of all stages.
};

// The layers after which a model of `layers` layers is cut into single layers.
std::vector<uint32_t> CutEverywhere(uint32_t layers);

// In place of tokens' embeddings, by position.
using InputEmbeddings = std::map<uint32_t, std::vector<float>>;

// A row of a sequence as it left the model.
struct RowResult {
  std::vector<float> logits;               // [vocab]
  std::vector<std::vector<float>> hidden;  // By layer, with keep_hidden: [hidden]
  std::vector<float> embedded;             // With keep_hidden: what entered the first layer.
};

// All stages of a model, and sequences on them. Pages are handed out in a scattered order, and
// used again after Release with what was left in them. Those behind a window are freed after every
// step, and hold NaN from then on.
class ForwardModel {
 public:
  static absl::StatusOr<std::unique_ptr<ForwardModel>> Load(Backend* backend,
                                                            const ModelSpec& model,
                                                            const TensorSource& weights,
                                                            const ForwardOptions& options);

  // An empty sequence.
  uint32_t NewSequence(uint32_t rotary_variant = 0, const InputEmbeddings& embeddings = {});
  void Release(uint32_t sequence);
  // A copy of `sequence` as it is, sharing no page with it.
  absl::StatusOr<uint32_t> Fork(uint32_t sequence);
  uint32_t length(uint32_t sequence) const { return sequences_[sequence].length; }

  struct Item {
    uint32_t sequence = 0;
    std::span<const uint32_t> ids;
    bool logits = true;        // Else the rows have none.
    uint32_t logits_from = 0;  // Rows before it have none.
  };
  // One step. The rows' results, in the batch's order. Where some rows have no logits the last
  // layer is computed of the others only, but for options.keep_hidden.
  absl::StatusOr<std::vector<RowResult>> Step(const std::vector<Item>& items);

  // A new sequence's rows, computed `chunk` ids at a time (0: as many as a batch takes).
  absl::StatusOr<std::vector<RowResult>> Run(std::span<const uint32_t> ids, uint32_t chunk = 0,
                                             uint32_t rotary_variant = 0,
                                             const InputEmbeddings& embeddings = {});

  // Gives up all KV, and with it all sequences, for pages of so many tokens.
  absl::Status ResizeKv(uint32_t kv_tokens);

  uint64_t MemoryBytes() const;
  const std::vector<std::unique_ptr<Shard>>& shards() const { return shards_; }

 private:
  struct Table {
    uint32_t first_page = 0;
    std::vector<PageId> pages;
  };
  struct Sequence {
    uint32_t length = 0;
    uint32_t rotary_variant = 0;
    InputEmbeddings embeddings;
    std::vector<Table> tables;  // By KV group.
  };
  // Makes all pages free ones.
  void FreeAllPages();
  absl::Status Grow(Sequence* sequence, uint32_t length);
  // Takes a page of each group for NaN, where there are windows.
  absl::Status MakePoison();
  absl::Status FreeBehindWindows(Sequence* sequence);

  ModelSpec model_;
  ForwardOptions options_;
  std::vector<float> rotary_;
  std::vector<uint32_t> first_layers_;  // Of the stages.
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<PageId>> free_;  // By KV group; taken from the back.
  std::vector<PageId> poison_;             // By KV group; empty without windows.
};

// The logits of all rows, one after another.
std::vector<float> LogitsOf(const std::vector<RowResult>& rows);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_FORWARD_H_
