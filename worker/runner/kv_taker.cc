#include "worker/runner/kv_taker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/runner/step_checks.h"
#include "worker/runner/step_policy.h"

namespace strata {
namespace {

absl::Status Refuse(const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, "CARRIED_KV",
               "KV from another stage is refused: " + what)
      .Hint("what is missing is computed again");
}

}  // namespace

absl::Status KvTaker::Take(const v1::CarryKvPart& part) {
  for (const v1::CarriedPage& piece : part.pages()) {
    RETURN_IF_ERROR(TakePiece(piece));
  }
  for (const v1::CarriedSequence& sequence : part.sequences()) {
    RETURN_IF_ERROR(TakeSequence(sequence));
  }
  return absl::OkStatus();
}

absl::Status KvTaker::TakePiece(const v1::CarriedPage& piece) {
  if (piece.group() >= pool_->groups()) {
    return Refuse("a page is of a group that there is not");
  }
  if (Crc32c(0, piece.data().data(), piece.data().size()) != piece.crc32c()) {
    return Refuse("the checksum of a page does not match");
  }
  const PageName name(piece.group(), piece.page());
  if (piece.offset() == 0) {
    at_hand_ = name;
    bytes_.clear();
  }
  const uint64_t whole = shard_->PageBytes(piece.group());
  if (piece.data().empty() || at_hand_ != name || piece.offset() != bytes_.size() ||
      piece.data().size() > whole - bytes_.size()) {
    return Refuse("the pieces of a page do not fit together");
  }
  bytes_.insert(bytes_.end(), piece.data().begin(), piece.data().end());
  return bytes_.size() == whole ? TakePage(name, piece.fingerprint()) : absl::OkStatus();
}

absl::Status KvTaker::TakePage(const PageName& name, Fingerprint fingerprint) {
  auto found = pages_.find(name);
  if (found == pages_.end()) {
    if (pool_->free(name.first) == 0) {
      return Error(absl::StatusCode::kResourceExhausted, "KV_PAGES",
                   "another stage has more KV pages than this one")
          .Limit("kv_pages=" + std::to_string(pool_->total(name.first)));
    }
    found = pages_.emplace(name, Page{.page = pool_->Allocate(name.first)}).first;
  }
  // Whatever becomes of the copy, it is not what was there before.
  found->second.fingerprint = 0;
  RETURN_IF_ERROR(shard_->WritePage(name.first, found->second.page, bytes_));
  found->second.fingerprint = fingerprint;
  taken_bytes_ += bytes_.size();
  bytes_.clear();
  return absl::OkStatus();
}

absl::Status KvTaker::TakeTokens(const v1::CarriedSequence& carried, Sequence* sequence) const {
  const auto length = static_cast<uint32_t>(carried.token_ids_size());
  if (length == 0 || length > spec_->context || carried.committed_length() > length) {
    return Refuse("a sequence has no tokens, or too many");
  }
  for (const uint32_t id : carried.token_ids()) {
    if (id >= spec_->model.vocab) {
      return Refuse("a token is not in the vocabulary");
    }
  }
  sequence->ids.assign(carried.token_ids().begin(), carried.token_ids().end());
  for (const v1::CarriedLink& link : carried.embedded()) {
    if (link.position() >= length || (link.link() & kEmbeddingLinkBit) == 0) {
      return Refuse("input embeddings are not where they can be");
    }
    sequence->embedded[link.position()] = link.link();
  }
  return absl::OkStatus();
}

absl::Status KvTaker::TakeTable(uint32_t group, const v1::CarriedTable& carried,
                                const std::vector<Fingerprint>& ends, PageTable* table) const {
  const auto length = static_cast<uint32_t>(ends.size());
  const bool windowed = spec_->model.kv_groups[group].kind == KvKind::kWindow;
  const bool used = shard_->PageBytes(group) > 0;
  const uint64_t pages = used ? (uint64_t{length} + kPageTokens - 1) / kPageTokens : 0;
  if ((!windowed && carried.first_page() != 0) ||
      uint64_t{carried.first_page()} + static_cast<uint32_t>(carried.pages_size()) != pages) {
    return Refuse("a page table does not cover its sequence");
  }
  table->first_page = carried.first_page();
  uint32_t begin = carried.first_page() * kPageTokens;
  for (const uint32_t name : carried.pages()) {
    const uint32_t end = std::min(begin + kPageTokens, length);
    begin = end;
    const auto page = pages_.find({group, name});
    if (page == pages_.end() ||
        !step_policy::CarriedIsMeant(page->second.fingerprint, ends[end - 1])) {
      return Refuse("a page is not of the tokens of its sequence");
    }
    table->pages.push_back(page->second.page);
  }
  return absl::OkStatus();
}

absl::Status KvTaker::TakeSequence(const v1::CarriedSequence& carried) {
  RETURN_IF_ERROR(CheckName(carried.name()));
  RETURN_IF_ERROR(CheckParams(carried.params(), spec_->model));
  if (table_->Find(carried.name().request_id(), carried.name().generation()) != nullptr) {
    return Refuse("a sequence is here already");
  }
  Sequence sequence;
  sequence.request_id = carried.name().request_id();
  sequence.number = carried.name().generation();
  sequence.params = carried.params();
  sequence.committed_length = carried.committed_length();
  RETURN_IF_ERROR(TakeTokens(carried, &sequence));
  std::vector<Fingerprint> ends;
  ends.reserve(sequence.ids.size());
  Fingerprint fingerprint = table_->root(carried.params().rotary_variant());
  for (uint32_t i = 0; i < sequence.length(); ++i) {
    const auto embedded = sequence.embedded.find(i);
    fingerprint = FingerprintLink(
        fingerprint, embedded == sequence.embedded.end() ? sequence.ids[i] : embedded->second);
    ends.push_back(fingerprint);
  }
  if (!step_policy::CarriedIsMeant(carried.fingerprint(), fingerprint)) {
    return Refuse("a sequence has another fingerprint than its tokens");
  }
  if (static_cast<size_t>(carried.tables_size()) != spec_->model.kv_groups.size()) {
    return Refuse("a sequence has tables for another number of groups");
  }
  sequence.tables.resize(spec_->model.kv_groups.size());
  for (uint32_t group = 0; group < sequence.tables.size(); ++group) {
    RETURN_IF_ERROR(
        TakeTable(group, carried.tables(static_cast<int>(group)), ends, &sequence.tables[group]));
  }
  table_->Adopt(std::move(sequence));
  ++taken_sequences_;
  return absl::OkStatus();
}

void KvTaker::End() {
  for (const auto& [name, page] : pages_) {
    pool_->Release(name.first, page.page);
  }
  pages_.clear();
  bytes_.clear();
  taken_bytes_ = taken_sequences_ = 0;
}

}  // namespace strata
