#include "coordinator/engine/held_kv.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {

HeldKv::HeldKv(std::vector<KvStage> stages, std::vector<KvGroupSpec> groups)
    : stages_(std::move(stages)), groups_(std::move(groups)), windows_(groups_) {
  for (const KvStage& stage : stages_) {
    STRATA_CHECK(stage.pages.size() == groups_.size());
  }
}

void HeldKv::SetHeld(uint64_t sequence, uint32_t least, uint32_t most) {
  STRATA_CHECK(least <= most);
  const auto part = part_shared_.find(sequence);
  for (PageBook* book : {&least_, &most_}) {
    const uint32_t length = book == &least_ ? least : most;
    if (!book->Has(sequence)) {
      book->Add(sequence, PageUse::kLive);
    }
    // A stage may have written to it, and then have been told to take that back.
    if (part != part_shared_.end() && (book == &most_ || length > part->second)) {
      book->Unshare(sequence, part->second / kPageTokens);
    }
    book->Resize(sequence, FullGroupPages(length));
  }
  if (part != part_shared_.end() && least > part->second) {
    part_shared_.erase(part);
  }
  windows_.SetHeld(sequence, least, most);
}

void HeldKv::HoldFork(uint64_t source, uint64_t destination, uint32_t length, bool everywhere) {
  if (length % kPageTokens > 0) {
    part_shared_[destination] = length;
  }
  for (PageBook* book : {&least_, &most_}) {
    book->Add(destination, PageUse::kLive);
    if (book->Has(source) && (everywhere || book == &most_)) {
      book->Share(source, destination, std::min(book->size(source), FullGroupPages(length)));
    }
  }
}

void HeldKv::DropHeld(uint64_t sequence) {
  part_shared_.erase(sequence);
  for (PageBook* book : {&least_, &most_}) {
    if (book->Has(sequence)) {
      book->Drop(sequence);
    }
  }
  windows_.DropHeld(sequence);
}

void HeldKv::NoteCommitted(uint64_t step, uint64_t sequence, uint32_t length) {
  if (!windows_.empty()) {
    committed_.push_back({step, sequence, length});
  }
}

void HeldKv::RetainCommitted(uint64_t committed_step) {
  while (!committed_.empty() && committed_.front().step <= committed_step) {
    SetRetained(committed_.front().sequence, committed_.front().length);
    committed_.pop_front();
  }
}

absl::Status HeldKv::Compare(
    const google::protobuf::RepeatedPtrField<v1::StageKv>& reported) const {
  for (uint32_t stage = 0; stage < stages_.size(); ++stage) {
    const v1::StageKv& kv = reported[static_cast<int>(stage)];
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      const auto g = static_cast<int>(group);
      if (absl::Status status = CompareOne(stage, group, kv.free_pages(g), kv.total_pages(g));
          !status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status HeldKv::CompareOne(uint32_t stage, uint32_t group, uint64_t free,
                                uint64_t total) const {
  const uint64_t granted = stages_[stage].pages[group];
  // Held pages come from claims that fit, but a range's upper end is only a bound.
  const bool used = granted > 0;
  const uint64_t pages_most = windows_.Has(group) ? windows_.HeldMost(group) : most_.pages();
  const uint64_t pages_least = windows_.Has(group) ? windows_.HeldLeast(group) : least_.pages();
  const uint64_t held_most = used ? std::min(pages_most, granted) : 0;
  const uint64_t least = granted - held_most;
  const uint64_t most = granted - (used ? pages_least : 0);
  if (total == granted && free >= least && free <= most) {
    return absl::OkStatus();
  }
  std::string expected = std::to_string(least);
  if (most != least) {
    expected += " to " + std::to_string(most);
  }
  return Error(absl::StatusCode::kDataLoss, "KV_MISMATCH",
               "stage " + std::to_string(stage) + " on node \"" + stages_[stage].node +
                   "\" reports " + std::to_string(free) + " free of " + std::to_string(total) +
                   " KV pages (" + KvGroupName(groups_[group]) + "), the ledger expects " +
                   expected + " of " + std::to_string(granted))
      .Node(stages_[stage].node)
      .Fact("stage", stage)
      .Fact("reported_free", free)
      .Fact("expected_free", least);
}

}  // namespace strata
