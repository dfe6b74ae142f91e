#include "worker/runner/stage_compute.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/model/row_digest.h"
#include "common/status.h"

namespace strata {
namespace {

// Logits are read so many bytes at a time: prompt log-probabilities of a long chunk over a large
// vocabulary would take gigabytes at once.
constexpr uint64_t kLogitsChunkBytes = uint64_t{64} << 20;

// Rows [first, end) of the item whose logits are needed, for digests all; empty: none.
struct RowRange {
  uint32_t first = 0;
  uint32_t end = 0;
};

RowRange HeadRows(const v1::StepItem& item) {
  const auto rows = static_cast<uint32_t>(item.token_ids_size());
  if (item.digest_layers()) {
    return {0, rows};
  }
  switch (item.rows_wanted()) {
    case v1::ROWS_WANTED_LOGITS:
    case v1::ROWS_WANTED_LOGITS_AND_LOGPROBS:
      return {item.rows_from(), rows};
    case v1::ROWS_WANTED_LOGPROBS:
      // The last row's successor may not be known yet.
      return {item.rows_from(), item.has_following_id() || item.sample() ? rows : rows - 1};
    default:
      return {rows - 1 - item.draft_tokens(), item.sample() ? rows : rows - 1};
  }
}

}  // namespace

absl::Status StageCompute::Forward(const v1::StepFrame& frame, const SequenceTable& table,
                                   std::span<ItemRun> runs) {
  const ItemSlice slice = runs.front().slice;
  const bool embeds = spec_.embeds && slice.from == 0;
  token_ids_.clear();
  gathered_.clear();
  views_.clear();
  items_.clear();
  batch_rows_ = 0;
  bool digests = false;
  for (ItemRun& run : runs) {
    const v1::StepItem& item = frame.items(run.index);
    run.digests.clear();
    digests |= item.digest_layers();
    token_ids_.insert(token_ids_.end(), item.token_ids().begin(), item.token_ids().end());
    if (!embeds) {
      gathered_.insert(gathered_.end(), run.input.begin(), run.input.end());
    }
    run.batch_row = batch_rows_;
    batch_rows_ += run.rows;
    views_.push_back(table.Views(*run.sequence));
    items_.push_back({run.batch_row, run.rows, item.position(), views_.back(),
                      run.sequence->params.rotary_variant()});
  }
  RETURN_IF_ERROR(shard_.Begin({batch_rows_, token_ids_, items_}));
  RETURN_IF_ERROR(embeds ? Embed(frame, runs) : shard_.SetResidual(gathered_));
  const StageLayers stage{spec_.first_layer, spec_.last_layer};
  const uint32_t begin = stage.BeginOf(slice);
  uint32_t end = stage.EndOf(slice);
  FindWanted(frame, runs);
  // Of digests every row counts, after every layer.
  const bool only_wanted =
      ToTheHead(slice) && begin < end && !digests && wanted_.size() < batch_rows_;
  end -= only_wanted ? 1 : 0;
  for (uint32_t layer = begin; layer < end; ++layer) {
    RETURN_IF_ERROR(shard_.Attention(layer));
    RETURN_IF_ERROR(shard_.Mlp(layer));
    if (digests) {
      RETURN_IF_ERROR(DigestLayer(frame, layer, runs));
    }
  }
  last_is_left_ = only_wanted && wanted_.empty();
  return only_wanted && !last_is_left_ ? ForwardLast() : absl::OkStatus();
}

absl::Status StageCompute::ForwardLast() {
  std::vector<uint32_t> rows;
  for (HeadRow& row : wanted_) {
    rows.push_back(std::exchange(row.batch_row, static_cast<uint32_t>(rows.size())));
  }
  RETURN_IF_ERROR(shard_.AttentionOfSome(spec_.last_layer, rows));
  return rows.empty() ? absl::OkStatus() : shard_.Mlp(spec_.last_layer);
}

absl::Status StageCompute::AppendLast() {
  if (!std::exchange(last_is_left_, false)) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ForwardLast());
  return shard_.ReadResidual({});  // Of no rows: waits.
}

void StageCompute::FindWanted(const v1::StepFrame& frame, std::span<ItemRun> runs) {
  wanted_.clear();
  for (ItemRun& run : runs) {
    const RowRange range = HeadRows(frame.items(run.index));
    for (uint32_t row = range.first; row < range.end; ++row) {
      wanted_.push_back({&run, row, run.batch_row + row});
    }
  }
}

