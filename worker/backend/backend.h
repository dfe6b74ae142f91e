// The one seam to devices: a backend loads a stage's weights and computes steps on it, one named
// step of a decoder block at a time. How it keeps weights and KV (panels, pages in memory, device
// buffers, lazy arrays) is its own affair; what is shared is the page *numbers* of the worker's
// KvPool and the LayerSpec it is given. docs/ARCHITECTURE.md, "Backends", says how CUDA and MLX
// fit it.
#ifndef STRATA_WORKER_BACKEND_BACKEND_H_
#define STRATA_WORKER_BACKEND_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "strata/v1/types.pb.h"

namespace strata {

using PageId = uint32_t;

// A tensor as a checkpoint has it. `data` may be unaligned: never cast it to a wider type.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  const uint8_t* data = nullptr;  // Little-endian, row-major, `bytes` of them.
  size_t bytes = 0;
};

// A tensor without its bytes.
struct TensorInfo {
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  size_t bytes = 0;
  // Of its bytes, or of what they are made of and how; 64 hex digits, "" where that is not known.
  std::string sha256;
  // Of the tensors of the checkpoint that it is made of; empty: it is one of those.
  std::vector<std::string> sources = {};
};

// Where a backend reads weights. A load describes the tensors, prepares those whose bytes it needs,
// and releases each as it goes on. Any thread, but no call on a tensor while it is released.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // NOT_FOUND names the tensor. Does not wait.
  virtual absl::StatusOr<TensorInfo> Describe(std::string_view name) const {
    const absl::StatusOr<TensorView> view = Find(name);
    if (!view.ok()) {
      return view.status();
    }
    return TensorInfo{view->dtype, view->shape, view->bytes, ""};
  }
  // Makes the bytes of these tensors present, which may take as long as fetching them does.
  virtual absl::Status Prepare(const std::vector<std::string>& names) const {
    return absl::OkStatus();
  }
  // Of a tensor that was prepared. NOT_FOUND names the tensor. The view stays valid until all of
  // the tensor is released, or the source goes.
  virtual absl::StatusOr<TensorView> Find(std::string_view name) const = 0;
  // The first `bytes` of a tensor that was prepared have been used: their memory may be given up.
  // With all of them the tensor is as if it had not been prepared.
  virtual void Release(std::string_view name, size_t bytes) const {}
};

// What a backend made of some tensors.
struct PackedForm {
  std::string key;  // 64 hex digits: a digest of everything that the bytes depend on.
  uint64_t bytes = 0;
  std::vector<std::string> sources;  // SHA-256 of the tensors that it was made of.
};

// function(begin, end) for parts of [0, count), on as many threads as the caller has, each at most
// once; returns when all have ended.
using SplitFn =
    std::function<void(size_t count, const std::function<void(size_t begin, size_t end)>& part)>;

// Where a backend's packed weights outlast the process, so that the next load reads them instead of
// fetching and packing their tensors. A store serves one load, on one thread.
class PackedStore {
 public:
  virtual ~PackedStore() = default;
  // Whether it is there, as far as can be told without reading it.
  virtual bool Has(const PackedForm& form) = 0;
  // Reads and checks all of it into `out`, of form.bytes. After an error it is not there any more,
  // `out` holds anything, and the load packs the tensors.
  virtual absl::Status Read(const PackedForm& form, std::span<uint8_t> out,
                            const SplitFn& split) = 0;
  // As Read, where `out` begins on a page of AllocatePages and has its pages to itself: they may be
  // a map of what is kept afterwards (see MapFile), which the result says, instead of a copy. After
  // an error they are the caller's to write; after RESOURCE_EXHAUSTED to free.
  virtual absl::StatusOr<bool> Map(const PackedForm& form, std::span<uint8_t> out,
                                   const SplitFn& split) {
    const absl::Status status = Read(form, out, split);
    return status.ok() ? absl::StatusOr<bool>(false) : status;
  }
  // Keeps `packed`, if it can: nothing depends on it.
  virtual void Write(const PackedForm& form, std::span<const uint8_t> packed) = 0;
};

