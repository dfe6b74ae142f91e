// A stage's weights as MLX's arrays, checked against its spec.
#ifndef STRATA_WORKER_BACKEND_MLX_ARRAY_WEIGHTS_H_
#define STRATA_WORKER_BACKEND_MLX_ARRAY_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mlx/allocator.h"
#include "mlx/array.h"
#include "worker/backend/backend.h"
#include "worker/backend/mlx/array_formats.h"

namespace strata::mlx {

// A matrix, or one of each expert: floats [.., outputs, inputs], in two bytes only where there is
// one matrix; or words with scales and biases
// [.., outputs, inputs / group]; of mxfp4 scales are bytes, and there are no biases.
struct MatrixArrays {
  ArrayLayout layout;
  std::optional<::mlx::core::array> weight;
  std::optional<::mlx::core::array> scales;
  std::optional<::mlx::core::array> biases;
};

struct Linear {
  MatrixArrays matrix;
  std::optional<::mlx::core::array> bias;  // [outputs], of experts [experts, outputs].
};

// A layer's router and experts, all of which are stored alike.
struct MixtureArrays {
  Linear router;
  std::optional<::mlx::core::array> corrections;  // [experts]
  Linear gate, up, down;                          // [experts, .., ..]
};

// What a layer does not have is empty. Norms are float32, with the one of "one plus" added.
struct LayerArrays {
  std::optional<::mlx::core::array> attention_norm, after_attention_norm;
  Linear q, k, v, o;
  std::optional<::mlx::core::array> q_norm, k_norm;
  std::optional<::mlx::core::array> sinks;  // [query heads]
  std::optional<::mlx::core::array> mlp_norm, after_mlp_norm;
  // Of the mixture's shared expert where there is a mixture.
  Linear gate, up, down;
  MixtureArrays mixture;
  // With latent vectors (LatentSpec) q is of the query's, where it has one, and there are no k and
  // v.
  Linear query_latent, kv_latent;
  std::optional<::mlx::core::array> query_latent_norm, kv_latent_norm;
  // Of each head what applies to a query's dimensions that do not rotate, and to what was attended
  // to, float32: as GGUF files have them, [heads, rank, nope_dim] and [heads, value_dim, rank]; or
  // the latter alone, [heads, nope_dim + value_dim, rank], of both.
  MatrixArrays stored_key_heads, stored_value_heads;
};

struct StageArrays {
  // Empty where the stage does not embed, or embeds with the tied head.
  MatrixArrays embedding;
  std::vector<LayerArrays> layers;  // Of the stage, from its first layer.
  std::optional<::mlx::core::array> final_norm;
  Linear head;
  uint64_t bytes = 0;            // Of all.
  uint64_t step_read_bytes = 0;  // That a step of one row reads.
};

// Loads a stage. First checks what every tensor is, then reads or makes one array after another.
// One thread; the arrays are evaluated, so that any thread may read them afterwards.
class ArrayLoader {
 public:
  // Source and store (nullptr: nothing is kept) outlive it; `arrays` stays where it is until Load.
  ArrayLoader(const StageSpec& spec, const TensorSource& source, PackedStore* store,
              StageArrays* arrays);

  // Checks dtype and shape of every tensor that the stage needs, without its bytes. NOT_FOUND,
  // INVALID_ARGUMENT or UNIMPLEMENTED name the tensor.
  absl::Status Check();
  // After Check: what the arrays take.
  uint64_t bytes() const { return bytes_; }
  absl::Status Load(const LoadProgressFn& progress);

 private:
  // A tensor of a slot, with those beside it: some rows of all of the slot's.
  struct Source {
    std::string name;  // Of a matrix that with its weights.
    TensorInfo weight = {};
    TensorInfo scales = {};  // Without a shape: stored as floats or blocks.
    TensorInfo biases = {};

