// What config.json says of layers that differ: which look back through a window, and which rotate.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/family_config.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

// The window of the layers that have one; 0: there is none.
uint32_t ReadWindow(const json& config, const Family& family, FieldReader* reader) {
  if (family.windows == WindowRule::kNone || family.windows == WindowRule::kRefused) {
    return 0;
  }
  if (family.windows == WindowRule::kFlagged && !reader->Bool("use_sliding_window", false)) {
    return 0;
  }
  if (config.contains("sliding_window") && config["sliding_window"].is_null()) {
    return 0;
  }
  return static_cast<uint32_t>(
      reader->Has("sliding_window") || family.window == 0
          ? reader->Uint("sliding_window", 1, kMaxContextTokens, family.window)
          : family.window);
}

// By layer, whether it has the window, by the family's rule.
std::vector<bool> SlidingByRule(const Family& family, uint64_t layers, bool any,
                                FieldReader* reader) {
  std::vector<bool> slides(layers, any && family.windows == WindowRule::kAll);
  if (family.windows == WindowRule::kFlagged) {
    const uint64_t first = reader->Uint("max_window_layers", 0, UINT32_MAX, family.window_from);
    for (uint64_t i = first; any && i < layers; ++i) {
      slides[i] = true;
    }
  }
  for (uint64_t i = 0; any && family.windows == WindowRule::kAlternating && i < layers; i += 2) {
    slides[i] = true;
  }
  if (family.windows == WindowRule::kPattern) {
    // transformers 5 writes the second name, beside layer_types.
    constexpr const char* kNames[] = {"sliding_window_pattern", "_sliding_window_pattern"};
    const uint64_t pattern =
        reader->Uint(reader->NameOf(kNames), 1, kMaxLayers, family.window_pattern);
    for (uint64_t i = 0; any && i < layers; ++i) {
      slides[i] = (i + 1) % pattern != 0;
    }
  }
  return slides;
}

// What layer_types says of each layer.
absl::Status ReadLayerTypes(const json& kinds, const Family& family, bool any,
                            std::vector<bool>* slides) {
  if (!kinds.is_array() || kinds.size() != slides->size()) {
    return Error(
        absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
        absl::StrCat("layer_types is not a list of num_hidden_layers ", slides->size(), " names"));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const json& kind = kinds[i];
    const std::string name = kind.is_string() ? kind.get<std::string>() : "";
    const bool sliding = name == "sliding_attention";
    const bool contradicts = sliding && !any;
    if ((!sliding && name != "full_attention") || contradicts ||
        (!family.reads_layer_types && sliding != (*slides)[i])) {
      return UnsupportedModel(absl::StrCat("layer_types ", QuotedValue(kind), " of layer ", i,
                                           contradicts ? " without a sliding_window" : ""));
    }
    (*slides)[i] = sliding;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ReadWindows(const json& config, const Family& family,
                                                  uint64_t layers, uint64_t context) {
  FieldReader reader(&config, "");
  const uint32_t window = ReadWindow(config, family, &reader);
  std::vector<bool> slides = SlidingByRule(family, layers, window != 0, &reader);
  RETURN_IF_ERROR(reader.status());
  if (const json* kinds = reader.Find("layer_types"); kinds != nullptr) {
    RETURN_IF_ERROR(ReadLayerTypes(*kinds, family, window != 0, &slides));
  }
  std::vector<uint32_t> windows(layers, 0);
  for (uint64_t i = 0; i < layers; ++i) {
    windows[i] = slides[i] && window < context ? window : 0;
  }
  return windows;
}

absl::StatusOr<std::vector<bool>> ReadRotatingLayers(const json& config, const Family& family,
                                                     uint64_t layers) {
  std::vector<bool> rotates(layers, true);
  if (!Reads(family, "no_rope_layers")) {
    return rotates;
  }
  FieldReader reader(&config, "");
  const uint64_t interval = reader.Uint("no_rope_layer_interval", 1, kMaxLayers, 4);
  RETURN_IF_ERROR(reader.status());
  const json* list = reader.Find("no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() != layers)) {
    reader.Fail("no_rope_layers",
                absl::StrCat("is not a list of num_hidden_layers ", layers, " numbers"));
    return reader.status();
  }
  for (uint64_t i = 0; i < layers; ++i) {
    if (list == nullptr) {
      rotates[i] = (i + 1) % interval != 0;
      continue;
    }
    const json& flag = (*list)[i];
    if (flag != 0 && flag != 1) {
      reader.Fail("no_rope_layers", "holds " + QuotedValue(flag) + ", which is not 0 or 1");
      return reader.status();
    }
    rotates[i] = flag == 1;  // Whatever the name says.
  }
  return rotates;
}

}  // namespace strata
