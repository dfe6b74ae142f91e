#include "worker/runner/kv_taker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "worker/runner/carried_page.h"
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

absl::Status KvTaker::Take(uint32_t source, const v1::CarryKvPart& part) {
  if (source >= kMostSources) {
    return Refuse("it comes from more stages than can be");
  }
  if (source >= sources_.size()) {
    sources_.resize(source + 1);
  }
  if (part.has_layers()) {
    RETURN_IF_ERROR(SetLayers(source, part.layers()));
  }
  if (!sources_[source].layers.has_value()) {
    return Refuse("it does not say of which layers it is");
  }
  for (const v1::CarriedPage& piece : part.pages()) {
    RETURN_IF_ERROR(TakePiece(source, piece));
  }
  if (Covers() && Main() == source) {
    for (const v1::CarriedSequence& sequence : part.sequences()) {
      RETURN_IF_ERROR(TakeSequence(source, sequence));
    }
  }
  return absl::OkStatus();
}

// ---- Sources.

absl::Status KvTaker::SetLayers(uint32_t source, const v1::CarriedLayers& layers) {
  const LayerRange range{layers.first_layer(), layers.last_layer()};
  Source& from = sources_[source];
  if (from.layers.has_value()) {
    return *from.layers == range ? absl::OkStatus() : Refuse("it is of other layers than before");
  }
  if (range.first < spec_->first_layer || range.last > spec_->last_layer ||
      range.first > range.last) {
    return Refuse("it is of layers that this stage has not");
  }
  for (const Source& other : sources_) {
    if (other.layers.has_value() && CommonLayers(*other.layers, range).has_value()) {
      return Refuse("two stages give the same layers");
    }
  }
  std::vector<PagePart> parts;
  for (uint32_t group = 0; group < pool_->groups(); ++group) {
    const std::optional<PagePart> part = PagePartOf(*spec_, *shard_, group, range);
    if (!part.has_value() || static_cast<int>(group) >= layers.page_bytes_size() ||
        layers.page_bytes(static_cast<int>(group)) != part->bytes) {
      return Refuse("its pages are of another size");
    }
    parts.push_back(*part);
  }
  from.layers = range;
  from.parts = std::move(parts);
  return absl::OkStatus();
}

bool KvTaker::Covers() const {
  uint32_t layers = 0;  // None twice.
  for (const Source& source : sources_) {
    layers += source.layers.has_value() ? source.layers->count() : 0;
  }
  return layers == spec_->last_layer - spec_->first_layer + 1;
}

std::optional<uint32_t> KvTaker::Main() const {
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    bool all = sources_[source].layers.has_value();
    for (uint32_t group = 0; all && group < pool_->groups(); ++group) {
      all = sources_[source].parts[group].bytes > 0 || shard_->PageBytes(group) == 0;
    }
    if (all) {
      return source;
    }
  }
  return std::nullopt;
}

uint64_t KvTaker::Needed(uint32_t group) const {
  uint64_t needed = 0;
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    const Source& from = sources_[source];
    needed |= from.layers.has_value() && from.parts[group].bytes > 0 ? uint64_t{1} << source : 0;
  }
  return needed;
}

// ---- Pages.

absl::Status KvTaker::TakePiece(uint32_t source, const v1::CarriedPage& piece) {
  Source& from = sources_[source];
  if (piece.group() >= pool_->groups()) {
    return Refuse("a page is of a group that there is not");
  }
  if (CarriedPageCrc(*from.layers, piece) != piece.crc32c()) {
    return Refuse("the checksum of a page does not match");
  }
  const PageName name(piece.group(), piece.page());
  if (piece.offset() == 0) {
    from.at_hand = name;
    from.bytes.clear();
  }
  const uint64_t whole = from.parts[piece.group()].bytes;
  if (piece.data().empty() || from.at_hand != name || piece.offset() != from.bytes.size() ||
      piece.data().size() > whole - std::min<uint64_t>(whole, from.bytes.size())) {
    return Refuse("the pieces of a page do not fit together");
  }
  from.bytes.insert(from.bytes.end(), piece.data().begin(), piece.data().end());
  return from.bytes.size() == whole ? TakePage(source, name, piece.fingerprint())
                                    : absl::OkStatus();
}

void KvTaker::Unname(uint32_t source, const PageName& name) {
  const auto named = sources_[source].pages.find(name);
  if (named == sources_[source].pages.end()) {
    return;
  }
  const auto page = pages_.find({name.first, named->second});
  sources_[source].pages.erase(named);
  page->second.named &= ~(uint64_t{1} << source);
  if (page->second.named == 0) {
    const auto alike = by_content_.find({name.first, page->second.fingerprint});
    alike->second.erase(page->first.second);
    if (alike->second.empty()) {
      by_content_.erase(alike);
    }
    pool_->Release(name.first, page->first.second);
    pages_.erase(page);
  }
}