absl::Status StageCompute::DigestLayer(const v1::StepFrame& frame, uint32_t layer,
                                       std::span<ItemRun> runs) {
  return ReadResidual(runs, [&](ItemRun& run, std::span<const float> values) {
    if (frame.items(run.index).digest_layers()) {
      v1::LayerDigest& digest = run.digests.emplace_back();
      digest.set_layer(layer);
      const std::vector<uint64_t> rows = RowDigests(values, spec_.model.hidden);
      digest.mutable_rows()->Add(rows.begin(), rows.end());
    }
  });
}

absl::Status StageCompute::Embed(const v1::StepFrame& frame, std::span<const ItemRun> runs) {
  RETURN_IF_ERROR(shard_.Embed());
  const size_t hidden = spec_.model.hidden;
  std::vector<uint32_t> rows;
  std::vector<float> values;
  for (const ItemRun& run : runs) {
    const v1::StepItem& item = frame.items(run.index);
    for (const v1::EmbeddingRow& row : item.embedding_rows()) {
      rows.push_back(run.batch_row + row.position() - item.position());
      values.resize(rows.size() * hidden);
      std::memcpy(values.data() + values.size() - hidden, row.values().data(),
                  hidden * sizeof(float));
    }
  }
  return rows.empty() ? absl::OkStatus() : shard_.EmbedInputs(rows, values);
}

absl::Status StageCompute::ReadResidual(
    std::span<ItemRun> runs, const std::function<void(ItemRun&, std::span<const float>)>& rows) {
  const size_t hidden = spec_.model.hidden;
  read_.resize(batch_rows_ * hidden);
  RETURN_IF_ERROR(shard_.ReadResidual(read_));
  const std::span<const float> values = read_;
  for (ItemRun& run : runs) {
    rows(run, values.subspan(run.batch_row * hidden, run.rows * hidden));
  }
  return absl::OkStatus();
}

absl::Status StageCompute::ReadLargest(
    const std::function<bool(const ItemRun&, uint32_t)>& only,
    const std::function<void(const ItemRun&, uint32_t, uint32_t)>& largest) {
  if (!shard_.FindsLargest()) {
    return absl::OkStatus();
  }
  std::vector<HeadRow> found;
  std::vector<HeadRow> left;
  std::vector<uint32_t> batch_rows;
  for (const HeadRow& row : wanted_) {
    if (only(*row.run, row.row)) {
      found.push_back(row);
      batch_rows.push_back(row.batch_row);
    } else {
      left.push_back(row);
    }
  }
  if (found.empty()) {
    return absl::OkStatus();
  }
  std::vector<RowLargest> of_rows(found.size());
  RETURN_IF_ERROR(shard_.Head(batch_rows));
  RETURN_IF_ERROR(shard_.ReadLargest(of_rows));
  for (size_t i = 0; i < found.size(); ++i) {
    if (of_rows[i].usable) {
      largest(*found[i].run, found[i].row, of_rows[i].token_id);
    } else {
      left.push_back(found[i]);
    }
  }
  std::sort(left.begin(), left.end(),
            [](const HeadRow& a, const HeadRow& b) { return a.batch_row < b.batch_row; });
  wanted_ = std::move(left);
  return absl::OkStatus();
}

absl::Status StageCompute::ReadLogits(
    const std::function<void(ItemRun&, uint32_t, std::span<const float>)>& row) {
  const size_t vocab = spec_.model.vocab;
  const size_t chunk = std::max<size_t>(1, kLogitsChunkBytes / (vocab * sizeof(float)));
  for (size_t begin = 0; begin < wanted_.size(); begin += chunk) {
    const size_t count = std::min(chunk, wanted_.size() - begin);
    std::vector<uint32_t> batch_rows;
    for (size_t i = 0; i < count; ++i) {
      batch_rows.push_back(wanted_[begin + i].batch_row);
    }
    read_.resize(count * vocab);
    RETURN_IF_ERROR(shard_.Head(batch_rows));
    RETURN_IF_ERROR(shard_.ReadLogits(read_));
    const std::span<const float> values = read_;
    for (size_t i = 0; i < count; ++i) {
      row(*wanted_[begin + i].run, wanted_[begin + i].row, values.subspan(i * vocab, vocab));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata
