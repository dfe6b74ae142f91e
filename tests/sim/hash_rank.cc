#include "tests/sim/hash_rank.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata::sim {
namespace {

using strata::testing::kHashHidden;

// What a rank has of so many things.
std::vector<ByteColumns> Divide(const std::vector<OutputRange>& shares, size_t things) {
  std::vector<ByteColumns> columns;
  for (const OutputRange& share : shares) {
    columns.push_back({share.begin * things / kShareParts, share.end * things / kShareParts});
  }
  return columns;
}

}  // namespace

HashRank::HashRank(const StageSpec& spec, const RankPlace& place)
    : spec_(spec),
      place_(place),
      calls_(&spec_),
      bytes_of_(Divide(place.shares, kRowBytes)),
      logits_of_(Divide(place.shares, spec.model.vocab)),
      columns_(place.shares.size()) {
  for (ByteColumns& columns : logits_of_) {
    columns = {columns.begin * sizeof(float), columns.end * sizeof(float)};
  }
  MakeKv();
}

void HashRank::MakeKv() {
  kv_.clear();
  RowBytes unwritten;
  unwritten.fill(0xBA);  // As wrong as can be.
  for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
    const uint32_t group = spec_.model.layers[layer].attention.kv_group;
    kv_.emplace_back(spec_.kv_pages[group] * kPageTokens, unwritten);
  }
}

void HashRank::Encode(const HashRow& row, uint8_t* out) {
  out[0] = row.finite ? 1 : 0;
  std::memcpy(out + 1, &row.state, sizeof row.state);
}

HashRank::HashRow HashRank::Decode(const uint8_t* bytes) {
  HashRow row;
  row.finite = bytes[0] == 1;
  std::memcpy(&row.state, bytes + 1, sizeof row.state);
  return row;
}

// ---- Other ranks.

void HashRank::Connect(std::unique_ptr<Collective> collective, uint64_t epoch) {
  collective_ = std::move(collective);
  point_ = {.epoch = epoch};
}

void HashRank::Abort(const absl::Status& why) {
  if (collective_ != nullptr) {
    collective_->Abort(why);
  }
}

absl::Status HashRank::GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) {
  ++point_.call;
  return collective_->Gather(
      point_, {.data = row, .rows = 1, .stride = columns.back().end, .columns = columns});
}

absl::Status HashRank::GatherParts(size_t rows) {
  for (size_t rank = 0; rank < columns_.size(); ++rank) {
    columns_[rank] = {bytes_of_[rank].begin * rows, bytes_of_[rank].end * rows};
  }
  return GatherBytes(parts_.data(), columns_);
}

absl::Status HashRank::ShareResidual() {
  parts_.resize(rows_.size() * kRowBytes);
  for (size_t r = 0; place_.rank == 0 && r < rows_.size(); ++r) {
    Encode(rows_[r], parts_.data() + r * kRowBytes);
  }
  std::fill(columns_.begin(), columns_.end(), ByteColumns{parts_.size(), parts_.size()});
  columns_[0].begin = 0;
  RETURN_IF_ERROR(GatherBytes(parts_.data(), columns_));
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r] = Decode(parts_.data() + r * kRowBytes);
  }
  return absl::OkStatus();
}

absl::Status HashRank::GatherLogits(std::span<float> logits) {
  ++point_.call;
  return collective_->Gather(point_, {.data = reinterpret_cast<uint8_t*>(logits.data()),
                                      .rows = head_rows_.size(),
                                      .stride = spec_.model.vocab * sizeof(float),
                                      .columns = logits_of_,
                                      .to_first = true});
}

// ---- A step.

absl::Status HashRank::MayFail() {
  const auto& ids = batch_.token_ids;
  const bool fails_at =
      fail_token_.has_value() && std::find(ids.begin(), ids.end(), *fail_token_) != ids.end();
  return std::exchange(fails_next_, false) || fails_at ? absl::InternalError("made to fail")
                                                       : absl::OkStatus();
}

