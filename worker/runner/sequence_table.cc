#include "worker/runner/sequence_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/runner/step_policy.h"

namespace strata {
namespace {

// Pages that hold `tokens` tokens.
uint32_t PagesFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

// What the fingerprint takes at a position that is held.
uint64_t LinkAt(const Sequence& sequence, uint32_t position) {
  const auto found = sequence.embedded.find(position);
  return found == sequence.embedded.end() ? sequence.ids[position] : found->second;
}

}  // namespace

const UnfinishedItem* Sequence::FindUnfinished(uint32_t position) const {
  const auto found =
      std::find_if(unfinished.begin(), unfinished.end(),
                   [position](const auto& item) { return item.position == position; });
  return found == unfinished.end() ? nullptr : &*found;
}

UnfinishedItem* Sequence::UnfinishedAt(uint32_t position) {
  const UnfinishedItem* const found = FindUnfinished(position);
  STRATA_CHECK(found != nullptr);
  return &unfinished[static_cast<size_t>(found - unfinished.data())];
}

SequenceTable::SequenceTable(const StageSpec& spec, std::vector<Fingerprint> roots, KvPool* pool,
                             Shard* shard)
    : roots_(std::move(roots)), pool_(pool), shard_(shard) {
  for (const KvGroupSpec& group : spec.model.kv_groups) {
    groups_.push_back({group, false});
  }
  STRATA_CHECK(groups_.size() == pool_->groups());
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    groups_[spec.model.layers[layer].attention.kv_group].used = true;
  }
}

SequenceTable::~SequenceTable() = default;

const Sequence* SequenceTable::Next(const Key* name) const {
  const auto next = name == nullptr ? sequences_.begin() : sequences_.upper_bound(*name);
  return next == sequences_.end() ? nullptr : next->second.get();
}

void SequenceTable::Adopt(Sequence sequence) {
  sequence.fingerprint = root(sequence.params.rotary_variant());
  sequence.page_fingerprints = {sequence.fingerprint};
  for (uint32_t i = 0; i < sequence.length(); ++i) {
    sequence.fingerprint = FingerprintLink(sequence.fingerprint, LinkAt(sequence, i));
    if ((i + 1) % kPageTokens == 0) {
      sequence.page_fingerprints.push_back(sequence.fingerprint);
    }
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    for (const PageId page : sequence.tables[group].pages) {
      pool_->Retain(group, page);
    }
  }
  newest_number_ = std::max(newest_number_, sequence.number);
  const Key name(sequence.request_id, sequence.number);
  const bool is_new =
      sequences_.emplace(name, std::make_unique<Sequence>(std::move(sequence))).second;
  STRATA_CHECK(is_new);
}

Sequence* SequenceTable::Create(std::string_view request_id, uint64_t number,
                                const v1::SequenceParams& params) {
  auto [entry, created] = sequences_.try_emplace(Key(request_id, number));
  STRATA_CHECK(created);
  entry->second = std::make_unique<Sequence>();
  Sequence* sequence = entry->second.get();
  sequence->request_id = std::string(request_id);
  sequence->number = number;
  sequence->params = params;
  sequence->fingerprint = root(params.rotary_variant());
  sequence->page_fingerprints = {sequence->fingerprint};
  sequence->tables.resize(groups_.size());
  newest_number_ = std::max(newest_number_, number);
  return sequence;
}

bool SequenceTable::LastPageIsShared(const Sequence& sequence, uint32_t group) const {
  // Only a page that is partly filled will be written again.
  return sequence.length() % kPageTokens != 0 &&
         step_policy::PageNeedsCopy(pool_->references(group, sequence.tables[group].pages.back()));
}

uint64_t SequenceTable::PagesNeeded(const Sequence* sequence, uint32_t group,
                                    uint32_t tokens) const {
  if (!groups_[group].used) {
    return 0;
  }
  const uint64_t length = sequence == nullptr ? 0 : sequence->length();
  const uint64_t fresh = PagesFor(length + tokens) - PagesFor(length);
  return fresh + (sequence != nullptr && LastPageIsShared(*sequence, group) ? 1 : 0);
}

