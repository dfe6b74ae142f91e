// In place of worker/backend/kinds/make_backend.cc: a CPU or MLX backend that some token ids are
// poison to, or that computes wrongly, in the way that STRATA_POISON says, as "KIND:N" separated by
// commas. Only tests build and start it: no shipped binary has such a switch.
//   nan:ID     what a row of ID comes to is no number: an item's error
//   fail:ID    every step with a row of ID fails as a whole, where the row goes through an MLP here
//   crash:ID   the process is gone by SIGSEGV at a step with a row of ID
//   hang:ID    a step with a row of ID never ends
//   flip:LAYER the lowest bit of the first value that the layer makes of position 5 is another; of
//              the layer after the last one, that of the first logit there
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/status.h"
#include "worker/backend/kinds/make_backend.h"
#include "worker/backend/optional_backends.h"

namespace strata {
namespace {

struct Poison {
  std::vector<uint32_t> nan;
  std::vector<uint32_t> fail;
  std::vector<uint32_t> crash;
  std::vector<uint32_t> hang;
  std::vector<uint32_t> flip;  // Layers.
};

constexpr uint32_t kFlippedPosition = 5;

bool Has(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

Poison ReadPoison() {
  const char* text = std::getenv("STRATA_POISON");
  std::istringstream entries(text == nullptr ? "" : text);
  Poison poison;
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::string kind = entry.substr(0, entry.find(':'));
    const auto id = static_cast<uint32_t>(std::stoul(entry.substr(entry.find(':') + 1)));
    (kind == "nan"     ? poison.nan
     : kind == "fail"  ? poison.fail
     : kind == "crash" ? poison.crash
     : kind == "flip"  ? poison.flip
                       : poison.hang)
        .push_back(id);
  }
  return poison;
}

void FlipLowestBit(float* value) {
  *value = std::bit_cast<float>(std::bit_cast<uint32_t>(*value) ^ 1u);
}

class PoisonShard : public Shard {
 public:
  PoisonShard(std::unique_ptr<Shard> shard, const ModelSpec& model)
      : shard_(std::move(shard)),
        hidden_(model.hidden),
        layers_(static_cast<uint32_t>(model.layers.size())),
        poison_(ReadPoison()) {}

  absl::Status Begin(const Batch& batch) override {
    ids_.assign(batch.token_ids.begin(), batch.token_ids.end());
    flipped_rows_.clear();
    for (const BatchItem& item : batch.items) {
      if (item.position <= kFlippedPosition && kFlippedPosition < item.position + item.rows) {
        flipped_rows_.push_back(item.first_row + kFlippedPosition - item.position);
      }
    }
    return shard_->Begin(batch);
  }
  absl::Status Embed() override { return shard_->Embed(); }
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override {
    return shard_->EmbedInputs(rows, values);
  }
  absl::Status SetResidual(std::span<const float> values) override {
    return shard_->SetResidual(values);
  }
  absl::Status Attention(uint32_t layer) override { return shard_->Attention(layer); }
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override {
    RETURN_IF_ERROR(shard_->AttentionOfSome(layer, rows));
    std::vector<uint32_t> ids;
    std::vector<uint32_t> flipped;
    for (const uint32_t row : rows) {
      if (Has(flipped_rows_, row)) {
        flipped.push_back(static_cast<uint32_t>(ids.size()));
      }
      ids.push_back(ids_[row]);
    }
    ids_ = std::move(ids);
    flipped_rows_ = std::move(flipped);
    return absl::OkStatus();
  }
  absl::Status Mlp(uint32_t layer) override {
    for (const uint32_t id : ids_) {
      if (Has(poison_.crash, id)) {
        raise(SIGSEGV);
      }
      while (Has(poison_.hang, id)) {
        pause();
      }
      if (Has(poison_.fail, id)) {
        return absl::InternalError("poison");
      }
    }
    RETURN_IF_ERROR(shard_->Mlp(layer));
    return Has(poison_.flip, layer) ? Flip() : absl::OkStatus();
  }
  absl::Status ReadResidual(std::span<float> out) override {
    RETURN_IF_ERROR(shard_->ReadResidual(out));
    for (size_t row = 0; row < ids_.size(); ++row) {
      if (Has(poison_.nan, ids_[row])) {
        out[row * hidden_] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    return absl::OkStatus();
  }
  absl::Status Head(std::span<const uint32_t> rows) override {
    head_rows_.assign(rows.begin(), rows.end());
    return shard_->Head(rows);
  }
  absl::Status ReadLogits(std::span<float> out) override {
    RETURN_IF_ERROR(shard_->ReadLogits(out));
    for (size_t i = 0; i < head_rows_.size(); ++i) {
      if (Has(poison_.nan, ids_[head_rows_[i]])) {
        out[i * (out.size() / head_rows_.size())] = std::numeric_limits<float>::infinity();
      }
      if (Has(poison_.flip, layers_) && Has(flipped_rows_, head_rows_[i])) {
        FlipLowestBit(&out[i * (out.size() / head_rows_.size())]);
      }
    }
    return absl::OkStatus();
  }
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override {
    return shard_->CopyPage(group, from, to);
  }
  uint64_t PageBytes(uint32_t group) const override { return shard_->PageBytes(group); }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override {
    return shard_->ReadPage(group, page, out);
  }
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override {
    return shard_->WritePage(group, page, in);
  }
  absl::Status ResizeKv(std::span<const uint64_t> pages) override {
    return shard_->ResizeKv(pages);
  }
  uint64_t MemoryBytes() const override { return shard_->MemoryBytes(); }
  uint64_t StepReadBytes() const override { return shard_->StepReadBytes(); }

 private:
  absl::Status Flip() {
    std::vector<float> residual(ids_.size() * hidden_);
    RETURN_IF_ERROR(shard_->ReadResidual(residual));
    for (const uint32_t row : flipped_rows_) {
      FlipLowestBit(&residual[row * hidden_]);
    }
    return shard_->SetResidual(residual);
  }

  const std::unique_ptr<Shard> shard_;
  const uint32_t hidden_;
  const uint32_t layers_;
  const Poison poison_;
  std::vector<uint32_t> flipped_rows_;
  std::vector<uint32_t> ids_;  // Of the batch's rows.
  std::vector<uint32_t> head_rows_;
};

class PoisonBackend : public Backend {
 public:
  explicit PoisonBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string name() const override { return backend_->name(); }
  std::string numerics() const override { return backend_->numerics(); }
  DeviceFacts facts() const override { return backend_->facts(); }
  absl::Status Supports(const StageSpec& spec) const override { return backend_->Supports(spec); }
  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Shard> shard, backend_->Load(spec, weights, packed, progress));
    return std::make_unique<PoisonShard>(std::move(shard), spec.model);
  }
  AllocatedMemory Allocated() const override { return backend_->Allocated(); }
  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    return backend_->MeasureSpeed(seconds, bytes);
  }

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      name == "mlx" ? MakeMlxBackend(options.any) : MakeCpuBackend(options.cpu, options.any));
  return std::make_unique<PoisonBackend>(std::move(backend));
}

}  // namespace strata
