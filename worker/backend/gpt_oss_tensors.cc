#include "worker/backend/gpt_oss_tensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/model/block_formats.h"
#include "common/model/gpt_oss_experts.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kHalfBlock = kBlockPart / 2;  // Bytes of a block's values.

// out[n][k] = from[k][first + step n], elements of `size` bytes, `columns` of them in a row.
void TakeColumns(const uint8_t* from, uint64_t columns, uint64_t first, uint64_t step, size_t size,
                 uint64_t outputs, uint64_t inputs, uint8_t* out) {
  constexpr uint64_t kInputs = 64;  // A few lines of cache for each output.
  for (uint64_t begin = 0; begin < inputs; begin += kInputs) {
    const uint64_t end = std::min(inputs, begin + kInputs);
    for (uint64_t n = 0; n < outputs; ++n) {
      for (uint64_t k = begin; k < end; ++k) {
        std::memcpy(out + (n * inputs + k) * size, from + (k * columns + first + step * n) * size,
                    size);
      }
    }
  }
}

// Values two in a byte, to those 16 apart in a byte.
void PutHalves(const uint8_t* from, uint8_t* to) {
  const auto value = [from](size_t i) { return from[i / 2] >> i % 2 * 4 & 15; };
  for (size_t i = 0; i < kHalfBlock; ++i) {
    to[i] = static_cast<uint8_t>(value(i) | value(i + kHalfBlock) << 4);
  }
}

}  // namespace

GptOssTensors::GptOssTensors(const ModelSpec& spec, uint32_t first, uint32_t last,
                             const TensorSource& source)
    : source_(source) {
  for (uint32_t index = first; index <= last && index < spec.layers.size(); ++index) {
    const MlpSpec& mlp = spec.layers[index].mlp;
    const std::string layer = absl::StrCat(spec.tensor_prefix, "model.layers.", index, ".");
    if (mlp.experts != 0 && mlp.expert_names != ExpertNames::kGptOss) {
      AddTurned(mlp, spec.hidden, layer);
      continue;
    }
    for (uint32_t e = 0; e < mlp.experts; ++e) {
      AddExpert(mlp, spec.hidden, layer + "mlp.experts.", e);
    }
  }
}

void GptOssTensors::AddTurned(const MlpSpec& mlp, uint64_t hidden, const std::string& layer) {
  const FusedPaths stored = FusedExpertPaths(mlp.expert_names, layer);
  const absl::StatusOr<TensorInfo> gate_up = source_.Describe(stored.gate_up);
  const absl::StatusOr<TensorInfo> down = source_.Describe(stored.down);
  if (!gate_up.ok() || !down.ok()) {
    return;
  }
  const FusedInputsFirst inputs_first =
      FusedInputsFirstOf(hidden, mlp.ffn, gate_up->shape, down->shape);
  const uint64_t ffn = mlp.ffn;
  for (uint32_t e = 0; e < mlp.experts; ++e) {
    const ExpertPaths paths = ExpertPathsOf(mlp.expert_names, layer, e);
    Made made{.stored = stored.gate_up, .expert = e, .experts = mlp.experts};
    made.columns = 2 * ffn;
    made.outputs = ffn;
    made.inputs = hidden;
    if (inputs_first.gate_up) {
      made_[paths.gate + ".weight"] = made;
      made.first = ffn;
      made_[paths.up + ".weight"] = made;
    }
    if (inputs_first.down) {
      made_[paths.down + ".weight"] = {.stored = stored.down,
                                       .expert = e,
                                       .experts = mlp.experts,
                                       .columns = hidden,
                                       .outputs = hidden,
                                       .inputs = ffn};
    }
  }
}

void GptOssTensors::AddExpert(const MlpSpec& mlp, uint64_t hidden, const std::string& folder,
                              uint32_t expert) {
  const auto add = [&](const char* name, const char* stored, uint64_t outputs, uint64_t inputs,
                       uint64_t first, uint64_t step) {
    const std::string path = absl::StrCat(folder, expert, ".", name);
    Made made{folder + stored, false,  expert, mlp.experts, outputs * step,
              outputs,         inputs, first,  step};
    made_[path + ".weight"] = made;
    made.bias = true;
    made_[path + ".bias"] = made;
  };
  add("gate_proj", "gate_up_proj", mlp.ffn, hidden, 0, 2);
  add("up_proj", "gate_up_proj", mlp.ffn, hidden, 1, 2);
  add("down_proj", "down_proj", hidden, mlp.ffn, 0, 1);
}

std::vector<std::string> GptOssTensors::StoredNames(const Made& made) const {
  if (made.bias) {
    return {made.stored + "_bias"};
  }
  if (source_.Describe(made.stored + "_blocks").ok()) {
    return {made.stored + "_blocks", made.stored + "_scales"};
  }
  return {made.stored};
}

absl::StatusOr<TensorInfo> GptOssTensors::Describe(std::string_view name) const {
  const auto found = made_.find(name);
  if (found == made_.end()) {
    return source_.Describe(name);
  }
  const Made& made = found->second;
  const std::vector<std::string> stored = StoredNames(made);
  const bool halves = made.columns != made.outputs * made.step;
  std::string text = absl::StrCat(halves ? "half of expert " : "gpt-oss expert ", made.expert,
                                  " from ", made.first);
  TensorInfo info;
  bool known = true;
  for (const std::string& one : stored) {
    ASSIGN_OR_RETURN(const TensorInfo part, source_.Describe(one));
    absl::StrAppend(&text, " ", part.sha256);
    info.sources.push_back(part.sha256);
    known = known && !part.sha256.empty();
    info.dtype = part.dtype;
  }
  info.dtype = stored.size() == 2 ? Dtype::kMXFP4 : info.dtype;
  info.shape = {made.outputs, made.inputs};
  if (made.bias) {
    info.shape = {made.outputs};
  }
  info.bytes = TensorBytes(info.dtype, info.shape).value_or(0);
  info.sha256 = known ? Sha256Hex(text) : "";
  return info;
}

