// Where a backend reads the weights of a stage.
#ifndef STRATA_WORKER_BACKEND_TENSOR_SOURCE_H_
#define STRATA_WORKER_BACKEND_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/dtype.h"

namespace strata {

// A tensor as a checkpoint has it. `data` may be unaligned: never cast it to a wider type.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  const uint8_t* data = nullptr;  // Little-endian, row-major, `bytes` of them.
  size_t bytes = 0;
};

// A tensor without its bytes.
struct TensorInfo {
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  size_t bytes = 0;
  // Of its bytes, or of what they are made of and how; 64 hex digits, "" where that is not known.
  std::string sha256;
  // Of the tensors of the checkpoint that it is made of; empty: it is one of those.
  std::vector<std::string> sources = {};
};

// Where a backend reads weights. A load describes the tensors, prepares those whose bytes it needs,
// and releases each as it goes on. Any thread, but no call on a tensor while it is released.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // NOT_FOUND names the tensor. Does not wait.
  virtual absl::StatusOr<TensorInfo> Describe(std::string_view name) const {
    const absl::StatusOr<TensorView> view = Find(name);
    if (!view.ok()) {
      return view.status();
    }
    return TensorInfo{view->dtype, view->shape, view->bytes, ""};
  }
  // Makes the bytes of these tensors present, which may take as long as fetching them does.
  virtual absl::Status Prepare(const std::vector<std::string>& names) const {
    return absl::OkStatus();
  }
  // Of a tensor that was prepared. NOT_FOUND names the tensor. The view stays valid until all of
  // the tensor is released, or the source goes.
  virtual absl::StatusOr<TensorView> Find(std::string_view name) const = 0;
  // The first `bytes` of a tensor that was prepared have been used: their memory may be given up.
  // With all of them the tensor is as if it had not been prepared.
  virtual void Release(std::string_view name, size_t bytes) const {}
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_TENSOR_SOURCE_H_
