#include "worker/backend/cuda/shard/cuda_shard.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace strata::cuda {

namespace {

StageSpec WithHeads(StageSpec spec, const RankOutputs& outputs) {
  spec.model = WithHeadsOf(outputs, std::move(spec.model));
  return spec;
}

}  // namespace

CudaShard::CudaShard(const StageSpec& spec, const std::vector<RankOutputs>& ranks, uint32_t rank,
                     DeviceWeights weights, std::unique_ptr<Transfers> transfers,
                     std::shared_ptr<Device> device)
    : spec_(WithHeads(spec, ranks[rank])),
      calls_(&spec_),
      link_(spec.model, ranks, rank),
      attended_width_(link_.AttendedWidth(spec.first_layer, spec.last_layer)),
      device_(std::move(device)),
      stream_(device_->stream()),
      transfers_(std::move(transfers)),
      weights_(std::move(weights)),
      products_(stream_, spec.activations == v1::ACTIVATIONS_INT8, &scratch_),
      branch_(stream_, spec.model.hidden, products_, scratch_, batch_, &link_),
      launches_(device_.get(), [this](const StepCall& call) { return Launch(call); }) {}

absl::StatusOr<std::unique_ptr<CudaShard>> CudaShard::Create(const StageSpec& spec,
                                                             const std::vector<RankOutputs>& ranks,
                                                             uint32_t rank, DeviceWeights weights,
                                                             std::unique_ptr<Transfers> transfers,
                                                             std::shared_ptr<Device> device) {
  std::unique_ptr<CudaShard> shard(new CudaShard(spec, ranks, rank, std::move(weights),
                                                 std::move(transfers), std::move(device)));
  Device* const on = shard->device_.get();
  RETURN_IF_ERROR(
      shard->scratch_.Allocate(on, shard->spec_, ranks[rank].vocab.size(), shard->attended_width_));
  RETURN_IF_ERROR(shard->batch_.Allocate(on, spec, shard->calls_.groups()));
  RETURN_IF_ERROR(shard->rotary_.Allocate(on, spec.rotary.size_bytes(), "rotary tables"));
  RETURN_IF_ERROR(
      shard->transfers_->In(shard->rotary_.as(), spec.rotary.data(), spec.rotary.size_bytes()));
  RETURN_IF_ERROR(shard->transfers_->EndLoading());
  shard->spec_.rotary = {};  // The caller's.
  RETURN_IF_ERROR(shard->kv_.Allocate(on, shard->spec_));
  return shard;
}

absl::Status CudaShard::Launch(const StepCall& call) {
  switch (call.kind) {
    case StepCall::Kind::kEmbed:
      LaunchEmbedding();
      break;
    case StepCall::Kind::kAttention:
      return LaunchAttention(call.layer);
    case StepCall::Kind::kMlp:
      return LaunchMlp(call.layer);
    case StepCall::Kind::kHead:
      LaunchHead();
      break;
    case StepCall::Kind::kLogits:
      ComputeLogits(0, head_rows_, scratch_.logits());
      break;
    case StepCall::Kind::kLargest:
      ChooseLargest();
      break;
  }
  return absl::OkStatus();
}

absl::Status CudaShard::Flush() {
  return launches_.Flush({.calls = {},
                          .rows = batch_.rows(),
                          .head_rows = head_rows_,
                          .single_rows = batch_.single_rows(),
                          .most_keys = batch_.most_keys()});
}

absl::Status CudaShard::Begin(const Batch& batch) {
  RETURN_IF_ERROR(Enter());
  // Of a step of which nothing was read, whose keys and values stay all the same.
  RETURN_IF_ERROR(Flush());
  head_rows_ = 0;
  batch_.Clear();
  given_ = {};
  RETURN_IF_ERROR(calls_.Begin(batch));
  given_ = batch;
  // A graph of one rank may not be one of another, which waits for it.
  launches_.PutOff(link_.alone() && batch.rows <= kFewRows);
  link_.Begin();
  return batch_.Begin(transfers_.get(), batch);
}

absl::Status CudaShard::ShareResidual() {
  return link_.Gather(scratch_.residual(), batch_.rows(), scratch_.sizes().hidden,
                      link_.from_first());
}

