#include "tests/worker/backend/models/forward.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata::testing {
namespace {

// Every page once, in an order without neighbours.
std::vector<PageId> ScatteredPages(uint64_t count) {
  std::vector<PageId> pages(count);
  std::iota(pages.begin(), pages.end(), 0u);
  uint64_t state = 12345;
  for (size_t i = pages.size(); i > 1; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(pages[i - 1], pages[(state >> 33) % i]);
  }
  return pages;
}

StageSpec MakeStage(const ModelSpec& model, const ForwardOptions& options, uint32_t first,
                    uint32_t last) {
  StageSpec spec;
  spec.model = model;
  spec.first_layer = first;
  spec.last_layer = last;
  spec.embeds = first == 0;
  spec.heads = last + 1 == model.layers.size();
  spec.context = options.context;
  spec.kv_pages.assign(model.kv_groups.size(), options.kv_tokens / kPageTokens);
  spec.kv_dtype = options.kv_dtype;
  spec.quantize = options.quantize;
  spec.activations = options.activations;
  spec.max_batch_tokens = options.max_batch_tokens;
  spec.max_batch_items = options.max_batch_items;
  return spec;
}

}  // namespace

std::vector<uint32_t> CutEverywhere(uint32_t layers) {
  std::vector<uint32_t> cuts;
  for (uint32_t i = 1; i < layers; ++i) {
    cuts.push_back(i);
  }
  return cuts;
}

absl::StatusOr<std::unique_ptr<ForwardModel>> ForwardModel::Load(Backend* backend,
                                                                 const ModelSpec& model,
                                                                 const TensorSource& weights,
                                                                 const ForwardOptions& options) {
  auto forward = std::make_unique<ForwardModel>();
  forward->model_ = model;
  forward->options_ = options;
  forward->rotary_ = MakeRotaryTables(model, options.context);
  forward->first_layers_ = {0};
  forward->first_layers_.insert(forward->first_layers_.end(), options.cuts.begin(),
                                options.cuts.end());
  for (size_t i = 0; i < forward->first_layers_.size(); ++i) {
    const uint32_t end = i + 1 < forward->first_layers_.size()
                             ? forward->first_layers_[i + 1]
                             : static_cast<uint32_t>(model.layers.size());
    StageSpec spec = MakeStage(model, options, forward->first_layers_[i], end - 1);
    spec.rotary = forward->rotary_;
    ASSIGN_OR_RETURN(std::unique_ptr<Shard> shard,
                     backend->Load(spec, weights, options.packed, nullptr));
    forward->shards_.push_back(std::move(shard));
  }
  forward->FreeAllPages();
  RETURN_IF_ERROR(forward->MakePoison());
  return forward;
}

void ForwardModel::FreeAllPages() {
  free_.assign(model_.kv_groups.size(), ScatteredPages(options_.kv_tokens / kPageTokens));
}

absl::Status ForwardModel::ResizeKv(uint32_t kv_tokens) {
  options_.kv_tokens = kv_tokens;
  sequences_.clear();
  poison_.clear();
  FreeAllPages();
  const std::vector<uint64_t> pages(model_.kv_groups.size(), kv_tokens / kPageTokens);
  for (const std::unique_ptr<Shard>& shard : shards_) {
    RETURN_IF_ERROR(shard->ResizeKv(pages));
  }
  return MakePoison();
}

absl::Status ForwardModel::MakePoison() {
  if (std::none_of(model_.kv_groups.begin(), model_.kv_groups.end(),
                   [](const KvGroupSpec& group) { return group.kind == KvKind::kWindow; })) {
    return absl::OkStatus();
  }
  std::vector<std::vector<PageId>> pages;
  std::vector<PageTableView> tables;
  for (std::vector<PageId>& free : free_) {
    poison_.push_back(free.back());
    pages.push_back({free.back()});
    free.pop_back();
  }
  for (const std::vector<PageId>& page : pages) {
    tables.push_back({0, page});
  }
  const std::vector<BatchItem> items = {{0, kPageTokens, 0, tables}};
  const std::vector<uint32_t> ids(kPageTokens, 0);
  const std::vector<float> nothing(kPageTokens * model_.hidden,
                                   std::numeric_limits<float>::quiet_NaN());
  for (size_t stage = 0; stage < shards_.size(); ++stage) {
    Shard& shard = *shards_[stage];
    const uint32_t end = stage + 1 < shards_.size() ? first_layers_[stage + 1]
                                                    : static_cast<uint32_t>(model_.layers.size());
    RETURN_IF_ERROR(shard.Begin({kPageTokens, ids, items}));
    RETURN_IF_ERROR(shard.SetResidual(nothing));
    for (uint32_t layer = first_layers_[stage]; layer < end; ++layer) {
      RETURN_IF_ERROR(shard.Attention(layer));
    }
  }
  return absl::OkStatus();
}

