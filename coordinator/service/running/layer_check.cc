#include "coordinator/service/running/layer_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "common/fingerprint.h"
#include "common/footprint/footprint.h"
#include "common/model/numerics_class.h"
#include "common/plan.h"
#include "common/status.h"

namespace strata {
namespace {

// Of a token: how often another one is looked for.
constexpr uint32_t kTries = 64;

bool IsSpecial(const ModelRuntime& model, uint32_t id) {
  const std::vector<uint32_t>& eos = model.spec().eos_ids;
  if (std::find(eos.begin(), eos.end(), id) != eos.end() || model.spec().bos_id == id) {
    return true;
  }
  if (model.tokenizer == nullptr) {
    return false;
  }
  const std::vector<uint32_t> ids = {id};
  return id >= model.tokenizer->vocab_size() ||
         model.tokenizer->Decode(ids, true) != model.tokenizer->Decode(ids, false);
}

bool HasStage(const v1::Plan& plan, const std::string& node) {
  const auto& stages = OnlyPipeline(plan).stages();
  return std::any_of(stages.begin(), stages.end(),
                     [&](const v1::PlanStage& stage) { return StageUses(stage, node); });
}

absl::Status BadResult(uint32_t layer, const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, "BAD_RESULT",
               "the answer about layer " + std::to_string(layer) + " has " + what)
      .Hint("run the check again, with another --node");
}

// Who computed the check's layer in the plan.
void NameStage(const v1::Plan& plan, v1::ModelCheck* check) {
  const auto& all = OnlyPipeline(plan).stages();
  int stage = 0;
  while (stage + 1 < all.size() && all[stage].last_layer() < check->layer()) {
    ++stage;
  }
  check->set_stage(static_cast<uint32_t>(stage));
  check->set_node(FirstRank(all[stage]).node());
}

// What to do about a layer that differs between two nodes.
std::string HintOf(const std::string& model, const v1::ModelCheck& check) {
  const std::string& suspect = check.node();
  if (suspect == check.reference_node()) {
    return "the two differ on one node: test the memory of '" + suspect +
           "', and run the check with another --node; `strata node drain " + suspect +
           "` and `strata model load " + model + "` place the model elsewhere";
  }
  return "one of the two nodes computes wrongly: run the check again with a third --node; if it "
         "names '" +
         suspect + "' again, `strata node drain " + suspect + "`, `strata model load " + model +
         "`, and test the memory of '" + suspect + "', else that of '" + check.reference_node() +
         "'";
}

}  // namespace

std::vector<uint32_t> CheckTokens(const ModelRuntime& model, uint32_t count) {
  const uint32_t vocab = model.spec().vocab;
  std::vector<uint32_t> ids;
  uint64_t drawn = 0;
  while (ids.size() < count) {
    uint32_t id = 0;
    for (uint32_t i = 0; i < kTries; ++i) {
      id = static_cast<uint32_t>(Mix64(++drawn) % vocab);
      if (!IsSpecial(model, id)) {
        break;
      }
    }
    ids.push_back(id);
  }
  return ids;
}

uint64_t LargestLayerBytes(const ModelRuntime& model, const v1::LoadOptions& options) {
  const PlannerModel planned = model.ForPlanner(options);
  const size_t layers = planned.layer_bytes.size();
  uint64_t largest = 0;
  for (size_t i = 0; i < layers; ++i) {
    const bool heads = i + 1 == layers;
    // On whatever node.
    uint64_t buffers = 0;
    for (const Footprint* footprint : {&CpuFootprint(), &CudaFootprint(), &MlxFootprint()}) {
      buffers = std::max(
          buffers, footprint->BufferBytes(planned.spec, kReferenceRows, heads, options.context()));
    }
    const auto weights = [&](uint64_t layer, uint64_t embed, uint64_t head) {
      return layer + (i == 0 ? embed : 0) + (heads ? head : 0);
    };
    largest =
        std::max(largest, weights(planned.layer_bytes[i], planned.embed_bytes, planned.head_bytes) +
                              buffers);
    if (planned.on_mlx) {
      const PlannerWeights& mlx = *planned.on_mlx;
      largest =
          std::max(largest, weights(mlx.layer_bytes[i], mlx.embed_bytes, mlx.head_bytes) + buffers);
    }
  }
  return largest;
}

std::vector<std::string> NumericsByLayer(const v1::Plan& plan, uint32_t layers) {
  std::vector<std::string> numerics;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    numerics.push_back(NumericsOfLayers(plan.numerics_class().name(), layer, layer));
  }
  return numerics;
}

