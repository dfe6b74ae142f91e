#include "worker/backend/cpu/shard/latent_attention.h"

#include <array>
#include <cstring>

#include "common/limits.h"
#include "worker/backend/cpu/shard/rotate.h"

namespace strata::cpu {

absl::Status LatentAttention::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  const size_t row = sizes.rows * sizeof(float);
  RETURN_IF_ERROR(query_latent_.Allocate(row * sizes.query_rank, "buffers"));
  RETURN_IF_ERROR(absorbed_.Allocate(row * sizes.absorbed, "buffers"));
  return summed_.Allocate(row * sizes.summed, "buffers");
}

void LatentAttention::KeepRows(std::span<const uint32_t> rows) {
  KeepRowsOf(&absorbed_, stage_.sizes.absorbed, rows);
}

void LatentAttention::MultiplyHeads(const std::vector<Linear>& weights, HeadRows in, HeadRows out) {
  const uint32_t rows = stage_.batch.rows;
  const uint32_t blocks = RowBlocks(rows, stage_.kernels->block_rows);
  stage_.pool->Split(weights.size(), [&](uint32_t thread, size_t begin, size_t end) {
    uint8_t* const packed = reinterpret_cast<uint8_t*>(attender_.scratch(thread));
    for (size_t head = begin; head < end; ++head) {
      const PanelView& view = weights[head].weight.view();
      for (uint32_t b = 0; b < blocks; ++b) {
        const RowBlock block = RowBlockAt(rows, blocks, b);
        stage_.kernels->pack_rows(in.at + block.first * in.row + head * in.head, in.row,
                                  block.count, view.inputs, packed);
        stage_.kernels->matmul({.weights = view,
                                .packed = packed,
                                .rows = block.count,
                                .out = out.at + block.first * out.row + head * out.head,
                                .out_stride = out.row},
                               0, view.panels());
      }
    }
  });
}

// What is kept of a row goes to its page, and the rotated dimensions of its queries behind those
// that are absorbed.
void LatentAttention::Keep(uint32_t layer, const BatchItem& item, uint32_t row) {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  const LatentSpec& latent = attention.latent;
  const uint32_t local = layer - stage_.spec.first_layer;
  const LayerWeights& weights = stage_.layer_weights(layer);
  const uint32_t position = item.position + row - item.first_row;
  const uint32_t half = latent.rope_dim / 2;
  const float* const cosines = stage_.rotary.Cosines(local, item.rotary_variant, position, half);
  const float* const sines = cosines + size_t{stage_.spec.context} * half;
  const float* const q = rows_.q.as<float>() + row * stage_.sizes.queries;
  float* const absorbed = absorbed_.as<float>() + row * stage_.sizes.absorbed;
  for (size_t head = 0; head < attention.heads; ++head) {
    float* const to = absorbed + head * latent.kept() + latent.rank;
    std::memcpy(to, q + head * attention.head_dim + latent.nope_dim,
                latent.rope_dim * sizeof(float));
    RotateNeighbours(cosines, sines, half, to);
  }
  float* const kept = rows_.k.as<float>() + row * stage_.sizes.keys;
  stage_.kernels->rms_norm(kept, weights.kv_latent_norm.data(), latent.rank, latent.norm_eps, 0.0f,
                           kept);
  RotateNeighbours(cosines, sines, half, kept + latent.rank);
  const PageTableView& table = item.tables[attention.kv_group];
  const PageId page = table.pages[position / kPageTokens - table.first_page];
  const size_t at = size_t{position % kPageTokens} * latent.kept();
  uint8_t* const to = stage_.kv.pages(local) + page * stage_.kv.layout(local).head_bytes;
  if (stage_.kv_f16) {
    stage_.kernels->to_f16(kept, latent.kept(), reinterpret_cast<uint16_t*>(to) + at);
  } else {
    std::memcpy(to + at * sizeof(float), kept, latent.kept() * sizeof(float));
  }
}

void LatentAttention::Append(uint32_t layer) {
  const LayerSpec& spec = stage_.layer(layer);
  const LatentSpec& latent = spec.attention.latent;
  const LayerWeights& weights = stage_.layer_weights(layer);
  const uint32_t rows = stage_.batch.rows;
  const bool ranked = latent.query_rank != 0;
  const Linear& first = ranked ? weights.query_latent : weights.q;
  const Products::Inputs inputs =
      residual_.BranchInputs(spec, weights.attention_norm, {&first, &weights.kv_latent});
  const std::array<MatmulArgs, 2> products = {
      products_.Product(first, rows, (ranked ? query_latent_ : rows_.q).as<float>(),
                        ranked ? stage_.sizes.query_rank : stage_.sizes.queries, false),
      products_.Product(weights.kv_latent, rows, rows_.k.as<float>(), stage_.sizes.keys, false)};
  products_.Multiply(inputs, products);
  if (ranked) {
    stage_.pool->Split(
        rows,
        [&](size_t begin, size_t end) {
          for (size_t row = begin; row < end; ++row) {
            float* const x = query_latent_.as<float>() + row * stage_.sizes.query_rank;
            stage_.kernels->rms_norm(x, weights.query_latent_norm.data(), latent.query_rank,
                                     latent.norm_eps, 0.0f, x);
          }
        },
        kSmallRows);
    const std::array<MatmulArgs, 1> queries = {
        products_.Product(weights.q, rows, rows_.q.as<float>(), stage_.sizes.queries, false)};
    products_.Multiply(products_.Rows(query_latent_.as<float>(), stage_.sizes.query_rank,
                                      latent.query_rank, {&weights.q}),
                       queries);
  }
  EachRow(stage_, [&](const BatchItem& item, uint32_t row) { Keep(layer, item, row); });
}

void LatentAttention::Attend(uint32_t layer) {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  const LatentSpec& latent = attention.latent;
  const LayerWeights& weights = stage_.layer_weights(layer);
  MultiplyHeads(weights.key_heads, {rows_.q.as<float>(), stage_.sizes.queries, attention.head_dim},
                {absorbed_.as<float>(), stage_.sizes.absorbed, latent.kept()});
  attender_.Attend(layer, {absorbed_.as<float>(), stage_.sizes.absorbed, summed_.as<float>(),
                           stage_.sizes.summed});
  MultiplyHeads(weights.value_heads, {summed_.as<float>(), stage_.sizes.summed, latent.rank},
                {rows_.attended.as<float>() + stage_.link->own(stage_.link->attended(layer)).begin,
                 stage_.sizes.attended, latent.value_dim});
}

}  // namespace strata::cpu
