#include "tests/sim/ranks/ranked_model.h"

#include <array>
#include <numeric>

#include "absl/status/status.h"
#include "common/status.h"

namespace strata::sim {

const RankedModel& RankedModelOf(uint32_t which) {
  static const std::array<RankedModel, kRankedModels> models = {
      RankedModel({.layers = 2,
                   .hidden = 96,
                   .heads = 6,
                   .kv_heads = 6,
                   .head_dim = 16,
                   .rotary_dim = 16,
                   .ffn = 96,
                   .vocab = 96}),
      RankedModel({.layers = 2, .heads = 6, .kv_heads = 2}),
      RankedModel({.layers = 3,
                   .hidden = 40,
                   .heads = 4,
                   .kv_heads = 1,
                   .ffn = 33,
                   .tied = true,
                   .seed = 5})};
  return models.at(which);
}

absl::StatusOr<std::vector<float>> ComputeStep(Shard* shard, const StageSpec& spec,
                                               std::span<const RankedSequence> sequences,
                                               std::span<const RankedItem> items) {
  std::vector<uint32_t> ids;
  std::vector<std::vector<PageTableView>> tables;
  std::vector<BatchItem> batch;
  std::vector<uint32_t> last;
  for (const RankedItem& item : items) {
    const RankedSequence& sequence = sequences[item.sequence];
    tables.push_back({{0, sequence.pages}});
    batch.push_back({static_cast<uint32_t>(ids.size()), item.rows, item.position, tables.back()});
    ids.insert(ids.end(), sequence.ids.begin() + item.position,
               sequence.ids.begin() + item.position + item.rows);
    last.push_back(static_cast<uint32_t>(ids.size()) - 1);
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].tables = tables[i];
  }
  std::vector<uint32_t> heads(items.size());
  std::iota(heads.begin(), heads.end(), 0);
  std::vector<float> logits(items.size() * spec.model.vocab);
  RETURN_IF_ERROR(shard->Begin({static_cast<uint32_t>(ids.size()), ids, batch}));
  RETURN_IF_ERROR(shard->Embed());
  for (uint32_t layer = spec.first_layer; layer < spec.last_layer; ++layer) {
    RETURN_IF_ERROR(shard->Attention(layer));
    RETURN_IF_ERROR(shard->Mlp(layer));
  }
  RETURN_IF_ERROR(shard->AttentionOfSome(spec.last_layer, last));
  RETURN_IF_ERROR(shard->Mlp(spec.last_layer));
  RETURN_IF_ERROR(shard->Head(heads));
  RETURN_IF_ERROR(shard->ReadLogits(logits));
  return logits;
}

}  // namespace strata::sim
