// Attention of a loaded stage on a device.
#include "common/status.h"
#include "worker/backend/cuda/shard/cuda_shard.h"

namespace strata::cuda {

absl::Status CudaShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(calls_.Layer(layer));
  return batch_.rows() == 0 ? absl::OkStatus()
                            : launches_.Add({.kind = StepCall::Kind::kAttention, .layer = layer});
}

absl::Status CudaShard::LaunchAttention(uint32_t layer) {
  RETURN_IF_ERROR(AppendRows(layer, /*queries=*/true));
  return FinishAttention(layer);
}

absl::Status CudaShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.AttentionOfSome(layer, rows, batch_.items()));
  if (batch_.rows() == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Flush());
  launches_.PutOff(false);
  RETURN_IF_ERROR(AppendRows(layer, /*queries=*/!rows.empty()));
  RETURN_IF_ERROR(KeepRows(rows));
  if (batch_.rows() > 0) {
    RETURN_IF_ERROR(FinishAttention(layer));
  }
  return device_->LaunchStatus();
}

absl::Status CudaShard::KeepRows(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(batch_.Keep(transfers_.get(), rows));
  given_ = {.rows = static_cast<uint32_t>(rows.size()), .token_ids = {}, .items = {}};
  const RowSizes& sizes = scratch_.sizes();
  const auto keep = [&](float* x, size_t width) {
    if (width > 0 && !rows.empty()) {
      TakeRows(stream_, x, width, batch_.taken(), static_cast<uint32_t>(rows.size()),
               static_cast<uint32_t>(width), x, width);
    }
  };
  keep(scratch_.residual(), sizes.hidden);
  keep(scratch_.q(), sizes.queries);
  keep(scratch_.absorbed(), sizes.absorbed);
  return absl::OkStatus();
}

void CudaShard::RotateHeads(uint32_t layer, float* x, size_t stride, uint32_t heads,
                            uint32_t head_stride) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t half = attention.rope.rotary_dim / 2;
  Rotation rotation = {
      .x = x,
      .stride = stride,
      .rows = batch_.rows(),
      .heads = heads,
      .head_stride = head_stride,
      .half = half,
      .neighbours = attention.rotates_neighbours || attention.latent.rank != 0,
      .places = batch_.places(),
      .sines = size_t{spec_.context} * half,
  };
  for (uint32_t variant = 0; variant < 2; ++variant) {
    rotation.cosines[variant] =
        rotary_.as<float>() + RotaryOffset(spec_.model, layer, variant, spec_.context);
  }
  Rotate(stream_, rotation);
}

absl::Status CudaShard::NormProjection(const LayerSpec& spec, const DeviceVector& weight,
                                       const RankColumns& columns, OutputRange own, float* x,
                                       size_t stride) {
  float* const whole = scratch_.attended();  // Which nothing is attended to yet.
  const size_t width = scratch_.sizes().attended;
  const uint32_t rows = batch_.rows();
  const auto copy = [&](float* to, size_t to_stride, float* from, size_t from_stride,
                        uint32_t floats) {
    return floats == 0
               ? absl::OkStatus()
               : device_->CopyRows({reinterpret_cast<uint8_t*>(to), to_stride * sizeof(float)},
                                   {reinterpret_cast<uint8_t*>(from), from_stride * sizeof(float)},
                                   floats * sizeof(float), rows);
  };
  const OutputRange given = link_.own(columns);
  RETURN_IF_ERROR(
      copy(whole + given.begin, width, x + (given.begin - own.begin), stride, given.size()));
  RETURN_IF_ERROR(link_.Gather(whole, rows, width, columns));
  NormRows(stream_, {.x = whole,
                     .x_stride = width,
                     .rows = rows,
                     .width = weight.width,
                     .weight = weight.data,
                     .eps = spec.norm_eps,
                     .plus = PlusOf(spec.norm),
                     .out = whole,
                     .out_stride = width});
  return copy(x, stride, whole + own.begin, width, own.size());
}

absl::Status CudaShard::NormProjections(uint32_t layer, bool queries) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const DeviceLayer& weights = WeightsOf(layer);
  const RowSizes& sizes = scratch_.sizes();
  const OutputRange kv_heads = link_.outputs().layers[layer].kv_heads;
  const uint32_t head_dim = spec.attention.head_dim;
  if (queries) {
    const RankColumns& columns = link_.queries(layer);
    RETURN_IF_ERROR(NormProjection(spec, weights.q_norm, columns, link_.own(columns), scratch_.q(),
                                   sizes.queries));
  }
  return NormProjection(spec, weights.k_norm, link_.keys(layer),
                        {kv_heads.begin * head_dim, kv_heads.end * head_dim}, scratch_.k(),
                        sizes.keys);
}

