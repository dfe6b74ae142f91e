// A stage's KV as MLX's arrays: two of each layer, whose rows are the slots of its group's pages. A
// page has a slice for each KV head, one behind another, and a slice 16 rows, so that a gather of
// slices gives keys and values as they are attended, head by head.
#ifndef STRATA_WORKER_BACKEND_MLX_KV_ARRAYS_H_
#define STRATA_WORKER_BACKEND_MLX_KV_ARRAYS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/limits.h"
#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/stage.h"

namespace strata::mlx {

// Heads of what a layer keeps.
uint32_t KvHeadsOf(const AttentionSpec& attention);
// The slice of a page that has a head's rows, and in it the row of a position.
constexpr uint32_t SliceOf(PageId page, uint32_t heads, uint32_t head) {
  return page * heads + head;
}
constexpr uint32_t SlotOf(PageId page, uint32_t heads, uint32_t head, uint32_t position) {
  return SliceOf(page, heads, head) * kPageTokens + position % kPageTokens;
}

// Not thread-safe. What is appended is lazy until Pending was evaluated: only then may another
// thread go on.
class KvArrays {
 public:
  // Gives up all that is there, and has spec.kv_pages of zeros. RESOURCE_EXHAUSTED where memory is
  // short (CheckAvailable), or there are more pages than MLX counts; then nothing is there.
  absl::Status Allocate(const StageSpec& spec, uint64_t shared_bytes = 0);
  // Of spec.kv_pages.
  static uint64_t Bytes(const StageSpec& spec);
  uint64_t bytes() const { return bytes_; }

  // `keys` and `values`, float32 [rows, heads * width of a head], rounded as KV is kept, become the
  // slots (int32 [rows * heads], SlotOf) of a layer, counted from the stage's first. With latent
  // vectors there is one head, and no values. May throw.
  void Append(uint32_t local, const ::mlx::core::array& slots, const ::mlx::core::array& keys,
              const std::optional<::mlx::core::array>& values);
  // Keys and values of slices (int32 [heads * pages], SliceOf), as they are kept: [1, heads,
  // pages * 16, width of a head]. May throw.
  ::mlx::core::array Keys(uint32_t local, const ::mlx::core::array& slices) const;
  std::optional<::mlx::core::array> Values(uint32_t local, const ::mlx::core::array& slices) const;
  // Evaluates. May throw.
  void CopyPage(const StageSpec& spec, uint32_t group, PageId from, PageId to);

  // Of a page of all the group's layers, of each its keys and then its values, head by head.
  static uint64_t PageBytes(const StageSpec& spec, uint32_t group);
  // Both have PageBytes, and evaluate. May throw.
  void ReadPage(const StageSpec& spec, uint32_t group, PageId page, uint8_t* out) const;
  void WritePage(const StageSpec& spec, uint32_t group, PageId page, const uint8_t* in);

  // What was appended and not evaluated, to be evaluated with what else a step makes.
  void AddPending(std::vector<::mlx::core::array>* outputs) const;
  // After an evaluation that failed: what was not appended then is as it was before, so that other
  // sequences' KV stays.
  void Recover();

 private:
  struct Layer {
    int heads = 0;
    // [pages * heads * 16, width of a head]; empty: the group has no pages.
    std::optional<::mlx::core::array> keys;
    std::optional<::mlx::core::array> values;  // Empty with latent vectors too.
  };
  // function(array) for each.
  template <typename Function>
  void Each(const Function& function);

  std::vector<Layer> layers_;  // Of the stage.
  uint64_t bytes_ = 0;
};

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_KV_ARRAYS_H_