absl::Status CudaShard::Embed() {
  const std::span<const uint32_t> ids = batch_.token_ids();
  RETURN_IF_ERROR(calls_.Embed(ids, batch_.rows()));
  if (ids.empty()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(batch_.TakeIds(transfers_.get()));
  return launches_.Add({.kind = StepCall::Kind::kEmbed});
}

void CudaShard::LaunchEmbedding() {
  Embedding embedding = weights_.embedding();
  embedding.width = spec_.model.hidden;
  embedding.scale = spec_.model.embedding_scale;
  cuda::Embed(stream_, embedding, batch_.ids(), batch_.rows(), scratch_.residual(),
              scratch_.sizes().hidden);
}

absl::Status CudaShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  const size_t hidden = spec_.model.hidden;
  RETURN_IF_ERROR(calls_.EmbedInputs(rows, values.size(), batch_.rows()));
  RETURN_IF_ERROR(Flush());  // They take the place of embeddings.
  const float scale = spec_.model.input_embedding_scale;
  std::vector<float> scaled(hidden);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::transform(values.begin() + i * hidden, values.begin() + (i + 1) * hidden, scaled.begin(),
                   [scale](float x) { return scale == 1 ? x : x * scale; });
    RETURN_IF_ERROR(transfers_->In(scratch_.residual() + rows[i] * scratch_.sizes().hidden,
                                   scaled.data(), hidden * sizeof(float)));
  }
  return absl::OkStatus();
}

absl::Status CudaShard::SetResidual(std::span<const float> values) {
  RETURN_IF_ERROR(calls_.Residual(values.size(), batch_.rows()));
  RETURN_IF_ERROR(Flush());
  const size_t hidden = spec_.model.hidden;
  const size_t stride = scratch_.sizes().hidden;
  // All rows at once where they lie on the device as they do here.
  const size_t rows = stride == hidden ? 1 : batch_.rows();
  const size_t floats = stride == hidden ? values.size() : hidden;
  for (size_t row = 0; row < rows; ++row) {
    RETURN_IF_ERROR(transfers_->In(scratch_.residual() + row * stride, values.data() + row * hidden,
                                   floats * sizeof(float)));
  }
  return absl::OkStatus();
}

absl::Status CudaShard::ReadResidual(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Residual(out.size(), batch_.rows()));
  RETURN_IF_ERROR(Flush());
  const size_t hidden = spec_.model.hidden;
  const size_t stride = scratch_.sizes().hidden;
  const size_t rows = stride == hidden ? 1 : batch_.rows();
  const size_t floats = stride == hidden ? out.size() : hidden;
  for (size_t row = 0; row < rows; ++row) {
    RETURN_IF_ERROR(transfers_->Out(out.data() + row * hidden, scratch_.residual() + row * stride,
                                    floats * sizeof(float)));
  }
  return device_->LaunchStatus();
}

absl::Status CudaShard::Head(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.Head(rows, batch_.rows()));
  launches_.TakeBack(StepCall::Kind::kHead);
  head_rows_ = static_cast<uint32_t>(rows.size());
  if (head_rows_ == 0) {
    return Flush();
  }
  RETURN_IF_ERROR(batch_.Take(transfers_.get(), rows));
  return launches_.Add({.kind = StepCall::Kind::kHead});
}

void CudaShard::LaunchHead() {
  const size_t stride = scratch_.sizes().hidden;
  TakeRows(stream_, scratch_.residual(), stride, batch_.taken(), head_rows_, spec_.model.hidden,
           scratch_.head(), stride);
  NormRows(stream_, {.x = scratch_.head(),
                     .x_stride = stride,
                     .rows = head_rows_,
                     .width = spec_.model.hidden,
                     .weight = weights_.final_norm().data,
                     .eps = spec_.model.final_norm_eps,
                     .plus = PlusOf(spec_.model.final_norm),
                     .out = scratch_.head(),
                     .out_stride = stride});
}

void CudaShard::ComputeLogits(uint32_t first, uint32_t rows, float* out) {
  const uint32_t vocab = link_.outputs().vocab.size();
  if (vocab == 0) {
    return;  // Other ranks have all.
  }
  const size_t stride = scratch_.sizes().hidden;
  const RowInputs inputs =
      products_.Prepare(scratch_.head() + first * stride, stride, rows, {&weights_.head()});
  products_.Multiply(weights_.head(), inputs, out, vocab);
  if (spec_.model.logits_divisor != 1 || spec_.model.final_soft_cap != 0) {
    CapRows(stream_, out, vocab, rows, vocab, spec_.model.logits_divisor,
            spec_.model.final_soft_cap);
  }
}

