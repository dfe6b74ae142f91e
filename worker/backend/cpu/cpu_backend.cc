#include "worker/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/platform/platform.h"
#include "common/platform/processor_name.h"
#include "common/status.h"
#include "common/units.h"
#include "worker/backend/cpu/cpu_device.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/measure.h"
#include "worker/backend/cpu/shard/cpu_ranks.h"
#include "worker/backend/cpu/shard/cpu_shard.h"
#include "worker/backend/cpu/threads/placement.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/expert_views.h"
#include "worker/backend/gpt_oss_tensors.h"
#include "worker/backend/latent_tensors.h"

namespace strata::cpu {
namespace {

// Counts up whenever a change makes any result differ in a bit; see kernels.h and
// tests/golden/bits.json.
constexpr char kNumerics[] = "cpu-2";

constexpr uint32_t kMaxThreads = 1024;

absl::Status TooManyThreads(uint64_t threads) {
  return Error(absl::StatusCode::kInvalidArgument, "THREADS_INVALID",
               absl::StrCat(threads, " threads are more than the ", kMaxThreads,
                            " that are supported"))
      .Hint("lower --threads");
}

absl::Status Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
               absl::StrCat(what, " not supported by the cpu backend yet"));
}

absl::Status Inconsistent(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "STAGE_INVALID", what);
}

// 0: none.
bool IsSoftCap(float cap) { return cap >= 0 && cap <= std::numeric_limits<float>::max(); }

bool IsMultiplier(float x) { return x > 0 && x <= std::numeric_limits<float>::max(); }

absl::Status SupportsLatent(const AttentionSpec& attention, const KvGroupSpec& group) {
  const LatentSpec& latent = attention.latent;
  if ((latent.rank != 0) != (group.kind == KvKind::kMla)) {
    return Inconsistent("a layer's KV group is of another kind than its attention");
  }
  if (latent.rank == 0) {
    return absl::OkStatus();
  }
  if (latent.rank % kLanes != 0) {
    return Unsupported(
        absl::StrCat("kv_lora_rank ", latent.rank, ", which 16 does not divide, is"));
  }
  if (attention.kv_heads != 1 || latent.nope_dim == 0 || latent.value_dim == 0 ||
      latent.rope_dim % 2 != 0 || attention.head_dim != latent.nope_dim + latent.rope_dim ||
      attention.rope.rotary_dim != latent.rope_dim || !attention.rotates || attention.qkv_bias ||
      attention.qk_norm != QkNorm::kNone) {
    return Inconsistent("a layer with latent vectors has sizes that do not agree");
  }
  if (attention.query_growth != 0) {
    return Unsupported("llama_4_scaling_beta of a layer with latent vectors is");
  }
  return absl::OkStatus();
}

absl::Status SupportsLayer(const LayerSpec& layer, const StageSpec& spec) {
  const AttentionSpec& attention = layer.attention;
  if (attention.kv_group >= spec.model.kv_groups.size()) {
    return Inconsistent("a layer names a KV group that the model does not have");
  }
  const KvGroupSpec& group = spec.model.kv_groups[attention.kv_group];
  RETURN_IF_ERROR(SupportsLatent(attention, group));
  if ((group.kind == KvKind::kWindow) != (group.window > 0)) {
    return Inconsistent("a KV group has a window of no keys, or one that its kind does not have");
  }
  if (!IsSoftCap(attention.soft_cap)) {
    return Inconsistent("a soft-cap of scores is no positive number");
  }
  if (attention.query_growth != 0 &&
      (!IsMultiplier(attention.query_growth) || attention.query_growth_every == 0)) {
    return Inconsistent("queries grow by no positive number, or with every 0 positions");
  }
  const MlpSpec& mlp = layer.mlp;
  if (mlp.experts != 0 && (mlp.router.used == 0 || mlp.router.used > mlp.experts)) {
    return Inconsistent("a layer uses more experts than it has, or none");
  }
  if (mlp.activation == ActivationKind::kClampedSilu &&
      (!IsMultiplier(mlp.clamp) || !IsMultiplier(mlp.gain))) {
    return Inconsistent("an activation's clamp or gain is no positive number");
  }
  if (mlp.experts != 0 && layer.norm_places == NormPlaces::kAfter) {
    return Unsupported("a mixture of experts without a norm before it is");
  }
  if (attention.heads == 0 || attention.kv_heads == 0 || attention.head_dim == 0 ||
      attention.heads % attention.kv_heads != 0 || layer.mlp.ffn == 0) {
    return Inconsistent("a layer's sizes are zero, or its heads do not divide");
  }
  if (!IsMultiplier(layer.branch_scale)) {
    return Inconsistent("a layer's branches are multiplied by no positive number");
  }
  if (attention.rotates) {
    const RopeSpec& rope = attention.rope;
    if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > attention.head_dim) {
      return Inconsistent("rotary_dim is odd or above head_dim");
    }
    if (spec.rotary.size() != RotaryFloats(spec.model, spec.context)) {
      return Inconsistent("the rotary tables are not of the model's ropes and the stage's context");
    }
  }
  return absl::OkStatus();
}

