// What one rank of a stage takes of its device's memory.
#ifndef STRATA_COMMON_FOOTPRINT_RANK_FOOTPRINT_H_
#define STRATA_COMMON_FOOTPRINT_RANK_FOOTPRINT_H_

#include <cstdint>
#include <string_view>

#include "common/footprint/footprint.h"
#include "common/model/rank_outputs.h"

namespace strata {

// Of which rank of which stage it is.
struct RankOfStage {
  RankOutputs outputs;  // SplitOutputs' of the model.
  bool first = false;   // It has the embedding, where the stage embeds,
  bool embeds = false;
  bool heads = false;  // and a part of the head, where the stage has it.
};

// BufferBytes of a rank of several workers. They are as those of a stage that has no other ranks,
// since what others computed is gathered there, and besides what is on its way between workers.
uint64_t RankBufferBytes(const Footprint& of_one, const ModelSpec& spec, uint32_t max_batch_tokens,
                         bool heads, uint32_t context);

// Of the outputs of a matrix the rank's part, and all of what every rank has: norms, routers, and
// what makes latent vectors. KV of the rank's heads. Buffers by RankBufferBytes.
class RankFootprint : public Footprint {
 public:
  // `of_one` and `spec` outlive this.
  RankFootprint(const Footprint& of_one, const ModelSpec& spec, RankOfStage rank);

  uint64_t WeightBytes(const StageTensor& tensor, Dtype dtype, uint64_t stored_bytes,
                       v1::Quantize quantize) const override;
  // `spec` is the one that it was made with.
  uint64_t PageBytes(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                     uint32_t group, v1::KvDtype dtype) const override;
  uint64_t BufferBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                       uint32_t context) const override;
  uint64_t HostBytes(const ModelSpec& spec, uint32_t max_batch_tokens, bool heads,
                     uint32_t context) const override;

 private:
  // Of the outputs that a tensor is of, those that the rank has, and all.
  struct Part {
    uint64_t own = 1;
    uint64_t all = 1;
  };
  Part PartOf(std::string_view name) const;
  Part PartOfLayer(const LayerSpec& layer, const LayerOutputs& own, std::string_view path) const;

  const Footprint& of_one_;
  const ModelSpec& spec_;
  const RankOfStage rank_;
  const ModelSpec own_spec_;  // With the rank's heads.
};

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_RANK_FOOTPRINT_H_
