// A packed store in memory, and tensors that say what was fetched of them.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_MEMORY_STORE_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_MEMORY_STORE_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/backend/packed_store.h"
#include "worker/backend/tensor_source.h"

namespace strata::testing {

// Another's tensors with their digests, and only those that were prepared.
class DigestedTensors : public TensorSource {
 public:
  explicit DigestedTensors(const TensorSource& source) : source_(source) {}

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  void Release(std::string_view name, size_t bytes) const override;
  // What was prepared and is not yet released.
  const std::set<std::string>& prepared() const { return prepared_; }

  mutable std::set<std::string> matrices;  // That were ever prepared.

 private:
  const TensorSource& source_;
  mutable std::set<std::string> prepared_;
};

class MemoryStore : public PackedStore {
 public:
  bool Has(const PackedForm& form) override;
  absl::Status Read(const PackedForm& form, std::span<uint8_t> out, const SplitFn& split) override;
  void Write(const PackedForm& form, std::span<const uint8_t> packed) override;

  std::map<std::string, std::string> files;
  std::string spoilt;  // A key.
  int writes = 0;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_MEMORY_STORE_H_
