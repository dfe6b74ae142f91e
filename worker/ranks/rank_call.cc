#include "worker/ranks/rank_call.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/collective/collective.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

// "STRC" and the version of the frame.
constexpr uint64_t kCallMagic = uint64_t{1} << 32 | 0x43525453;
constexpr size_t kWord = sizeof(uint32_t);

absl::Status Damaged(const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, kRankFrame, what);
}

absl::Status NotOfItsKind() {
  return Damaged("a leader's call is not made with what a call of its kind is");
}

uint32_t PagesFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

// Puts fields one behind another.
class Appender {
 public:
  explicit Appender(std::vector<uint8_t>* out) : out_(*out) {}
  template <typename T>
  void Put(T value) {
    PutAll(std::span<const T>(&value, 1));
  }
  template <typename T>
  void PutAll(std::span<const T> values) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    out_.insert(out_.end(), bytes, bytes + values.size_bytes());
  }

 private:
  std::vector<uint8_t>& out_;
};

// Takes them again; none of those who take looks behind the end.
class Taker {
 public:
  explicit Taker(std::span<const uint8_t> in) : in_(in) {}
  size_t left() const { return in_.size(); }
  template <typename T>
  bool Take(T* value) {
    if (in_.size() < sizeof(T)) {
      return false;
    }
    std::memcpy(value, in_.data(), sizeof(T));
    in_ = in_.subspan(sizeof(T));
    return true;
  }
  // Adds so many.
  template <typename T>
  bool TakeMore(size_t count, std::vector<T>* values) {
    if (in_.size() / sizeof(T) < count) {
      return false;
    }
    const size_t before = values->size();
    values->resize(before + count);
    if (count > 0) {
      std::memcpy(values->data() + before, in_.data(), count * sizeof(T));
    }
    in_ = in_.subspan(count * sizeof(T));
    return true;
  }
  // All that is left.
  template <typename T>
  bool TakeRest(std::vector<T>* values) {
    values->clear();
    return in_.size() % sizeof(T) == 0 && TakeMore(in_.size() / sizeof(T), values);
  }

 private:
  std::span<const uint8_t> in_;
};

// Of a table what its item sees.
std::span<const PageId> Seen(const PageTableView& table, const BatchItem& item) {
  const uint32_t end = PagesFor(uint64_t{item.position} + item.rows);
  const uint32_t pages = end - std::min(end, table.first_page);
  return table.pages.first(std::min<size_t>(pages, table.pages.size()));
}

void EncodeBatch(const Batch& batch, Appender* to) {
  to->Put(batch.rows);
  to->Put(static_cast<uint32_t>(batch.items.size()));
  for (const BatchItem& item : batch.items) {
    to->Put(item.rows);
    to->Put(item.position);
    to->Put(item.rotary_variant);
    for (const PageTableView& table : item.tables) {
      const std::span<const PageId> pages = Seen(table, item);
      to->Put(table.first_page);
      to->Put(static_cast<uint32_t>(pages.size()));
      to->PutAll(pages);
    }
  }
}

uint64_t MostBytes(RankCallKind kind, const RankCallLimits& limits) {
  const uint64_t table = 2 * kWord + uint64_t{limits.table_pages} * kWord;
  switch (kind) {
    case RankCallKind::kBegin:
      return 2 * kWord + limits.items * (3 * kWord + limits.groups * table);
    case RankCallKind::kAttention:
    case RankCallKind::kMlp:
      return kWord;
    case RankCallKind::kAttentionOfSome:
      return kWord + uint64_t{limits.rows} * kWord;
    case RankCallKind::kHead:
      return uint64_t{limits.rows} * kWord;
    case RankCallKind::kCopyPage:
      return 3 * kWord;
    case RankCallKind::kResizeKv:
      return uint64_t{limits.groups} * sizeof(uint64_t);
    case RankCallKind::kReadPage:
      return 2 * kWord;
    case RankCallKind::kWritePage:
      return 2 * kWord + limits.page_bytes;
    case RankCallKind::kEnd:
      return kMaxEndBytes;
    case RankCallKind::kShareResidual:
    case RankCallKind::kReadLogits:
    case RankCallKind::kAlive:
      break;
  }
  return 0;
}