    bool affine() const { return !scales.shape.empty(); }
    std::string Sibling(const char* part) const { return name.substr(0, name.rfind('.')) + part; }
    std::vector<std::string> Names() const;
  };
  // A matrix or a vector, and where it goes; of experts all of theirs.
  struct Slot {
    std::vector<Source> sources;
    // Of the tensor, where it is one: its rows before these, and in all. 0: all rows are these.
    uint64_t first_row = 0;
    uint64_t all_rows = 0;
    ArrayLayout layout;  // Of a vector: its size is `outputs`, and it has 1 input.
    bool in_layer = false;
    bool as_floats = false;  // Never quantized here.
    // Of q and k as GGUF files have them (AttentionSpec::qk_rows_in_pairs): rows of a head; else 0.
    uint64_t pairs_of = 0;
    bool plus_one = false;
    uint32_t read_share = 1;  // A step of one row reads one in so many of its bytes; 0: none.
    MatrixArrays* matrix = nullptr;
    std::optional<::mlx::core::array>* vector = nullptr;
    // Found by Check.
    PackedForm form;  // Its key is empty where it cannot be kept.
    bool kept = false;

    const std::string& name() const { return sources.front().name; }
    uint64_t RowsOfEach() const { return layout.rows() / sources.size(); }
    uint64_t SourceBytes() const;
  };

  void AddVector(std::string name, uint64_t size, std::optional<::mlx::core::array>* to);
  void AddNorm(const std::string& prefix, const char* name, NormKind kind,
               std::optional<::mlx::core::array>* to);
  void AddMatrix(std::string name, uint64_t outputs, uint64_t inputs, bool in_layer,
                 MatrixArrays* to);
  void AddLinear(const std::string& path, uint64_t outputs, uint64_t inputs, bool bias, Linear* to,
                 uint64_t pairs_of = 0);
  // Adds a projection that is rows [first, first + outputs) of one that is stored.
  void AddPart(const std::string& path, uint64_t outputs, uint64_t inputs, bool bias, Linear* to,
               uint64_t first, uint64_t all);
  void AddLayer(uint32_t index, LayerArrays* to);
  void AddAttention(const LayerSpec& layer, const std::string& prefix, LayerArrays* to);
  void AddLatentAttention(const AttentionSpec& attention, const std::string& prefix,
                          LayerArrays* to);
  void AddMlp(const MlpSpec& mlp, const std::string& prefix, LayerArrays* to);
  void AddExperts(const MlpSpec& mlp, const std::string& prefix, MixtureArrays* to);

  absl::Status CheckSlot(Slot* slot);
  // Both say how the source's rows are to be kept.
  absl::StatusOr<ArrayLayout> CheckFloats(const Slot& slot, const Source& source) const;
  absl::StatusOr<ArrayLayout> CheckAffine(Slot* slot, Source* source);
  // Describes one of the slot's tensors, as rows that are its own.
  absl::StatusOr<TensorInfo> Describe(const std::string& name, Slot* slot);
  void SetForm(Slot* slot);
  // Of a tensor that was prepared, the slot's rows.
  absl::StatusOr<TensorView> FindRows(const std::string& name, const Slot& slot) const;
  absl::Status LoadSlot(Slot* slot);
  void SetArrays(const Slot& slot, ::mlx::core::allocator::Data data) const;
  // Fills the bytes of the slot's layout from its tensors, and gives them up.
  absl::Status Make(const Slot& slot, std::span<uint8_t> out) const;
  // The part of that which is the source's, whose first row is `row` of the slot's.
  absl::Status MakeRows(const Slot& slot, const Source& source, uint64_t row,
                        std::span<uint8_t> out) const;
  void Release(const Slot& slot, const Source& source) const;

  const StageSpec& spec_;
  const TensorSource& source_;
  PackedStore* const store_;
  StageArrays* const arrays_;
  std::vector<Slot> slots_;
  uint64_t bytes_ = 0;
  uint64_t source_bytes_ = 0;
};

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_ARRAY_WEIGHTS_H_
