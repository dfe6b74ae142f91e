#include "worker/weights/mapped_weights.h"

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/model/block_formats.h"
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
  const std::optional<Dtype> known = DtypeOfName(dtype);
  if (!known.has_value()) {
    return BadTensor(name, "dtype \"" + std::string(dtype) + "\" is not supported");
  }
  tensor.dtype = *known;
  const std::optional<uint64_t> need = TensorBytes(tensor.dtype, shape);
  if (!need.has_value()) {
    return BadTensor(name, "its shape overflows, or is no whole number of blocks");
  }
  if (*need != bytes) {
    return BadTensor(name, "its shape needs " + std::to_string(*need) + " bytes, it has " +
                               std::to_string(bytes));
  }
  tensor.name = std::string(name);
  tensor.shape = std::move(shape);
  tensor.blob = {std::string(sha256), bytes};
  return tensor;
}

MappedWeights::MappedWeights(const std::vector<BlobTensor>& tensors, FetchFn fetch)
    : fetch_(std::move(fetch)) {
  for (const BlobTensor& tensor : tensors) {
    tensors_[tensor.name].what = tensor;
  }
}

absl::StatusOr<MappedWeights::Tensor*> MappedWeights::Get(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    return Error(absl::StatusCode::kNotFound, "TENSOR_MISSING",
                 "tensor " + std::string(name) + " was not given to this stage");
  }
  return &it->second;
}

absl::StatusOr<TensorInfo> MappedWeights::Describe(std::string_view name) const {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const Tensor* tensor, Get(name));
  const BlobTensor& what = tensor->what;
  return TensorInfo{what.dtype, what.shape, what.blob.bytes, what.blob.sha256};
}

absl::Status MappedWeights::Prepare(const std::vector<std::string>& names) const {
  std::vector<Blob> blobs;
  {
    MutexLock lock(&mutex_);
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const Tensor* tensor, Get(name));
      blobs.push_back(tensor->what.blob);
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const BlobSet> set, fetch_(blobs));
  MutexLock lock(&mutex_);
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(Tensor * tensor, Get(name));
    tensor->blob = set->Find(tensor->what.blob.sha256);
    tensor->released = 0;
    STRATA_CHECK(tensor->blob != nullptr);
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorView> MappedWeights::Find(std::string_view name) const {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Tensor * tensor, Get(name));
  if (tensor->blob == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "TENSOR_UNPREPARED",
                 "tensor " + std::string(name) + " was not prepared");
  }
  if (tensor->mapped == nullptr) {
    ASSIGN_OR_RETURN(tensor->mapped, tensor->blob->Map());
  }
  return TensorView{.dtype = tensor->what.dtype,
                    .shape = tensor->what.shape,
                    .data = tensor->mapped->data(),
                    .bytes = tensor->mapped->bytes()};
}

void MappedWeights::Release(std::string_view name, size_t bytes) const {
  MutexLock lock(&mutex_);
  const absl::StatusOr<Tensor*> tensor = Get(name);
  if (!tensor.ok() || (*tensor)->blob == nullptr) {
    return;
  }
  if ((*tensor)->mapped != nullptr) {
    (*tensor)->mapped->Drop((*tensor)->released, bytes);
  }
  (*tensor)->released = bytes;
  if (bytes == (*tensor)->blob->bytes()) {
    (*tensor)->mapped = nullptr;
    (*tensor)->blob = nullptr;
  }
}

}  // namespace strata
