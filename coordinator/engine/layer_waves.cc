#include "coordinator/engine/layer_waves.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace strata {

LayerWaves::LayerWaves(std::vector<uint32_t> layers) : layers_(std::move(layers)) {
  first_layers_.push_back(0);
  for (const uint32_t count : layers_) {
    first_layers_.push_back(first_layers_.back() + count);
  }
}

bool LayerWaves::may_begin() const {
  return waves_.empty()
             ? !layers_.empty()
             : waves_.size() < layers_.size() && waves_.back().next_layer >= first_layers_[1];
}

uint32_t LayerWaves::rows() const {
  uint32_t rows = 0;
  for (const Wave& wave : waves_) {
    for (const WaveItem& item : wave.items) {
      rows += item.rows;
    }
  }
  return rows;
}

uint32_t LayerWaves::items() const {
  size_t items = 0;
  for (const Wave& wave : waves_) {
    items += wave.items.size();
  }
  return static_cast<uint32_t>(items);
}

bool LayerWaves::Has(uint64_t sequence) const {
  return std::any_of(waves_.begin(), waves_.end(), [sequence](const Wave& wave) {
    return std::any_of(wave.items.begin(), wave.items.end(),
                       [sequence](const WaveItem& item) { return item.sequence == sequence; });
  });
}

uint32_t LayerWaves::StageOf(uint32_t layer) const {
  const auto after = std::upper_bound(first_layers_.begin(), first_layers_.end(), layer);
  return static_cast<uint32_t>(after - first_layers_.begin()) - 1;
}

uint32_t LayerWaves::EndOfSlice(const Wave& wave) const {
  const uint32_t stage = StageOf(wave.next_layer);
  const uint32_t first = first_layers_[stage];
  const uint32_t layers = layers_[stage];
  const uint32_t slices = std::min(wave.slices, layers);
  // The first cut behind it.
  for (uint32_t slice = 1;; ++slice) {
    const uint32_t end = first + (layers * slice + slices - 1) / slices;
    if (end > wave.next_layer) {
      return end == first_layers_.back() ? 0 : end;
    }
  }
}

WaveSlice LayerWaves::Begin(std::vector<WaveItem> items, uint32_t slices) {
  STRATA_CHECK(may_begin() && slices > 0 && !items.empty());
  Wave& wave = waves_.emplace_back(Wave{std::move(items), slices, 0});
  WaveSlice slice{wave.items, 0, EndOfSlice(wave)};
  wave.next_layer = slice.end_layer;
  if (slice.end_layer == 0) {
    waves_.pop_back();
  }
  return slice;
}

std::vector<WaveSlice> LayerWaves::Next(bool finish) {
  std::vector<WaveSlice> slices;
  auto free_stage = static_cast<uint32_t>(first_layers_.size());  // The first with nothing to do.
  for (Wave& wave : waves_) {
    const uint32_t stage = StageOf(wave.next_layer);
    if (!finish && stage >= free_stage) {
      continue;
    }
    free_stage = stage;
    slices.push_back({wave.items, wave.next_layer, finish ? 0 : EndOfSlice(wave)});
    wave.next_layer = slices.back().end_layer == 0 ? first_layers_.back() : slices.back().end_layer;
  }
  std::erase_if(waves_,
                [this](const Wave& wave) { return wave.next_layer == first_layers_.back(); });
  return slices;
}

void LayerWaves::Drop(const std::function<bool(const WaveItem&)>& gone) {
  for (Wave& wave : waves_) {
    std::erase_if(wave.items, gone);
  }
  std::erase_if(waves_, [](const Wave& wave) { return wave.items.empty(); });
}

double LayerWaves::ShareOf(const WaveSlice& slice, uint32_t stage) const {
  const uint32_t first = first_layers_[stage];
  const uint32_t last = first_layers_[stage + 1];
  const uint32_t from = std::max(slice.from_layer, first);
  const uint32_t end = std::min(slice.end_layer == 0 ? last : slice.end_layer, last);
  return from < end ? static_cast<double>(end - from) / layers_[stage] : 0;
}

std::vector<SliceWork> LayerWaves::WorkOf(const WaveSlice& slice, const StepWork& work) const {
  std::vector<SliceWork> parts;
  for (uint32_t stage = 0; stage < layers_.size(); ++stage) {
    if (const double share = ShareOf(slice, stage); share > 0) {
      parts.push_back({.stage = stage, .work = work, .share = share});
    }
  }
  return parts;
}

}  // namespace strata