absl::Status SequenceTable::CheckPages(const Sequence* sequence, uint32_t tokens) const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const uint64_t asked = PagesNeeded(sequence, group, tokens);
    if (asked > pool_->free(group)) {
      const std::string name = KvGroupName(groups_[group].spec);
      return Error(absl::StatusCode::kResourceExhausted, "KV_PAGES",
                   std::to_string(asked) + " KV pages of group " + name + " are needed, " +
                       std::to_string(pool_->free(group)) + " are free")
          .Limit("kv_pages=" + std::to_string(pool_->total(group)))
          .Fact("group", name)
          .Fact("asked", asked)
          .Fact("free", pool_->free(group));
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceTable::CopySharedPages(Sequence* sequence) {
  std::vector<std::pair<uint32_t, PageId>> copies;  // Group and new page.
  absl::Status status;
  for (uint32_t group = 0; group < groups_.size() && status.ok(); ++group) {
    if (groups_[group].used && LastPageIsShared(*sequence, group)) {
      const PageId page = pool_->Allocate(group);
      copies.emplace_back(group, page);
      status = shard_->CopyPage(group, sequence->tables[group].pages.back(), page);
    }
  }
  for (auto& [group, page] : copies) {
    if (status.ok()) {
      std::swap(sequence->tables[group].pages.back(), page);
    }
    pool_->Release(group, page);  // The shared one, or the copy that came to nothing.
  }
  return status;
}

absl::Status SequenceTable::Append(Sequence* sequence, std::span<const uint32_t> ids,
                                   const std::map<uint32_t, uint64_t>& embedded) {
  RETURN_IF_ERROR(CopySharedPages(sequence));
  const uint64_t length = sequence->length() + ids.size();
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    PageTable& table = sequence->tables[group];
    while (groups_[group].used && table.first_page + table.pages.size() < PagesFor(length)) {
      table.pages.push_back(pool_->Allocate(group));
    }
  }
  sequence->embedded.insert(embedded.begin(), embedded.end());
  for (const uint32_t id : ids) {
    sequence->ids.push_back(id);
    sequence->fingerprint =
        FingerprintLink(sequence->fingerprint, LinkAt(*sequence, sequence->length() - 1));
    if (sequence->ids.size() % kPageTokens == 0) {
      sequence->page_fingerprints.push_back(sequence->fingerprint);
    }
  }
  return absl::OkStatus();
}

Fingerprint SequenceTable::FingerprintAt(const Sequence& sequence, uint32_t length) const {
  if (length >= sequence.length()) {
    return sequence.fingerprint;
  }
  Fingerprint fingerprint = sequence.page_fingerprints[length / kPageTokens];
  for (uint32_t i = length / kPageTokens * kPageTokens; i < length; ++i) {
    fingerprint = FingerprintLink(fingerprint, LinkAt(sequence, i));
  }
  return fingerprint;
}

bool SequenceTable::WindowsRetained(const Sequence& sequence, uint32_t length,
                                    uint32_t* group) const {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].used && groups_[g].spec.kind == KvKind::kWindow &&
        !step_policy::WindowIsRetained(FirstRetained(sequence, g), length,
                                       groups_[g].spec.window)) {
      *group = g;
      return false;
    }
  }
  return true;
}

void SequenceTable::Truncate(Sequence* sequence, uint32_t length) {
  STRATA_CHECK(length <= sequence->length());
  while (!sequence->unfinished.empty() &&
         sequence->unfinished.back().position + sequence->unfinished.back().rows > length) {
    STRATA_CHECK(sequence->unfinished.back().position >= length);
    sequence->unfinished.pop_back();
  }
  sequence->fingerprint = FingerprintAt(*sequence, length);
  sequence->ids.resize(length);
  sequence->embedded.erase(sequence->embedded.lower_bound(length), sequence->embedded.end());
  sequence->page_fingerprints.resize(length / kPageTokens + 1);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    PageTable& table = sequence->tables[group];
    while (!table.pages.empty() && table.first_page + table.pages.size() > PagesFor(length)) {
      pool_->Release(group, table.pages.back());
      table.pages.pop_back();
    }
  }
  sequence->committed_length = std::min(sequence->committed_length, length);
  for (auto& [step, after] : sequence->uncommitted) {
    after = std::min(after, length);
  }
}