absl::Status HashRank::Begin(const Batch& batch) {
  batch_ = batch;
  rows_.assign(batch.rows, {});
  head_rows_.clear();
  ++point_.step;
  point_.call = 0;
  return absl::OkStatus();
}

absl::Status HashRank::Embed() {
  for (uint32_t r = 0; r < batch_.rows; ++r) {
    rows_[r] = strata::testing::HashEmbed(batch_.token_ids[r]);
  }
  return absl::OkStatus();
}

absl::Status HashRank::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  for (size_t i = 0; i < rows.size(); ++i) {
    rows_.at(rows[i]) = strata::testing::HashInput(values.subspan(i * kHashHidden, kHashHidden));
  }
  return absl::OkStatus();
}

absl::Status HashRank::SetResidual(std::span<const float> values) {
  RETURN_IF_ERROR(calls_.Residual(values.size(), batch_.rows));
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r] = strata::testing::HashRowOf(values.subspan(r * kHashHidden, kHashHidden));
  }
  return absl::OkStatus();
}

HashRank::RowBytes* HashRank::Slot(uint32_t layer, const PageTableView& table, uint32_t position) {
  const uint32_t page = position / kPageTokens;
  if (page < table.first_page || page - table.first_page >= table.pages.size()) {
    return nullptr;
  }
  return &kv_[layer - spec_.first_layer].at(
      size_t{table.pages[page - table.first_page]} * kPageTokens + position % kPageTokens);
}

uint32_t HashRank::FirstKey(uint32_t layer, const BatchItem& item) const {
  const uint32_t group = spec_.model.layers[layer].attention.kv_group;
  return strata::testing::HashFirstSeen(spec_.model.kv_groups[group], item.position);
}

absl::Status HashRank::AppendKv(uint32_t layer) {
  const uint32_t group = spec_.model.layers[layer].attention.kv_group;
  const ByteColumns& own = bytes_of_[place_.rank];
  RowBytes bytes;
  for (const BatchItem& item : batch_.items) {
    for (uint32_t r = 0; r < item.rows; ++r) {
      RowBytes* const slot = Slot(layer, item.tables[group], item.position + r);
      if (slot == nullptr) {
        return absl::InternalError("no page for a row");
      }
      Encode(strata::testing::HashKv(rows_[item.first_row + r], layer, item.position + r),
             bytes.data());
      std::copy(bytes.begin() + own.begin, bytes.begin() + own.end, slot->begin() + own.begin);
    }
  }
  return absl::OkStatus();
}

absl::Status HashRank::PackKeys(uint32_t layer, size_t keys) {
  const uint32_t group = spec_.model.layers[layer].attention.kv_group;
  const ByteColumns& own = bytes_of_[place_.rank];
  parts_.resize(keys * kRowBytes);
  uint8_t* out = parts_.data() + own.begin * keys;
  for (const BatchItem& item : batch_.items) {
    for (uint32_t key = FirstKey(layer, item); key < item.position + item.rows; ++key) {
      const RowBytes* const slot = Slot(layer, item.tables[group], key);
      if (slot == nullptr) {
        return absl::InternalError("no page for a key");
      }
      out = std::copy(slot->begin() + own.begin, slot->begin() + own.end, out);
    }
  }
  return absl::OkStatus();
}

void HashRank::Attend(uint32_t layer, size_t keys) {
  std::vector<HashRow> seen_by_all(keys);
  RowBytes bytes;
  for (size_t key = 0; key < keys; ++key) {
    for (const ByteColumns& columns : bytes_of_) {
      const uint8_t* const from = parts_.data() + columns.begin * keys + key * columns.size();
      std::copy(from, from + columns.size(), bytes.begin() + columns.begin);
    }
    seen_by_all[key] = Decode(bytes.data());
  }
  const KvGroupSpec& group = spec_.model.kv_groups[spec_.model.layers[layer].attention.kv_group];
  size_t item_keys = 0;
  for (const BatchItem& item : batch_.items) {
    const uint32_t first = FirstKey(layer, item);
    for (uint32_t r = 0; r < item.rows; ++r) {
      const uint32_t position = item.position + r;
      HashRow seen;
      for (uint32_t key = strata::testing::HashFirstSeen(group, position); key <= position; ++key) {
        strata::testing::HashSee(seen_by_all[item_keys + key - first], &seen);
      }
      HashRow& row = rows_[item.first_row + r];
      row = strata::testing::HashAttend(row, seen, layer);
    }
    item_keys += item.position + item.rows - first;
  }
}

