// What tests of configurations share.
#ifndef STRATA_TESTS_COMMON_CHECKPOINT_CONFIG_TESTING_H_
#define STRATA_TESTS_COMMON_CHECKPOINT_CONFIG_TESTING_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata::testing {

inline absl::StatusOr<ModelSpec> Parse(const nlohmann::json& config,
                                       std::string_view generation = "") {
  return ParseModelConfig(config.dump(), generation);
}

inline nlohmann::json Small() { return nlohmann::json::parse(SmallConfig()); }

// The configuration of a golden model.
inline nlohmann::json FamilyConfig(const std::string& model) {
  return nlohmann::json::parse(ReadFileOrFail(GoldenPath("models/" + model + "/config.json")));
}

// compressed-tensors' settings of 4 bits in groups of 128, but for these of weights and of all.
using Fields = std::map<std::string, nlohmann::json>;
inline nlohmann::json Compressed(const Fields& weights, const Fields& all = {}) {
  nlohmann::json group = {
      {"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}};
  for (const auto& [name, value] : weights) {
    group[name] = value;
  }
  nlohmann::json config = {{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}};
  config["config_groups"]["group_0"] = {{"targets", {"Linear"}}, {"weights", std::move(group)}};
  for (const auto& [name, value] : all) {
    config[name] = value;
  }
  return config;
}

// A field, a value for it, and part of what is said of it.
struct Change {
  const char* field;
  nlohmann::json value;
  const char* says;
};

// Of each layer.
inline std::vector<uint32_t> WindowsOf(const ModelSpec& spec) {
  std::vector<uint32_t> windows;
  for (const LayerSpec& layer : spec.layers) {
    windows.push_back(spec.kv_groups[layer.attention.kv_group].window);
  }
  return windows;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COMMON_CHECKPOINT_CONFIG_TESTING_H_
