// A stage's weights, checked against its spec and packed.
#ifndef STRATA_WORKER_BACKEND_CPU_WEIGHTS_CPU_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_CPU_WEIGHTS_CPU_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/model/rank_outputs.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/threads/page_buffer.h"
#include "worker/backend/cpu/threads/placement.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::cpu {

// A projection; its bias is empty when it has none.
struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;
};

struct ExpertWeights {
  Linear gate, up, down;
};

// A layer's router and experts. All experts' gates are stored alike, and so are the others.
struct MixtureWeights {
  Linear router;
  std::vector<float> corrections;  // One an expert, where the router has them.
  std::vector<ExpertWeights> experts;
  uint32_t used = 0;  // Of them, by one row.
  PageBuffer panels;  // Of all experts' matrices: gate and up of each, then down of each.

  uint64_t ExpertBytes() const;
};

// What a layer does not have is empty: norms, the mixture, and gate, up and down, which are of the
// mixture's shared expert where there is a mixture.
struct LayerWeights {
  std::vector<float> attention_norm;  // Before the branch, and after it.
  std::vector<float> after_attention_norm;
  Linear q, k, v, o;
  std::vector<float> q_norm, k_norm;
  std::vector<float> sinks;  // One a query head.
  // With latent vectors (LatentSpec) q is of the query's, where it has one, and there are no k and
  // v. Of each head: from a query's dimensions that do not rotate to the latent vector's, and from
  // what was attended to to values.
  Linear query_latent, kv_latent;
  std::vector<float> query_latent_norm, kv_latent_norm;
  std::vector<Linear> key_heads, value_heads;
  std::vector<float> mlp_norm;
  std::vector<float> after_mlp_norm;
  Linear gate, up, down;
  MixtureWeights mixture;
};

struct StageWeights {
  // Of all matrices but experts', one after another about as a step reads them. In one piece: what
  // is behind a matrix's last large page would else be read from small ones, a fifth slower. (Where
  // a placer puts parts on several memory nodes, pages are small around each change of node.)
  PageBuffer panels;
  std::vector<LayerWeights> layers;  // Of the stage, from its first layer.
  // The embedding, in rows, or in panels where it is quantized. Both empty where the stage does not
  // embed, or embeds with the tied head's panels.
  RowMatrix embedding;
  PackedMatrix embedding_panels;
  std::vector<float> final_norm;
  Linear head;
  // Of the memory of all these, what is a map of the store's files (see PageMover).
  std::vector<std::span<uint8_t>> mapped;

  uint64_t Bytes() const;
  uint64_t StepReadBytes() const;
};

// What of a stage's weights one of its ranks has.
struct RankWeights {
  const RankOutputs* outputs = nullptr;  // Outlives the loader; null: all of them.
  bool embeds = true;                    // Whether it has the embedding, of a stage that has one.
  bool alone = true;                     // Whether there are no other ranks.
};

// Loads a stage, or one rank of it. First checks what every tensor is, then reads or packs one
// matrix after another.
class WeightLoader {
 public:
  // Source, store and placer (which may be nullptr) outlive it; the weights are filled by Load and
  // stay where they are until then. Where it `may_map`, what the store has may be a map of it.
  WeightLoader(const StageSpec& spec, const TensorSource& source, PackedStore* store,
               const WeightPlacer* placer, bool may_map, StageWeights* weights,
               const RankWeights& rank = {});

  // Checks dtype and shape of every tensor that the stage needs, without its bytes. NOT_FOUND or
  // INVALID_ARGUMENT name the tensor.
  absl::Status Check();
  // After Check: what the packed weights take, and what they are made of.
  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t source_bytes() const { return total_bytes_; }
  // After Check: what they take where each matrix and vector begins on a multiple of `alignment`.
  uint64_t AlignedBytes(uint64_t alignment) const;
  // After Check: adds the names of the tensors whose packed form the store lacks.
  void AddMissing(std::set<std::string>* names) const;
  // After Check: adds the tensors that it is made from, with all their bytes.
  absl::Status AddSources(std::map<std::string, uint64_t>* bytes) const;
  absl::Status Load(const Kernels& kernels, ThreadPool* pool, const LoadProgressFn& progress);
  // All ranks of a stage that are loaded here, of one source and store, after Check of each: a
  // layer after another, so that no more than what one is made from has to be there at once.
  static absl::Status LoadRanks(std::span<const std::unique_ptr<WeightLoader>> ranks,
                                const Kernels& kernels, ThreadPool* pool,
                                const LoadProgressFn& progress);
  // Of a source that has prepared what is missing.
  absl::Status LoadPrepared(const Kernels& kernels, ThreadPool* pool,
                            const LoadProgressFn& progress);

 private:
  // One tensor, or some rows of it, and where it goes. A matrix goes to its panels, but to `rows`,
  // if it has them, when it is not quantized.
  struct Slot {
    std::string name;
    std::vector<uint64_t> shape;  // Of what goes there.
    PackedMatrix* panels = nullptr;
    RowMatrix* rows = nullptr;
    std::vector<float>* vector = nullptr;
    bool in_layer = false;
    bool as_stored = false;   // Never quantized here.
    bool transposed = false;  // Panels of the transposed rows; as_stored.
    RowOrder order = {};      // Of a matrix, or of a vector in the same order.
    bool stacked = false;     // One of a stack, which keeps it.
    // The product that these panels are computed in, as Products::Multiply does; null: none, so
    // that no thread has a part of them.
    const Linear* product = nullptr;
    // Of a tensor that is shared: its rows before these and in all. 0: all rows are these.
    uint64_t first_row = 0;
    uint64_t all_rows = 0;
    // Found by Check.
    std::vector<std::string> names = {};        // Of its tensors: one, or three of MLX's.
    std::vector<std::string> digests = {};      // Of the same.
    TensorView tensor = {};                     // Without data until it is packed.
    std::optional<WeightFormat> quantize = {};  // From floats.
    std::optional<AffineTensor> affine = {};    // Stored quantized.
    bool blocks = false;                        // Stored in blocks.
    PanelView layout = {};                      // Of the panels.
    uint64_t source_bytes = 0;
    PackedForm form = {};  // Its key is empty where it cannot be kept.
    bool kept = false;     // The store has it.