absl::Status SupportsFormats(const StageSpec& spec) {
  if (spec.kv_dtype == v1::KV_DTYPE_BF16) {
    return Unsupported("the KV dtype bf16 is");
  }
  if (!IsSoftCap(spec.model.final_soft_cap)) {
    return Inconsistent("a soft-cap of logits is no positive number");
  }
  if (!IsMultiplier(spec.model.embedding_scale) ||
      !IsMultiplier(spec.model.input_embedding_scale) || !IsMultiplier(spec.model.logits_divisor)) {
    return Inconsistent("the embedding's or the logits' multiplier is no positive number");
  }
  return absl::OkStatus();
}

class CpuBackend : public Backend, public CpuDevice {
 public:
  CpuBackend(const Kernels* kernels, std::shared_ptr<ThreadPool> pool, ShardRanks ranks,
             const Placement& placement, bool one_node, const BackendOptions& options)
      : kernels_(kernels),
        pool_(std::move(pool)),
        ranks_(std::move(ranks)),
        places_{placement.cores(), placement.memory_nodes(), placement.Text()},
        one_node_(one_node),
        debug_log_(options.debug_log),
        warning_log_(options.warning_log),
        placer_(placement.nodes(), [this](uint8_t* data, size_t bytes, uint32_t node) {
          PlaceMemory(data, bytes, node);
        }) {
    if (!places_.pinned_cores.empty()) {
      places_.pinned_cores.erase(places_.pinned_cores.begin());  // The caller's.
    }
  }

  std::string name() const override { return "cpu"; }
  std::string numerics() const override { return kNumerics; }
  DeviceFacts facts() const override {
    return {.kind = kernels_->isa,
            .name = ProcessorName(),
            .threads = pool_->threads(),
            .placed = places_.text};
  }
  ThreadPlaces places() const override { return places_; }

