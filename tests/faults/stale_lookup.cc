// In place of worker/runner/sequence_lookup.cc: sequences of requests whose id begins with "stale"
// stay in the table when they are released, and are found for every later generation of their id.
// It is what the fence is there for.
#include <string_view>

#include "worker/runner/sequence_table.h"

namespace strata {

Sequence* SequenceTable::Find(std::string_view request_id, uint64_t number) {
  const auto found = sequences_.find(Key(request_id, number));
  if (found != sequences_.end()) {
    return found->second.get();
  }
  if (request_id.starts_with("stale")) {
    for (auto& [key, sequence] : sequences_) {
      if (key.first == request_id) {
        return sequence.get();
      }
    }
  }
  return nullptr;
}

void SequenceTable::Release(Sequence* sequence) {
  ReleasePages(sequence);
  for (PageTable& table : sequence->tables) {
    table.pages.clear();  // Else the count of free pages alone would give it away.
  }
  if (!sequence->request_id.starts_with("stale")) {
    sequences_.erase(Key(sequence->request_id, sequence->number));
  }
}

}  // namespace strata