double ToleranceOf(const v1::Plan& plan) {
  return plan.numerics_class().name().find(",act=int8") != std::string::npos ? kInt8Tolerance
                                                                             : kTolerance;
}

RowDifference DifferenceOf(const std::string& a, const std::string& b, size_t rows) {
  const size_t bytes = rows == 0 ? 0 : a.size() / rows;
  if (a.size() != b.size() || bytes == 0 || a.size() != rows * bytes ||
      bytes % sizeof(float) != 0) {
    return {.largest = std::numeric_limits<double>::infinity()};
  }
  RowDifference found;
  std::vector<float> x(bytes / sizeof(float));
  std::vector<float> y(x.size());
  for (size_t row = 0; row < rows; ++row) {
    std::memcpy(x.data(), a.data() + row * bytes, bytes);
    std::memcpy(y.data(), b.data() + row * bytes, bytes);
    double most = 0;
    double difference = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double apart = std::abs(double{x[i]} - double{y[i]});
      most = std::max(most, std::abs(double{x[i]}));
      difference = std::isfinite(apart) ? std::max(difference, apart)
                                        : std::numeric_limits<double>::infinity();
    }
    const double share = difference == 0 ? 0 : difference / most;
    if (!(share <= found.largest)) {
      found = {.largest = share, .row = static_cast<uint32_t>(row)};
    }
  }
  return found;
}

const PlannerNode* ChooseReference(const std::vector<PlannerNode>& nodes, const v1::Plan& plan,
                                   const std::string& numerics, uint64_t bytes) {
  const auto worth = [&](const PlannerNode& node) {
    return std::tuple(node.free_bytes >= bytes, node.disk_free_bytes >= bytes,
                      !HasStage(plan, node.name), node.free_bytes);
  };
  const PlannerNode* best = nullptr;
  for (const PlannerNode& node : nodes) {
    if (node.numerics == numerics && (best == nullptr || worth(node) > worth(*best))) {
      best = &node;
    }
  }
  return best;
}

absl::Status AddComputed(const v1::LayersComputed& computed, uint32_t layer, uint32_t layers,
                         uint32_t tokens, LayerTable* table) {
  const bool last = layer + 1 == layers;
  if (computed.layers_size() != 1 || computed.layers(0).layer() != layer ||
      computed.layers(0).rows_size() != static_cast<int>(tokens)) {
    return BadResult(layer, "not a digest of each of the " + std::to_string(tokens) + " rows");
  }
  if (computed.done() != last || computed.logits_size() != static_cast<int>(last ? tokens : 0)) {
    return BadResult(layer, "logits where none are due, or none where they are");
  }
  table->emplace_back(computed.layers(0).rows().begin(), computed.layers(0).rows().end());
  if (last) {
    table->emplace_back(computed.logits().begin(), computed.logits().end());
  }
  return absl::OkStatus();
}

void CompareLayers(const std::string& model, const v1::Plan& plan, const LayerTable& stages,
                   const LayerTable& reference,
                   const std::function<std::string(uint32_t layer)>& computed_by,
                   v1::ModelCheck* check) {
  const auto [differs, right] =
      std::mismatch(stages.begin(), stages.end(), reference.begin(), reference.end());
  check->set_equal(differs == stages.end());
  check->set_layers(static_cast<uint32_t>(reference.size()) - 1);
  check->set_tokens(static_cast<uint32_t>(reference.front().size()));
  check->set_reference_node(computed_by(0));
  if (check->equal()) {
    return;
  }
  check->set_layer(static_cast<uint32_t>(differs - stages.begin()));
  check->set_position(static_cast<uint32_t>(
      std::mismatch(differs->begin(), differs->end(), right->begin(), right->end()).first -
      differs->begin()));
  NameStage(plan, check);
  check->set_reference_node(computed_by(std::min(check->layer(), check->layers() - 1)));
  check->set_hint(HintOf(model, *check));
}

void NoteAcross(const std::string& model, const v1::Plan& plan, uint32_t layer,
                const RowDifference& difference, v1::ModelCheck* check) {
  check->set_largest_difference(std::max(check->largest_difference(), difference.largest));
  if (difference.largest <= check->tolerance() || !check->equal()) {
    return;
  }
  check->set_equal(false);
  check->set_layer(layer);
  check->set_position(difference.row);
  NameStage(plan, check);
  check->set_hint("run the check with another --node of the same kind as '" + check->across_node() +
                  "'; where experts are chosen, two kinds may choose others of nearly equal ones. "
                  "Else `strata node drain " +
                  check->across_node() + "`, `strata model load " + model +
                  "`, and tell what differed");
}

}  // namespace strata
