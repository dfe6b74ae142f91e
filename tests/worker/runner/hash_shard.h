// A backend whose arithmetic is a hash: the logits at a position depend on every (token, position)
// before it, read back through the real page tables, layer by layer. One wrong, stale, missing or
// foreign page changes every token that follows. Nothing is computed before a Read, as on a device
// that works lazily, so what a batch points to must stay.
#ifndef STRATA_TESTS_WORKER_RUNNER_HASH_SHARD_H_
#define STRATA_TESTS_WORKER_RUNNER_HASH_SHARD_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"

namespace strata::testing {

// The state of one row: 64 bits, as four float32 of 16 bits each on the wire; or not finite.
struct HashRow {
  uint64_t state = 0;
  bool finite = true;
};

inline constexpr uint32_t kHashHidden = 4;

inline HashRow HashEmbed(uint32_t token_id) { return {Mix64(token_id + 1), true}; }
// Of a row of input embeddings.
inline HashRow HashInput(std::span<const float> values) {
  HashRow row;
  for (const float value : values) {
    row.state = Mix64(row.state ^ std::bit_cast<uint32_t>(value));
  }
  return row;
}
// A row as it travels, and of what travelled.
inline void HashValuesOf(const HashRow& row, std::span<float> out) {
  for (uint32_t i = 0; i < kHashHidden; ++i) {
    out[i] = row.finite ? static_cast<float>(row.state >> (16 * i) & 0xFFFF)
                        : std::numeric_limits<float>::quiet_NaN();
  }
}
inline HashRow HashRowOf(std::span<const float> values) {
  HashRow row;
  for (uint32_t i = 0; i < kHashHidden; ++i) {
    row.finite &= std::isfinite(values[i]);
    if (std::isfinite(values[i])) {
      row.state |= static_cast<uint64_t>(values[i]) << (16 * i);
    }
  }
  return row;
}
// What a row leaves in a layer's KV.
inline HashRow HashKv(const HashRow& row, uint32_t layer, uint32_t position) {
  return {Mix64(row.state ^ Mix64(uint64_t{layer} << 32 | position)), row.finite};
}
inline void HashSee(const HashRow& kv, HashRow* seen) {
  seen->state = Mix64(seen->state + kv.state);
  seen->finite &= kv.finite;
}
inline HashRow HashAttend(const HashRow& row, const HashRow& seen, uint32_t layer) {
  return {Mix64((row.state ^ seen.state) + layer), row.finite && seen.finite};
}
inline HashRow HashMlp(const HashRow& row, uint32_t layer) {
  return {Mix64(row.state + 0x51ED270B * (layer + 1)), row.finite};
}
inline float HashLogit(const HashRow& row, uint32_t token_id) {
  return row.finite ? static_cast<float>(Mix64(row.state + token_id) >> 40) * 0x1p-20f - 8
                    : std::numeric_limits<float>::quiet_NaN();
}
// First key that a query at `position` sees.
inline uint32_t HashFirstSeen(const KvGroupSpec& group, uint32_t position) {
  return group.kind == KvKind::kWindow && position + 1 > group.window ? position + 1 - group.window
                                                                      : 0;
}

// A model for it: `layers` layers, that of index i in group i modulo their number.
inline ModelSpec HashModel(uint32_t layers, std::vector<KvGroupSpec> groups = {{}},
                           uint32_t vocab = 97) {
  ModelSpec model;
  model.family = "hash";
  model.hidden = kHashHidden;
  model.vocab = vocab;
  model.context = 4096;
  model.kv_groups = std::move(groups);
  model.layers.resize(layers);
  for (uint32_t i = 0; i < layers; ++i) {
    model.layers[i].attention.kv_group = i % static_cast<uint32_t>(model.kv_groups.size());
  }
  return model;
}

using HashInputs = std::map<uint32_t, std::vector<float>>;  // By position.

// The oracle: the logits after each of `ids`, from the token list and the input embeddings alone.
// Rows by position.
inline std::vector<std::vector<float>> HashLogits(const ModelSpec& model,
                                                  std::span<const uint32_t> ids,
                                                  const HashInputs& inputs = {}) {
  std::vector<HashRow> rows;
  for (const uint32_t id : ids) {
    const auto input = inputs.find(static_cast<uint32_t>(rows.size()));
    rows.push_back(input == inputs.end() ? HashEmbed(id) : HashInput(input->second));
  }
  for (uint32_t layer = 0; layer < model.layers.size(); ++layer) {
    const KvGroupSpec& group = model.kv_groups[model.layers[layer].attention.kv_group];
    std::vector<HashRow> kv;
    for (uint32_t p = 0; p < rows.size(); ++p) {
      kv.push_back(HashKv(rows[p], layer, p));
    }
    for (uint32_t p = 0; p < rows.size(); ++p) {
      HashRow seen;
      for (uint32_t key = HashFirstSeen(group, p); key <= p; ++key) {
        HashSee(kv[key], &seen);
      }
      rows[p] = HashMlp(HashAttend(rows[p], seen, layer), layer);
    }
  }
  std::vector<std::vector<float>> logits;
  for (const HashRow& row : rows) {
    std::vector<float>& values = logits.emplace_back();
    for (uint32_t id = 0; id < model.vocab; ++id) {
      values.push_back(HashLogit(row, id));
    }
  }
  return logits;
}

class HashShard : public Shard {
 public:
  explicit HashShard(const StageSpec& spec) : spec_(spec) { MakeKv(); }

