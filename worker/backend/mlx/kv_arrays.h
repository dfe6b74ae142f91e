// A stage's KV as MLX's arrays: two of each layer, whose rows are the slots of its group's pages.
#ifndef STRATA_WORKER_BACKEND_MLX_KV_ARRAYS_H_
#define STRATA_WORKER_BACKEND_MLX_KV_ARRAYS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "mlx/array.h"
#include "worker/backend/stage.h"

namespace strata::mlx {

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

  // `keys` and `values`, float32 [rows, width], rounded as KV is kept, become the rows `slots`
  // (int32 [rows], page * 16 + place) of a layer, counted from the stage's first. With latent
  // vectors there are no values. May throw.
  void Append(uint32_t local, const ::mlx::core::array& slots, const ::mlx::core::array& keys,
              const std::optional<::mlx::core::array>& values);
  // Keys and values of pages (int32 [pages]), float32 [pages * 16, width]. May throw.
  ::mlx::core::array Keys(uint32_t local, const ::mlx::core::array& pages) const;
  std::optional<::mlx::core::array> Values(uint32_t local, const ::mlx::core::array& pages) const;
  // Evaluates. May throw.
  void CopyPage(const StageSpec& spec, uint32_t group, PageId from, PageId to);

  // Of a page of all the group's layers, of each its keys and then its values.
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
    std::optional<::mlx::core::array> keys;  // [pages * 16, width]; empty: the group has no pages.
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
