#include "coordinator/planner/placement_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/footprint/device_limits.h"
#include "common/footprint/footprint.h"
#include "common/limits.h"
#include "coordinator/planner/node_devices.h"

namespace strata {
namespace {

// Token ids to the first stage and results from the last one, with their frames.
constexpr double kControlBytes = 256;

constexpr uint64_t kNotCounted = std::numeric_limits<uint64_t>::max();
bool HostIsCounted(const PlannerNode& node) { return node.host_free_bytes != kNotCounted; }

}  // namespace

// Experts are taken to be drawn evenly: of those that one row leaves alone, each row more leaves as
// many alone.
double ReadByRows(double read, double all, const MlpSpec& mlp, uint32_t rows) {
  if (rows == 1 || mlp.experts == 0 || read >= all) {
    return read;
  }
  const double idle = 1 - static_cast<double>(mlp.active()) / mlp.experts;
  return all - (all - read) * std::pow(idle, rows - 1);
}

uint64_t StagedBytes(const PlannerModel& model, uint32_t begin, uint32_t end) {
  const auto layers = static_cast<uint32_t>(model.layer_bytes.size());
  const auto largest_of = [&](const std::vector<uint64_t>& bytes) {
    return bytes.empty() || begin >= end
               ? uint64_t{0}
               : *std::max_element(bytes.begin() + begin, bytes.begin() + end);
  };
  const bool heads = end == layers;
  // A tied head is the embedding, of which a stage has one; it comes with the last layer.
  const bool once = begin == 0 && heads && model.spec.tied_head;
  const uint64_t embedding = begin == 0 && !once ? model.embed_bytes : 0;
  const uint64_t head = heads ? model.head_bytes : 0;
  const uint64_t ends = begin + 1 == end ? embedding + head : std::max(embedding, head);
  const uint64_t source = std::max(largest_of(model.layer_source_bytes),
                                   begin == 0 || heads ? model.end_source_bytes : 0);
  return largest_of(model.layer_bytes) + ends + source;
}

PlacementProblem::PlacementProblem(const PlannerCluster& cluster, const PlannerModel& model,
                                   const std::vector<size_t>& members, uint32_t max_batch_tokens,
                                   uint32_t context, uint32_t sessions, Links links, uint32_t rows)
    : layers_(static_cast<uint32_t>(model.spec.layers.size())),
      groups_(model.spec.kv_groups),
      max_batch_tokens_(max_batch_tokens),
      sessions_(sessions),
      rows_(rows) {
  STRATA_CHECK(layers_ > 0 && model.layer_bytes.size() == layers_ &&
               model.layer_flops.size() == layers_);
  STRATA_CHECK(model.layer_read_bytes.empty() || model.layer_read_bytes.size() == layers_);
  STRATA_CHECK(cluster.links.size() == cluster.nodes.size() + 1);
  for (const size_t member : members) {
    nodes_.push_back(std::make_shared<PlannerNode>(cluster.nodes[member]));
  }
  AddOverheads(model, context);
  for (const auto& node : nodes_) {
    const bool same = !devices_.empty() && node->devices == nodes_[devices_.size() - 1]->devices;
    devices_.push_back(same ? devices_.back()
                       : node->devices.empty()
                           ? nullptr
                           : std::make_shared<NodeDevices>(node->devices, model));
  }
  AddWeights(model, context);
  AddPages(model);
  const AttentionSpec& first = model.spec.layers[0].attention;
  for (uint32_t l = 0; l < layers_; ++l) {
    const AttentionSpec& a = model.spec.layers[l].attention;
    equal_layers_ = equal_layers_ && model.layer_flops[l] == model.layer_flops[0] &&
                    a.kv_group == first.kv_group && a.KvNumbers() == first.KvNumbers() &&
                    a.heads == first.heads && a.ProductsPerKey() == first.ProductsPerKey();
  }
  AddNodeTimes(model, context);
  if (links == Links::kAll) {
    AddLinks(cluster, members, model.spec.hidden);
  }
}

void PlacementProblem::AddOverheads(const PlannerModel& model, uint32_t context) {
  const auto overhead = [&](const Footprint& footprint, bool last) {
    return Overhead{footprint.BufferBytes(model.spec, max_batch_tokens_, last, context),
                    footprint.HostBytes(model.spec, max_batch_tokens_, last, context)};
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i > 0 && nodes_[i]->device == nodes_[i - 1]->device) {
      // Of one kind, as most are: a plan is searched among many sets of nodes.
      overheads_.push_back(overheads_.back());
    } else {
      const Footprint& footprint = FootprintOf(nodes_[i]->device);
      overheads_.push_back({overhead(footprint, false), overhead(footprint, true)});
    }
    if (HostIsCounted(*nodes_[i]) && model_ == nullptr) {
      model_ = std::make_shared<PlannerModel>(model);
    }
  }
}