  // Rows of this token come out of this layer's MLP as NaN.
  void PoisonToken(uint32_t token_id, uint32_t layer) { poison_ = {token_id, layer}; }
  // Every Read of a batch with this token fails, after KV of it was written in part.
  void FailAtToken(uint32_t token_id) { fail_token_ = token_id; }
  // Every Read fails.
  void FailReads(bool fail) { fail_reads_ = fail; }
  // The weights of this layer are not the model's.
  void SpoilLayer(uint32_t layer) { spoilt_layers_.insert(layer); }
  // The next Read fails, or the one behind so many others, after KV of the batch was written in
  // part.
  void FailNextRead(uint32_t others = 0) { fail_read_ = others + 1; }
  void FailNextCopy() { fail_copy_ = true; }
  // The next Read or copy fails as a device that is off its bus, and so do all after it.
  void FailForGood(const char* reason = kDeviceFailed) {
    failed_for_good_ = true;
    failure_ = Error(absl::StatusCode::kUnavailable, reason, "off the bus");
  }
  // As a device that finds the largest logit itself.
  void FindLargest() { finds_largest_ = true; }
  uint64_t largest_rows() const { return largest_rows_; }
  uint64_t reads_failed_for_good() const { return reads_failed_for_good_; }
  uint64_t rows_computed() const { return rows_computed_; }
  uint64_t pages_copied() const { return pages_copied_; }
  uint64_t head_rows() const { return head_rows_computed_; }
  // Rows that went through the MLP of the model's last layer.
  uint64_t last_mlp_rows() const { return last_mlp_rows_; }

  absl::Status Begin(const Batch& batch) override {
    batch_ = batch;
    token_ids_.assign(batch.token_ids.begin(), batch.token_ids.end());
    uncounted_rows_ = batch.rows;
    rows_.assign(batch.rows, {});
    return absl::OkStatus();
  }