absl::Status ForwardModel::FreeBehindWindows(Sequence* sequence) {
  for (uint32_t group = 0; group < model_.kv_groups.size(); ++group) {
    const uint32_t window = model_.kv_groups[group].window;
    Table& table = sequence->tables[group];
    while (window != 0 && !table.pages.empty() &&
           (table.first_page + 1) * kPageTokens + window <= sequence->length + 1) {
      for (const std::unique_ptr<Shard>& shard : shards_) {
        RETURN_IF_ERROR(shard->CopyPage(group, poison_[group], table.pages.front()));
      }
      free_[group].push_back(table.pages.front());
      table.pages.erase(table.pages.begin());
      ++table.first_page;
    }
  }
  return absl::OkStatus();
}

uint32_t ForwardModel::NewSequence(uint32_t rotary_variant, const InputEmbeddings& embeddings) {
  Sequence& sequence = sequences_.emplace_back();
  sequence.rotary_variant = rotary_variant;
  sequence.embeddings = embeddings;
  sequence.tables.resize(model_.kv_groups.size());
  return static_cast<uint32_t>(sequences_.size() - 1);
}

void ForwardModel::Release(uint32_t sequence) {
  Sequence& gone = sequences_[sequence];
  for (size_t group = 0; group < gone.tables.size(); ++group) {
    const std::vector<PageId>& pages = gone.tables[group].pages;
    free_[group].insert(free_[group].end(), pages.begin(), pages.end());
    gone.tables[group] = {};
  }
  gone.length = 0;
}