std::shared_ptr<const PlacementProblem::Weights> PlacementProblem::WeightsOnDevices(
    const PlannerModel& model, const NodeDevices& devices, const Footprint& footprint,
    uint32_t context, std::shared_ptr<const Weights> whole) const {
  Weights weights{.before = {0},
                  .read = whole->read,
                  .embed = devices.Counted([](const PlannerWeights& w) { return w.embed_bytes; }),
                  .head = devices.Counted([](const PlannerWeights& w) { return w.head_bytes; })};
  for (uint32_t l = 0; l < layers_; ++l) {
    weights.before.push_back(weights.before.back() + devices.Counted([l](const PlannerWeights& w) {
      return w.layer_bytes[l];
    }));
    weights.equal_layers = weights.equal_layers && weights.read[l] == weights.read[0] &&
                           weights.before[l + 1] - weights.before[l] == weights.before[1];
  }
  const auto besides = [&](bool last) {
    const uint64_t one = footprint.BufferBytes(model.spec, max_batch_tokens_, last, context);
    return devices.CountedOfEach(one + kGatherBytes) - one;
  };
  weights.besides = besides(false);
  weights.last_besides = besides(true);
  weights.host_besides = devices.HostBesides(model);
  weights.whole = std::move(whole);
  return std::make_shared<const Weights>(std::move(weights));
}

void PlacementProblem::AddPages(const PlannerModel& model) {
  const v1::KvDtype dtype = model.kv_element_bytes == 4 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_F16;
  const auto pages_by = [&](const auto& page_of_layer) {
    auto pages = std::make_shared<PageBytes>(groups_.size(), std::vector<uint64_t>(1, 0));
    for (uint32_t l = 0; l < layers_; ++l) {
      const uint32_t own = model.spec.layers[l].attention.kv_group;
      for (uint32_t group = 0; group < groups_.size(); ++group) {
        (*pages)[group].push_back((*pages)[group].back() + (own == group ? page_of_layer(l) : 0));
      }
    }
    return pages;
  };
  const auto of_one = [&](uint32_t l) {
    return CpuFootprint().PageBytes(model.spec, l, l, model.spec.layers[l].attention.kv_group,
                                    dtype);
  };
  const std::shared_ptr<const PageBytes> whole = pages_by(of_one);
  for (uint32_t l = 0; l < layers_; ++l) {
    all_page_bytes_ += of_one(l);
  }
  for (const auto& of_node : devices_) {
    if (of_node == nullptr) {
      page_bytes_.push_back(whole);
      continue;
    }
    page_bytes_.push_back(pages_by([&](uint32_t l) { return of_node->CountedPage(l); }));
    uint64_t all = 0;
    for (const std::vector<uint64_t>& of_group : *page_bytes_.back()) {
      all += of_group.back();
    }
    all_page_bytes_ = std::max(all_page_bytes_, all);
  }
}

