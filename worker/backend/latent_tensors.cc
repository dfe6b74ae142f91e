#include "worker/backend/latent_tensors.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/model/half.h"
#include "common/status.h"

namespace strata {
namespace {

// The source's tensor as float32, if it has this shape.
absl::StatusOr<std::vector<float>> FloatsOf(const TensorSource& source, const std::string& name,
                                            const std::vector<uint64_t>& shape) {
  ASSIGN_OR_RETURN(const TensorView view, source.Find(name));
  const bool floats =
      view.dtype == Dtype::kF32 || view.dtype == Dtype::kF16 || view.dtype == Dtype::kBF16;
  const size_t count = shape[0] * shape[1] * shape[2];
  if (view.shape != shape || !floats || view.bytes != count * DtypeBytes(view.dtype)) {
    return Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                 absl::StrCat("tensor ", name, " is not of floats in the shape that config.json ",
                              "asks for"));
  }
  std::vector<float> values(count);
  if (view.dtype == Dtype::kF32) {
    std::memcpy(values.data(), view.data, view.bytes);
    return values;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const at = view.data + i * sizeof(uint16_t);
    values[i] = view.dtype == Dtype::kF16 ? HalfAt(at) : Bfloat16At(at);
  }
  return values;
}

}  // namespace

LatentTensors::LatentTensors(const ModelSpec& spec, uint32_t first, uint32_t last,
                             const TensorSource& source)
    : source_(source) {
  for (uint32_t index = first; index <= last && index < spec.layers.size(); ++index) {
    const AttentionSpec& attention = spec.layers[index].attention;
    const std::string path =
        absl::StrCat(spec.tensor_prefix, "model.layers.", index, ".self_attn.");
    const std::string queries = path + "embed_q.weight";
    if (attention.latent.rank != 0 && source.Describe(queries).ok()) {
      made_[path + "kv_b_proj.weight"] = {queries, path + "unembed_out.weight", attention.latent,
                                          attention.heads};
    }
  }
}

absl::StatusOr<TensorInfo> LatentTensors::Describe(std::string_view name) const {
  const auto found = made_.find(name);
  if (found == made_.end()) {
    return source_.Describe(name);
  }
  const Made& made = found->second;
  TensorInfo info{Dtype::kF32, {made.rows(), made.latent.rank}, 0, ""};
  info.bytes = made.rows() * made.latent.rank * sizeof(float);
  std::string text = "latent vectors to keys and values";
  bool known = true;
  for (const std::string& stored : {made.queries, made.outputs}) {
    ASSIGN_OR_RETURN(TensorInfo part, source_.Describe(stored));
    known = known && !part.sha256.empty();
    absl::StrAppend(&text, " ", part.sha256);
    if (part.sources.empty()) {
      part.sources = {part.sha256};
    }
    info.sources.insert(info.sources.end(), part.sources.begin(), part.sources.end());
  }
  info.sha256 = known ? Sha256Hex(text) : "";
  return info;
}

absl::Status LatentTensors::Prepare(const std::vector<std::string>& names) const {
  std::set<std::string> stored;
  for (const std::string& name : names) {
    const auto found = made_.find(name);
    if (found == made_.end()) {
      stored.insert(name);
    } else {
      stored.insert({found->second.queries, found->second.outputs});
    }
  }
  return source_.Prepare({stored.begin(), stored.end()});
}

absl::StatusOr<std::vector<float>> LatentTensors::Make(const Made& made) const {
  const LatentSpec& latent = made.latent;
  ASSIGN_OR_RETURN(const std::vector<float> queries,
                   FloatsOf(source_, made.queries, {made.heads, latent.rank, latent.nope_dim}));
  ASSIGN_OR_RETURN(const std::vector<float> outputs,
                   FloatsOf(source_, made.outputs, {made.heads, latent.value_dim, latent.rank}));
  std::vector<float> rows;
  rows.reserve(made.rows() * latent.rank);
  for (uint64_t head = 0; head < made.heads; ++head) {
    const float* const of_head = queries.data() + head * latent.rank * latent.nope_dim;
    for (uint64_t key = 0; key < latent.nope_dim; ++key) {
      for (uint64_t i = 0; i < latent.rank; ++i) {
        rows.push_back(of_head[i * latent.nope_dim + key]);
      }
    }
    const auto value = outputs.begin() + head * latent.value_dim * latent.rank;
    rows.insert(rows.end(), value, value + latent.value_dim * latent.rank);
  }
  source_.Release(made.queries, source_.Describe(made.queries)->bytes);
  source_.Release(made.outputs, source_.Describe(made.outputs)->bytes);
  return rows;
}

absl::StatusOr<TensorView> LatentTensors::Find(std::string_view name) const {
  const auto found = made_.find(name);
  if (found == made_.end()) {
    return source_.Find(name);
  }
  const Made& made = found->second;
  const MutexLock lock(&mutex_);
  std::vector<float>& rows = found_[std::string(name)];
  if (rows.empty()) {
    ASSIGN_OR_RETURN(rows, Make(made));
  }
  return TensorView{Dtype::kF32,
                    {made.rows(), made.latent.rank},
                    reinterpret_cast<const uint8_t*>(rows.data()),
                    rows.size() * sizeof(float)};
}

void LatentTensors::Release(std::string_view name, size_t bytes) const {
  if (!made_.contains(name)) {
    source_.Release(name, bytes);
    return;
  }
  const MutexLock lock(&mutex_);
  const auto kept = found_.find(name);
  if (kept != found_.end() && bytes >= kept->second.size() * sizeof(float)) {
    found_.erase(kept);
  }
}

}  // namespace strata