absl::Status HashRank::Attention(uint32_t layer) {
  RETURN_IF_ERROR(MayFail());
  RETURN_IF_ERROR(AppendKv(layer));
  size_t keys = 0;
  for (const BatchItem& item : batch_.items) {
    keys += item.position + item.rows - FirstKey(layer, item);
  }
  RETURN_IF_ERROR(PackKeys(layer, keys));
  RETURN_IF_ERROR(GatherParts(keys));
  Attend(layer, keys);
  return absl::OkStatus();
}

absl::Status HashRank::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  const std::vector<uint32_t> kept(rows.begin(), rows.end());
  RETURN_IF_ERROR(Attention(layer));
  std::vector<uint32_t> ids;
  for (uint32_t to = 0; to < kept.size(); ++to) {
    rows_[to] = rows_.at(kept[to]);
    if (!batch_.token_ids.empty()) {
      ids.push_back(batch_.token_ids[kept[to]]);
    }
  }
  kept_ids_ = std::move(ids);
  rows_.resize(kept.size());
  batch_ = {.rows = static_cast<uint32_t>(kept.size()), .token_ids = kept_ids_, .items = {}};
  return absl::OkStatus();
}

absl::Status HashRank::Mlp(uint32_t layer) {
  for (uint32_t r = 0; r < batch_.rows; ++r) {
    rows_[r] = strata::testing::HashMlp(rows_[r], layer);
    if (poison_.has_value() && !batch_.token_ids.empty() &&
        *poison_ == std::pair(batch_.token_ids[r], layer)) {
      rows_[r].finite = false;
    }
  }
  return absl::OkStatus();
}

absl::Status HashRank::ReadResidual(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Residual(out.size(), batch_.rows));
  for (size_t r = 0; r < rows_.size(); ++r) {
    strata::testing::HashValuesOf(rows_[r], out.subspan(r * kHashHidden, kHashHidden));
  }
  return absl::OkStatus();
}

absl::Status HashRank::Head(std::span<const uint32_t> rows) {
  head_rows_.assign(rows.begin(), rows.end());
  return absl::OkStatus();
}

absl::Status HashRank::ReadLogits(std::span<float> out) {
  const size_t vocab = spec_.model.vocab;
  const ByteColumns& own = logits_of_[place_.rank];
  for (size_t i = 0; i < head_rows_.size(); ++i) {
    for (size_t id = own.begin / sizeof(float); id < own.end / sizeof(float); ++id) {
      out[i * vocab + id] =
          strata::testing::HashLogit(rows_.at(head_rows_[i]), static_cast<uint32_t>(id));
    }
  }
  return absl::OkStatus();
}

absl::Status HashRank::CopyPage(uint32_t group, PageId from, PageId to) {
  for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
    if (spec_.model.layers[layer].attention.kv_group == group) {
      std::vector<RowBytes>& kv = kv_[layer - spec_.first_layer];
      for (uint32_t slot = 0; slot < kPageTokens; ++slot) {
        kv.at(size_t{to} * kPageTokens + slot) = kv.at(size_t{from} * kPageTokens + slot);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status HashRank::ResizeKv(std::span<const uint64_t> pages) {
  spec_.kv_pages.assign(pages.begin(), pages.end());
  MakeKv();
  return absl::OkStatus();
}

}  // namespace strata::sim
