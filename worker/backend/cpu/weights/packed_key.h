// Names for packed weights that outlast the process.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_KEY_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_KEY_H_

#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// SHA-256 over the packing's version, the layout and the tensors' dtypes and digests: equal keys
// are equal bytes, on every machine and instruction set. "" if a digest is unknown. Dtypes count,
// since the same bytes are other numbers in another.
// `first_row`: of the tensors, where they hold other matrices too; `head_rows` is the RowOrder's;
// `transposed`: the tensors' rows are the layout's inputs.
std::string PanelsKey(const PanelView& layout, const std::vector<Dtype>& dtypes,
                      const std::vector<std::string>& sha256, uint64_t first_row = 0,
                      size_t head_rows = 0, bool transposed = false);
// The same of a matrix that stays in rows.
std::string RowsKey(const PanelView& layout, const std::vector<Dtype>& dtypes,
                    const std::vector<std::string>& sha256);
// Of matrices that are kept as one, after each other. "" if one of theirs is.
std::string StackKey(const std::vector<std::string>& keys);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_PACKED_KEY_H_
