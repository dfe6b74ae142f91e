// Attention with latent vectors (LatentSpec), in one form for any number of rows. Numerics, of each
// row and head: the query's dimensions that do not rotate become rank ones, each a chain over them
// in ascending order (a product as any other); behind those are the ones that rotate; the scores
// with what is kept and the weighted sums of its latent vectors are attention's as it is
// documented, with these as queries and keys; and the sums become values, each a chain over rank.
#include <array>
#include <cstring>

#include "common/limits.h"
#include "worker/backend/cpu/shard/cpu_shard.h"
#include "worker/backend/cpu/shard/rotate.h"

namespace strata::cpu {

void CpuShard::MultiplyHeads(const std::vector<Linear>& weights, HeadRows in, HeadRows out) {
  const uint32_t rows = batch_.rows;
  const uint32_t blocks = RowBlocks(rows, kernels_->block_rows);
  pool_->Split(weights.size(), [&](uint32_t thread, size_t begin, size_t end) {
    uint8_t* const packed =
        reinterpret_cast<uint8_t*>(attend_.as<float>() + thread * sizes_.attend);
    for (size_t head = begin; head < end; ++head) {
      const PanelView& view = weights[head].weight.view();
      for (uint32_t b = 0; b < blocks; ++b) {
        const RowBlock block = RowBlockAt(rows, blocks, b);
        kernels_->pack_rows(in.at + block.first * in.row + head * in.head, in.row, block.count,
                            view.inputs, packed);
        kernels_->matmul({.weights = view,
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
void CpuShard::KeepLatents(uint32_t layer, const BatchItem& item, uint32_t row) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const LatentSpec& latent = attention.latent;
  const uint32_t local = layer - spec_.first_layer;
  const LayerWeights& weights = weights_.layers[local];
  const uint32_t position = item.position + row - item.first_row;
  const uint32_t half = latent.rope_dim / 2;
  const float* const cosines =
      rotary_.as<float>() + rotary_at_[local][item.rotary_variant] + size_t{position} * half;
  const float* const sines = cosines + size_t{spec_.context} * half;
  const float* const q = q_.as<float>() + row * sizes_.queries;
  float* const absorbed = absorbed_.as<float>() + row * sizes_.absorbed;
  for (size_t head = 0; head < attention.heads; ++head) {
    float* const to = absorbed + head * latent.kept() + latent.rank;
    std::memcpy(to, q + head * attention.head_dim + latent.nope_dim,
                latent.rope_dim * sizeof(float));
    RotateNeighbours(cosines, sines, half, to);
  }
  float* const kept = k_.as<float>() + row * sizes_.keys;
  kernels_->rms_norm(kept, weights.kv_latent_norm.data(), latent.rank, latent.norm_eps, 0.0f, kept);
  RotateNeighbours(cosines, sines, half, kept + latent.rank);
  const PageTableView& table = item.tables[attention.kv_group];
  const PageId page = table.pages[position / kPageTokens - table.first_page];
  const size_t at = size_t{position % kPageTokens} * latent.kept();
  uint8_t* const to = kv_.pages(local) + page * kv_.layout(local).head_bytes;
  if (kv_f16_) {
    kernels_->to_f16(kept, latent.kept(), reinterpret_cast<uint16_t*>(to) + at);
  } else {
    std::memcpy(to + at * sizeof(float), kept, latent.kept() * sizeof(float));
  }
}

void CpuShard::AppendLatents(uint32_t layer) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const LatentSpec& latent = spec.attention.latent;
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  const uint32_t rows = batch_.rows;
  const bool ranked = latent.query_rank != 0;
  const Linear& first = ranked ? weights.query_latent : weights.q;
  const Inputs inputs = BranchInputs(spec, weights.attention_norm, {&first, &weights.kv_latent});
  const std::array<MatmulArgs, 2> products = {
      Product(first, rows, (ranked ? query_latent_ : q_).as<float>(),
              ranked ? sizes_.query_rank : sizes_.queries, false),
      Product(weights.kv_latent, rows, k_.as<float>(), sizes_.keys, false)};
  Multiply(inputs, products);
  if (ranked) {
    pool_->Split(
        rows,
        [&](size_t begin, size_t end) {
          for (size_t row = begin; row < end; ++row) {
            float* const x = query_latent_.as<float>() + row * sizes_.query_rank;
            kernels_->rms_norm(x, weights.query_latent_norm.data(), latent.query_rank,
                               latent.norm_eps, 0.0f, x);
          }
        },
        kSmallRows);
    const std::array<MatmulArgs, 1> queries = {
        Product(weights.q, rows, q_.as<float>(), sizes_.queries, false)};
    Multiply(Rows(query_latent_.as<float>(), sizes_.query_rank, latent.query_rank, {&weights.q}),
             queries);
  }
  RotateAndAppend(layer);
}

void CpuShard::AttendLatents(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const LatentSpec& latent = attention.latent;
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  MultiplyHeads(weights.key_heads, {q_.as<float>(), sizes_.queries, attention.head_dim},
                {absorbed_.as<float>(), sizes_.absorbed, latent.kept()});
  Attend(layer, /*append=*/false);
  MultiplyHeads(weights.value_heads, {summed_.as<float>(), sizes_.summed, latent.rank},
                {attended_.as<float>(), sizes_.queries, latent.value_dim});
}

}  // namespace strata::cpu