// What one stage is.
struct StageSpec {
  ModelSpec model;
  uint32_t first_layer = 0;        // Inclusive.
  uint32_t last_layer = 0;         // Inclusive.
  bool embeds = false;             // The first stage: has the embedding.
  bool heads = false;              // The last stage: has final norm and head.
  uint32_t context = 0;            // Tokens of the longest sequence.
  std::vector<uint64_t> kv_pages;  // By KV group of the model.
  v1::KvDtype kv_dtype = v1::KV_DTYPE_F16;
  // Of matrices stored as floats: layers in this format, embedding and head in int8.
  v1::Quantize quantize = v1::QUANTIZE_NONE;
  v1::Activations activations = v1::ACTIVATIONS_F32;  // Int8: where weights are quantized.
  uint32_t max_batch_tokens = 0;                      // Most rows of a batch.
  uint32_t max_batch_items = 0;
  // Rotary tables as shipped, see RopesOf.
  std::span<const float> rotary;
};

// One sequence's page table for one KV group. Page i of `pages` holds positions
// [(first_page + i) * 16, (first_page + i + 1) * 16).
struct PageTableView {
  uint32_t first_page = 0;  // Pages before it were freed behind a window.
  std::span<const PageId> pages;
};

// One sequence's rows of a batch. Its pages already cover position + rows. Items of a batch are of
// different sequences, and none sees a position that another one appends: they may be computed in
// any order.
struct BatchItem {
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t position = 0;                  // Of first_row; row r is at position + r - first_row.
  std::span<const PageTableView> tables;  // By KV group.
  uint32_t rotary_variant = 0;            // Of the model's ropes that have several.
};

// What is computed at once. Everything it points to stays valid until Shard::Read... returned.
struct Batch {
  uint32_t rows = 0;
  std::span<const uint32_t> token_ids;  // One a row; checked against the vocabulary before.
  std::span<const BatchItem> items;     // Cover the rows, in order, without overlap.
};

// One loaded stage. A step is, by one thread:
//   Begin; Embed (and EmbedInputs) or SetResidual; for each layer: Attention or, of the model's
//   last one, AttentionOfSome; and Mlp; then ReadResidual (after any layer too), or Head and
//   ReadLogits, once or more with other rows.
// Every call but the Read...s may return before its work is done (a stream of a device, a lazy
// graph); calls take effect in order. A failed call leaves KV of the batch's own rows undefined
// and nothing else. No result depends on the batch's other rows.
class Shard {
 public:
  virtual ~Shard() = default;

  virtual absl::Status Begin(const Batch& batch) = 0;
  // Residual stream := embeddings of the batch's token ids. First stage only.
  virtual absl::Status Embed() = 0;
  // After Embed: of these rows, ascending, the residual stream := `values`, float32 [rows.size(),
  // hidden], times the model's input_embedding_scale; both are copied before it returns.
  virtual absl::Status EmbedInputs(std::span<const uint32_t> rows,
                                   std::span<const float> values) = 0;
  // Residual stream := `values`, float32 [rows, hidden], copied before it returns.
  virtual absl::Status SetResidual(std::span<const float> values) = 0;
  // The layer's attention branch (see LayerSpec), added to the residual stream, appending K and V
  // of the rows to the pages. `layer` is the model's index.
  virtual absl::Status Attention(uint32_t layer) = 0;
  // Instead of it where only these rows (ascending, of each item one behind another) are needed any
  // more, as only they have logits: K and V of all rows are appended, but the branch is added to
  // these, which are the batch's only rows from then on, counted from 0. There may be none. `rows`
  // is copied before it returns. Last layer of the last stage only.
  virtual absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) = 0;
  // The layer's other branch, added likewise.
  virtual absl::Status Mlp(uint32_t layer) = 0;
  // Waits, where the batch has no rows too, and copies the residual stream, float32 [rows, hidden].
  virtual absl::Status ReadResidual(std::span<float> out) = 0;
  // Final norm and head of these rows (ascending). Last stage only.
  virtual absl::Status Head(std::span<const uint32_t> rows) = 0;
  // Waits, and copies the logits, float32 [rows of Head, vocab].
  virtual absl::Status ReadLogits(std::span<float> out) = 0;

  // Copies a page of all the group's layers, between steps: copy-on-write of shared pages.
  virtual absl::Status CopyPage(uint32_t group, PageId from, PageId to) = 0;

  // Gives up all KV and has these pages by KV group from now on, between steps. RESOURCE_EXHAUSTED
  // when memory is short: then no page is left, and it may be called again.
  virtual absl::Status ResizeKv(std::span<const uint64_t> pages) = 0;

  // Bytes held: weights, KV, scratch.
  virtual uint64_t MemoryBytes() const = 0;

  // Bytes of weights that a step of one row reads, KV aside.
  virtual uint64_t StepReadBytes() const = 0;
};