    bool is_matrix() const { return vector == nullptr; }
    // Whether other ranks have all of it.
    bool empty() const { return shape[0] == 0; }
    // Whether it stays in rows.
    bool in_rows() const { return rows != nullptr && !quantize && !affine && !blocks; }
  };
  // Slots [first, end): the experts of a layer, kept as one.
  struct Stack {
    MixtureWeights* to = nullptr;
    size_t first = 0;
    size_t end = 0;
    PackedForm form = {};
    bool kept = false;
  };
  void AddVector(std::string name, uint64_t size, std::vector<float>* to);
  // `product`: the first of those that it is multiplied with as one, if not itself.
  void AddLinear(const std::string& name, uint64_t outputs, uint64_t inputs, bool bias, Linear* to,
                 const Linear* product = nullptr, RowOrder order = {});
  void AddLayer(uint32_t index, LayerWeights* to);
  absl::Status CheckSlot(Slot* slot);
  absl::Status CheckFloats(Slot* slot);
  absl::Status CheckAffine(Slot* slot);
  // Adds a projection that is a part of one that is stored: `rows.first` rows on of `rows.second`.
  void AddPart(const std::string& name, uint64_t outputs, uint64_t inputs, bool bias, Linear* to,
               const Linear* product, std::pair<uint64_t, uint64_t> rows);
  // `own` is what the rank has of the layer; null: all.
  void AddMlp(const LayerSpec& layer, const std::string& prefix, const LayerOutputs* own,
              LayerWeights* to);
  void AddExperts(const MlpSpec& mlp, const std::string& layer, const LayerOutputs* own,
                  MixtureWeights* to);
  void AddLatentAttention(const AttentionSpec& attention, const std::string& prefix,
                          OutputRange heads, LayerWeights* to);
  // Cuts a slot, or all that were added since slots_ had `since`, down to these of its rows.
  static void KeepRowsOf(Slot* slot, OutputRange rows);
  void KeepRows(size_t since, OutputRange rows);
  // The rank's, of the outputs that the residual stream has.
  OutputRange OwnHidden() const {
    return rank_.outputs == nullptr ? OutputRange{0, spec_.model.hidden} : rank_.outputs->hidden;
  }
  // Loads the slots of a part (part_ends_); calls `done` for each.
  absl::Status LoadPart(size_t part, const Kernels& kernels, ThreadPool* pool,
                        const std::function<void(const Slot&)>& done);
  void AddNorm(const std::string& prefix, const char* name, std::vector<float>* to);
  // Of a tensor of the slot, the rows that are its own.
  absl::StatusOr<TensorView> FindRows(const std::string& name, const Slot& slot) const;
  // The slot's first `bytes` of a tensor have been used.
  void ReleaseRows(const std::string& name, const Slot& slot, const TensorView& view,
                   size_t bytes) const;
  // Describes a tensor of the slot: a view of its rows, without data.
  absl::StatusOr<TensorView> Describe(const std::string& name, Slot* slot);
  // After its check: what a matrix will be, and whether the store has it.
  void LayOut(Slot* slot);
  // Gets memory for all panels but those of stacks, and asks for each part of it to be on the node
  // that reads it.
  absl::Status AllocatePanels();
  absl::Status LayOutStack(Stack* stack);
  absl::Status LoadSlot(Slot* slot, const Kernels& kernels, ThreadPool* pool);
  // Calls `done` for each of its slots.
  absl::Status LoadStack(const Stack& stack, const Kernels& kernels, ThreadPool* pool,
                         const std::function<void(const Slot&)>& done);
  // From its tensors, whose bytes are there.
  absl::Status MakeSlot(Slot* slot, const Kernels& kernels, ThreadPool* pool);
  absl::Status Restore(const Slot& slot, ThreadPool* pool);
  // Whether the store may put a map in place of this. Less is copied, so that few pages are full of
  // one end of a map, and the panels of a product lie together.
  bool MayMap(const PackedForm& form) const;
  // What the store has goes to `out`; alone on its pages, where it may be mapped.
  absl::Status Fetch(const PackedForm& form, std::span<uint8_t> out, ThreadPool* pool);
  absl::Status Pack(Slot* slot, const Kernels& kernels, ThreadPool* pool);

  const StageSpec& spec_;
  const TensorSource& source_;
  PackedStore* const store_;
  const WeightPlacer* const placer_;
  const bool may_map_;
  const RankWeights rank_;
  PageBuffer* const panels_;
  std::vector<std::span<uint8_t>>* const mapped_;
  std::vector<Slot> slots_;
  std::vector<Stack> stacks_;  // In the order of their slots.
  // Of slots_: where the embedding ends, then each layer, then the head. Of all ranks alike.
  std::vector<size_t> part_ends_;
  uint64_t total_bytes_ = 0;
  uint64_t packed_bytes_ = 0;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_WEIGHTS_CPU_WEIGHTS_H_