void CudaShard::ChooseLargest() {
  for (uint32_t first = 0; first < head_rows_; first += kDeviceLogitRows) {
    const uint32_t rows = std::min(kDeviceLogitRows, head_rows_ - first);
    ComputeLogits(first, rows, scratch_.logits());
    Choose(stream_, scratch_.logits(), spec_.model.vocab, rows, spec_.model.vocab,
           scratch_.choices() + first);
  }
}

absl::Status CudaShard::ReadLargest(std::span<RowLargest> out) {
  RETURN_IF_ERROR(calls_.Largest(out.size(), head_rows_));
  if (head_rows_ > 0) {
    RETURN_IF_ERROR(launches_.Add({.kind = StepCall::Kind::kLargest}));
  }
  RETURN_IF_ERROR(Flush());
  std::vector<RowChoice> choices(head_rows_);
  RETURN_IF_ERROR(
      transfers_->Out(choices.data(), scratch_.choices(), choices.size() * sizeof(RowChoice)));
  std::transform(choices.begin(), choices.end(), out.begin(), [](const RowChoice& choice) {
    return RowLargest{.token_id = choice.id, .usable = choice.usable != 0};
  });
  return device_->LaunchStatus();
}

absl::Status CudaShard::ReadLogits(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Logits(out.size(), head_rows_));
  if (head_rows_ > kFewRows) {
    return ReadManyLogits(out);
  }
  if (head_rows_ > 0) {
    RETURN_IF_ERROR(launches_.Add({.kind = StepCall::Kind::kLogits}));
  }
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(link_.Finish());
  RETURN_IF_ERROR(OutLogits(out.data(), scratch_.logits(), head_rows_));
  return device_->LaunchStatus();
}

absl::Status CudaShard::OutLogits(float* out, const float* logits, uint32_t rows,
                                  const OwnedEvent* computed) {
  const OutputRange own = link_.outputs().vocab;
  if (link_.alone()) {
    return transfers_->Out(out, logits, size_t{rows} * own.size() * sizeof(float), computed);
  }
  for (uint32_t row = 0; row < rows; ++row) {
    RETURN_IF_ERROR(transfers_->Out(out + size_t{row} * spec_.model.vocab + own.begin,
                                    logits + size_t{row} * own.size(), own.size() * sizeof(float),
                                    computed));
  }
  return absl::OkStatus();
}

// A half of the rows that the scratch holds is copied while the device computes the other.
absl::Status CudaShard::ReadManyLogits(std::span<float> out) {
  const size_t vocab = spec_.model.vocab;
  const size_t own = link_.outputs().vocab.size();
  constexpr uint32_t kHalf = kDeviceLogitRows / 2;
  const auto rows_from = [&](uint32_t first) { return std::min(kHalf, head_rows_ - first); };
  const auto half_of = [&](uint32_t first) { return first / kHalf % 2; };
  const auto compute = [&](uint32_t first) {
    ComputeLogits(first, rows_from(first), scratch_.logits() + half_of(first) * kHalf * own);
    return transfers_->Mark(&computed_[half_of(first)]);
  };
  RETURN_IF_ERROR(link_.Finish());
  RETURN_IF_ERROR(compute(0));
  for (uint32_t first = 0; first < head_rows_; first += kHalf) {
    if (first + kHalf < head_rows_) {
      RETURN_IF_ERROR(compute(first + kHalf));  // Where what was there has been read.
    }
    RETURN_IF_ERROR(OutLogits(out.data() + first * vocab,
                              scratch_.logits() + half_of(first) * kHalf * own, rows_from(first),
                              &computed_[half_of(first)]));
  }
  return device_->LaunchStatus();
}

absl::Status CudaShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(calls_.CopyPage(group, from, to));
  RETURN_IF_ERROR(Enter());
  RETURN_IF_ERROR(Flush());
  return from == to ? absl::OkStatus() : kv_.CopyPage(device_.get(), group, from, to);
}

absl::Status CudaShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(calls_.ResizeKv(pages));
  RETURN_IF_ERROR(Enter());
  RETURN_IF_ERROR(Flush());
  launches_.ForgetGraphs();
  batch_.Clear();
  given_ = {};
  spec_.kv_pages.assign(pages.begin(), pages.end());
  const absl::Status status = kv_.Allocate(device_.get(), spec_);
  if (!status.ok()) {
    spec_.kv_pages.assign(pages.size(), 0);
  }
  return status;
}

uint64_t CudaShard::MemoryBytes() const {
  return weights_.bytes() + scratch_.bytes() + rotary_.bytes() + kv_.bytes() + batch_.bytes();
}

}  // namespace strata::cuda
