// Bytes of a model's parts, from its manifest.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "common/checkpoint/checkpoint.h"
#include "common/model/gpt_oss_experts.h"
#include "coordinator/registry/manifest.h"

namespace strata {
namespace {

// Sums bytes, and of matrices the bytes by format: a norm's dtype changes nothing, it is used in
// float32. Scales and biases are no matrices of their own.
class Sum {
 public:
  // `quantize`: what a worker makes of matrices of floats. The others outlive this.
  Sum(const ModelManifest& manifest, const Footprint& footprint, v1::Quantize quantize)
      : manifest_(manifest), footprint_(footprint), quantize_(quantize) {}

  void Add(const StageTensor& what) {
    const std::string& name = what.name;
    const ManifestTensor* tensor = manifest_.FindTensor(name);
    source_bytes_ =
        std::max(source_bytes_, tensor == nullptr ? 0 : SourceBytes(what, tensor->bytes));
    if (tensor == nullptr || what.part || IsMxfp4Scales(name)) {
      return;
    }
    const uint64_t bytes = footprint_.WeightBytes(what, tensor->dtype, tensor->bytes, quantize_);
    bytes_ += bytes;
    expert_bytes_ += IsOfExperts(name) ? bytes : 0;
    if (LoadedShape(what).matrices != 0 && !StaysAsStored(name)) {
      const Dtype dtype = LoadedDtype(name, tensor->dtype);
      matrices_[LoadedFormat(manifest_.spec, what, dtype, quantize_)] += bytes;
    }
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t expert_bytes() const { return expert_bytes_; }
  // Of the largest tensor.
  uint64_t source_bytes() const { return source_bytes_; }
  const std::map<std::string, uint64_t>& matrices() const { return matrices_; }

 private:
  const ModelManifest& manifest_;
  const Footprint& footprint_;
  const v1::Quantize quantize_;
  uint64_t bytes_ = 0;
  uint64_t expert_bytes_ = 0;
  uint64_t source_bytes_ = 0;
  std::map<std::string, uint64_t> matrices_;
};

// Names joined by '+', most bytes first, equals by name.
std::string FormatOf(const std::map<std::string, uint64_t>& bytes) {
  std::vector<std::pair<std::string, uint64_t>> order(bytes.begin(), bytes.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, unused] : order) {
    text += (text.empty() ? "" : "+") + name;
  }
  return text;
}

}  // namespace

WeightAccount AccountWeights(const ModelManifest& manifest, v1::Quantize quantize,
                             const Footprint& footprint) {
  const ModelSpec& spec = manifest.spec;
  WeightAccount account;
  const v1::Quantize ends = QuantizeOf(quantize, /*in_layer=*/false);
  const TensorExists exists = manifest.Exists();
  const auto last = static_cast<uint32_t>(spec.layers.size()) - 1;
  std::set<std::string> in_layers;
  std::map<std::string, uint64_t> formats;
  for (uint32_t layer = 0; layer <= last; ++layer) {
    Sum sum(manifest, footprint, quantize);
    for (const StageTensor& tensor : TensorsOf(spec, layer, layer, false, false, exists)) {
      sum.Add(tensor);
      in_layers.insert(tensor.name);
    }
    account.layer_bytes.push_back(sum.bytes());
    account.layer_source_bytes.push_back(sum.source_bytes());
    const MlpSpec& mlp = spec.layers[layer].mlp;
    const uint64_t idle =
        mlp.experts == 0 ? 0 : sum.expert_bytes() / mlp.experts * (mlp.experts - mlp.router.used);
    account.layer_read_bytes.push_back(sum.bytes() - idle);
    account.total_bytes += sum.bytes();
    for (const auto& [name, bytes] : sum.matrices()) {
      formats[name] += bytes;
    }
  }
  account.layer_format = FormatOf(formats);
  const auto add_ends = [&](bool embeds, bool heads, Sum* sum) {
    for (const StageTensor& tensor : TensorsOf(spec, last, last, embeds, heads, exists)) {
      if (!in_layers.contains(tensor.name)) {
        sum->Add(tensor);
      }
    }
  };
  Sum embeds(manifest, footprint, ends);
  add_ends(true, false, &embeds);
  account.embed_bytes = embeds.bytes();
  Sum head(manifest, footprint, ends);
  add_ends(false, true, &head);
  account.head_bytes = head.bytes();
  account.head_format = FormatOf(head.matrices());
  account.end_source_bytes = std::max(embeds.source_bytes(), head.source_bytes());
  account.total_bytes += head.bytes() + (spec.tied_head ? 0 : embeds.bytes());
  return account;
}

StoredKinds StoredKindsOf(const ModelManifest& manifest) {
  const ModelSpec& spec = manifest.spec;
  const auto last = static_cast<uint32_t>(spec.layers.size()) - 1;
  StoredKinds kinds;
  bool floats = false;
  bool widened = false;
  for (const StageTensor& tensor : TensorsOf(spec, 0, last, true, true, manifest.Exists())) {
    const ManifestTensor* const found = manifest.FindTensor(tensor.name);
    if (found == nullptr || tensor.part) {
      continue;
    }
    const bool quantized = KeepsIntegers(tensor, LoadedDtype(tensor.name, found->dtype));
    kinds.integers = kinds.integers || quantized;
    if (quantized || StaysAsStored(tensor.name)) {
      continue;
    }
    widened = widened || tensor.matrix.has_value();
    floats = floats ||
             (!tensor.matrix.has_value() && found->shape.size() == 2 && HoldsWeights(tensor.name));
  }
  // Where config.json says that matrices are integers, those that are left are so for a reason.
  const bool says_so = spec.quantization.has_value() && kinds.integers;
  kinds.quantizable = widened || (!says_so && (floats || !kinds.integers));
  return kinds;
}

uint64_t TotalKvBytesPerToken(const ModelSpec& spec, uint32_t element_bytes) {
  uint64_t bytes = 0;
  const auto last = static_cast<uint32_t>(spec.layers.size()) - 1;
  for (uint32_t group = 0; group < spec.kv_groups.size(); ++group) {
    bytes += KvBytesPerToken(spec, 0, last, group, element_bytes);
  }
  return bytes;
}

}  // namespace strata
