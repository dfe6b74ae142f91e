#include "worker/backend/shard_calls.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/model/window.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status Misuse(const std::string& message) {
  return Error(absl::StatusCode::kInternal, "SHARD_MISUSE", message);
}

uint32_t PagesFor(uint32_t keys) { return (keys + kPageTokens - 1) / kPageTokens; }

}  // namespace

ShardCalls::ShardCalls(const StageSpec* spec)
    : spec_(spec), rotary_variants_(RotaryVariants(spec->model)) {
  const auto first = spec->model.layers.begin() + spec->first_layer;
  const auto end = spec->model.layers.begin() + spec->last_layer + 1;
  for (uint32_t group = 0; group < spec->model.kv_groups.size(); ++group) {
    if (std::any_of(first, end, [group](const LayerSpec& layer) {
          return layer.attention.kv_group == group;
        })) {
      groups_.push_back(group);
    }
  }
}

absl::Status ShardCalls::Begin(const Batch& batch) const {
  if (batch.rows > spec_->max_batch_tokens || batch.items.size() > spec_->max_batch_items) {
    return Misuse(absl::StrCat("a batch of ", batch.rows, " rows and ", batch.items.size(),
                               " items, loaded for ", spec_->max_batch_tokens, " and ",
                               spec_->max_batch_items));
  }
  uint32_t rows = 0;
  for (const BatchItem& item : batch.items) {
    RETURN_IF_ERROR(CheckItem(item, rows));
    rows += item.rows;
  }
  return rows == batch.rows ? absl::OkStatus()
                            : Misuse("the items of a batch do not cover its rows");
}

absl::Status ShardCalls::CheckItem(const BatchItem& item, uint32_t first_row) const {
  if (item.first_row != first_row || item.rows == 0) {
    return Misuse("the items of a batch do not cover its rows in order");
  }
  if (item.rows > spec_->context || item.position > spec_->context - item.rows) {
    return Misuse(absl::StrCat("position ", item.position, " + ", item.rows,
                               " rows is past the context of ", spec_->context));
  }
  if (item.rotary_variant >= rotary_variants_) {
    return Misuse("a rotary variant that the model does not have");
  }
  if (item.tables.size() != spec_->model.kv_groups.size()) {
    return Misuse("an item has not one page table for each KV group");
  }
  for (const uint32_t group : groups_) {
    RETURN_IF_ERROR(CheckPages(item, group));
  }
  return absl::OkStatus();
}

absl::Status ShardCalls::CheckPages(const BatchItem& item, uint32_t group) const {
  const PageTableView& table = item.tables[group];
  const uint32_t window = spec_->model.kv_groups[group].window;
  const uint32_t first = FirstSeen(item.position, window) / kPageTokens;
  const uint32_t pages = PagesFor(item.position + item.rows);
  if (table.first_page > first || table.pages.size() < pages - table.first_page) {
    return Misuse("a page table does not cover its item");
  }
  for (uint32_t p = first - table.first_page; p < pages - table.first_page; ++p) {
    if (table.pages[p] >= spec_->kv_pages[group]) {
      return Misuse(absl::StrCat("page ", table.pages[p], " does not exist"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardCalls::Embed(std::span<const uint32_t> token_ids, uint32_t rows) const {
  if (!spec_->embeds || token_ids.size() != rows) {
    return Misuse("nothing to embed with");
  }
  for (const uint32_t id : token_ids) {
    if (id >= spec_->model.vocab) {
      return Misuse(absl::StrCat("token ", id, " is not in the vocabulary"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardCalls::EmbedInputs(std::span<const uint32_t> inputs, size_t values,
                                     uint32_t rows) const {
  if (!spec_->embeds || values != inputs.size() * spec_->model.hidden) {
    return Misuse("input embeddings of another size than their rows, or nothing is embedded here");
  }
  const bool exist =
      std::all_of(inputs.begin(), inputs.end(), [rows](uint32_t row) { return row < rows; });
  return exist ? absl::OkStatus()
               : Misuse("an input embedding for a row that the batch does not have");
}

absl::Status ShardCalls::Residual(size_t values, uint32_t rows) const {
  return values == size_t{rows} * spec_->model.hidden
             ? absl::OkStatus()
             : Misuse("a residual stream of another size than the batch's");
}

absl::Status ShardCalls::Layer(uint32_t layer) const {
  return layer >= spec_->first_layer && layer <= spec_->last_layer
             ? absl::OkStatus()
             : Misuse(absl::StrCat("layer ", layer, " is not of this stage"));
}

absl::Status ShardCalls::AttentionOfSome(uint32_t layer, std::span<const uint32_t> kept,
                                         std::span<const BatchItem> items) const {
  if (!spec_->heads || layer != spec_->last_layer) {
    return Misuse("rows are left out before the last layer");
  }
  auto row = kept.begin();
  for (const BatchItem& item : items) {
    const uint32_t end = item.first_row + item.rows;
    if (row != kept.end() && *row >= item.first_row) {
      for (uint32_t next = *row; row != kept.end() && *row == next && next < end; ++next) {
        ++row;
      }
    }
  }
  return row == kept.end() ? absl::OkStatus()
                           : Misuse("rows to keep that the batch does not have, or with a gap");
}

absl::Status ShardCalls::Head(std::span<const uint32_t> head_rows, uint32_t rows) const {
  if (!spec_->heads || head_rows.size() > rows) {
    return Misuse("no head here, or more rows than the batch has");
  }
  const bool exist =
      std::all_of(head_rows.begin(), head_rows.end(), [rows](uint32_t row) { return row < rows; });
  return exist ? absl::OkStatus() : Misuse("a row that the batch does not have");
}

absl::Status ShardCalls::Logits(size_t values, uint32_t head_rows) const {
  return values == size_t{head_rows} * spec_->model.vocab
             ? absl::OkStatus()
             : Misuse("logits of another size than Head's rows");
}

absl::Status ShardCalls::Largest(size_t choices, uint32_t head_rows) const {
  return choices == head_rows ? absl::OkStatus() : Misuse("choices of other rows than Head's");
}

absl::Status ShardCalls::CopyPage(uint32_t group, PageId from, PageId to) const {
  const std::vector<uint64_t>& pages = spec_->kv_pages;
  return group < pages.size() && from < pages[group] && to < pages[group]
             ? absl::OkStatus()
             : Misuse("a page that does not exist");
}

absl::Status ShardCalls::PageOf(uint32_t group, PageId page, uint64_t page_bytes,
                                size_t bytes) const {
  RETURN_IF_ERROR(CopyPage(group, page, page));
  return page_bytes > 0 && bytes == page_bytes ? absl::OkStatus()
                                               : Misuse("a page of another size");
}

absl::Status ShardCalls::ResizeKv(std::span<const uint64_t> pages) const {
  return pages.size() == spec_->kv_pages.size() ? absl::OkStatus()
                                                : Misuse("KV pages for another number of groups");
}

}  // namespace strata
