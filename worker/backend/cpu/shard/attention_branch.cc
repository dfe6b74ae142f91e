#include "worker/backend/cpu/shard/attention_branch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/limits.h"
#include "worker/backend/cpu/shard/rotate.h"

namespace strata::cpu {

absl::Status AttentionBranch::Allocate() {
  RETURN_IF_ERROR(rows_.Allocate(stage_.sizes));
  RETURN_IF_ERROR(latent_.Allocate());
  return attender_.Allocate();
}

absl::Status AttentionBranch::Compute(uint32_t layer) {
  const bool append = AppendsWhatItAttends(layer);
  RETURN_IF_ERROR(append ? ProjectRows(layer, /*queries=*/true)
                         : AppendKeysAndValues(layer, /*queries=*/true));
  return Finish(layer, append);
}

bool AttentionBranch::AppendsWhatItAttends(uint32_t layer) const {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  return attention.heads != 0 && attention.latent.rank == 0 &&
         attention.qk_norm != QkNorm::kProjection &&
         std::all_of(stage_.batch.items.begin(), stage_.batch.items.end(),
                     [](const BatchItem& item) { return item.rows == 1; }) &&
         !attender_.SplitsSpans(layer);
}

absl::Status AttentionBranch::AppendKeysAndValues(uint32_t layer, bool queries) {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  if (attention.latent.rank != 0) {
    if (attention.heads != 0) {
      latent_.Append(layer);
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ProjectRows(layer, queries));
  if (attention.heads != 0) {
    EachRow(stage_, [&](const BatchItem& item, uint32_t row) {
      AppendHeads(layer, item, row, {0, attention.kv_heads});
    });
  }
  return absl::OkStatus();
}

absl::Status AttentionBranch::NormProjection(const LayerSpec& spec,
                                             const std::vector<float>& weight,
                                             const RankColumns& columns, OutputRange own,
                                             float* rows, size_t stride) {
  const float plus = spec.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
  float* const whole = rows_.attended.as<float>();  // Which nothing is attended to yet.
  const size_t width = stage_.sizes.attended;
  const OutputRange given = stage_.link->own(columns);
  for (size_t row = 0; row < stage_.batch.rows; ++row) {
    std::memcpy(whole + row * width + given.begin, rows + row * stride + (given.begin - own.begin),
                given.size() * sizeof(float));
  }
  RETURN_IF_ERROR(stage_.link->Gather(whole, stage_.batch.rows, width, columns));
  RETURN_IF_ERROR(stage_.link->Barrier());  // Others read what is normed in place below.
  stage_.pool->Split(
      stage_.batch.rows,
      [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          float* const x = whole + row * width;
          stage_.kernels->rms_norm(x, weight.data(), weight.size(), spec.norm_eps, plus, x);
          std::memcpy(rows + row * stride, x + own.begin, own.size() * sizeof(float));
        }
      },
      kSmallRows);
  return absl::OkStatus();
}

absl::Status AttentionBranch::ProjectRows(uint32_t layer, bool queries) {
  const LayerSpec& spec = stage_.layer(layer);
  const uint32_t rows = stage_.batch.rows;
  const LayerWeights& weights = stage_.layer_weights(layer);
  const Products::Inputs inputs =
      residual_.BranchInputs(spec, weights.attention_norm, {&weights.q, &weights.k, &weights.v});
  const std::array<MatmulArgs, 3> products = {
      products_.Product(weights.q, rows, rows_.q.as<float>(), stage_.sizes.queries, false),
      products_.Product(weights.k, rows, rows_.k.as<float>(), stage_.sizes.keys, false),
      products_.Product(weights.v, rows, rows_.v.as<float>(), stage_.sizes.values, false)};
  if (spec.attention.heads != 0) {
    products_.Multiply(inputs, std::span(products).subspan(queries ? 0 : 1));
  }
  const RankLink& link = *stage_.link;
  if (link.alone() || spec.attention.qk_norm != QkNorm::kProjection) {
    return absl::OkStatus();
  }
  const OutputRange kv_heads = link.outputs().layers[layer].kv_heads;
  const uint32_t head_dim = spec.attention.head_dim;
  const RankColumns& all_queries = link.queries(layer);
  if (queries) {
    RETURN_IF_ERROR(NormProjection(spec, weights.q_norm, all_queries, link.own(all_queries),
                                   rows_.q.as<float>(), stage_.sizes.queries));
  }
  return NormProjection(spec, weights.k_norm, link.keys(layer),
                        {kv_heads.begin * head_dim, kv_heads.end * head_dim}, rows_.k.as<float>(),
                        stage_.sizes.keys);
}

absl::Status AttentionBranch::Finish(uint32_t layer, bool append) {
  const LayerSpec& spec = stage_.layer(layer);
  const LayerWeights& weights = stage_.layer_weights(layer);
  const size_t stride = stage_.sizes.attended;
  const RankColumns& columns = stage_.link->attended(layer);
  float* const attended = rows_.attended.as<float>();
  const QueryRows rows = {rows_.q.as<float>(), stage_.sizes.queries,
                          attended + stage_.link->own(columns).begin, stride};
  if (spec.attention.heads == 0) {
    // Other ranks have all.
  } else if (spec.attention.latent.rank != 0) {
    latent_.Attend(layer);
  } else if (append) {
    attender_.AppendAndAttend(layer, rows, [&](uint32_t row, uint32_t head) {
      AppendHeads(layer, stage_.batch.items[row], row, {head, head + 1});
    });
  } else {
    attender_.Attend(layer, rows);
  }
  RETURN_IF_ERROR(stage_.link->Gather(attended, stage_.batch.rows, stride, columns));
  return residual_.FinishBranch(
      products_.Rows(attended, stride, RankLink::Width(columns), {&weights.o}), weights.o, spec,
      weights.after_attention_norm);
}

void AttentionBranch::KeepRows(std::span<const uint32_t> rows) {
  KeepRowsOf(&rows_.q, stage_.sizes.queries, rows);
  latent_.KeepRows(rows);
}

void AttentionBranch::AppendHeads(uint32_t layer, const BatchItem& item, uint32_t row,
                                  HeadRange heads) {
  const LayerSpec& spec = stage_.layer(layer);
  const AttentionSpec& attention = spec.attention;
  const uint32_t local = layer - stage_.spec.first_layer;
  const LayerWeights& weights = stage_.layer_weights(layer);
  const uint32_t position = item.position + row - item.first_row;
  const uint32_t head_dim = attention.head_dim;
  const uint32_t group = attention.heads / attention.kv_heads;
  const size_t k_count = size_t{heads.end - heads.first} * head_dim;
  float* const q =
      rows_.q.as<float>() + row * stage_.sizes.queries + size_t{heads.first} * group * head_dim;
  float* const k = rows_.k.as<float>() + row * stage_.sizes.keys + size_t{heads.first} * head_dim;
  const float* const v =
      rows_.v.as<float>() + row * stage_.sizes.values + size_t{heads.first} * head_dim;
  const auto norm = [&](float* x, const std::vector<float>& weight, size_t count) {
    const float plus = spec.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
    // A head at a time, or all at once: as wide as the weight.
    for (size_t first = 0; first < count; first += weight.size()) {
      stage_.kernels->rms_norm(x + first, weight.data(), weight.size(), spec.norm_eps, plus,
                               x + first);
    }
  };
  if (attention.qk_norm == QkNorm::kHead ||
      (attention.qk_norm == QkNorm::kProjection && stage_.link->alone())) {
    norm(q, weights.q_norm, k_count * group);
    norm(k, weights.k_norm, k_count);
  }
  if (attention.rotates) {
    const uint32_t half = attention.rope.rotary_dim / 2;
    const float* const cosines = stage_.rotary.Cosines(local, item.rotary_variant, position, half);
    const float* const sines = cosines + size_t{stage_.spec.context} * half;
    const auto rotate = attention.rotates_neighbours ? RotateNeighbours : Rotate;
    for (size_t at = 0; at < k_count * group; at += head_dim) {
      rotate(cosines, sines, half, q + at);
    }
    for (size_t at = 0; at < k_count; at += head_dim) {
      rotate(cosines, sines, half, k + at);
    }
  }
  if (attention.query_growth != 0 && position >= attention.query_growth_every) {
    const float grown = QueryGrowth(attention.query_growth, attention.query_growth_every, position);
    for (size_t i = 0; i < k_count * group; ++i) {
      q[i] *= grown;
    }
  }
  const KvLayout& layout = stage_.kv.layout(local);
  const PageTableView& table = item.tables[attention.kv_group];
  const PageId page = table.pages[position / kPageTokens - table.first_page];
  for (uint32_t head = heads.first; head < heads.end; ++head) {
    const size_t at = size_t{head - heads.first} * head_dim;
    stage_.kernels->append_kv(k + at, v + at, head_dim, position % kPageTokens, stage_.kv_f16,
                              stage_.kv.pages(local, head) + page * layout.head_bytes,
                              layout.value_bytes);
  }
}

}  // namespace strata::cpu