bool IsKnown(RankCallKind kind) {
  return kind >= RankCallKind::kBegin && kind <= RankCallKind::kEnd;
}

}  // namespace

RankCallLimits LimitsOf(const StageSpec& spec, uint64_t page_bytes) {
  return {.rows = spec.max_batch_tokens,
          .items = spec.max_batch_items,
          .groups = static_cast<uint32_t>(spec.model.kv_groups.size()),
          .table_pages = PagesFor(spec.context),
          .page_bytes = page_bytes};
}

void EncodeRankCall(const RankCall& call, uint64_t epoch, uint64_t number,
                    std::vector<uint8_t>* out) {
  out->assign(kRankCallHeadBytes, 0);
  Appender body(out);
  switch (call.kind) {
    case RankCallKind::kBegin:
      EncodeBatch(call.batch, &body);
      break;
    case RankCallKind::kAttention:
    case RankCallKind::kMlp:
      body.Put(call.layer);
      break;
    case RankCallKind::kAttentionOfSome:
      body.Put(call.layer);
      body.PutAll(call.rows);
      break;
    case RankCallKind::kHead:
      body.PutAll(call.rows);
      break;
    case RankCallKind::kCopyPage:
      body.Put(call.group);
      body.Put(call.page);
      body.Put(call.to);
      break;
    case RankCallKind::kResizeKv:
      body.PutAll(call.kv_pages);
      break;
    case RankCallKind::kReadPage:
    case RankCallKind::kWritePage:
      body.Put(call.group);
      body.Put(call.page);
      body.PutAll(call.page_bytes);
      break;
    case RankCallKind::kEnd:
      body.PutAll(std::span(call.why.data(), std::min(call.why.size(), kMaxEndBytes)));
      break;
    case RankCallKind::kShareResidual:
    case RankCallKind::kReadLogits:
    case RankCallKind::kAlive:
      break;
  }
  const uint64_t bytes = out->size() - kRankCallHeadBytes;
  size_t at = 0;
  const auto put = [&](auto value) {
    std::memcpy(out->data() + at, &value, sizeof(value));
    at += sizeof(value);
  };
  put(kCallMagic);
  put(static_cast<uint32_t>(call.kind));
  put(uint32_t{0});
  put(epoch);
  put(number);
  put(bytes);
  put(Crc32c(0, out->data() + kRankCallHeadBytes, bytes));
  put(Crc32c(0, out->data(), at));
}

absl::StatusOr<RankCallHead> DecodeRankCallHead(std::span<const uint8_t, kRankCallHeadBytes> bytes,
                                                const RankCallLimits& limits) {
  Taker from(bytes);
  uint64_t magic = 0;
  uint32_t kind = 0;
  uint32_t unused = 0;
  uint32_t crc = 0;
  RankCallHead head;
  const bool whole = from.Take(&magic) && from.Take(&kind) && from.Take(&unused) &&
                     from.Take(&head.epoch) && from.Take(&head.number) && from.Take(&head.bytes) &&
                     from.Take(&head.crc) && from.Take(&crc);
  if (!whole || magic != kCallMagic) {
    return Damaged("what came from a leader is no call of this version");
  }
  if (crc != Crc32c(0, bytes.data(), kRankCallHeadBytes - sizeof(crc))) {
    return Damaged("the head of a leader's call is damaged");
  }
  head.kind = static_cast<RankCallKind>(kind);
  if (!IsKnown(head.kind) || unused != 0) {
    return Damaged("a leader's call is of an unknown kind");
  }
  if (head.bytes > MostBytes(head.kind, limits)) {
    return Damaged("a leader's call has more bytes than it may have");
  }
  return head;
}

