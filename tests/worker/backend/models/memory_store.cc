#include "tests/worker/backend/models/memory_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/digest.h"
#include "common/status.h"

namespace strata::testing {

absl::StatusOr<TensorInfo> DigestedTensors::Describe(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorView view, source_.Find(name));
  return TensorInfo{view.dtype, view.shape, view.bytes,
                    Sha256Hex({reinterpret_cast<const char*>(view.data), view.bytes})};
}

absl::Status DigestedTensors::Prepare(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const TensorView view, source_.Find(name));
    prepared_.insert(name);
    if (view.shape.size() >= 2 && !name.ends_with("bias")) {
      matrices.insert(name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorView> DigestedTensors::Find(std::string_view name) const {
  if (prepared_.count(std::string(name)) == 0) {
    return absl::FailedPreconditionError(std::string(name) + " was not prepared");
  }
  return source_.Find(name);
}

void DigestedTensors::Release(std::string_view name, size_t bytes) const {
  const auto view = Find(name);
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_LE(bytes, view->bytes);
  if (bytes == view->bytes) {
    prepared_.erase(std::string(name));
  }
}

bool MemoryStore::Has(const PackedForm& form) {
  const auto it = files.find(form.key);
  return it != files.end() && it->second.size() == form.bytes;
}

absl::Status MemoryStore::Read(const PackedForm& form, std::span<uint8_t> out,
                               const SplitFn& split) {
  const std::string bytes = files.at(form.key);
  if (form.key == spoilt) {
    std::fill(out.begin(), out.end(), 0x55);
    files.erase(form.key);
    return absl::DataLossError("spoilt");
  }
  EXPECT_EQ(out.size(), bytes.size());
  split(out.size(), [&](size_t begin, size_t end) {
    std::copy(bytes.begin() + begin, bytes.begin() + end, out.begin() + begin);
  });
  return absl::OkStatus();
}

void MemoryStore::Write(const PackedForm& form, std::span<const uint8_t> packed) {
  EXPECT_EQ(packed.size(), form.bytes);
  files[form.key] = std::string(packed.begin(), packed.end());
  ++writes;
}

}  // namespace strata::testing