void PlacementProblem::AddWeights(const PlannerModel& model, uint32_t context) {
  const auto kind = [&](const std::vector<uint64_t>& bytes, const std::vector<uint64_t>& read,
                        uint64_t embed, uint64_t head) {
    STRATA_CHECK(bytes.size() == layers_ && read.size() == layers_);
    Weights weights{.before = {0}, .read = read, .embed = embed, .head = head};
    for (uint32_t l = 0; l < layers_; ++l) {
      weights.before.push_back(weights.before.back() + bytes[l]);
      weights.equal_layers = weights.equal_layers && bytes[l] == bytes[0] && read[l] == read[0];
    }
    return std::make_shared<const Weights>(std::move(weights));
  };
  const auto stored =
      kind(model.layer_bytes,
           model.layer_read_bytes.empty() ? model.layer_bytes : model.layer_read_bytes,
           model.embed_bytes, model.head_bytes);
  const auto on_mlx = model.on_mlx.has_value()
                          ? kind(model.on_mlx->layer_bytes, model.on_mlx->layer_read_bytes,
                                 model.on_mlx->embed_bytes, model.on_mlx->head_bytes)
                          : stored;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Footprint& footprint = FootprintOf(nodes_[i]->device);
    if (devices_[i] != nullptr) {
      weights_.push_back(WeightsOnDevices(model, *devices_[i], footprint, context, stored));
    } else {
      weights_.push_back(&footprint == &MlxFootprint() ? on_mlx : stored);
    }
    equal_layers_ = equal_layers_ && weights_.back()->equal_layers;
  }
}

void PlacementProblem::AddNodeTimes(const PlannerModel& model, uint32_t context) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto& node = nodes_[i];
    const Weights& weights = weights_[i]->whole == nullptr ? *weights_[i] : *weights_[i]->whole;
    std::vector<double>& times = layer_ms_.emplace_back(1, 0.0);
    for (uint32_t l = 0; l < layers_; ++l) {
      const AttentionSpec& a = model.spec.layers[l].attention;
      const uint32_t window = groups_[a.kv_group].window;
      const double keys = window == 0 ? context / 2.0 : std::min<double>(context / 2.0, window);
      const double kv_bytes = keys * static_cast<double>(a.KvNumbers()) * model.kv_element_bytes;
      const double attention_flops = keys * 2.0 * a.heads * static_cast<double>(a.ProductsPerKey());
      times.push_back(
          times.back() +
          std::max(MsAt(ReadByRows(static_cast<double>(weights.read[l]),
                                   static_cast<double>(weights.before[l + 1] - weights.before[l]),
                                   model.spec.layers[l].mlp, rows_) +
                            kv_bytes,
                        node->read_bytes_per_s),
                   MsAt(rows_ * (model.layer_flops[l] + attention_flops), node->flops_per_s)));
    }
    const double row = static_cast<double>(weights.embed) / std::max(model.spec.vocab, 1u);
    embed_ms_.push_back(MsAt(rows_ * row, node->read_bytes_per_s));
    head_ms_.push_back(std::max(MsAt(static_cast<double>(weights.head), node->read_bytes_per_s),
                                MsAt(rows_ * model.head_flops, node->flops_per_s)));
  }
}

void PlacementProblem::AddLinks(const PlannerCluster& cluster, const std::vector<size_t>& members,
                                uint32_t hidden) {
  const size_t ends = members.size() + 1;
  auto links = std::make_shared<AllLinks>();
  links->hop_ms.reserve(ends * ends);
  links->transfer_ms.reserve(ends * ends);
  const auto index = [&](size_t i) {
    return i < members.size() ? members[i] : cluster.nodes.size();
  };
  for (size_t from = 0; from < ends; ++from) {
    for (size_t to = 0; to < ends; ++to) {
      const PlannerLink& link = cluster.links[index(from)][index(to)];
      const bool control = from == coordinator() || to == coordinator();
      const double transfer =
          MsAt(control ? kControlBytes : static_cast<double>(rows_) * hidden * sizeof(float),
               link.bytes_per_s);
      const double hop = from == to ? kNever : std::max(link.latency_ms, 0.0) + transfer;
      links->transfer_ms.push_back(from == to ? 0 : transfer);
      links->hop_ms.push_back(hop);
      if (from != to) {
        links->slowest_transfer_ms = std::max(links->slowest_transfer_ms, transfer);
        links->any_cut = links->any_cut || hop == kNever;
      }
    }
  }
  links_ = std::move(links);
}