absl::Status GptOssTensors::Prepare(const std::vector<std::string>& names) const {
  std::set<std::string> stored;
  std::map<std::string, Use> uses;
  for (const std::string& name : names) {
    const auto found = made_.find(name);
    if (found == made_.end()) {
      stored.insert(name);
      continue;
    }
    for (const std::string& one : StoredNames(found->second)) {
      stored.insert(one);
      ++uses[one].prepared;
    }
  }
  {
    const MutexLock lock(&mutex_);
    for (const auto& [name, use] : uses) {
      uses_[name] = use;
    }
  }
  return source_.Prepare({stored.begin(), stored.end()});
}

absl::StatusOr<TensorView> GptOssTensors::Find(std::string_view name) const {
  const auto found = made_.find(name);
  if (found == made_.end()) {
    return source_.Find(name);
  }
  ASSIGN_OR_RETURN(TensorInfo info, Describe(name));
  ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, Make(found->second));
  TensorView view{info.dtype, std::move(info.shape), nullptr, bytes.size()};
  const MutexLock lock(&mutex_);
  std::vector<uint8_t>& kept = found_[std::string(name)];
  kept = std::move(bytes);
  view.data = kept.data();
  return view;
}

void GptOssTensors::Release(std::string_view name, size_t bytes) const {
  const auto found = made_.find(name);
  if (found == made_.end()) {
    source_.Release(name, bytes);
    return;
  }
  {
    const MutexLock lock(&mutex_);
    const auto kept = found_.find(name);
    if (kept == found_.end() || bytes < kept->second.size()) {
      return;
    }
    found_.erase(kept);
  }
  for (const std::string& stored : StoredNames(found->second)) {
    const absl::StatusOr<TensorInfo> info = source_.Describe(stored);
    if (!info.ok()) {
      continue;
    }
    const MutexLock lock(&mutex_);
    Use& use = uses_[stored];
    ++use.released;
    const uint64_t experts = found->second.experts;
    const uint64_t used =
        use.released >= use.prepared ? experts : use.released * experts / use.prepared;
    source_.Release(stored, info->bytes / experts * used);
  }
}

absl::StatusOr<TensorView> GptOssTensors::FindStored(const std::string& name,
                                                     const std::vector<uint64_t>& shape) const {
  ASSIGN_OR_RETURN(TensorView view, source_.Find(name));
  const bool bytes = name.ends_with("_blocks") || name.ends_with("_scales");
  const bool floats =
      view.dtype == Dtype::kF32 || view.dtype == Dtype::kF16 || view.dtype == Dtype::kBF16;
  if (view.shape != shape || !(bytes ? view.dtype == Dtype::kU8 : floats) ||
      view.bytes != TensorBytes(view.dtype, shape)) {
    return Error(
        absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
        absl::StrCat("tensor ", name, " is not of the shape and dtype that config.json asks for"));
  }
  return view;
}

absl::StatusOr<std::vector<uint8_t>> GptOssTensors::Make(const Made& made) const {
  if (made.bias) {
    return MakeBias(made);
  }
  return StoredNames(made).size() == 2 ? MakeBlocks(made) : MakeFloats(made);
}

absl::StatusOr<std::vector<uint8_t>> GptOssTensors::MakeBias(const Made& made) const {
  const uint64_t columns = made.columns;
  ASSIGN_OR_RETURN(const TensorView view,
                   FindStored(made.stored + "_bias", {made.experts, columns}));
  const size_t size = DtypeBytes(view.dtype);
  std::vector<uint8_t> out(made.outputs * size);
  TakeColumns(view.data + made.expert * columns * size, columns, made.first, made.step, size,
              made.outputs, 1, out.data());
  return out;
}

absl::StatusOr<std::vector<uint8_t>> GptOssTensors::MakeFloats(const Made& made) const {
  const uint64_t columns = made.columns;
  ASSIGN_OR_RETURN(const TensorView view,
                   FindStored(made.stored, {made.experts, made.inputs, columns}));
  const size_t size = DtypeBytes(view.dtype);
  std::vector<uint8_t> out(made.outputs * made.inputs * size);
  TakeColumns(view.data + made.expert * made.inputs * columns * size, columns, made.first,
              made.step, size, made.outputs, made.inputs, out.data());
  return out;
}

absl::StatusOr<std::vector<uint8_t>> GptOssTensors::MakeBlocks(const Made& made) const {
  const uint64_t rows = made.columns;
  const uint64_t blocks = made.inputs / kBlockPart;
  ASSIGN_OR_RETURN(const TensorView values,
                   FindStored(made.stored + "_blocks", {made.experts, rows, blocks, kHalfBlock}));
  ASSIGN_OR_RETURN(const TensorView scales,
                   FindStored(made.stored + "_scales", {made.experts, rows, blocks}));
  std::vector<uint8_t> out(made.outputs * blocks * BlockBytes(Dtype::kMXFP4));
  uint8_t* to = out.data();
  for (uint64_t n = 0; n < made.outputs; ++n) {
    const uint64_t row = (made.expert * rows + made.first + made.step * n) * blocks;
    for (uint64_t b = row; b < row + blocks; ++b) {
      to[0] = scales.data[b];
      PutHalves(values.data + b * kHalfBlock, to + 1);
      to += BlockBytes(Dtype::kMXFP4);
    }
  }
  return out;
}

}  // namespace strata
