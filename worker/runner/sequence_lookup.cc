// How a sequence is found and given up, apart from the rest of SequenceTable so that a test can
// link a worker that keeps what it was told to release.
#include "worker/runner/sequence_table.h"

namespace strata {

Sequence* SequenceTable::Find(std::string_view request_id, uint64_t number) {
  const auto found = sequences_.find(Key(request_id, number));
  return found == sequences_.end() ? nullptr : found->second.get();
}

void SequenceTable::Release(Sequence* sequence) {
  ReleasePages(sequence);
  sequences_.erase(Key(sequence->request_id, sequence->number));
}

}  // namespace strata
