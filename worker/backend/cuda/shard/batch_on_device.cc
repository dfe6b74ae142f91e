#include "worker/backend/cuda/shard/batch_on_device.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/model/window.h"
#include "common/status.h"
#include "worker/backend/cpu/shard/rotate.h"
#include "worker/backend/cuda/shard/misuse.h"

namespace strata::cuda {
namespace {

uint32_t PagesFor(uint32_t keys) { return (keys + kPageTokens - 1) / kPageTokens; }

}  // namespace

absl::Status BatchOnDevice::Allocate(Device* device, const StageSpec& spec) {
  most_rows_ = spec.max_batch_tokens;
  groups_ = static_cast<uint32_t>(spec.model.kv_groups.size());
  used_groups_.assign(groups_, false);
  for (uint32_t layer = spec.first_layer; layer <= spec.last_layer; ++layer) {
    const AttentionSpec& attention = spec.model.layers[layer].attention;
    used_groups_[attention.kv_group] = true;
    if (attention.query_growth != 0) {
      query_growth_ = attention.query_growth;
      query_growth_every_ = attention.query_growth_every;
    }
  }
  rotary_variants_ = RotaryVariants(spec.model);
  const uint64_t rows = most_rows_;
  const uint64_t pages =
      uint64_t{std::min(spec.max_batch_items, most_rows_)} * groups_ * PagesFor(spec.context);
  host_items_.resize(rows);
  host_places_.resize(rows);
  host_tables_.resize(rows * groups_);
  host_pages_.reserve(pages);
  RETURN_IF_ERROR(ids_.Allocate(device, rows * sizeof(uint32_t), "buffers"));
  RETURN_IF_ERROR(places_.Allocate(device, rows * sizeof(RowPlace), "buffers"));
  RETURN_IF_ERROR(tables_.Allocate(device, rows * groups_ * sizeof(RowPages), "buffers"));
  RETURN_IF_ERROR(pages_.Allocate(device, pages * sizeof(uint32_t), "buffers"));
  return taken_.Allocate(device, rows * sizeof(uint32_t), "buffers");
}

absl::Status BatchOnDevice::Check(const StageSpec& spec, const Batch& batch) const {
  if (batch.rows > spec.max_batch_tokens || batch.items.size() > spec.max_batch_items) {
    return Misuse(absl::StrCat("a batch of ", batch.rows, " rows and ", batch.items.size(),
                               " items, loaded for ", spec.max_batch_tokens, " and ",
                               spec.max_batch_items));
  }
  uint32_t rows = 0;
  for (const BatchItem& item : batch.items) {
    if (item.first_row != rows || item.rows == 0) {
      return Misuse("the items of a batch do not cover its rows in order");
    }
    rows += item.rows;
    if (item.rows > spec.context || item.position > spec.context - item.rows) {
      return Misuse(absl::StrCat("position ", item.position, " + ", item.rows,
                                 " rows is past the context of ", spec.context));
    }
    if (item.rotary_variant >= rotary_variants_) {
      return Misuse("a rotary variant that the model does not have");
    }
    if (item.tables.size() != groups_) {
      return Misuse("an item has not one page table for each KV group");
    }
    const uint32_t pages = PagesFor(item.position + item.rows);
    for (uint32_t group = 0; group < groups_; ++group) {
      if (!used_groups_[group]) {
        continue;
      }
      const PageTableView& table = item.tables[group];
      const uint32_t first =
          FirstSeen(item.position, spec.model.kv_groups[group].window) / kPageTokens;
      if (table.first_page > first || table.pages.size() < pages - table.first_page) {
        return Misuse("a page table does not cover its item");
      }
      for (uint32_t p = first - table.first_page; p < pages - table.first_page; ++p) {
        if (table.pages[p] >= spec.kv_pages[group]) {
          return Misuse(absl::StrCat("page ", table.pages[p], " does not exist"));
        }
      }
    }
  }
  return rows == batch.rows ? absl::OkStatus()
                            : Misuse("the items of a batch do not cover its rows");
}

void BatchOnDevice::Clear() {
  rows_ = 0;
  token_ids_ = {};
  single_rows_ = true;
  most_keys_ = 0;
}

absl::Status BatchOnDevice::Begin(Device* device, const StageSpec& spec, const Batch& batch) {
  Clear();
  RETURN_IF_ERROR(Check(spec, batch));
  host_pages_.clear();
  for (uint32_t index = 0; index < batch.items.size(); ++index) {
    const BatchItem& item = batch.items[index];
    std::fill_n(host_items_.begin() + item.first_row, item.rows, index);
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
    for (uint32_t group = 0; group < groups_; ++group) {
      if (!used_groups_[group]) {
        continue;
      }
      const PageTableView& table = item.tables[group];
      const RowPages of_rows = {.first_page = table.first_page,
                                .at = static_cast<uint32_t>(host_pages_.size())};
      std::fill_n(host_tables_.begin() + size_t{group} * most_rows_ + item.first_row, item.rows,
                  of_rows);
      host_pages_.insert(host_pages_.end(), table.pages.begin(),
                         table.pages.begin() + (pages - table.first_page));
    }
  }
  rows_ = batch.rows;
  token_ids_ = batch.token_ids;
  RETURN_IF_ERROR(
      device->CopyIn(pages_.as(), host_pages_.data(), host_pages_.size() * sizeof(uint32_t)));
  return UploadRows(device);
}

absl::Status BatchOnDevice::UploadRows(Device* device) {
  RETURN_IF_ERROR(device->CopyIn(places_.as(), host_places_.data(), rows_ * sizeof(RowPlace)));
  return device->CopyIn(tables_.as(), host_tables_.data(), host_tables_.size() * sizeof(RowPages));
}

absl::Status BatchOnDevice::Take(Device* device, std::span<const uint32_t> rows) {
  return device->CopyIn(taken_.as(), rows.data(), rows.size_bytes());
}

absl::Status BatchOnDevice::CheckKept(std::span<const uint32_t> rows) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool exists = rows[i] < rows_;
    if (!exists ||
        (i > 0 && (rows[i] <= rows[i - 1] || (host_items_[rows[i]] == host_items_[rows[i - 1]] &&
                                              rows[i] != rows[i - 1] + 1)))) {
      return Misuse("rows to keep that the batch does not have, or with a gap");
    }
  }
  return absl::OkStatus();
}

absl::Status BatchOnDevice::Keep(Device* device, std::span<const uint32_t> rows) {
  for (size_t to = 0; to < rows.size(); ++to) {
    host_items_[to] = host_items_[rows[to]];
    host_places_[to] = host_places_[rows[to]];
    for (uint32_t group = 0; group < groups_; ++group) {
      const size_t first = size_t{group} * most_rows_;
      host_tables_[first + to] = host_tables_[first + rows[to]];
    }
  }
  rows_ = static_cast<uint32_t>(rows.size());
  token_ids_ = {};
  RETURN_IF_ERROR(Take(device, rows));
  return UploadRows(device);
}

uint64_t BatchOnDevice::bytes() const {
  return ids_.bytes() + places_.bytes() + tables_.bytes() + pages_.bytes() + taken_.bytes();
}

}  // namespace strata::cuda
