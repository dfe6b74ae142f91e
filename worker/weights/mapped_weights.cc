#include "worker/weights/mapped_weights.h"

#include <limits>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status BadTensor(std::string_view name, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_TENSOR",
               "tensor " + std::string(name) + ": " + what);
}

}  // namespace

absl::StatusOr<BlobTensor> MakeBlobTensor(std::string_view name, std::string_view dtype,
                                          std::vector<uint64_t> shape, std::string_view sha256,
                                          uint64_t bytes) {
  BlobTensor tensor;
  bool known = false;
  for (Dtype candidate : {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kU8, Dtype::kI8,
                          Dtype::kU32, Dtype::kI32, Dtype::kI64, Dtype::kF64}) {
    if (dtype == DtypeName(candidate)) {
      tensor.dtype = candidate;
      known = true;
    }
  }
  if (!known) {
    return BadTensor(name, "dtype \"" + std::string(dtype) + "\" is not supported");
  }
  uint64_t need = DtypeBytes(tensor.dtype);
  for (uint64_t size : shape) {
    if (size != 0 && need > std::numeric_limits<uint64_t>::max() / size) {
      return BadTensor(name, "its shape overflows");
    }
    need *= size;
  }
  if (need != bytes) {
    return BadTensor(name, "its shape needs " + std::to_string(need) + " bytes, it has " +
                               std::to_string(bytes));
  }
  tensor.name = std::string(name);
  tensor.shape = std::move(shape);
  tensor.blob = {std::string(sha256), bytes};
  return tensor;
}

MappedWeights::MappedWeights(const std::vector<BlobTensor>& tensors,
                             std::shared_ptr<const BlobSet> blobs)
    : blobs_(std::move(blobs)) {
  for (const BlobTensor& tensor : tensors) {
    const MappedBlob* blob = blobs_->Find(tensor.blob.sha256);
    STRATA_CHECK(blob != nullptr);
    tensors_[tensor.name] = {
        .dtype = tensor.dtype, .shape = tensor.shape, .data = blob->data(), .bytes = blob->bytes()};
  }
}

absl::StatusOr<TensorView> MappedWeights::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    return Error(absl::StatusCode::kNotFound, "TENSOR_MISSING",
                 "tensor " + std::string(name) + " was not given to this stage");
  }
  return it->second;
}

}  // namespace strata