double PlacementProblem::StageMs(size_t node, uint32_t begin, uint32_t end) const {
  const std::vector<double>& times = layer_ms_[node];
  // One product for equal layers, so that the same number of layers takes exactly the same time.
  const double layers = equal_layers_ ? (end - begin) * times[1] : times[end] - times[begin];
  return layers + (begin == 0 ? embed_ms_[node] : 0) + (end == layers_ ? head_ms_[node] : 0);
}

uint64_t PlacementProblem::WeightBytes(size_t node, uint32_t begin, uint32_t end) const {
  const Weights& weights = *weights_[node];
  return weights.before[end] - weights.before[begin] + (begin == 0 ? weights.embed : 0) +
         (end == layers_ ? weights.head + weights.last_besides : weights.besides);
}

uint64_t PlacementProblem::LeastWeightBytes() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (size_t node = 0; node < nodes(); ++node) {
    least = std::min(least, WeightBytes(node, 0, layers_));
  }
  return least;
}

std::optional<uint32_t> PlacementProblem::FullestDevice(size_t node, uint32_t begin,
                                                        uint32_t end) const {
  if (devices_[node] == nullptr) {
    return std::nullopt;
  }
  return devices_[node]->Fullest(begin, end,
                                 [&](uint32_t group) { return GroupPages(group, pages); });
}

uint64_t PlacementProblem::LeastKvBytes(uint64_t pages) const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (size_t node = 0; node < nodes(); ++node) {
    least = std::min(least, KvBytes(node, 0, layers_, pages));
  }
  return least;
}

uint64_t PlacementProblem::GroupPages(uint32_t group, uint64_t pages, size_t stages) const {
  if (groups_[group].kind != KvKind::kWindow) {
    return pages;
  }
  const uint64_t rows =
      KvRowsInFlight(stages != 0 ? stages : std::min<size_t>(nodes(), layers_), max_batch_tokens_);
  return std::min(pages, sessions_ * MostKvPages(groups_[group], kMaxContextTokens, rows));
}

uint64_t PlacementProblem::KvBytes(size_t node, uint32_t begin, uint32_t end, uint64_t pages,
                                   size_t stages) const {
  const PageBytes& of_page = *page_bytes_[node];
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    bytes += GroupPages(group, pages, stages) * (of_page[group][end] - of_page[group][begin]);
  }
  return bytes;
}

uint64_t PlacementProblem::StageBytes(size_t node, uint32_t begin, uint32_t end) const {
  return WeightBytes(node, begin, end) + KvBytes(node, begin, end, pages) +
         OverheadBytes(node, end == layers_);
}

uint64_t PlacementProblem::HostBytes(size_t node, uint32_t begin, uint32_t end) const {
  const NodeOverheads& overheads = overheads_[node];
  const uint64_t fixed = (end == layers_ ? overheads.last : overheads.middle).host_bytes;
  if (fixed == 0 || !HostIsCounted(*nodes_[node])) {
    return 0;
  }
  return fixed + weights_[node]->host_besides + StagedBytes(*model_, begin, end);
}

