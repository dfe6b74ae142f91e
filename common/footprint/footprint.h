// What a stage takes of a device's memory, by kind of backend. The coordinator plans by it and
// workers admit by it, so it stands here once. Pure; any thread.
#ifndef STRATA_COMMON_FOOTPRINT_FOOTPRINT_H_
#define STRATA_COMMON_FOOTPRINT_FOOTPRINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/checkpoint/checkpoint.h"
#include "common/model/dtype.h"
#include "common/model/gpt_oss_experts.h"
#include "common/model/model_spec.h"
#include "strata/v1/types.pb.h"

namespace strata {

class Footprint {
 public:
  virtual ~Footprint() = default;

  // Bytes of one of TensorsOf's tensors once it is loaded, of which a checkpoint stores
  // `stored_bytes` as `dtype`. `quantize` is what is made of a matrix of floats, see QuantizeOf.
  // What belongs to a matrix counts with the first of its tensors, and is 0 by itself.
  virtual uint64_t WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                               v1::Quantize quantize) const = 0;

  // A page of KV of all the group's layers in [first_layer, last_layer].
  virtual uint64_t PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                             uint32_t group, v1::KvDtype dtype) const = 0;

  // The most that a stage takes besides weights and KV, whatever its layers are: activations,
  // scratch and queues. `heads`: it is the last one.
  virtual uint64_t BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                               uint32_t context) const = 0;

  // Of a device with memory of its own, the most that a stage takes of the host's besides, once it
  // is loaded; 0 where they are one.
  virtual uint64_t HostBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                             uint32_t context) const = 0;
};

// The most that one of a checkpoint's tensors, of which it stores so many bytes, takes as what its
// matrices are made from: itself, or what it is made into first.
uint64_t SourceBytes(const StageTensor& tensor, uint64_t stored_bytes);

// Of the host's memory, what the weights of a stage take while they are on their way to a device
// with memory of its own: a layer at a time, with the embedding beside the first and the head
// beside the last, and what one tensor is made from.
class StagedWeights {
 public:
  // One of the stage's tensors, once for each, with its WeightBytes.
  void Add(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes, uint64_t weight_bytes);
  // The most at once.
  uint64_t MostBytes() const;

 private:
  std::map<uint64_t, uint64_t> layers_;  // Weights of each.
  uint64_t embedding_bytes_ = 0;
  uint64_t head_bytes_ = 0;
  uint64_t largest_source_ = 0;
};

// Pages of KV take the same on all kinds that there are, and weights on the first two; buffers do
// not.
const Footprint& CpuFootprint();
const Footprint& CudaFootprint();
const Footprint& MlxFootprint();
// By a device's name, as nodes have it: "cpu", "cuda" or "mlx", with or without ":" and a number.
// Of an unknown one the CPU's.
const Footprint& FootprintOf(std::string_view device);

// What --quantize makes of a matrix: embedding and head, which are no layer's, are never below
// int8.
v1::Quantize QuantizeOf(v1::Quantize quantize, bool in_layer);

// The matrices that a tensor, with those that belong to it, holds; none: it is no matrix.
MatrixShape LoadedShape(const StageTensor& tensor);

// How such a matrix is kept once it is loaded, for a numerics class: as StoredFormat, or "int8" or
// "int4" where it is floats and `quantize` says so. `dtype`: LoadedDtype's.
std::string LoadedFormat(const ModelSpec& spec, const StageTensor& tensor, Dtype dtype,
                         v1::Quantize quantize);

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_FOOTPRINT_H_
