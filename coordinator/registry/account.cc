// Bytes of a model's parts, from its manifest.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "common/checkpoint/checkpoint.h"
#include "coordinator/registry/manifest.h"

namespace strata {
namespace {

std::string LowerName(Dtype dtype) {
  std::string name = DtypeName(dtype);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// Sums bytes, and of matrices the bytes by dtype: a norm's dtype changes nothing, it is used in
// float32.
class Sum {
 public:
  void Add(const ManifestTensor* tensor) {
    if (tensor == nullptr) {
      return;
    }
    bytes_ += tensor->bytes;
    if (tensor->shape.size() == 2) {
      matrices_[LowerName(tensor->dtype)] += tensor->bytes;
    }
  }
  uint64_t bytes() const { return bytes_; }
  const std::map<std::string, uint64_t>& matrices() const { return matrices_; }

 private:
  uint64_t bytes_ = 0;
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

WeightAccount AccountWeights(const ModelManifest& manifest) {
  const ModelSpec& spec = manifest.spec;
  WeightAccount account;
  const std::string embedding = spec.tensor_prefix + "model.embed_tokens.weight";
  const auto last = static_cast<uint32_t>(spec.layers.size()) - 1;
  std::set<std::string> in_layers;
  std::map<std::string, uint64_t> formats;
  for (uint32_t layer = 0; layer <= last; ++layer) {
    Sum sum;
    for (const StageTensor& tensor : TensorsOf(spec, layer, layer, false, false)) {
      sum.Add(manifest.FindTensor(tensor.name));
      in_layers.insert(tensor.name);
    }
    account.layer_bytes.push_back(sum.bytes());
    account.total_bytes += sum.bytes();
    for (const auto& [name, bytes] : sum.matrices()) {
      formats[name] += bytes;
    }
  }
  account.layer_format = FormatOf(formats);
  Sum embeds;
  embeds.Add(manifest.FindTensor(embedding));
  account.embed_bytes = embeds.bytes();
  Sum head;
  for (const StageTensor& tensor : TensorsOf(spec, last, last, false, true)) {
    if (!in_layers.contains(tensor.name)) {
      head.Add(manifest.FindTensor(tensor.name));
    }
  }
  account.head_bytes = head.bytes();
  account.head_format = FormatOf(head.matrices());
  account.total_bytes += head.bytes() + (spec.tied_head ? 0 : embeds.bytes());
  return account;
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
