// 4-bit codes in panels, see PanelView.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_CODES_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_CODES_H_

#include <cstddef>
#include <cstdint>

#include "common/model/dtype.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// Of a format of blocks that are codes.
WeightFormat CodeFormatOf(Dtype dtype);

// Output `output` of a row of blocks of this dtype, to the panels that begin at `panels`.
void PackCodes(const PanelView& view, Dtype dtype, const uint8_t* row, size_t output,
               uint8_t* panels);
// The weights of one output, float32 [inputs].
void ReadCodes(const PanelView& view, size_t output, float* out);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_CODES_H_