std::optional<PageId> KvTaker::PageFor(uint32_t source, const PageName& name,
                                       Fingerprint fingerprint) {
  const auto [group, number] = name;
  const uint64_t bit = uint64_t{1} << source;
  if (const auto named = sources_[source].pages.find(name); named != sources_[source].pages.end()) {
    if (pages_.at({group, named->second}).fingerprint == fingerprint) {
      return named->second;
    }
    Unname(source, name);
  }
  std::optional<PageId> found;
  // What another source has of these tokens; each of its pages is one of this source's at most.
  if (const auto alike = by_content_.find({group, fingerprint}); alike != by_content_.end()) {
    for (const PageId page : alike->second) {
      if ((pages_.at({group, page}).named & bit) == 0) {
        found = page;
        break;
      }
    }
  }
  if (!found.has_value() && pool_->free(group) > 0) {
    found = pool_->Allocate(group);
    pages_[{group, *found}].fingerprint = fingerprint;
    by_content_[{group, fingerprint}].insert(*found);
  }
  if (found.has_value()) {
    sources_[source].pages[name] = *found;
    pages_.at({group, *found}).named |= bit;
  }
  return found;
}

absl::Status KvTaker::Write(uint32_t source, uint32_t group, PageId page) {
  const PagePart& part = sources_[source].parts[group];
  const std::vector<uint8_t>& bytes = sources_[source].bytes;
  const uint64_t whole = shard_->PageBytes(group);
  if (part.bytes == whole) {
    return shard_->WritePage(group, page, bytes);
  }
  std::vector<uint8_t> merged(whole);
  RETURN_IF_ERROR(shard_->ReadPage(group, page, merged));
  std::copy(bytes.begin(), bytes.end(), merged.begin() + static_cast<ptrdiff_t>(part.offset));
  return shard_->WritePage(group, page, merged);
}

absl::Status KvTaker::TakePage(uint32_t source, const PageName& name, Fingerprint fingerprint) {
  const std::optional<PageId> page = PageFor(source, name, fingerprint);
  if (!page.has_value()) {
    left_out_ = true;
    sources_[source].bytes.clear();
    return absl::OkStatus();
  }
  Page& taken = pages_.at({name.first, *page});
  const uint64_t bit = uint64_t{1} << source;
  // Whatever becomes of the copy, it is not what was there before.
  taken.there &= ~bit;
  RETURN_IF_ERROR(Write(source, name.first, *page));
  taken.there |= bit;
  taken_bytes_ += sources_[source].bytes.size();
  sources_[source].bytes.clear();
  return absl::OkStatus();
}

// ---- Sequences.

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

absl::StatusOr<bool> KvTaker::TakeTable(uint32_t source, uint32_t group,
                                        const v1::CarriedTable& carried,
                                        const std::vector<Fingerprint>& ends,
                                        PageTable* table) const {
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
    const auto page = sources_[source].pages.find({group, name});
    if (page == sources_[source].pages.end()) {
      return left_out_ ? absl::StatusOr<bool>(false) : Refuse("a page of a sequence was not given");
    }
    const Page& taken = pages_.at({group, page->second});
    if (!step_policy::CarriedIsMeant(taken.fingerprint, ends[end - 1])) {
      return Refuse("a page is not of the tokens of its sequence");
    }
    if (!step_policy::CarriedIsWhole(taken.there, Needed(group))) {
      return false;
    }
    table->pages.push_back(page->second);
  }
  return true;
}

absl::Status KvTaker::TakeSequence(uint32_t source, const v1::CarriedSequence& carried) {
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
    ASSIGN_OR_RETURN(const bool there,
                     TakeTable(source, group, carried.tables(static_cast<int>(group)), ends,
                               &sequence.tables[group]));
    if (!there) {
      return absl::OkStatus();  // It is computed again.
    }
  }
  table_->Adopt(std::move(sequence));
  ++taken_sequences_;
  return absl::OkStatus();
}

TakenKv KvTaker::taken() const {
  return {.bytes = taken_bytes_,
          .sequences = taken_sequences_,
          .covers = Covers() && Main().has_value(),
          .main = Main().value_or(0)};
}

void KvTaker::End() {
  for (const auto& [name, page] : pages_) {
    pool_->Release(name.first, name.second);
  }
  pages_.clear();
  by_content_.clear();
  sources_.clear();
  left_out_ = false;
  taken_bytes_ = taken_sequences_ = 0;
}

}  // namespace strata
