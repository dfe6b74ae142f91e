// What a model of several parts calls the tensors of its decoder, and what the others are. Internal
// to opening a checkpoint.
#ifndef STRATA_COMMON_CHECKPOINT_DECODER_NAMES_H_
#define STRATA_COMMON_CHECKPOINT_DECODER_NAMES_H_

#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace strata {

// Gives the decoder's tensors the names "PREFIXmodel.layers.0...", "PREFIXlm_head". Files have them
// so; or, as transformers 5 holds them, as "model.PREFIXlayers.0..." and "lm_head"; or as a decoder
// alone has them, "model.layers.0..." (Qwen2.5-VL). Of a decoder without a prefix nothing changes.
void TakeDecoderNames(const std::string& prefix, std::vector<TensorEntry>* tensors);

// Takes those that are of other parts out of `unexpected`, names that the decoder does not have,
// and says in a sentence which: "" where there are none.
std::string PartsLeftOut(const std::string& prefix, std::vector<std::string>* unexpected);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_DECODER_NAMES_H_
