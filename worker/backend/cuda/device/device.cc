#include "worker/backend/cuda/device/device.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/shard.h"

namespace strata::cuda {

absl::Status MemoryExhausted(const std::string& what, uint64_t bytes, uint64_t free_bytes,
                             const std::string& device) {
  return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
               absl::StrCat(what, " need ", FormatSize(bytes), " of the memory of ", device,
                            ", where ", FormatSize(free_bytes), " are free"))
      .Limit(absl::StrCat("free=", FormatSize(free_bytes)))
      .Hint("load fewer layers or fewer KV tokens on this node");
}

absl::Status Device::Health() const {
  MutexLock lock(&mutex_);
  return failed_;
}

absl::Status Device::FailForGood(const std::string& why) {
  MutexLock lock(&mutex_);
  if (failed_.ok()) {
    failed_ = Error(absl::StatusCode::kUnavailable, kDeviceFailed, why)
                  .Hint(
                      "restart its strata-worker; if that does not help, look for the device's "
                      "errors (Xid) in the log of the kernel (dmesg), and restart the machine");
  }
  return failed_;
}

absl::Status DeviceBuffer::Allocate(Device* device, uint64_t bytes, const std::string& what) {
  Reset();
  if (bytes == 0) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(data_, device->Allocate(bytes, what));
  device_ = device;
  bytes_ = bytes;
  return absl::OkStatus();
}

void DeviceBuffer::Reset() {
  if (data_ != nullptr) {
    device_->Free(data_);
  }
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace strata::cuda