// Called during Load, from the loading thread, with bytes done of total.
using LoadProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// What a backend measures about its device, for the planner.
struct DeviceSpeed {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;  // float32 fma, 2 an fma.
};

// Where a backend's threads and its memory are.
struct ThreadPlaces {
  std::vector<uint32_t> pinned_cores;  // One a thread that is pinned; empty: none is.
  uint32_t memory_nodes = 1;           // That weights are spread over.
  std::string text = "not pinned";     // For people.
};

// A kind of device. Any thread; shards of one backend may compute at the same time only if they
// share no threads: the worker runs one step at a time.
// Reads memory between other work, so that this can be compared with what memory gives at that
// time.
class ReadProbe {
 public:
  virtual ~ReadProbe() = default;
  // Once through the memory, by each of some loops.
  virtual void Read() = 0;
  // Of the loop that did best; 0 before the first Read.
  virtual double MedianBytesPerSecond() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;      // "cpu"
  virtual std::string isa() const = 0;       // "avx512"
  virtual std::string numerics() const = 0;  // "cpu-2": name and numerics version.
  virtual uint32_t threads() const = 0;
  virtual ThreadPlaces places() const { return {}; }

  // Why it could not compute this, or ok; does not look at weights' values.
  virtual absl::Status Supports(const StageSpec& spec) const = 0;
  // Reads, checks and packs the weights, and allocates KV and scratch: nothing is allocated per
  // step after it. What `packed` (nullptr: nothing is kept) has is read from it, and what it lacks
  // is given to it; only tensors whose packed form it lacks are prepared. RESOURCE_EXHAUSTED when
  // memory is short.
  virtual absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec,
                                                      const TensorSource& weights,
                                                      PackedStore* packed,
                                                      const LoadProgressFn& progress) = 0;
  // Takes about `seconds`, and `bytes` of memory for that long, less where it is short: what the
  // caches do not hold.
  virtual DeviceSpeed MeasureSpeed(double seconds, uint64_t bytes) = 0;
  // Over `bytes` of memory, which it holds while it lives; not longer than the backend.
  virtual std::unique_ptr<ReadProbe> NewReadProbe(uint64_t bytes) = 0;
};

struct BackendOptions {
  uint32_t threads = 0;     // 0: the cores this process may use.
  std::string isa = {};     // "": the best; else as STRATA_CPU_ISA.
  std::string pin = "off";  // Threads to cores: "auto", "on" or "off"; cpu/placement.h.
  // Get lines for those who look closely, and of what makes it slow. Any thread; may be null.
  std::function<void(const std::string&)> debug_log = nullptr;
  std::function<void(const std::string&)> warning_log = nullptr;
};

// "auto", "cpu", "cuda" or "mlx". A backend that this build lacks is UNIMPLEMENTED and says how to
// get it; an instruction set that the machine lacks is INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const BackendOptions& options);

// One per backend; linked from its folder, or from a file that says it is absent.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options);
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options);
absl::StatusOr<std::unique_ptr<Backend>> MakeMlxBackend(const BackendOptions& options);

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_BACKEND_H_