  absl::Status Embed() override {
    pending_.push_back([this] {
      for (uint32_t r = 0; r < batch_.rows; ++r) {
        rows_[r] = HashEmbed(batch_.token_ids[r]);
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override {
    std::vector<std::pair<uint32_t, HashRow>> inputs;
    for (size_t i = 0; i < rows.size(); ++i) {
      inputs.emplace_back(rows[i], HashInput(values.subspan(i * kHashHidden, kHashHidden)));
    }
    pending_.push_back([this, inputs] {
      for (const auto& [row, input] : inputs) {
        rows_.at(row) = input;
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status SetResidual(std::span<const float> values) override {
    if (values.size() != rows_.size() * kHashHidden) {
      return absl::InternalError("residual of the wrong size");
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      rows_[r] = HashRowOf(values.subspan(r * kHashHidden, kHashHidden));
    }
    return absl::OkStatus();
  }

  absl::Status Attention(uint32_t layer) override {
    pending_.push_back([this, layer] { return ComputeAttention(layer); });
    return absl::OkStatus();
  }

  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override {
    if (!spec_.heads || layer != spec_.last_layer || !std::is_sorted(rows.begin(), rows.end())) {
      return absl::InternalError("rows left out before the last layer, or not in order");
    }
    const std::vector<uint32_t> kept(rows.begin(), rows.end());
    pending_.push_back([this, layer, kept] {
      if (absl::Status status = ComputeAttention(layer); !status.ok()) {
        return status;
      }
      kept_ids_.clear();
      for (uint32_t to = 0; to < kept.size(); ++to) {
        rows_[to] = rows_.at(kept[to]);
        kept_ids_.push_back(token_ids_.at(kept[to]));
      }
      rows_.resize(kept.size());
      batch_ = {.rows = static_cast<uint32_t>(kept.size()), .token_ids = kept_ids_, .items = {}};
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status Mlp(uint32_t layer) override {
    pending_.push_back([this, layer] {
      last_mlp_rows_ += layer + 1 == spec_.model.layers.size() ? batch_.rows : 0;
      for (uint32_t r = 0; r < batch_.rows; ++r) {
        rows_[r] = HashMlp(rows_[r], layer);
        rows_[r].state ^= spoilt_layers_.contains(layer) ? 1 : 0;
        if (poison_.has_value() && *poison_ == std::pair(batch_.token_ids[r], layer)) {
          rows_[r].finite = false;
        }
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status ReadResidual(std::span<float> out) override {
    if (absl::Status status = Flush(); !status.ok()) {
      return status;
    }
    if (out.size() != rows_.size() * kHashHidden) {
      return absl::InternalError("residual of the wrong size");
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      HashValuesOf(rows_[r], out.subspan(r * kHashHidden, kHashHidden));
    }
    return absl::OkStatus();
  }

  absl::Status Head(std::span<const uint32_t> rows) override {
    head_rows_.assign(rows.begin(), rows.end());
    return absl::OkStatus();
  }

  absl::Status ReadLogits(std::span<float> out) override {
    if (absl::Status status = Flush(); !status.ok()) {
      return status;
    }
    size_t i = 0;
    for (const uint32_t row : head_rows_) {
      for (uint32_t id = 0; id < spec_.model.vocab; ++id) {
        out[i++] = HashLogit(rows_.at(row), id);
      }
    }
    head_rows_computed_ += head_rows_.size();
    return absl::OkStatus();
  }

  bool FindsLargest() const override { return finds_largest_; }
  absl::Status ReadLargest(std::span<RowLargest> out) override {
    if (absl::Status status = Flush(); !status.ok()) {
      return status;
    }
    for (size_t i = 0; i < head_rows_.size(); ++i) {
      const HashRow& row = rows_.at(head_rows_[i]);
      RowLargest largest = {.token_id = 0, .usable = row.finite};
      for (uint32_t id = 1; id < spec_.model.vocab; ++id) {
        largest.token_id =
            HashLogit(row, id) > HashLogit(row, largest.token_id) ? id : largest.token_id;
      }
      out[i] = largest;
    }
    largest_rows_ += head_rows_.size();
    return absl::OkStatus();
  }

  absl::Status ResizeKv(std::span<const uint64_t> pages) override {
    spec_.kv_pages.assign(pages.begin(), pages.end());
    MakeKv();
    return absl::OkStatus();
  }

  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override {
    if (failed_for_good_) {
      return failure_;
    }
    if (std::exchange(fail_copy_, false)) {
      return absl::InternalError("made to fail");
    }
    ++pages_copied_;
    pending_.push_back([this, group, from, to] {
      for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
        if (spec_.model.layers[layer].attention.kv_group == group) {
          std::vector<HashRow>& kv = kv_[layer - spec_.first_layer];
          for (uint32_t slot = 0; slot < kPageTokens; ++slot) {
            kv.at(to * kPageTokens + slot) = kv.at(from * kPageTokens + slot);
          }
        }
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  uint64_t PageBytes(uint32_t group) const override {
    uint64_t bytes = 0;
    for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
      bytes += GroupOf(layer) == group ? kPageTokens * sizeof(HashRow) : 0;
    }
    return bytes;
  }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override {
    if (absl::Status status = Flush(); !status.ok()) {
      return status;
    }
    for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
      if (GroupOf(layer) == group) {
        const HashRow* const rows = &kv_[layer - spec_.first_layer].at(page * kPageTokens);
        std::memcpy(out.data(), rows, kPageTokens * sizeof(HashRow));
        out = out.subspan(kPageTokens * sizeof(HashRow));
      }
    }
    return absl::OkStatus();
  }
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override {
    if (absl::Status status = Flush(); !status.ok()) {
      return status;
    }
    for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
      if (GroupOf(layer) == group) {
        HashRow* const rows = &kv_[layer - spec_.first_layer].at(page * kPageTokens);
        std::memcpy(rows, in.data(), kPageTokens * sizeof(HashRow));
        in = in.subspan(kPageTokens * sizeof(HashRow));
      }
    }
    return absl::OkStatus();
  }

  uint64_t StepReadBytes() const override { return 0; }
  uint64_t MemoryBytes() const override { return 0; }

 private:
  uint32_t GroupOf(uint32_t layer) const { return spec_.model.layers[layer].attention.kv_group; }

  void MakeKv() {
    kv_.clear();
    for (uint32_t layer = spec_.first_layer; layer <= spec_.last_layer; ++layer) {
      // What was never written is as wrong as can be.
      kv_.emplace_back(spec_.kv_pages[GroupOf(layer)] * kPageTokens, HashRow{0xBAD, true});
    }
  }

  absl::Status Flush() {
    std::vector<std::function<absl::Status()>> pending = std::exchange(pending_, {});
    for (const auto& work : pending) {
      if (absl::Status status = work(); !status.ok()) {
        return status;
      }
    }
    rows_computed_ += std::exchange(uncounted_rows_, 0);
    if (failed_for_good_) {
      ++reads_failed_for_good_;
      return failure_;
    }
    const bool fails_at = fail_token_.has_value() && std::find(token_ids_.begin(), token_ids_.end(),
                                                               *fail_token_) != token_ids_.end();
    const bool fails_now = fail_read_ > 0 && --fail_read_ == 0;
    return fails_now || fails_at || fail_reads_ ? absl::InternalError("made to fail")
                                                : absl::OkStatus();
  }

  // Null where the table has no page for the position.
  HashRow* Slot(uint32_t layer, const PageTableView& table, uint32_t position) {
    const uint32_t page = position / kPageTokens;
    if (page < table.first_page || page - table.first_page >= table.pages.size()) {
      return nullptr;
    }
    return &kv_[layer - spec_.first_layer].at(
        size_t{table.pages[page - table.first_page]} * kPageTokens + position % kPageTokens);
  }

  absl::Status ComputeAttention(uint32_t layer) {
    const uint32_t group = spec_.model.layers[layer].attention.kv_group;
    for (const BatchItem& item : batch_.items) {
      const PageTableView& table = item.tables[group];
      for (uint32_t r = 0; r < item.rows; ++r) {
        HashRow* slot = Slot(layer, table, item.position + r);
        if (slot == nullptr) {
          return absl::InternalError("no page for a row");
        }
        *slot = HashKv(rows_[item.first_row + r], layer, item.position + r);
      }
      for (uint32_t r = 0; r < item.rows; ++r) {
        const uint32_t position = item.position + r;
        HashRow seen;
        for (uint32_t key = HashFirstSeen(spec_.model.kv_groups[group], position); key <= position;
             ++key) {
          const HashRow* slot = Slot(layer, table, key);
          if (slot == nullptr) {
            return absl::InternalError("no page for a key");
          }
          HashSee(*slot, &seen);
        }
        HashRow& row = rows_[item.first_row + r];
        row = HashAttend(row, seen, layer);
      }
    }
    return absl::OkStatus();
  }

  StageSpec spec_;
  Batch batch_;
  std::vector<uint32_t> token_ids_;  // As the batch began.
  std::vector<uint32_t> kept_ids_;   // That batch_ points to, when it has some of its rows only.
  uint32_t uncounted_rows_ = 0;
  std::vector<HashRow> rows_;
  std::vector<uint32_t> head_rows_;
  std::vector<std::vector<HashRow>> kv_;  // By layer of the stage, page and slot.
  std::vector<std::function<absl::Status()>> pending_;
  std::optional<std::pair<uint32_t, uint32_t>> poison_;
  std::optional<uint32_t> fail_token_;
  std::set<uint32_t> spoilt_layers_;
  uint32_t fail_read_ = 0;  // At the so many'th Read from now.
  bool fail_reads_ = false;
  bool failed_for_good_ = false;
  absl::Status failure_;
  uint64_t reads_failed_for_good_ = 0;
  bool fail_copy_ = false;
  uint64_t rows_computed_ = 0;
  uint64_t pages_copied_ = 0;
  bool finds_largest_ = false;
  uint64_t largest_rows_ = 0;
  uint64_t head_rows_computed_ = 0;
  uint64_t last_mlp_rows_ = 0;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_RUNNER_HASH_SHARD_H_
