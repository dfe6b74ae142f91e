#include "worker/backend/mlx/mlx_backend.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/footprint/mlx_limits.h"
#include "common/platform/platform.h"
#include "common/platform/processor_name.h"
#include "common/status.h"
#include "mlx/compile.h"
#include "mlx/device.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "mlx/version.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/expert_views.h"
#include "worker/backend/gpt_oss_tensors.h"
#include "worker/backend/latent_tensors.h"
#include "worker/backend/mlx/guard.h"
#include "worker/backend/mlx/mlx_shard.h"
#include "worker/backend/optional_backends.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Counts up whenever a change makes any result differ in a bit. MLX chooses kernels by its own
// version and by the device, whose names follow.
constexpr char kNumerics[] = "mlx-2";
// Of products on a GPU, so that one kernel computes a row alone, in a chunk and in a batch.
constexpr int kGpuRowBlock = 8;

absl::Status Unsupported(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
               absl::StrCat(what, " not supported by the mlx backend yet"))
      .Hint("place the model on workers with --backend cpu");
}

std::string DeviceText(const char* key) {
  const auto& info = mx::device_info();
  const auto found = info.find(key);
  const std::string* const text =
      found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? "" : *text;
}

// How much Metal recommends that its device holds at once, which is the most that it wires too; 0:
// the device is not of Metal.
uint64_t RecommendedBytes() {
  const auto& info = mx::device_info();
  const auto found = info.find("max_recommended_working_set_size");
  const size_t* const bytes = found == info.end() ? nullptr : std::get_if<size_t>(&found->second);
  return bytes == nullptr ? 0 : *bytes;
}

// As a part of a numerics class, in which signs between names have a meaning.
std::string NamePart(std::string text) {
  for (char& c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_';
    c = plain ? c : '_';
  }
  return text;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::max(1e-9,
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

class MlxBackend : public Backend {
 public:
  MlxBackend(std::unique_ptr<Backend> host, DeviceFacts facts, RowBlocks blocks)
      : host_(std::move(host)),
        facts_(std::move(facts)),
        numerics_(
            absl::StrCat(kNumerics, ".", NamePart(facts_.kind), ".", NamePart(mx::version()))),
        blocks_(blocks) {}

  std::string name() const override { return "mlx"; }
  std::string numerics() const override { return numerics_; }
  DeviceFacts facts() const override { return facts_; }

  absl::Status Supports(const StageSpec& spec) const override {
    RETURN_IF_ERROR(host_->Supports(spec));
    if (spec.activations == v1::ACTIVATIONS_INT8) {
      return Error(absl::StatusCode::kUnimplemented, "BACKEND_UNSUPPORTED",
                   "int8 activations are not supported by the mlx backend")
          .Hint("load the model with --activations f32");
    }
    if (spec.rotary.size() > size_t{std::numeric_limits<int>::max()}) {
      return Unsupported(absl::StrCat("a context of ", spec.context, " tokens is"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    RETURN_IF_ERROR(Supports(spec));
    const GptOssTensors unfused(spec.model, spec.first_layer, spec.last_layer, weights);
    const ExpertViews named(spec.model, spec.first_layer, spec.last_layer, unfused);
    const LatentTensors tensors(spec.model, spec.first_layer, spec.last_layer, named);
    return MlxShard::Create(spec, tensors, packed, progress,
                            {.blocks = blocks_, .shared_bytes = facts_.shared_bytes});
  }

  AllocatedMemory Allocated() const override {
    return {.active_bytes = mx::get_active_memory(), .kept_bytes = mx::get_cache_memory()};
  }

  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    DeviceSpeed speed;
    RETURN_IF_ERROR(Guarded("measuring the device's speed", [&] {
      constexpr int kSide = 512;
      const auto best_of = [&](double work, const auto& make) {
        double best = 0;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < 2 || SecondsSince(start) < seconds / 2; ++i) {
          const auto begin = std::chrono::steady_clock::now();
          mx::array result = make();
          mx::eval(result);
          best = std::max(best, work / SecondsSince(begin));
        }
        return best;
      };
      const int floats = static_cast<int>(
          std::clamp<uint64_t>(bytes / sizeof(float), 1, std::numeric_limits<int>::max()));
      mx::array read = mx::zeros({floats}, mx::float32);
      mx::array square = mx::ones({kSide, kSide}, mx::float32);
      mx::eval(read, square);
      speed.read_bytes_per_s =
          best_of(sizeof(float) * double{1} * floats, [&] { return mx::max(read); });
      speed.flops_per_s =
          best_of(2.0 * kSide * kSide * kSide, [&] { return mx::matmul(square, square); });
      return absl::OkStatus();
    }));
    return speed;
  }

 private:
  const std::unique_ptr<Backend> host_;  // Says what of a stage makes sense.
  const DeviceFacts facts_;
  const std::string numerics_;
  const RowBlocks blocks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOf(const MlxOptions& mlx,
                                                       const BackendOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> host, MakeCpuBackend({.threads = 1}, options));
  std::unique_ptr<Backend> backend;
  RETURN_IF_ERROR(Guarded("opening the device", [&] {
    const bool gpu = MlxHasGpu();
    // On a CPU it would call a compiler of the machine.
    mx::disable_compile();
    mx::set_cache_limit(kMlxCacheBytes);
    const uint64_t shared = mlx.shared_bytes.value_or(gpu ? RecommendedBytes() : 0);
    if (shared != 0) {
      // Loads are held to as much: the system takes none of what a step reads.
      mx::set_wired_limit(shared);
    }
    DeviceFacts facts = {
        .kind = gpu ? DeviceText("architecture") : "cpu",
        .name = gpu ? DeviceText("device_name") : ProcessorName(),
        .threads = gpu ? UsableCores() : 1,
        .placed = "",
        .shared_bytes = shared,
    };
    backend =
        std::make_unique<MlxBackend>(std::move(host), std::move(facts),
                                     RowBlocks{mlx.row_block.value_or(gpu ? kGpuRowBlock : 0)});
    return absl::OkStatus();
  }));
  return backend;
}

}  // namespace strata::mlx

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeMlxBackend(const BackendOptions& options) {
  return mlx::MakeBackendOf({}, options);
}

bool MlxIsBuilt() { return true; }

bool MlxHasGpu() {
  bool has = false;
  mlx::Guarded("looking for a GPU", [&] {
    has = ::mlx::core::is_available(::mlx::core::Device(::mlx::core::Device::gpu));
    return absl::OkStatus();
  }).IgnoreError();
  return has;
}

}  // namespace strata
