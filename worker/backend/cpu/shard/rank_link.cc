#include "worker/backend/cpu/shard/rank_link.h"

#include <algorithm>

#include "common/check.h"

namespace strata::cpu {
namespace {

OutputRange Times(OutputRange heads, uint32_t width) {
  return {heads.begin * width, heads.end * width};
}

}  // namespace

RankLink::RankLink(const ModelSpec& model, const std::vector<RankOutputs>& ranks, uint32_t rank)
    : rank_(rank), ranks_(ranks), layers_(model.layers.size()) {
  columns_.fill(std::vector<ByteColumns>(ranks.size()));
  for (const RankOutputs& one : ranks) {
    hidden_.push_back(one.hidden);
    from_first_.push_back({from_first_.empty() ? 0 : model.hidden, model.hidden});
    logits_.push_back(one.vocab);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const AttentionSpec& attention = model.layers[i].attention;
      const LayerOutputs& from = one.layers[i];
      Layer& to = layers_[i];
      const uint32_t value =
          attention.latent.rank != 0 ? attention.latent.value_dim : attention.head_dim;
      to.attended.push_back(Times(from.heads, value));
      to.queries.push_back(Times(from.heads, attention.head_dim));
      const uint32_t before = to.keys.empty() ? 0 : to.keys.back().end;
      const OutputRange keys = Times(from.kv_heads, attention.head_dim);
      to.keys.push_back({before, std::max(before, keys.end)});
      to.ffn.push_back(from.ffn);
      to.shared_ffn.push_back(from.shared_ffn);
    }
  }
}

size_t RankLink::AttendedWidth(uint32_t first, uint32_t last) const {
  size_t width = 0;
  for (uint32_t layer = first; layer <= last; ++layer) {
    width = std::max({width, Width(attended(layer)), Width(queries(layer))});
  }
  return width;
}

void RankLink::Connect(std::unique_ptr<Collective> collective, uint64_t epoch) {
  STRATA_CHECK(collective->rank() == rank_ && collective->ranks() == hidden_.size());
  collective_ = std::move(collective);
  point_ = {.epoch = epoch};
}

void RankLink::Begin() {
  ++point_.step;
  point_.call = 0;
}

absl::Status RankLink::Gather(float* data, size_t rows, size_t stride, const RankColumns& columns,
                              bool to_first) {
  if (alone()) {
    return absl::OkStatus();
  }
  columns_[0].swap(columns_[1]);
  for (size_t rank = 0; rank < columns.size(); ++rank) {
    columns_[0][rank] = {columns[rank].begin * sizeof(float), columns[rank].end * sizeof(float)};
  }
  ++point_.call;
  return collective_->Gather(point_, {.data = reinterpret_cast<uint8_t*>(data),
                                      .rows = rows,
                                      .stride = stride * sizeof(float),
                                      .columns = columns_[0],
                                      .to_first = to_first});
}

absl::Status RankLink::GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) {
  if (alone()) {
    return absl::OkStatus();
  }
  columns_[0].swap(columns_[1]);
  columns_[0].assign(columns.begin(), columns.end());
  ++point_.call;
  return collective_->Gather(
      point_, {.data = row, .rows = 1, .stride = columns_[0].back().end, .columns = columns_[0]});
}

absl::Status RankLink::Barrier() {
  if (alone()) {
    return absl::OkStatus();
  }
  ++point_.call;
  return collective_->Barrier(point_);
}

absl::Status RankLink::Finish() { return alone() ? absl::OkStatus() : collective_->Finish(); }

void RankLink::Abort(const absl::Status& why) {
  if (!alone()) {
    collective_->Abort(why);
  }
}

}  // namespace strata::cpu
