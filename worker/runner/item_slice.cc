#include "worker/runner/item_slice.h"

#include <algorithm>
#include <string>

#include "common/status.h"

namespace strata {

ItemSlice SliceOf(const v1::StepItem& item) {
  return {item.from_layer(), item.end_layer() == 0 ? ItemSlice::kToTheEnd : item.end_layer()};
}

bool HasSlices(const v1::StepFrame& frame) {
  return std::any_of(frame.items().begin(), frame.items().end(),
                     [](const v1::StepItem& item) { return !SliceOf(item).whole(); });
}

uint32_t RowsBegun(const v1::StepFrame& frame) {
  uint32_t rows = 0;
  for (const v1::StepItem& item : frame.items()) {
    rows += item.from_layer() == 0 ? static_cast<uint32_t>(item.token_ids_size()) : 0;
  }
  return rows;
}

uint64_t PayloadRows(const v1::StepFrame& frame, uint32_t layer) {
  uint64_t rows = 0;
  for (const v1::StepItem& item : frame.items()) {
    rows += SliceOf(item).PassesInto(layer) ? static_cast<uint64_t>(item.token_ids_size()) : 0;
  }
  return rows;
}

absl::Status CheckSlice(const v1::StepItem& item, const ModelSpec& model) {
  const ItemSlice slice = SliceOf(item);
  if (slice.whole() && item.end_layer() == 0) {
    return absl::OkStatus();
  }
  const auto layers = static_cast<uint32_t>(model.layers.size());
  const auto bad = [&item](const std::string& what) {
    return Error(absl::StatusCode::kInvalidArgument, "ITEM_SLICE", what)
        .Fact("from_layer", item.from_layer())
        .Fact("end_layer", item.end_layer());
  };
  if (slice.from > layers || item.end_layer() > layers || slice.from >= slice.end) {
    return bad("layers " + std::to_string(item.from_layer()) + " to " +
               std::to_string(item.end_layer()) + " are no slice of a model of " +
               std::to_string(layers) + " layers");
  }
  if (item.digest_layers()) {
    return bad("an item whose layers are digested is computed as a whole");
  }
  if (slice.from > 0 && !item.embedding_rows().empty()) {
    return bad("rows of input embeddings come with an item's first slice");
  }
  return absl::OkStatus();
}

}  // namespace strata