absl::Status ForwardModel::Grow(Sequence* sequence, uint32_t length) {
  const size_t pages = (length + kPageTokens - 1) / kPageTokens;
  for (size_t group = 0; group < sequence->tables.size(); ++group) {
    Table& table = sequence->tables[group];
    while (table.first_page + table.pages.size() < pages) {
      if (free_[group].empty()) {
        return absl::ResourceExhaustedError("the harness has no page left");
      }
      table.pages.push_back(free_[group].back());
      free_[group].pop_back();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ForwardModel::Fork(uint32_t sequence) {
  // A copy: a new sequence moves the others.
  const InputEmbeddings embeddings = sequences_[sequence].embeddings;
  const uint32_t copy = NewSequence(sequences_[sequence].rotary_variant, embeddings);
  for (size_t group = 0; group < model_.kv_groups.size(); ++group) {
    sequences_[copy].tables[group].first_page = sequences_[sequence].tables[group].first_page;
  }
  RETURN_IF_ERROR(Grow(&sequences_[copy], sequences_[sequence].length));
  for (size_t group = 0; group < model_.kv_groups.size(); ++group) {
    const std::vector<PageId>& from = sequences_[sequence].tables[group].pages;
    const std::vector<PageId>& to = sequences_[copy].tables[group].pages;
    for (size_t i = 0; i < to.size(); ++i) {
      for (const std::unique_ptr<Shard>& shard : shards_) {
        RETURN_IF_ERROR(shard->CopyPage(static_cast<uint32_t>(group), from[i], to[i]));
      }
    }
  }
  sequences_[copy].length = sequences_[sequence].length;
  return copy;
}

absl::StatusOr<std::vector<RowResult>> ForwardModel::Step(const std::vector<Item>& items) {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> wanted;
  std::vector<uint32_t> embedded;
  std::vector<float> embeddings;
  std::vector<std::vector<PageTableView>> tables(items.size());
  std::vector<BatchItem> batch_items;
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = sequences_[items[i].sequence];
    const uint32_t rows = static_cast<uint32_t>(items[i].ids.size());
    RETURN_IF_ERROR(Grow(&sequence, sequence.length + rows));
    for (const Table& table : sequence.tables) {
      tables[i].push_back({table.first_page, table.pages});
    }
    const uint32_t first = static_cast<uint32_t>(ids.size());
    batch_items.push_back({first, rows, sequence.length, tables[i], sequence.rotary_variant});
    for (uint32_t row = 0; row < rows; ++row) {
      ids.push_back(items[i].ids[row]);
      const auto given = sequence.embeddings.find(sequence.length + row);
      if (given != sequence.embeddings.end()) {
        embedded.push_back(first + row);
        embeddings.insert(embeddings.end(), given->second.begin(), given->second.end());
      }
      if (items[i].logits && row >= items[i].logits_from) {
        wanted.push_back(first + row);
      }
    }
  }
  const size_t hidden = model_.hidden;
  std::vector<uint32_t> kept = wanted;  // As the batch counts them in the end.
  std::vector<RowResult> results(ids.size());
  std::vector<float> residual(ids.size() * hidden);
  const Batch batch{static_cast<uint32_t>(ids.size()), ids, batch_items};
  for (size_t stage = 0; stage < shards_.size(); ++stage) {
    Shard& shard = *shards_[stage];
    RETURN_IF_ERROR(shard.Begin(batch));
    RETURN_IF_ERROR(stage == 0 ? shard.Embed() : shard.SetResidual(residual));
    if (stage == 0 && !embedded.empty()) {
      RETURN_IF_ERROR(shard.EmbedInputs(embedded, embeddings));
    }
    const auto row_of = [&](size_t row) {
      return std::vector<float>(residual.begin() + row * hidden,
                                residual.begin() + (row + 1) * hidden);
    };
    if (stage == 0 && options_.keep_hidden) {
      RETURN_IF_ERROR(shard.ReadResidual(residual));
      for (size_t row = 0; row < results.size(); ++row) {
        results[row].embedded = row_of(row);
      }
    }
    const uint32_t end = stage + 1 < shards_.size() ? first_layers_[stage + 1]
                                                    : static_cast<uint32_t>(model_.layers.size());
    const bool some = wanted.size() < ids.size() && !options_.keep_hidden;
    for (uint32_t layer = first_layers_[stage]; layer < end; ++layer) {
      if (some && layer + 1 == model_.layers.size()) {
        RETURN_IF_ERROR(shard.AttentionOfSome(layer, wanted));
        RETURN_IF_ERROR(shard.Mlp(layer));
        residual.resize(wanted.size() * hidden);
        std::iota(kept.begin(), kept.end(), 0);
        continue;
      }
      RETURN_IF_ERROR(shard.Attention(layer));
      RETURN_IF_ERROR(shard.Mlp(layer));
      if (options_.keep_hidden) {
        RETURN_IF_ERROR(shard.ReadResidual(residual));
        for (size_t row = 0; row < results.size(); ++row) {
          results[row].hidden.push_back(row_of(row));
        }
      }
    }
    RETURN_IF_ERROR(shard.ReadResidual(residual));
  }
  std::vector<float> logits(wanted.size() * model_.vocab);
  RETURN_IF_ERROR(shards_.back()->Head(kept));
  RETURN_IF_ERROR(shards_.back()->ReadLogits(logits));
  for (size_t i = 0; i < wanted.size(); ++i) {
    results[wanted[i]].logits.assign(logits.begin() + i * model_.vocab,
                                     logits.begin() + (i + 1) * model_.vocab);
  }
  for (const Item& item : items) {
    Sequence& sequence = sequences_[item.sequence];
    sequence.length += static_cast<uint32_t>(item.ids.size());
    RETURN_IF_ERROR(FreeBehindWindows(&sequence));
  }
  return results;
}

absl::StatusOr<std::vector<RowResult>> ForwardModel::Run(std::span<const uint32_t> ids,
                                                         uint32_t chunk, uint32_t rotary_variant,
                                                         const InputEmbeddings& embeddings) {
  if (chunk == 0) {
    chunk = options_.max_batch_tokens;
  }
  const uint32_t sequence = NewSequence(rotary_variant, embeddings);
  std::vector<RowResult> all;
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const auto part = ids.subspan(at, std::min<size_t>(chunk, ids.size() - at));
    ASSIGN_OR_RETURN(std::vector<RowResult> rows, Step({{sequence, part}}));
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  Release(sequence);
  return all;
}

uint64_t ForwardModel::MemoryBytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    bytes += shard->MemoryBytes();
  }
  return bytes;
}

std::vector<float> LogitsOf(const std::vector<RowResult>& rows) {
  std::vector<float> all;
  for (const RowResult& row : rows) {
    all.insert(all.end(), row.logits.begin(), row.logits.end());
  }
  return all;
}

}  // namespace strata::testing
