#include "worker/backend/expert_views.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/model/gpt_oss_experts.h"
#include "common/status.h"

namespace strata {

ExpertViews::ExpertViews(const ModelSpec& spec, uint32_t first, uint32_t last,
                         const TensorSource& source)
    : source_(source) {
  for (uint32_t index = first; index <= last && index < spec.layers.size(); ++index) {
    const MlpSpec& mlp = spec.layers[index].mlp;
    const std::string layer = absl::StrCat(spec.tensor_prefix, "model.layers.", index, ".");
    if (mlp.experts == 0) {
      continue;
    }
    if (mlp.expert_names == ExpertNames::kGptOss) {
      AddMlxGptOss(mlp, layer);
    } else if (source.Describe(FusedExpertPaths(mlp.expert_names, layer).gate_up).ok()) {
      AddFused(spec, mlp, layer);
    }
  }
}

void ExpertViews::AddFused(const ModelSpec& spec, const MlpSpec& mlp, const std::string& layer) {
  const FusedPaths stored = FusedExpertPaths(mlp.expert_names, layer);
  const uint64_t ffn = mlp.ffn;
  const uint64_t hidden = spec.hidden;
  const auto shape = [&](const std::string& name) {
    const auto info = source_.Describe(name);
    return info.ok() ? info->shape : std::vector<uint64_t>();
  };
  const FusedInputsFirst inputs_first =
      FusedInputsFirstOf(hidden, ffn, shape(stored.gate_up), shape(stored.down));
  for (uint32_t e = 0; e < mlp.experts; ++e) {
    const ExpertPaths paths = ExpertPathsOf(mlp.expert_names, layer, e);
    const uint64_t both = mlp.experts * 2 * ffn;
    const uint64_t at = e * 2 * ffn;
    if (!inputs_first.gate_up) {
      views_[paths.gate + ".weight"] = {stored.gate_up, mlp.experts, both, at, ffn, hidden};
      views_[paths.up + ".weight"] = {stored.gate_up, mlp.experts, both, at + ffn, ffn, hidden};
    }
    if (!inputs_first.down) {
      views_[paths.down + ".weight"] = {stored.down, mlp.experts, mlp.experts * hidden,
                                        e * hidden,  hidden,      ffn};
    }
  }
  const std::string correction = CorrectionName(mlp.expert_names, layer);
  if (mlp.router.corrected && correction != stored.correction) {
    views_[correction] = {.stored = stored.correction};
  }
  const std::string router = RouterPath(mlp.expert_names, layer);
  for (const char* part : {".weight", ".scales", ".biases", ".bias"}) {
    if (router != stored.router) {
      views_[router + part] = {.stored = stored.router + part};
    }
  }
}

void ExpertViews::AddMlxGptOss(const MlpSpec& mlp, const std::string& layer) {
  const ExpertPaths stored = MlxGptOssPaths(layer);
  if (!source_.Describe(stored.gate + ".weight").ok()) {
    return;
  }
  const ExpertPaths asked = StackedExpertPaths(mlp.expert_names, layer);
  for (const char* part : {".weight", ".scales", ".biases", ".bias"}) {
    views_[asked.gate + part] = {.stored = stored.gate + part};
    views_[asked.up + part] = {.stored = stored.up + part};
    views_[asked.down + part] = {.stored = stored.down + part};
  }
}

absl::Status ExpertViews::Check(const View& view, const std::vector<uint64_t>& shape,
                                uint64_t bytes) {
  const std::vector<uint64_t> wanted = {view.experts, view.all_rows / view.experts, view.inputs};
  if (shape == wanted && bytes % view.all_rows == 0) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
               absl::StrCat("tensor ", view.stored, " has shape [", absl::StrJoin(shape, ", "),
                            "] where config.json asks for [", absl::StrJoin(wanted, ", "), "]"));
}

absl::StatusOr<TensorInfo> ExpertViews::Describe(std::string_view name) const {
  const auto found = views_.find(name);
  if (found == views_.end()) {
    return source_.Describe(name);
  }
  const View& view = found->second;
  ASSIGN_OR_RETURN(TensorInfo info, source_.Describe(view.stored));
  if (view.experts == 0) {
    return info;
  }
  RETURN_IF_ERROR(Check(view, info.shape, info.bytes));
  if (info.sources.empty()) {
    info.sources = {info.sha256};
  }
  info.shape = {view.rows, view.inputs};
  info.bytes = info.bytes / view.all_rows * view.rows;
  if (!info.sha256.empty()) {
    info.sha256 =
        Sha256Hex(absl::StrCat("rows ", view.first_row, " ", view.rows, " of ", info.sha256));
  }
  return info;
}

absl::Status ExpertViews::Prepare(const std::vector<std::string>& names) const {
  std::set<std::string> stored;
  for (const std::string& name : names) {
    const auto found = views_.find(name);
    stored.insert(found == views_.end() ? name : found->second.stored);
  }
  return source_.Prepare({stored.begin(), stored.end()});
}

absl::StatusOr<TensorView> ExpertViews::Find(std::string_view name) const {
  const auto found = views_.find(name);
  if (found == views_.end()) {
    return source_.Find(name);
  }
  const View& view = found->second;
  ASSIGN_OR_RETURN(TensorView tensor, source_.Find(view.stored));
  if (view.experts == 0) {
    return tensor;
  }
  RETURN_IF_ERROR(Check(view, tensor.shape, tensor.bytes));
  const size_t row_bytes = tensor.bytes / view.all_rows;
  tensor.data += view.first_row * row_bytes;
  tensor.bytes = view.rows * row_bytes;
  tensor.shape = {view.rows, view.inputs};
  return tensor;
}

void ExpertViews::Release(std::string_view name, size_t bytes) const {
  const auto found = views_.find(name);
  if (found == views_.end()) {
    source_.Release(name, bytes);
    return;
  }
  const View& view = found->second;
  const auto info = source_.Describe(view.stored);
  if (view.experts == 0 || !info.ok()) {
    source_.Release(view.stored, bytes);
    return;
  }
  source_.Release(view.stored, info->bytes / view.all_rows * view.first_row + bytes);
}

}  // namespace strata
