// `quantization_config` of compressed-tensors. The fields: quantization/quant_config.py,
// quant_scheme.py and quant_args.py of github.com/vllm-project/compressed-tensors.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/quantization_fields.h"
#include "common/model/quantized_weights.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr char kMixed[] = "mixed-precision";

// The weights of a group: how they are quantized, whatever their format.
struct Weights {
  std::string where;  // "quantization_config.config_groups.\"group_0\".weights."
  std::string format;
  std::string type;
  std::string strategy;
  uint64_t bits = 0;
  bool symmetric = true;

  absl::Status Unsupported() const {
    return UnsupportedQuantization(absl::StrCat(where, "type ", Quoted(type), ", num_bits ", bits,
                                                symmetric ? "" : ", symmetric false", " in format ",
                                                Quoted(format)));
  }
  absl::Status UnsupportedStrategy() const {
    return UnsupportedQuantization(absl::StrCat(where, "strategy ", Quoted(strategy)));
  }
};

// By "group_size", "block_structure", or all at once.
absl::Status ReadStrategy(const Weights& weights, FieldReader* reader, StoredScheme* scheme) {
  if (weights.strategy == "block") {
    const json* block = reader->Find("block_structure");
    return ReadQuantizationBlock(block == nullptr ? json() : *block, "block_structure", scheme);
  }
  if (weights.strategy == "group") {
    scheme->block_inputs =
        static_cast<uint32_t>(reader->Uint("group_size", 1, kMaxQuantizationGroup));
    scheme->block_outputs = 1;
    return reader->status();
  }
  if (weights.strategy != "channel" && weights.strategy != "tensor") {
    return weights.UnsupportedStrategy();
  }
  scheme->block_outputs = weights.strategy == "channel" ? 1 : 0;
  return absl::OkStatus();
}

// Integers in words.
absl::Status ReadPacked(const Weights& weights, FieldReader* reader, StoredScheme* scheme) {
  scheme->method = QuantizationMethod::kPacked;
  const uint64_t group =
      weights.strategy == "group" ? reader->Uint("group_size", 1, kMaxQuantizationGroup) : 0;
  scheme->has_zeros = !weights.symmetric;
  RETURN_IF_ERROR(reader->status());
  if (weights.type != "int") {
    return weights.Unsupported();
  }
  if (weights.bits > 8) {
    return UnsupportedQuantization(absl::StrCat(weights.where, "num_bits ", weights.bits));
  }
  if (weights.strategy != "group" && weights.strategy != "channel") {
    return weights.UnsupportedStrategy();
  }
  if (group % 32 != 0) {
    return UnsupportedQuantization(absl::StrCat(weights.where, "group_size ", group));
  }
  scheme->integers = {static_cast<uint32_t>(weights.bits), static_cast<uint32_t>(group)};
  const json* order = reader->Find("actorder");
  if (order != nullptr && !order->is_boolean() && !order->is_string()) {
    return UnsupportedQuantization(absl::StrCat(weights.where, "actorder ", QuotedValue(*order)));
  }
  // "weight" and "static" are how scales were found; groups are in order.
  scheme->has_order =
      order != nullptr && (*order == true || *order == "group" || *order == "dynamic");
  return absl::OkStatus();
}

// A byte each: integers, or floats of 8 bits.
absl::Status ReadBytes(const Weights& weights, FieldReader* reader, StoredScheme* scheme) {
  const bool integers = weights.type == "int";
  if (integers ? weights.bits != 4 && weights.bits != 8
               : weights.type != "float" || weights.bits != 8 || !weights.symmetric) {
    return weights.Unsupported();
  }
  scheme->method = integers ? QuantizationMethod::kIntegers : QuantizationMethod::kFloat8;
  scheme->integers = {static_cast<uint32_t>(weights.bits), 0};
  scheme->has_zeros = !weights.symmetric;
  return ReadStrategy(weights, reader, scheme);
}

absl::Status ReadFloats4(const Weights& weights, uint64_t group, FieldReader* reader,
                         StoredScheme* scheme) {
  const uint64_t size = reader->Uint("group_size", 1, kMaxQuantizationGroup);
  RETURN_IF_ERROR(reader->status());
  if (weights.type != "float" || weights.bits != 4 || !weights.symmetric) {
    return weights.Unsupported();
  }
  if (size != group) {
    return UnsupportedQuantization(
        absl::StrCat(weights.where, "group_size ", size, " in format ", Quoted(weights.format)));
  }
  const bool nv = group == 16;
  if (weights.strategy != (nv ? "tensor_group" : "group")) {
    return weights.UnsupportedStrategy();
  }
  scheme->method = nv ? QuantizationMethod::kNvfp4 : QuantizationMethod::kMxfp4;
  scheme->integers = {4, static_cast<uint32_t>(group)};
  return absl::OkStatus();
}

