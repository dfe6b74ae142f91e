// Chunks of prompts that are computed over several steps, some layers in each: their way through
// the stages. A chunk that is large enough to be cheap takes longer than answers beside it can
// wait; by layers it is cut without the weights being read for a few rows only.
#ifndef STRATA_COORDINATOR_ENGINE_LAYER_WAVES_H_
#define STRATA_COORDINATOR_ENGINE_LAYER_WAVES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "common/fingerprint.h"
#include "coordinator/engine/stage_cost.h"

namespace strata {

// Tokens of one session.
struct WaveItem {
  uint64_t session = 0;
  uint64_t sequence = 0;  // The number of its sequence.
  uint32_t position = 0;
  uint32_t rows = 0;
  Fingerprint fingerprint = 0;  // Of what is before them.
};

// What one step computes of a wave: layers [from, end) of the model; end 0: to the last one, and
// what is wanted of the rows.
struct WaveSlice {
  std::vector<WaveItem> items;
  uint32_t from_layer = 0;
  uint32_t end_layer = 0;
};

// The waves under way, in the order in which they began. One thread.
class LayerWaves {
 public:
  // `layers` of each stage; one of none: there are no waves.
  explicit LayerWaves(std::vector<uint32_t> layers);

  const std::vector<uint32_t>& layers() const { return layers_; }
  bool empty() const { return waves_.empty(); }
  // Before Next() is called for a step: whether another one may begin with it. The newest has left
  // the first stage, and there are fewer than stages.
  bool may_begin() const;
  // Of the newest one; 0: there is none.
  uint32_t slices() const { return waves_.empty() ? 0 : waves_.back().slices; }
  uint32_t rows() const;
  uint32_t items() const;
  // Whether tokens of this sequence are in one.
  bool Has(uint64_t sequence) const;

  // A wave begins with the next step: its first slice. Each stage's layers are cut into so many
  // slices, or into as many as it has layers.
  WaveSlice Begin(std::vector<WaveItem> items, uint32_t slices);
  // The next slices, the oldest wave first: one a stage at most, so that each stage has as much to
  // do in every step. With `finish`: all that is left of all of them.
  std::vector<WaveSlice> Next(bool finish);

  // Forgets what this is true of.
  void Drop(const std::function<bool(const WaveItem&)>& gone);
  void Clear() { waves_.clear(); }

  // Of a slice, the layers that stage `stage` computes, as a share of all that it has.
  double ShareOf(const WaveSlice& slice, uint32_t stage) const;
  // What each stage that has some computes of the slice, which is `work` for all layers.
  std::vector<SliceWork> WorkOf(const WaveSlice& slice, const StepWork& work) const;

 private:
  struct Wave {
    std::vector<WaveItem> items;
    uint32_t slices = 0;
    uint32_t next_layer = 0;
  };

  uint32_t StageOf(uint32_t layer) const;
  // Where the slice that begins at next_layer ends; 0: with the last layer.
  uint32_t EndOfSlice(const Wave& wave) const;

  std::vector<uint32_t> layers_;        // By stage.
  std::vector<uint32_t> first_layers_;  // By stage, and the number of all layers.
  std::deque<Wave> waves_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_LAYER_WAVES_H_