Sequence* SequenceTable::Fork(const Sequence& source, std::string_view request_id, uint64_t number,
                              uint32_t length, const v1::SequenceParams& params) {
  STRATA_CHECK(length <= source.length());
  Sequence* fork = Create(request_id, number, params);
  fork->ids.assign(source.ids.begin(), source.ids.begin() + length);
  fork->embedded.insert(source.embedded.begin(), source.embedded.lower_bound(length));
  fork->fingerprint = FingerprintAt(source, length);
  fork->page_fingerprints.assign(source.page_fingerprints.begin(),
                                 source.page_fingerprints.begin() + length / kPageTokens + 1);
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const PageTable& from = source.tables[group];
    PageTable& to = fork->tables[group];
    to.first_page = from.first_page;
    for (const PageId page : from.pages) {
      if (to.first_page + to.pages.size() == PagesFor(length)) {
        break;
      }
      pool_->Retain(group, page);
      to.pages.push_back(page);
    }
  }
  fork->committed_length = std::min(source.committed_length, length);
  return fork;
}

void SequenceTable::ReleasePages(Sequence* sequence) {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    // From the last, as the pool gives out first what came back last: pages that lay one behind the
    // other do so again, and attention reads them faster.
    const std::vector<PageId>& pages = sequence->tables[group].pages;
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
      pool_->Release(group, *page);
    }
  }
}

void SequenceTable::ReleaseIf(const std::function<bool(const Sequence&)>& condition) {
  std::erase_if(sequences_, [&](const auto& entry) {
    const bool release = condition(*entry.second);
    if (release) {
      ReleasePages(entry.second.get());
    }
    return release;
  });
}

void SequenceTable::NoteStep(Sequence* sequence, uint64_t step, uint32_t length) {
  sequence->uncommitted.emplace_back(step, length);
}

uint64_t SequenceTable::ParkedRows() const {
  uint64_t rows = 0;
  for (const auto& [key, sequence] : sequences_) {
    for (const UnfinishedItem& item : sequence->unfinished) {
      rows += item.parked.empty() ? 0 : item.rows;
    }
  }
  return rows;
}

void SequenceTable::Commit(uint64_t step) {
  for (auto& [key, sequence] : sequences_) {
    auto& steps = sequence->uncommitted;
    const auto end = std::find_if(steps.begin(), steps.end(),
                                  [step](const auto& entry) { return entry.first > step; });
    if (end != steps.begin()) {
      sequence->committed_length = std::prev(end)->second;
      steps.erase(steps.begin(), end);
      FreeBehindWindows(sequence.get());
    }
  }
}

void SequenceTable::CommitAll(Sequence* sequence) {
  sequence->committed_length = sequence->length();
  FreeBehindWindows(sequence);
}

void SequenceTable::ForgetSteps() {
  for (auto& [key, sequence] : sequences_) {
    sequence->uncommitted.clear();
  }
}

void SequenceTable::FreeBehindWindows(Sequence* sequence) {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (!groups_[group].used || groups_[group].spec.kind != KvKind::kWindow) {
      continue;
    }
    // The next query of the committed length sees keys from here on.
    const uint32_t first_seen = FirstSeen(sequence->committed_length, groups_[group].spec.window);
    PageTable& table = sequence->tables[group];
    const uint32_t keep_from = first_seen / kPageTokens;
    size_t freed = 0;
    while (table.first_page < keep_from && freed < table.pages.size()) {
      pool_->Release(group, table.pages[freed++]);
      ++table.first_page;
    }
    table.pages.erase(table.pages.begin(), table.pages.begin() + static_cast<ptrdiff_t>(freed));
  }
}

std::vector<PageTableView> SequenceTable::Views(const Sequence& sequence) const {
  std::vector<PageTableView> views;
  views.reserve(sequence.tables.size());
  for (const PageTable& table : sequence.tables) {
    views.push_back({table.first_page, table.pages});
  }
  return views;
}

}  // namespace strata
