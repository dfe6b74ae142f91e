// The sequences that stages were told of, by number, and the one that works for each session.
#ifndef STRATA_COORDINATOR_ENGINE_NAMED_SEQUENCES_H_
#define STRATA_COORDINATOR_ENGINE_NAMED_SEQUENCES_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "common/fingerprint.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/sequence_numbers.h"
#include "coordinator/engine/session_kv.h"

namespace strata {

// It owns the sequences that have a number; one that has none is its session's. Part of the book of
// sequences, which says when any of this happens. One thread.
class NamedSequences {
 public:
  using ByNumber = std::map<uint64_t, std::unique_ptr<KvSequence>>;

  // `roots`: the fingerprints of no tokens, by rotary variant. `numbers` outlives this.
  NamedSequences(const std::array<Fingerprint, 2>& roots, SequenceNumbers* numbers)
      : roots_(roots), numbers_(numbers) {}

  // The session's next sequence, with nothing sent and no claim. One that it had without a number
  // is gone; one with a number stays here.
  void Renew(LiveSession& session);
  // The session's sequence, which has no number, gets one: stages are told of it now.
  void Name(LiveSession& session);

  // It is there until Erase.
  KvSequence& At(uint64_t number) const { return *by_number_.at(number); }
  // Null: it was released, or never there.
  KvSequence* Find(uint64_t number) const;
  const ByNumber& all() const { return by_number_; }
  // No stage has it any more, and no session works with it.
  void Erase(uint64_t number);
  // No stage has anything any more, and every session's was renewed.
  void Clear() { by_number_.clear(); }
  // What is renewed from here on begins with these.
  void SetRoots(const std::array<Fingerprint, 2>& roots) { roots_ = roots; }

 private:
  std::array<Fingerprint, 2> roots_;
  SequenceNumbers* const numbers_;
  ByNumber by_number_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_NAMED_SEQUENCES_H_
