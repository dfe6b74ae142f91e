// Where a backend keeps what it made of weights, from one load to the next.
#ifndef STRATA_WORKER_BACKEND_PACKED_STORE_H_
#define STRATA_WORKER_BACKEND_PACKED_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// What a backend made of some tensors.
struct PackedForm {
  std::string key;  // 64 hex digits: a digest of everything that the bytes depend on.
  uint64_t bytes = 0;
  std::vector<std::string> sources;  // SHA-256 of the tensors that it was made of.
};

// function(begin, end) for parts of [0, count), on as many threads as the caller has, each at most
// once; returns when all have ended.
using SplitFn =
    std::function<void(size_t count, const std::function<void(size_t begin, size_t end)>& part)>;

// Where a backend's packed weights outlast the process, so that the next load reads them instead of
// fetching and packing their tensors. A store serves one load, on one thread.
class PackedStore {
 public:
  virtual ~PackedStore() = default;
  // Whether it is there, as far as can be told without reading it.
  virtual bool Has(const PackedForm& form) = 0;
  // Reads and checks all of it into `out`, of form.bytes. After an error it is not there any more,
  // `out` holds anything, and the load packs the tensors.
  virtual absl::Status Read(const PackedForm& form, std::span<uint8_t> out,
                            const SplitFn& split) = 0;
  // As Read, where `out` begins on a page of AllocatePages and has its pages to itself: they may be
  // a map of what is kept afterwards (see MapFile), which the result says, instead of a copy. After
  // an error they are the caller's to write; after RESOURCE_EXHAUSTED to free.
  virtual absl::StatusOr<bool> Map(const PackedForm& form, std::span<uint8_t> out,
                                   const SplitFn& split) {
    const absl::Status status = Read(form, out, split);
    return status.ok() ? absl::StatusOr<bool>(false) : status;
  }
  // Keeps `packed`, if it can: nothing depends on it.
  virtual void Write(const PackedForm& form, std::span<const uint8_t> packed) = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_PACKED_STORE_H_
