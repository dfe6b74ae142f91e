#include "common/model/numerics_class.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace strata {
namespace {

std::string_view NumericsPart(std::string_view numerics_class) {
  return numerics_class.substr(0, numerics_class.find('/'));
}

std::optional<uint32_t> ParseLayer(std::string_view text) {
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return layer;
}

// "NAME:FIRST-LAST".
std::optional<LayerNumerics> ParseRun(std::string_view text) {
  const size_t colon = text.rfind(':');
  const size_t dash = text.rfind('-');
  if (colon == std::string_view::npos || dash == std::string_view::npos || dash < colon) {
    return std::nullopt;
  }
  const auto first = ParseLayer(text.substr(colon + 1, dash - colon - 1));
  const auto last = ParseLayer(text.substr(dash + 1));
  if (!first || !last || *first > *last) {
    return std::nullopt;
  }
  return LayerNumerics{text.substr(0, colon), *first, *last};
}

// Empty where the name is none of several.
std::vector<LayerNumerics> RunsOf(std::string_view numerics) {
  std::vector<LayerNumerics> runs;
  for (std::string_view rest = numerics; !rest.empty();) {
    const size_t plus = rest.find('+');
    const auto run = ParseRun(rest.substr(0, plus));
    const uint64_t next = runs.empty() ? 0 : uint64_t{runs.back().last_layer} + 1;
    if (!run || run->first_layer != next) {
      return {};
    }
    runs.push_back(*run);
    rest = plus == std::string_view::npos ? "" : rest.substr(plus + 1);
  }
  return runs;
}

}  // namespace

std::string NumericsOfStages(std::span<const LayerNumerics> stages) {
  std::vector<LayerNumerics> runs;
  for (const LayerNumerics& stage : stages) {
    if (!runs.empty() && runs.back().numerics == stage.numerics) {
      runs.back().last_layer = stage.last_layer;
    } else {
      runs.push_back(stage);
    }
  }
  if (runs.size() <= 1) {
    return runs.empty() ? "" : std::string(runs.front().numerics);
  }
  std::string name;
  for (const LayerNumerics& run : runs) {
    name += (name.empty() ? "" : "+") + std::string(run.numerics) + ":" +
            std::to_string(run.first_layer) + "-" + std::to_string(run.last_layer);
  }
  return name;
}

std::string NumericsOfLayers(std::string_view numerics_class, uint32_t first_layer,
                             uint32_t last_layer) {
  const std::string_view numerics = NumericsPart(numerics_class);
  const std::vector<LayerNumerics> runs = RunsOf(numerics);
  if (runs.empty()) {
    return std::string(numerics);
  }
  for (const LayerNumerics& run : runs) {
    if (first_layer >= run.first_layer && last_layer <= run.last_layer) {
      return std::string(run.numerics);
    }
  }
  return "";
}

std::string ClassOfLayers(std::string_view numerics_class, uint32_t first_layer,
                          uint32_t last_layer) {
  const std::string numerics = NumericsOfLayers(numerics_class, first_layer, last_layer);
  return numerics.empty()
             ? ""
             : numerics + std::string(numerics_class.substr(NumericsPart(numerics_class).size()));
}

std::string ClassAsIn(std::string_view numerics_class, std::string_view numerics) {
  std::string rest(numerics_class.substr(NumericsPart(numerics_class).size()));
  constexpr std::string_view kInt8 = ",act=int8";
  if (const size_t at = rest.find(kInt8);
      at != std::string::npos && !TakesInt8Activations(numerics)) {
    rest.replace(at, kInt8.size(), ",act=f32");
  }
  return std::string(numerics) + rest;
}

bool IsMixed(std::string_view numerics_class) {
  return RunsOf(NumericsPart(numerics_class)).size() > 1;
}

bool TakesInt8Activations(std::string_view backend_numerics) {
  const std::string_view numerics = NumericsPart(backend_numerics);
  const std::vector<LayerNumerics> runs = RunsOf(numerics);
  return !numerics.starts_with("mlx") &&
         std::none_of(runs.begin(), runs.end(),
                      [](const LayerNumerics& run) { return run.numerics.starts_with("mlx"); });
}

}  // namespace strata
