#include "worker/backend/cuda/shard/batch_on_device.h"

#include <algorithm>
#include <bit>

#include "common/limits.h"
#include "common/status.h"
#include "worker/backend/cpu/shard/rotate.h"
#include "worker/backend/cuda/shard/step_launches.h"

namespace strata::cuda {
namespace {

// The least that is 512 times a power of two, but for the context.
uint32_t RoundedKeys(uint32_t keys, uint32_t context) {
  const uint32_t rounded = kSpanKeys * std::bit_ceil((keys + kSpanKeys - 1) / kSpanKeys);
  return std::max(keys, std::min(context, rounded));
}
uint32_t PagesFor(uint32_t keys) { return (keys + kPageTokens - 1) / kPageTokens; }

}  // namespace

absl::Status BatchOnDevice::Allocate(Device* device, const StageSpec& spec,
                                     std::span<const uint32_t> used_groups) {
  most_rows_ = spec.max_batch_tokens;
  context_ = spec.context;
  groups_ = static_cast<uint32_t>(spec.model.kv_groups.size());
  used_groups_.assign(used_groups.begin(), used_groups.end());
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const AttentionSpec& attention = spec.model.layers[layer].attention;
    if (attention.query_growth != 0) {
      query_growth_ = attention.query_growth;
      query_growth_every_ = attention.query_growth_every;
    }
  }
  const uint64_t rows = most_rows_;
  const uint64_t pages =
      uint64_t{std::min(spec.max_batch_items, most_rows_)} * groups_ * PagesFor(spec.context);
  host_places_.resize(rows);
  host_tables_.resize(rows * groups_);
  host_pages_.reserve(pages);
  RETURN_IF_ERROR(ids_.Allocate(device, rows * sizeof(uint32_t), "buffers"));
  RETURN_IF_ERROR(places_.Allocate(device, rows * sizeof(RowPlace), "buffers"));
  RETURN_IF_ERROR(tables_.Allocate(device, rows * groups_ * sizeof(RowPages), "buffers"));
  RETURN_IF_ERROR(pages_.Allocate(device, pages * sizeof(uint32_t), "buffers"));
  return taken_.Allocate(device, rows * sizeof(uint32_t), "buffers");
}

void BatchOnDevice::Clear() {
  rows_ = 0;
  token_ids_ = {};
  items_ = {};
  single_rows_ = true;
  most_keys_ = 0;
}

absl::Status BatchOnDevice::Begin(Transfers* transfers, const Batch& batch) {
  Clear();
  host_pages_.clear();
  for (const BatchItem& item : batch.items) {
    single_rows_ = single_rows_ && item.rows == 1;
    most_keys_ = std::max(most_keys_, item.position + item.rows);
    for (uint32_t i = 0; i < item.rows; ++i) {
      const uint32_t position = item.position + i;
      const bool grows = query_growth_ != 0 && position >= query_growth_every_;
      host_places_[item.first_row + i] = {
          .position = position,
          .rotary_variant = item.rotary_variant,
          .grown = grows ? cpu::QueryGrowth(query_growth_, query_growth_every_, position) : 1.0f};
    }
    const uint32_t pages = PagesFor(item.position + item.rows);
    for (const uint32_t group : used_groups_) {
      const PageTableView& table = item.tables[group];
      const RowPages of_rows = {.first_page = table.first_page,
                                .at = static_cast<uint32_t>(host_pages_.size())};
      std::fill_n(host_tables_.begin() + size_t{group} * most_rows_ + item.first_row, item.rows,
                  of_rows);
      host_pages_.insert(host_pages_.end(), table.pages.begin(),
                         table.pages.begin() + (pages - table.first_page));
    }
  }
  if (batch.rows <= kFewRows) {
    most_keys_ = RoundedKeys(most_keys_, context_);
  }
  rows_ = batch.rows;
  token_ids_ = batch.token_ids;
  items_ = batch.items;
  RETURN_IF_ERROR(
      transfers->In(pages_.as(), host_pages_.data(), host_pages_.size() * sizeof(uint32_t)));
  return UploadRows(transfers);
}

absl::Status BatchOnDevice::UploadRows(Transfers* transfers) {
  RETURN_IF_ERROR(transfers->In(places_.as(), host_places_.data(), rows_ * sizeof(RowPlace)));
  return transfers->In(tables_.as(), host_tables_.data(), host_tables_.size() * sizeof(RowPages));
}

absl::Status BatchOnDevice::Take(Transfers* transfers, std::span<const uint32_t> rows) {
  return transfers->In(taken_.as(), rows.data(), rows.size_bytes());
}

absl::Status BatchOnDevice::TakeIds(Transfers* transfers) {
  return transfers->In(ids_.as(), token_ids_.data(), token_ids_.size_bytes());
}

absl::Status BatchOnDevice::Keep(Transfers* transfers, std::span<const uint32_t> rows) {
  for (size_t to = 0; to < rows.size(); ++to) {
    host_places_[to] = host_places_[rows[to]];
    for (uint32_t group = 0; group < groups_; ++group) {
      const size_t first = size_t{group} * most_rows_;
      host_tables_[first + to] = host_tables_[first + rows[to]];
    }
  }
  rows_ = static_cast<uint32_t>(rows.size());
  token_ids_ = {};
  items_ = {};
  RETURN_IF_ERROR(Take(transfers, rows));
  return UploadRows(transfers);
}

uint64_t BatchOnDevice::bytes() const {
  return ids_.bytes() + places_.bytes() + tables_.bytes() + pages_.bytes() + taken_.bytes();
}

}  // namespace strata::cuda