absl::Status CudaShard::AppendRows(uint32_t layer, bool queries) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const AttentionSpec& attention = spec.attention;
  const bool any = attention.heads != 0;  // Else other ranks have all.
  if (attention.latent.rank != 0) {
    if (any) {
      AppendLatents(layer);
    }
    return absl::OkStatus();
  }
  const DeviceLayer& weights = WeightsOf(layer);
  const RowSizes& sizes = scratch_.sizes();
  if (any) {
    const RowInputs inputs =
        branch_.Begin(spec, weights.attention_norm, {&weights.q, &weights.k, &weights.v});
    if (queries) {
      products_.Multiply(weights.q, inputs, scratch_.q(), sizes.queries);
    }
    products_.Multiply(weights.k, inputs, scratch_.k(), sizes.keys);
    products_.Multiply(weights.v, inputs, scratch_.v(), sizes.values);
  }
  const bool together = attention.qk_norm == QkNorm::kProjection && !link_.alone();
  if (together) {
    RETURN_IF_ERROR(NormProjections(layer, queries));
  }
  if (!any) {
    return absl::OkStatus();
  }
  // Queries and keys alike; of `heads` heads.
  const auto turn = [&](float* x, size_t stride, uint32_t heads, const DeviceVector& norm) {
    const uint32_t width = heads * attention.head_dim;
    if (attention.qk_norm != QkNorm::kNone && !together) {
      NormRows(stream_, {.x = x,
                         .x_stride = stride,
                         .rows = batch_.rows(),
                         .parts = width / norm.width,
                         .width = norm.width,
                         .weight = norm.data,
                         .eps = spec.norm_eps,
                         .plus = PlusOf(spec.norm),
                         .out = x,
                         .out_stride = stride});
    }
    if (attention.rotates) {
      RotateHeads(layer, x, stride, heads, attention.head_dim);
    }
  };
  if (queries) {
    turn(scratch_.q(), sizes.queries, attention.heads, weights.q_norm);
    if (attention.query_growth != 0) {
      Grow(stream_, scratch_.q(), sizes.queries, batch_.rows(),
           attention.heads * attention.head_dim, batch_.places());
    }
  }
  turn(scratch_.k(), sizes.keys, attention.kv_heads, weights.k_norm);
  AppendKv(stream_, {.k = scratch_.k(),
                     .k_stride = sizes.keys,
                     .v = scratch_.v(),
                     .v_stride = sizes.values,
                     .rows = batch_.rows(),
                     .kv_heads = attention.kv_heads,
                     .head_dim = attention.head_dim,
                     .kv = kv_.pages(layer - spec_.first_layer),
                     .places = batch_.places(),
                     .tables = batch_.tables(attention.kv_group),
                     .pages = batch_.pages()});
  return absl::OkStatus();
}

cuda::Attention CudaShard::AttentionOf(uint32_t layer) const {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t rank = attention.latent.rank;
  const RowSizes& sizes = scratch_.sizes();
  const uint32_t window = spec_.model.kv_groups[attention.kv_group].window;
  cuda::Attention args = {.q = rank != 0 ? scratch_.absorbed() : scratch_.q(),
                          .q_stride = rank != 0 ? sizes.absorbed : sizes.queries,
                          .rows = batch_.rows(),
                          .heads = attention.heads,
                          .kv_heads = attention.kv_heads,
                          .head_dim = rank != 0 ? attention.latent.kept() : attention.head_dim,
                          .latent_values = rank,
                          .window = window,
                          .scale = attention.scale,
                          .soft_cap = attention.soft_cap,
                          .sinks = attention.sinks ? WeightsOf(layer).sinks.data : nullptr,
                          .kv = kv_.pages(layer - spec_.first_layer),
                          .places = batch_.places(),
                          .tables = batch_.tables(attention.kv_group),
                          .pages = batch_.pages(),
                          .out = rank != 0 ? scratch_.summed() : OwnAttended(layer),
                          .out_stride = rank != 0 ? sizes.summed : sizes.attended};
  // A window may begin anywhere in its first span.
  const uint32_t keys =
      window == 0 ? batch_.most_keys() : std::min(batch_.most_keys(), window + kSpanKeys);
  const uint32_t spans = cpu::SpansOf(keys);
  if (spans > 1 && batch_.single_rows() && args.rows * args.heads <= kDeviceQueriesBySpans) {
    args.partial = scratch_.partial();
    args.spans = spans;
  }
  return args;
}

float* CudaShard::OwnAttended(uint32_t layer) const {
  return scratch_.attended() + link_.own(link_.attended(layer)).begin;
}

