#include "worker/backend/mlx/mlx_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/footprint/mlx_limits.h"
#include "common/status.h"
#include "common/units.h"
#include "mlx/ops.h"
#include "mlx/stream.h"
#include "mlx/transforms.h"
#include "worker/backend/mlx/available.h"
#include "worker/backend/mlx/guard.h"
#include "worker/backend/mlx/mixture.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

mx::array RowsFrom(std::span<const float> values, size_t width) {
  return mx::array(values.data(),
                   {static_cast<int>(values.size() / width), static_cast<int>(width)}, mx::float32);
}

}  // namespace

MlxShard::MlxShard(const StageSpec& spec, const ShardDevice& device)
    : spec_(spec), blocks_(device.blocks), shared_bytes_(device.shared_bytes), calls_(&spec_) {}

absl::StatusOr<std::unique_ptr<MlxShard>> MlxShard::Create(const StageSpec& spec,
                                                           const TensorSource& source,
                                                           PackedStore* packed,
                                                           const LoadProgressFn& progress,
                                                           const ShardDevice& device) {
  std::unique_ptr<MlxShard> shard(new MlxShard(spec, device));
  ArrayLoader loader(shard->spec_, source, packed, &shard->arrays_);
  RETURN_IF_ERROR(loader.Check());
  RETURN_IF_ERROR(CheckAvailable("the stage",
                                 loader.bytes() + KvArrays::Bytes(spec) + spec.rotary.size_bytes(),
                                 device.shared_bytes));
  RETURN_IF_ERROR(loader.Load(progress));
  RETURN_IF_ERROR(shard->kv_.Allocate(shard->spec_, device.shared_bytes));
  shard->rotary_.assign(spec.rotary.begin(), spec.rotary.end());
  shard->spec_.rotary = {};
  return shard;
}

uint64_t MlxShard::MemoryBytes() const {
  return arrays_.bytes + kv_.bytes() + rotary_.size() * sizeof(float);
}

absl::Status MlxShard::ResizeKv(std::span<const uint64_t> pages) {
  RETURN_IF_ERROR(calls_.ResizeKv(pages));
  batch_ = Batch{};
  residual_.reset();
  logits_.reset();
  DropPlan();
  spec_.kv_pages.assign(pages.begin(), pages.end());
  const absl::Status status = kv_.Allocate(spec_, shared_bytes_);
  if (!status.ok()) {
    spec_.kv_pages.assign(pages.size(), 0);
  }
  return status;
}

void MlxShard::DropPlan() {
  slots_.clear();
  spans_.clear();
  rotations_.clear();
}

absl::Status MlxShard::Begin(const Batch& batch) {
  batch_ = Batch{};
  residual_.reset();
  logits_.reset();
  head_rows_ = 0;
  graph_bytes_ = 0;
  DropPlan();
  kv_.Recover();  // From a step of which nothing was read.
  RETURN_IF_ERROR(calls_.Begin(batch));
  batch_ = batch;
  return absl::OkStatus();
}

absl::Status MlxShard::Embed() {
  RETURN_IF_ERROR(calls_.Embed(batch_.token_ids, batch_.rows));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded("the embedding", [&] {
    const MatrixArrays& matrix =
        arrays_.embedding.weight.has_value() ? arrays_.embedding : arrays_.head.matrix;
    residual_ = RowsOf(matrix, Indices(batch_.token_ids));
    if (const float scale = spec_.model.embedding_scale; scale != 1) {
      residual_ = *residual_ * mx::array(scale);
    }
    return absl::OkStatus();
  });
}

absl::Status MlxShard::EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) {
  RETURN_IF_ERROR(calls_.EmbedInputs(rows, values.size(), batch_.rows));
  if (rows.empty()) {
    return absl::OkStatus();
  }
  return Guarded("input embeddings", [&] {
    mx::array given = RowsFrom(values, spec_.model.hidden);
    if (const float scale = spec_.model.input_embedding_scale; scale != 1) {
      given = given * mx::array(scale);
    }
    residual_ = mx::scatter(*residual_, Indices(rows), mx::expand_dims(given, 1), 0);
    return absl::OkStatus();
  });
}

absl::Status MlxShard::SetResidual(std::span<const float> values) {
  RETURN_IF_ERROR(calls_.Residual(values.size(), batch_.rows));
  return Guarded("the residual stream", [&] {
    if (batch_.rows > 0) {
      residual_ = RowsFrom(values, spec_.model.hidden);
    }
    return absl::OkStatus();
  });
}

void MlxShard::AddBranch(const LayerSpec& layer, const mx::array& branch,
                         const std::optional<mx::array>& after) {
  mx::array added = after.has_value() ? Normed(branch, *after, layer.norm_eps) : branch;
  if (layer.branch_scale != 1) {
    added = added * mx::array(layer.branch_scale);
  }
  residual_ = *residual_ + added;
}