absl::Status HeldRankCall::Decode(const RankCallHead& head, std::span<const uint8_t> bytes,
                                  const RankCallLimits& limits) {
  if (bytes.size() != head.bytes || Crc32c(0, bytes.data(), bytes.size()) != head.crc) {
    return Damaged("a leader's call is damaged");
  }
  Taker from(bytes);
  call_.kind = head.kind;
  bool good = true;
  switch (head.kind) {
    case RankCallKind::kBegin:
      return DecodeBatch(bytes, limits);
    case RankCallKind::kAttention:
    case RankCallKind::kMlp:
      good = from.Take(&call_.layer) && from.left() == 0;
      break;
    case RankCallKind::kAttentionOfSome:
      good = from.Take(&call_.layer) && from.TakeRest(&rows_);
      break;
    case RankCallKind::kHead:
      good = from.TakeRest(&rows_);
      break;
    case RankCallKind::kCopyPage:
      good = from.Take(&call_.group) && from.Take(&call_.page) && from.Take(&call_.to) &&
             from.left() == 0;
      break;
    case RankCallKind::kResizeKv:
      good = from.TakeRest(&kv_pages_) && kv_pages_.size() == limits.groups;
      break;
    case RankCallKind::kReadPage:
      good = from.Take(&call_.group) && from.Take(&call_.page) && from.left() == 0;
      break;
    case RankCallKind::kWritePage:
      good = from.Take(&call_.group) && from.Take(&call_.page) && from.TakeRest(&page_bytes_);
      break;
    case RankCallKind::kEnd:
      call_.why.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      break;
    case RankCallKind::kShareResidual:
    case RankCallKind::kReadLogits:
    case RankCallKind::kAlive:
      break;
  }
  call_.rows = rows_;
  call_.kv_pages = kv_pages_;
  call_.page_bytes = page_bytes_;
  return good ? absl::OkStatus() : NotOfItsKind();
}

absl::Status HeldRankCall::DecodeBatch(std::span<const uint8_t> bytes,
                                       const RankCallLimits& limits) {
  call_.batch = {};
  items_.clear();
  tables_.clear();
  pages_.clear();
  Taker from(bytes);
  uint32_t rows = 0;
  uint32_t count = 0;
  if (!from.Take(&rows) || !from.Take(&count) || rows > limits.rows || count > limits.items) {
    return NotOfItsKind();
  }
  uint64_t first_row = 0;
  std::vector<uint32_t>
      table_pages;  // Of each table; views are made once pages stay where they are.
  for (uint32_t i = 0; i < count; ++i) {
    BatchItem item;
    if (!from.Take(&item.rows) || !from.Take(&item.position) || !from.Take(&item.rotary_variant)) {
      return NotOfItsKind();
    }
    item.first_row = static_cast<uint32_t>(first_row);
    first_row += item.rows;
    if (first_row > rows) {
      return NotOfItsKind();
    }
    items_.push_back(item);
    for (uint32_t group = 0; group < limits.groups; ++group) {
      PageTableView table;
      uint32_t pages = 0;
      if (!from.Take(&table.first_page) || !from.Take(&pages) || pages > limits.table_pages ||
          !from.TakeMore(pages, &pages_)) {
        return NotOfItsKind();
      }
      tables_.push_back(table);
      table_pages.push_back(pages);
    }
  }
  if (first_row != rows || from.left() != 0) {
    return NotOfItsKind();
  }
  std::span<const PageId> left(pages_);
  for (size_t i = 0; i < tables_.size(); ++i) {
    tables_[i].pages = left.first(table_pages[i]);
    left = left.subspan(table_pages[i]);
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].tables = std::span(tables_).subspan(i * limits.groups, limits.groups);
  }
  call_.batch = {.rows = rows, .token_ids = {}, .items = items_};
  return absl::OkStatus();
}

}  // namespace strata