uint32_t PlacementProblem::Capacity(size_t node, bool first, bool last) const {
  const Weights& weights = *weights_[node];
  const uint64_t fixed = (first ? weights.embed : 0) +
                         (last ? weights.head + weights.last_besides : weights.besides) +
                         OverheadBytes(node, last);
  const uint64_t free = nodes_[node]->free_bytes;
  // Of the host's, one layer or more make no difference.
  const uint32_t begin = first ? 0 : last ? layers_ - 1 : std::min(1u, layers_ - 1);
  const uint32_t end = last ? layers_ : begin + 1;
  if (free < fixed || HostBytes(node, begin, end) > nodes_[node]->host_free_bytes) {
    return 0;
  }
  const uint64_t each = weights.before[1] + KvBytes(node, 0, 1, pages);
  uint64_t most = each == 0 ? layers_ : std::min<uint64_t>(layers_, (free - fixed) / each);
  if (slowest_ms < kNever) {
    const double extra = (first ? embed_ms_[node] : 0) + (last ? head_ms_[node] : 0);
    const auto time = [&](uint64_t n) {
      return static_cast<double>(n) * layer_ms_[node][1] + (first ? embed_ms_[node] : 0) +
             (last ? head_ms_[node] : 0);
    };
    const double fit = (slowest_ms - extra) / std::max(layer_ms_[node][1], 1e-300);
    if (fit < static_cast<double>(most)) {
      most = fit < 0 ? 0 : static_cast<uint64_t>(fit);
      most += most < layers_ && time(most + 1) <= slowest_ms ? 1 : 0;  // Rounded down too far.
    }
    while (most > 0 && time(most) > slowest_ms) {
      --most;
    }
  }
  return static_cast<uint32_t>(most);
}

double PlacementProblem::LatencyMs(const std::vector<PlacedStage>& stages) const {
  double total = 0;
  size_t at = coordinator();
  for (const PlacedStage& stage : stages) {
    if (!Allowed(stage.node, stage.begin, stage.end)) {
      return kNever;
    }
    total += HopMs(at, stage.node) + StageMs(stage.node, stage.begin, stage.end);
    at = stage.node;
  }
  return total + HopMs(at, coordinator());
}

double PlacementProblem::SlowestMs(const std::vector<PlacedStage>& stages) const {
  double slowest = 0;
  size_t at = coordinator();
  for (const PlacedStage& stage : stages) {
    slowest = std::max(
        {slowest, TransferMs(at, stage.node), StageMs(stage.node, stage.begin, stage.end)});
    at = stage.node;
  }
  return std::max(slowest, TransferMs(at, coordinator()));
}

uint64_t PlacementProblem::PagesThatFit(size_t node, uint32_t begin, uint32_t end) const {
  const uint64_t fixed = StageBytes(node, begin, end) - KvBytes(node, begin, end, pages);
  const uint64_t free = nodes_[node]->free_bytes;
  if (free < fixed) {
    return 0;
  }
  // Windows make it grow by pieces.
  uint64_t low = 0;
  uint64_t high = std::max(UsefulPages(), pages) + 1;
  while (low + 1 < high) {
    const uint64_t middle = low + (high - low) / 2;
    (KvBytes(node, begin, end, middle) <= free - fixed ? low : high) = middle;
  }
  return low;
}

uint64_t PlacementProblem::MaxPages() const {
  return std::min(uint64_t{1} << 31, (uint64_t{1} << 62) / std::max<uint64_t>(1, all_page_bytes_));
}

uint64_t PlacementProblem::UsefulPages() const {
  uint64_t most = 0;
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    most = std::max(most, GroupPages(group, MaxPages()));
  }
  return std::max(most, pages);
}

bool PlacementProblem::Useful(size_t node) const {
  for (uint32_t l = 0; l < layers_; ++l) {
    if (Allowed(node, l, l + 1)) {
      return true;
    }
  }
  return false;
}

PlacementProblem PlacementProblem::WithMoreMemory(size_t node, uint64_t bytes) const {
  PlacementProblem more = *this;
  auto changed = std::make_shared<PlannerNode>(*nodes_[node]);
  changed->free_bytes += bytes;
  more.nodes_[node] = std::move(changed);
  return more;
}

PlacementProblem PlacementProblem::WithoutHostMemory() const {
  PlacementProblem without = *this;
  for (auto& node : without.nodes_) {
    if (HostIsCounted(*node)) {
      auto changed = std::make_shared<PlannerNode>(*node);
      changed->host_free_bytes = kNotCounted;
      node = std::move(changed);
    }
  }
  return without;
}

}  // namespace strata
