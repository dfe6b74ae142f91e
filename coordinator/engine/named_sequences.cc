#include "coordinator/engine/named_sequences.h"

#include <utility>

#include "common/check.h"

namespace strata {

void NamedSequences::Renew(LiveSession& session) {
  session.kv.unnamed_ = std::make_unique<KvSequence>();
  session.kv.current_ = session.kv.unnamed_.get();
  session.kv.current_->session = &session;
  session.kv.current_->sent_fingerprint = session.kv.current_->committed_fingerprint =
      roots_[session.request.params.rotary_variant()];
}

void NamedSequences::Name(LiveSession& session) {
  session.kv.current_->number = numbers_->Next();
  session.kv.current_->request_id = session.request.request_id;
  by_number_[session.kv.current_->number] = std::move(session.kv.unnamed_);
}

KvSequence* NamedSequences::Find(uint64_t number) const {
  const auto it = by_number_.find(number);
  return it == by_number_.end() ? nullptr : it->second.get();
}

void NamedSequences::Erase(uint64_t number) {
  const auto it = by_number_.find(number);
  STRATA_CHECK(it != by_number_.end() && it->second->session == nullptr);
  by_number_.erase(it);
}

}  // namespace strata
