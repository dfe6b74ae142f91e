// Products of a stage's rows: how rows are packed, and how threads share matrices.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_PRODUCTS_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_PRODUCTS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Owns what rows are normed and packed to. One product, or some of the same rows, at a time.
class Products {
 public:
  explicit Products(const StageState& stage) : stage_(stage) {}
  // Once.
  absl::Status Allocate();
  uint64_t bytes() const { return normed_.bytes() + packed_.bytes() + int8_.bytes(); }

  // What the products with `users` take: rows of x, [rows][stride], `inputs` of each; normed first
  // where there is a weight.
  struct Inputs {
    const float* x = nullptr;
    size_t stride = 0;
    size_t inputs = 0;
    bool int8 = false;  // Whether they are taken quantized, and as floats.
    bool floats = false;
    const std::vector<float>* norm_weight = nullptr;
    NormKind norm = NormKind::kRms;
    float norm_eps = 0;
    uint8_t* quantized = nullptr;  // All of them, of one block, which are not to be packed then.
  };
  using Users = std::initializer_list<const Linear*>;
  Inputs Rows(const float* x, size_t stride, size_t inputs, Users users) const;
  // The same, normed first.
  static Inputs Normed(Inputs inputs, const std::vector<float>& weight, NormKind norm, float eps);

  // Where inputs are packed, and what they are when normed.
  struct PackedRows {
    float* normed = nullptr;
    uint8_t* floats = nullptr;  // Row blocks, see kernels.h.
    uint8_t* int8 = nullptr;    // The same, quantized.
  };
  // Of all rows (thread 0), or of those that a thread packs for itself.
  PackedRows PackedBy(uint32_t thread);
  void PackBlock(const Inputs& inputs, RowBlock block, const PackedRows& to) const;
  // All `rows` by blocks, to PackedBy(0).
  void Pack(const Inputs& inputs, uint32_t rows);
  // Of the batch's rows: where they are few, each thread quantizes them for itself, so that none
  // waits for the one that does, nor fetches from its cache what it wrote; else all threads pack
  // them, block by block. To be called before threads share products, and by each of them then,
  // which returns what it multiplies.
  void PackForAll(const Inputs& inputs);
  PackedRows PackOwn(const Inputs& inputs, uint32_t thread);
  bool EachPacks(const Inputs& inputs) const {
    return stage_.batch.rows <= stage_.sizes.own_rows && !inputs.floats;
  }
  bool OneBlock() const { return RowBlocks(stage_.batch.rows, stage_.kernels->block_rows) == 1; }

  MatmulArgs Product(const Linear& linear, uint32_t rows, float* out, size_t stride,
                     bool add) const;
  static MatmulArgs WithRows(MatmulArgs product, const PackedRows& packed);
  // How many panels of a product threads share at a time. One that is left alone, where kernels
  // take two at once, takes as long as two with many rows, and is read slower with few; else what
  // counts is that all are done at the same time.
  size_t PanelsAtOnce(uint32_t rows) const {
    return rows < 9 ? stage_.kernels->few_rows_panels : 2;
  }
  // Several products of the same rows; the second, of rows that are packed.
  void Multiply(const Inputs& inputs, std::span<const MatmulArgs> products);
  void MultiplyPacked(std::span<const MatmulArgs> products);

  // The batch's rows as they were last normed, [rows][sizes.hidden]; to be written before they are.
  float* normed() { return normed_.as<float>(); }

 private:
  // Whether a product takes its rows quantized.
  bool TakesInt8(const Linear& linear) const;

  const StageState& stage_;
  AlignedBuffer normed_, packed_, int8_;  // See PackedBy.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_PRODUCTS_H_