absl::Status CudaShard::FinishAttention(uint32_t layer) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const DeviceLayer& weights = WeightsOf(layer);
  if (spec.attention.heads == 0) {
    // Other ranks have all.
  } else if (spec.attention.latent.rank != 0) {
    AttendLatents(layer);
  } else {
    Attend(stream_, AttentionOf(layer));
  }
  const size_t stride = scratch_.sizes().attended;
  RETURN_IF_ERROR(link_.Gather(scratch_.attended(), batch_.rows(), stride, link_.attended(layer)));
  const RowInputs inputs =
      products_.Prepare(scratch_.attended(), stride, batch_.rows(), {&weights.o});
  return branch_.Finish(inputs, weights.o, spec, weights.after_attention_norm);
}

void CudaShard::AppendLatents(uint32_t layer) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const AttentionSpec& attention = spec.attention;
  const LatentSpec& latent = attention.latent;
  const DeviceLayer& weights = WeightsOf(layer);
  const RowSizes& sizes = scratch_.sizes();
  const bool ranked = latent.query_rank != 0;
  const Matrix& first = ranked ? weights.query_latent : weights.q;
  const auto norm = [&](float* x, size_t stride, const DeviceVector& weight) {
    NormRows(stream_, {.x = x,
                       .x_stride = stride,
                       .rows = batch_.rows(),
                       .width = weight.width,
                       .weight = weight.data,
                       .eps = latent.norm_eps,
                       .out = x,
                       .out_stride = stride});
  };
  const RowInputs inputs =
      branch_.Begin(spec, weights.attention_norm, {&first, &weights.kv_latent});
  products_.Multiply(first, inputs, ranked ? scratch_.query_latent() : scratch_.q(),
                     ranked ? sizes.query_rank : sizes.queries);
  products_.Multiply(weights.kv_latent, inputs, scratch_.k(), sizes.keys);
  if (ranked) {
    norm(scratch_.query_latent(), sizes.query_rank, weights.query_latent_norm);
    const RowInputs of_queries =
        products_.Prepare(scratch_.query_latent(), sizes.query_rank, batch_.rows(), {&weights.q});
    products_.Multiply(weights.q, of_queries, scratch_.q(), sizes.queries);
  }
  // The rotated dimensions of queries go behind those that are absorbed.
  RotateHeads(layer, scratch_.q() + latent.nope_dim, sizes.queries, attention.heads,
              attention.head_dim);
  CopyHeads(stream_, {.from = scratch_.q() + latent.nope_dim,
                      .from_stride = sizes.queries,
                      .from_head = attention.head_dim,
                      .to = scratch_.absorbed() + latent.rank,
                      .to_stride = sizes.absorbed,
                      .to_head = latent.kept(),
                      .rows = batch_.rows(),
                      .heads = attention.heads,
                      .width = latent.rope_dim});
  norm(scratch_.k(), sizes.keys, weights.kv_latent_norm);
  RotateHeads(layer, scratch_.k() + latent.rank, sizes.keys, 1, latent.rope_dim);
  AppendKv(stream_, {.k = scratch_.k(),
                     .k_stride = sizes.keys,
                     .rows = batch_.rows(),
                     .kv_heads = 1,
                     .head_dim = latent.kept(),
                     .latent = true,
                     .kv = kv_.pages(layer - spec_.first_layer),
                     .places = batch_.places(),
                     .tables = batch_.tables(attention.kv_group),
                     .pages = batch_.pages()});
}

void CudaShard::AttendLatents(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const LatentSpec& latent = attention.latent;
  const DeviceLayer& weights = WeightsOf(layer);
  const RowSizes& sizes = scratch_.sizes();
  Multiply(stream_, {.matrix = weights.key_heads.first,
                     .matrices = weights.key_heads.all,
                     .parts = attention.heads,
                     .x_step = attention.head_dim,
                     .out_step = latent.kept(),
                     .rows = batch_.rows(),
                     .x = scratch_.q(),
                     .x_stride = sizes.queries,
                     .out = scratch_.absorbed(),
                     .out_stride = sizes.absorbed});
  Attend(stream_, AttentionOf(layer));
  Multiply(stream_, {.matrix = weights.value_heads.first,
                     .matrices = weights.value_heads.all,
                     .parts = attention.heads,
                     .x_step = latent.rank,
                     .out_step = latent.value_dim,
                     .rows = batch_.rows(),
                     .x = scratch_.summed(),
                     .x_stride = sizes.summed,
                     .out = OwnAttended(layer),
                     .out_stride = sizes.attended});
}

}  // namespace strata::cuda