  absl::Status Supports(const StageSpec& spec) const override {
    const ModelSpec& model = spec.model;
    if (spec.first_layer > spec.last_layer || spec.last_layer >= model.layers.size()) {
      return Inconsistent(absl::StrCat("there are no layers ", spec.first_layer, " to ",
                                       spec.last_layer, " in a model of ", model.layers.size()));
    }
    if (model.hidden == 0 || model.vocab == 0 || spec.context == 0 ||
        spec.context > kMaxContextTokens || spec.max_batch_tokens == 0 ||
        spec.max_batch_items == 0 || spec.kv_pages.size() != model.kv_groups.size()) {
      return Inconsistent("the stage's sizes are zero or do not agree");
    }
    for (const uint64_t pages : spec.kv_pages) {
      if (pages > std::numeric_limits<PageId>::max()) {
        return Inconsistent("a KV group has more pages than page numbers");
      }
    }
    RETURN_IF_ERROR(SupportsFormats(spec));
    for (uint32_t i = spec.first_layer; i <= spec.last_layer; ++i) {
      if (absl::Status status = SupportsLayer(model.layers[i], spec); !status.ok()) {
        return Annotate(status, absl::StrCat("layer ", i));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    RETURN_IF_ERROR(Supports(spec));
    absl::StatusOr<std::unique_ptr<Shard>> shard = absl::UnknownError("");
    LoadWith(spec, weights, [&](const TensorSource& tensors, const ShardLoading& how) {
      if (ranks_.shares.empty()) {
        shard = CpuShard::Create(spec, tensors, packed, progress, kernels_, how, pool_);
      } else {
        shard = LoadOverRanks(spec, ranks_, tensors, packed, progress, kernels_, how);
      }
    });
    return shard;
  }

  absl::StatusOr<std::unique_ptr<RankShard>> LoadRank(const StageSpec& spec, const RankPlace& place,
                                                      const TensorSource& weights,
                                                      PackedStore* packed,
                                                      const LoadProgressFn& progress) override {
    RETURN_IF_ERROR(Supports(spec));
    absl::StatusOr<std::unique_ptr<RankShard>> shard = absl::UnknownError("");
    LoadWith(spec, weights, [&](const TensorSource& tensors, const ShardLoading& how) {
      shard = CpuShard::CreateRank(spec, place, tensors, packed, progress, kernels_, how, pool_);
    });
    return shard;
  }

  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    return cpu::MeasureSpeed(*kernels_, pool_.get(), seconds, bytes);
  }
  std::unique_ptr<ReadProbe> NewReadProbe(uint64_t bytes) override {
    return std::make_unique<ReadMeter>(*kernels_, pool_.get(), bytes);
  }

 private:
  // load(tensors as the shard names them, how).
  void LoadWith(const StageSpec& spec, const TensorSource& weights,
                const std::function<void(const TensorSource&, const ShardLoading&)>& load) {
    // Threads of its own: packing may wait for a disk, and other shards compute meanwhile, to which
    // they give way. One for the caller's part too: it could not take back that it gave way, and
    // starts the thread that computes the shard.
    std::thread([&] {
      ThreadPool loading(pool_->threads(), 0, ThreadUse::kLoad);
      BeginUse(ThreadUse::kLoad);  // After they started, or they would give way twice as far.
      const GptOssTensors unfused(spec.model, spec.first_layer, spec.last_layer, weights);
      const ExpertViews named(spec.model, spec.first_layer, spec.last_layer, unfused);
      const LatentTensors tensors(spec.model, spec.first_layer, spec.last_layer, named);
      const ShardLoading how = {
          .threads = &loading, .placer = &placer_, .may_map = one_node_, .moved = LogMoved()};
      load(tensors, how);
    }).join();
  }

  // A refusal costs speed alone, and says the same of every matrix.
  void PlaceMemory(uint8_t* data, size_t bytes, uint32_t node) {
    const absl::Status status = PreferMemoryNode(data, bytes, node);
    if (!status.ok() && !refused_.exchange(true) && debug_log_) {
      debug_log_(Describe(status));
    }
  }

  // May outlive this.
  PageMover::DoneFn LogMoved() const {
    return [debug = debug_log_, warn = warning_log_](const absl::Status& status, uint64_t moved) {
      if (status.ok() && debug) {
        debug(absl::StrCat(FormatSize(moved), " of weights moved from pages of files to memory"));
      } else if (!status.ok() && warn) {
        warn(absl::StrCat(
            "weights stay in pages of files, where steps may wait for the disk, all but ",
            FormatSize(moved), ": ", Describe(status)));
      }
    };
  }

  const Kernels* const kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  const ShardRanks ranks_;  // None: stages are computed whole, by the pool.
  ThreadPlaces places_;
  const bool one_node_;  // Of memory, for all cores that it may use.
  const std::function<void(const std::string&)> debug_log_;
  const std::function<void(const std::string&)> warning_log_;
  std::atomic<bool> refused_{false};
  const WeightPlacer placer_;
};

// Ranks as they were asked for; none where there were none.
absl::StatusOr<ShardRanks> RanksOf(const CpuOptions& options, uint32_t cores) {
  ShardRanks ranks;
  if (options.ranks.empty()) {
    return ranks;
  }
  std::vector<double> weights;
  uint64_t threads = 0;
  for (const CpuRank& rank : options.ranks) {
    weights.push_back(rank.share);
    threads += std::max(1u, rank.threads);
  }
  if (threads > kMaxThreads) {
    return TooManyThreads(threads);
  }
  if (options.pin == "on") {
    return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                 "threads of ranks are not pinned")
        .Hint("leave out pin=on, or the ranks");
  }
  ASSIGN_OR_RETURN(ranks.shares, SharesByWeight(weights));
  ranks.own_cores = threads <= cores;
  for (const CpuRank& rank : options.ranks) {
    const uint32_t own = std::max(1u, rank.threads);
    ranks.pools.push_back(std::make_shared<ThreadPool>(own, ranks.own_cores ? own : 0));
  }
  return ranks;
}

}  // namespace
}  // namespace strata::cpu

namespace strata {

CpuDevice* CpuDeviceOf(Backend* backend) { return dynamic_cast<CpuDevice*>(backend); }

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& cpu,
                                                        const BackendOptions& options) {
  if (cpu.threads > cpu::kMaxThreads) {
    return cpu::TooManyThreads(cpu.threads);
  }
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(cpu.isa));
  const uint32_t cores = UsableCores();
  ASSIGN_OR_RETURN(cpu::ShardRanks ranks, cpu::RanksOf(cpu, cores));
  uint32_t of_ranks = 0;
  for (const std::shared_ptr<cpu::ThreadPool>& pool : ranks.pools) {
    of_ranks += pool->threads();
  }
  const uint32_t threads = of_ranks != 0 ? of_ranks : cpu.threads == 0 ? cores : cpu.threads;
  const Topology topology = UsableTopology();
  ASSIGN_OR_RETURN(
      cpu::Placement placement,
      cpu::PlaceThreads(ranks.pools.empty() ? cpu.pin : "off", threads, cores, topology));
  auto pool = std::make_shared<cpu::ThreadPool>(threads, cores);
  if (!placement.threads.empty() && !pool->Pin(placement.cores())) {
    if (cpu.pin == "on") {
      return Error(absl::StatusCode::kFailedPrecondition, "PIN",
                   "the system does not allow threads to be pinned")
          .Hint("leave out --pin on");
    }
    placement.threads.clear();
    placement.why = "the system does not allow it";
  }
  const bool one_node =
      std::all_of(topology.cores.begin(), topology.cores.end(),
                  [&](const Core& core) { return core.node == topology.cores[0].node; });
  return std::make_unique<cpu::CpuBackend>(kernels, std::move(pool), std::move(ranks), placement,
                                           one_node, options);
}

}  // namespace strata