absl::Status MlxShard::Mlp(uint32_t index) {
  RETURN_IF_ERROR(calls_.Layer(index));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("the MLP of layer ", index), [&] {
    const LayerSpec& spec = layer(index);
    const LayerArrays& weights = arrays(index);
    const mx::array inputs = weights.mlp_norm.has_value()
                                 ? Normed(*residual_, *weights.mlp_norm, spec.norm_eps)
                                 : *residual_;
    const MlpSpec& mlp = spec.mlp;
    const bool dense = mlp.experts == 0;
    AddBranch(spec,
              dense ? Multiply(blocks_,
                               Gated(mlp, Multiply(blocks_, inputs, weights.gate),
                                     Multiply(blocks_, inputs, weights.up)),
                               weights.down)
                    : Mixture(blocks_, mlp, weights, inputs),
              weights.after_mlp_norm);
    const uint64_t hidden = spec_.model.hidden;
    const uint64_t row =
        6 * uint64_t{mlp.active()} * mlp.ffn + 4 * hidden +
        (dense ? 0 : 2 * mlp.active() * hidden + 8 * uint64_t{mlp.experts} + 6 * mlp.shared_ffn);
    RETURN_IF_ERROR(Account(batch_.rows * row * sizeof(float)));
    return Start();
  });
}

absl::Status MlxShard::Account(uint64_t bytes) {
  graph_bytes_ += bytes;
  return graph_bytes_ > kMlxGraphBytes ? Evaluate({}) : absl::OkStatus();
}

absl::Status MlxShard::Start() {
  return RecoverUnless(Guarded("starting a step", [&] {
    mx::async_eval(*residual_);
    return absl::OkStatus();
  }));
}

absl::Status MlxShard::Evaluate(std::vector<mx::array> more) {
  graph_bytes_ = 0;
  if (residual_.has_value()) {
    more.push_back(*residual_);
  }
  kv_.AddPending(&more);
  return RecoverUnless(Guarded("evaluating a step", [&] {
    mx::eval(std::move(more));
    return absl::OkStatus();
  }));
}

absl::Status MlxShard::RecoverUnless(absl::Status status) {
  if (!status.ok()) {
    // What was under way ends before anything is looked at.
    Guarded("the end of a step", [] {
      mx::synchronize();
      return absl::OkStatus();
    }).IgnoreError();
    kv_.Recover();
    batch_ = Batch{};
    residual_.reset();
    logits_.reset();
    head_rows_ = 0;
  }
  return status;
}

absl::Status MlxShard::Copy(const mx::array& from, std::span<float> out) {
  return Guarded("reading a step", [&] {
    mx::array whole = from;  // Evaluated, as one piece but for what MLX has as a view.
    if (!whole.flags().row_contiguous) {
      whole = mx::contiguous(from);
      mx::eval(whole);
    }
    std::memcpy(out.data(), whole.data<float>(), out.size_bytes());
    return absl::OkStatus();
  });
}

absl::Status MlxShard::ReadResidual(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Residual(out.size(), batch_.rows));
  RETURN_IF_ERROR(Evaluate({}));
  return batch_.rows == 0 ? absl::OkStatus() : Copy(*residual_, out);
}

absl::Status MlxShard::Head(std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.Head(rows, batch_.rows));
  head_rows_ = static_cast<uint32_t>(rows.size());
  logits_.reset();
  if (head_rows_ == 0) {
    return absl::OkStatus();
  }
  return Guarded("the head", [&] {
    const mx::array inputs = Normed(mx::take(*residual_, Indices(rows), 0), *arrays_.final_norm,
                                    spec_.model.final_norm_eps);
    logits_ = Multiply(blocks_, inputs, arrays_.head);
    if (const float divisor = spec_.model.logits_divisor; divisor != 1) {
      logits_ = *logits_ / mx::array(divisor);
    }
    logits_ = SoftCapped(*logits_, spec_.model.final_soft_cap);
    return absl::OkStatus();
  });
}

absl::Status MlxShard::ReadLogits(std::span<float> out) {
  RETURN_IF_ERROR(calls_.Logits(out.size(), head_rows_));
  RETURN_IF_ERROR(
      Evaluate(logits_.has_value() ? std::vector<mx::array>{*logits_} : std::vector<mx::array>{}));
  return head_rows_ == 0 ? absl::OkStatus() : Copy(*logits_, out);
}

absl::Status MlxShard::CopyPage(uint32_t group, PageId from, PageId to) {
  RETURN_IF_ERROR(calls_.CopyPage(group, from, to));
  if (from == to) {
    return absl::OkStatus();
  }
  return Guarded("copying a page", [&] {
    kv_.CopyPage(spec_, group, from, to);
    return absl::OkStatus();
  });
}

absl::Status MlxShard::ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) {
  RETURN_IF_ERROR(calls_.PageOf(group, page, PageBytes(group), out.size()));
  return Guarded("reading a page", [&] {
    kv_.ReadPage(spec_, group, page, out.data());
    return absl::OkStatus();
  });
}

absl::Status MlxShard::WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) {
  RETURN_IF_ERROR(calls_.PageOf(group, page, PageBytes(group), in.size()));
  return Guarded("writing a page", [&] {
    kv_.WritePage(spec_, group, page, in.data());
    return absl::OkStatus();
  });
}

}  // namespace strata::mlx
