// The coordinator's newest term in a file of its own, whose blocks are there already: writing it
// again needs no room on the disk, so that a coordinator can start where its store is full.
#ifndef STRATA_COORDINATOR_STORE_TERM_SLOT_H_
#define STRATA_COORDINATOR_STORE_TERM_SLOT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace strata {

class TermSlot {
 public:
  explicit TermSlot(std::string path) : path_(std::move(path)) {}

  // 0: the file is not there, or holds none.
  uint64_t Read() const;
  // Durable when it has returned ok. A file that is not there yet is made, which needs room.
  // RESOURCE_EXHAUSTED (STORE_FULL) or UNAVAILABLE (STORE_IO) name it.
  absl::Status Write(uint64_t term) const;

 private:
  const std::string path_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_TERM_SLOT_H_
