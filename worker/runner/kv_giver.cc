#include "worker/runner/kv_giver.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "worker/runner/carried_page.h"

namespace strata {
namespace {

// Of a page that goes in pieces.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

v1::CarriedSequence Describe(const Sequence& sequence, uint32_t length, Fingerprint fingerprint) {
  v1::CarriedSequence carried;
  carried.mutable_name()->set_request_id(sequence.request_id);
  carried.mutable_name()->set_generation(sequence.number);
  *carried.mutable_params() = sequence.params;
  carried.mutable_token_ids()->Add(sequence.ids.begin(), sequence.ids.begin() + length);
  for (auto it = sequence.embedded.begin(); it != sequence.embedded.lower_bound(length); ++it) {
    v1::CarriedLink* const link = carried.add_embedded();
    link->set_position(it->first);
    link->set_link(it->second);
  }
  carried.set_committed_length(std::min(sequence.committed_length, length));
  carried.set_fingerprint(fingerprint);
  for (const PageTable& table : sequence.tables) {
    v1::CarriedTable* const to = carried.add_tables();
    to->set_first_page(table.first_page);
    for (const PageId page : table.pages) {
      if (uint64_t{table.first_page + static_cast<uint32_t>(to->pages_size())} * kPageTokens <
          length) {
        to->add_pages(page);
      }
    }
  }
  return carried;
}

}  // namespace

void KvGiver::Begin(uint32_t round) {
  if (round == 0) {
    given_.clear();
  }
  done_.reset();
}

absl::StatusOr<uint64_t> KvGiver::Give(uint32_t group, PageId page, Fingerprint fingerprint,
                                       Parts* parts) {
  const auto given = given_.find({group, page});
  if (given != given_.end() && given->second == fingerprint) {
    return 0;
  }
  const PagePart& part = page_parts_[group];
  if (part.bytes == 0) {
    return 0;
  }
  std::vector<uint8_t> whole(shard_->PageBytes(group));
  RETURN_IF_ERROR(shard_->ReadPage(group, page, whole));
  const std::span<const uint8_t> bytes = std::span(whole).subspan(part.offset, part.bytes);
  for (uint64_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const uint64_t count = std::min<uint64_t>(kPieceBytes, bytes.size() - at);
    if (count > room_) {
      parts->emplace_back();
      room_ = kPieceBytes;
    }
    room_ -= count;
    v1::CarriedPage* const piece = parts->back().add_pages();
    piece->set_group(group);
    piece->set_page(page);
    piece->set_fingerprint(fingerprint);
    piece->set_offset(at);
    piece->set_data(bytes.data() + at, count);
    piece->set_crc32c(CarriedPageCrc(layers_, *piece));
  }
  given_[{group, page}] = fingerprint;
  return bytes.size();
}

absl::StatusOr<uint64_t> KvGiver::GivePages(const Sequence& sequence, uint32_t length,
                                            uint64_t most, Parts* parts) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < sequence.tables.size(); ++group) {
    uint32_t index = sequence.tables[group].first_page;
    for (const PageId page : sequence.tables[group].pages) {
      const uint32_t begin = index++ * kPageTokens;
      if (begin >= length || bytes >= most) {
        break;
      }
      const uint32_t end = std::min(begin + kPageTokens, length);
      ASSIGN_OR_RETURN(const uint64_t given,
                       Give(group, page, table_->FingerprintAt(sequence, end), parts));
      bytes += given;
    }
  }
  return bytes;
}

absl::StatusOr<KvGiver::Parts> KvGiver::More() {
  Parts parts;
  room_ = 0;
  uint64_t bytes = 0;
  while (const Sequence* next = table_->Next(done_.has_value() ? &*done_ : nullptr)) {
    const uint32_t full = next->computed_length() / kPageTokens * kPageTokens;
    ASSIGN_OR_RETURN(const uint64_t given,
                     GivePages(*next, full, kGivenAtOnceBytes - bytes, &parts));
    bytes += given;
    if (bytes >= kGivenAtOnceBytes) {
      break;  // The rest of this one comes next.
    }
    done_.emplace(next->request_id, next->number);
  }
  return parts;
}

bool KvGiver::SharesLastPage(const Sequence& sequence, uint32_t length) const {
  if (length % kPageTokens == 0) {
    return false;
  }
  for (uint32_t group = 0; group < sequence.tables.size(); ++group) {
    const PageTable& table = sequence.tables[group];
    const uint32_t index = length / kPageTokens - table.first_page;
    if (index < table.pages.size() && table_->pool().references(group, table.pages[index]) > 1) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<KvGiver::Parts> KvGiver::Rest(bool pages_only) {
  Parts parts;
  std::vector<v1::CarriedSequence> sequences;
  room_ = 0;
  uint64_t bytes = 0;
  done_.reset();
  while (const Sequence* next = table_->Next(done_.has_value() ? &*done_ : nullptr)) {
    done_.emplace(next->request_id, next->number);
    const uint32_t length = next->computed_length();
    if (length == 0 || bytes >= kMostLeftBytes || SharesLastPage(*next, length)) {
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t given,
                     GivePages(*next, length, kMostLeftBytes - bytes, &parts));
    bytes += given;
    if (pages_only) {
      continue;
    }
    v1::CarriedSequence sequence = Describe(*next, length, table_->FingerprintAt(*next, length));
    if (bytes < kMostLeftBytes && sequence.ByteSizeLong() <= kMostSequenceBytes) {
      sequences.push_back(std::move(sequence));
    }
  }
  // Behind all pages.
  room_ = 0;
  for (v1::CarriedSequence& sequence : sequences) {
    const uint64_t size = sequence.ByteSizeLong();
    if (size > room_) {
      parts.emplace_back();
      room_ = std::max(size, kPieceBytes);
    }
    room_ -= size;
    *parts.back().add_sequences() = std::move(sequence);
  }
  return parts;
}

}  // namespace strata