absl::StatusOr<StoredScheme> ReadWeights(const Weights& weights, FieldReader* reader) {
  StoredScheme scheme;
  const std::string& format = weights.format;
  if (format == "pack-quantized") {
    RETURN_IF_ERROR(ReadPacked(weights, reader, &scheme));
  } else if (format == "naive-quantized" || (format == "int-quantized" && weights.type == "int") ||
             ((format == "float-quantized" || format == "mxfp8-quantized") &&
              weights.type == "float")) {
    RETURN_IF_ERROR(ReadBytes(weights, reader, &scheme));
    if (format == "mxfp8-quantized" && scheme.block_inputs != 32) {
      return UnsupportedQuantization(absl::StrCat(weights.where, "group_size ", scheme.block_inputs,
                                                  " in format ", Quoted(format)));
    }
  } else if (format == "nvfp4-pack-quantized" || format == "mxfp4-pack-quantized") {
    RETURN_IF_ERROR(ReadFloats4(weights, format[0] == 'n' ? 16 : 32, reader, &scheme));
  } else {
    return weights.Unsupported();
  }
  return scheme;
}

struct Group {
  std::vector<TargetPattern> targets;
  StoredScheme scheme;
};

// Nothing where the group is of activations alone.
absl::StatusOr<std::optional<Group>> ParseGroup(const json& value, const std::string& name,
                                                const std::string& format_of_all) {
  const std::string where = absl::StrCat(kQuantizationConfig, "config_groups.", Quoted(name));
  const json* weights =
      value.is_object() && value.contains("weights") ? &value["weights"] : nullptr;
  if (weights != nullptr && weights->is_null()) {
    return std::optional<Group>();
  }
  if (weights == nullptr || !weights->is_object()) {
    return UnsupportedQuantization(where + ".weights that is no object");
  }
  FieldReader of_group(&value, where + ".");
  Weights read;
  read.where = where + ".weights.";
  read.format = of_group.String("format", format_of_all);
  RETURN_IF_ERROR(of_group.status());
  if (read.format == kMixed) {
    return UnsupportedQuantization(absl::StrCat(where, " without a format of its own"));
  }
  FieldReader reader(weights, read.where);
  read.bits = reader.Uint("num_bits", 1, 64);
  read.type = reader.String("type", "int");
  read.strategy = reader.String("strategy", "");
  read.symmetric = reader.Bool("symmetric", true);
  RETURN_IF_ERROR(reader.status());
  Group group;
  ASSIGN_OR_RETURN(group.scheme, ReadWeights(read, &reader));
  const json* targets = of_group.Find("targets");
  if (targets == nullptr) {
    return std::optional<Group>(std::move(group));
  }
  ExpectListOfNames(&of_group, "targets");
  RETURN_IF_ERROR(of_group.status());
  for (const json& target : *targets) {
    ASSIGN_OR_RETURN(TargetPattern one, TargetPattern::Parse(target.get<std::string>()));
    group.targets.push_back(std::move(one));
  }
  return std::optional<Group>(std::move(group));
}

// In the order that targets are looked at: paths, patterns, classes, each by their text; of the
// same target the last group's.
std::vector<SchemeRule> RulesOf(const std::vector<Group>& groups) {
  std::vector<SchemeRule> rules;
  for (const Group& group : groups) {
    for (const TargetPattern& target : group.targets) {
      const auto same = std::find_if(rules.begin(), rules.end(),
                                     [&](const SchemeRule& rule) { return rule.target == target; });
      if (same != rules.end()) {
        same->scheme = group.scheme;
      } else {
        rules.push_back({target, group.scheme});
      }
    }
  }
  std::stable_sort(rules.begin(), rules.end(), [](const SchemeRule& a, const SchemeRule& b) {
    return std::pair(a.target.kind(), a.target.text()) <
           std::pair(b.target.kind(), b.target.text());
  });
  return rules;
}

}  // namespace

// Of one scheme, which matrices have it their tensors say; of several, their targets.
absl::StatusOr<QuantizationSpec> ParseCompressedTensors(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  ExpectQuantization(&reader, "format",
                     {"pack-quantized", "float-quantized", "int-quantized", "naive-quantized",
                      "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", kMixed});
  ExpectQuantization(&reader, "quantization_status", {"compressed"});
  ExpectListOfNames(&reader, "ignore");
  RETURN_IF_ERROR(reader.status());
  // A kv_cache_scheme is of activations, which are Strata's own affair.
  for (const char* other : {"sparsity_config", "transform_config"}) {
    const json* found = reader.Find(other);
    if (!IsNoQuantization(found) &&
        !(found->is_object() && found->value("format", json()) == "dense")) {
      return UnsupportedQuantization(
          absl::StrCat(kQuantizationConfig, other, " ", QuotedValue(*found)));
    }
  }
  const json* groups = reader.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    return UnsupportedQuantization(
        absl::StrCat(kQuantizationConfig, "config_groups that is no object of groups"));
  }
  std::vector<Group> read;
  for (const auto& [name, group] : groups->items()) {
    ASSIGN_OR_RETURN(std::optional<Group> one,
                     ParseGroup(group, name, reader.String("format", "pack-quantized")));
    if (one.has_value()) {
      read.push_back(*std::move(one));
    }
  }
  if (read.empty()) {
    return UnsupportedQuantization(
        absl::StrCat(kQuantizationConfig, "config_groups without weights"));
  }
  QuantizationSpec spec;
  static_cast<StoredScheme&>(spec) = read[0].scheme;
  if (std::any_of(read.begin(), read.end(),
                  [&](const Group& group) { return !(group.scheme == read[0].scheme); })) {
    spec.rules = RulesOf(read);
  }
  return spec;
}

}  // namespace strata
