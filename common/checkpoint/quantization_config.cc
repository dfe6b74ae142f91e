#include "common/checkpoint/quantization_config.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/quantized_weights.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

using nlohmann::json;

constexpr char kWhere[] = "quantization_config.";
constexpr uint64_t kMaxGroup = 1u << 20;

absl::Status Unsupported(const std::string& what) {
  return UnsupportedModel(what).Hint(
      "use a checkpoint in F32, F16 or BF16, or one in a quantized format that "
      "docs/ARCHITECTURE.md names under \"Weights\"");
}

bool IsNone(const json* value) {
  return value == nullptr || value->is_null() || value->empty() ||
         (value->is_boolean() && !value->get<bool>());
}

// Fails unless the field is absent or says this.
void Expect(FieldReader* reader, const char* name, std::initializer_list<const char*> known) {
  const std::string value = reader->String(name, *known.begin());
  if (std::none_of(known.begin(), known.end(), [&](const char* one) { return value == one; })) {
    reader->Fail(Unsupported(absl::StrCat(kWhere, name, " ", Quoted(value))));
  }
}

// A list of names that changes nothing: which matrices are quantized, their tensors say.
void ExpectNames(FieldReader* reader, const char* name) {
  const json* value = reader->Find(name);
  if (value != nullptr &&
      (!value->is_array() || std::any_of(value->begin(), value->end(),
                                         [](const json& one) { return !one.is_string(); }))) {
    reader->Fail(name, QuotedValue(*value) + " is not a list of names");
  }
}

// `where` is the object's path, for errors.
absl::StatusOr<AffineSpec> ParseAffine(const json& value, const std::string& where) {
  FieldReader reader(&value, where);
  const std::string mode = reader.String("mode", "affine");
  const uint64_t bits = reader.Uint("bits", 1, 64);
  const uint64_t group = reader.Uint("group_size", 1, kMaxGroup, 64);
  RETURN_IF_ERROR(reader.status());
  if (mode != "affine") {
    return Unsupported(absl::StrCat(where, "mode ", Quoted(mode)));
  }
  if (!IsAffineBits(bits)) {
    return Unsupported(absl::StrCat(where, "bits ", bits));
  }
  if (!IsAffineGroup(group)) {
    return Unsupported(absl::StrCat(where, "group_size ", group));
  }
  return AffineSpec{static_cast<uint32_t>(bits), static_cast<uint32_t>(group)};
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseMlx(const json& mlx) {
  if (!mlx.is_object()) {
    return Unsupported("quantization " + QuotedValue(mlx));
  }
  QuantizationSpec spec;
  ASSIGN_OR_RETURN(spec.by_default, ParseAffine(mlx, "quantization."));
  for (const auto& [path, value] : mlx.items()) {
    // A path that is not quantized says false; its missing scales say so too.
    if (value.is_object()) {
      ASSIGN_OR_RETURN(spec.by_path[path],
                       ParseAffine(value, absl::StrCat("quantization.", Quoted(path), ".")));
    }
  }
  return std::optional<QuantizationSpec>(std::move(spec));
}

// Bits and group size of AWQ and GPTQ; -1: a group of all inputs.
absl::Status ReadBitsAndGroup(bool eight_too, FieldReader* reader, AffineSpec* spec) {
  const uint64_t bits = reader->Uint("bits", 1, 64);
  const json* group = reader->Find("group_size");
  const bool all = group != nullptr && group->is_number_integer() && *group == -1;
  spec->group = all ? 0 : static_cast<uint32_t>(reader->Uint("group_size", 1, kMaxGroup, 128));
  RETURN_IF_ERROR(reader->status());
  if (bits != 4 && !(bits == 8 && eight_too)) {
    return Unsupported(absl::StrCat(kWhere, "bits ", bits));
  }
  if (spec->group % 32 != 0) {
    return Unsupported(absl::StrCat(kWhere, "group_size ", spec->group));
  }
  spec->bits = static_cast<uint32_t>(bits);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseAwq(const json& value) {
  FieldReader reader(&value, kWhere);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kAwq;
  RETURN_IF_ERROR(ReadBitsAndGroup(false, &reader, &spec.by_default));
  Expect(&reader, reader.Has("version") ? "version" : "format", {"gemm", "GEMM"});
  Expect(&reader, "backend", {"auto", "autoawq"});
  ExpectNames(&reader, "modules_to_not_convert");
  if (!reader.Bool("zero_point", true)) {
    reader.Fail(Unsupported(absl::StrCat(kWhere, "zero_point false")));
  }
  RETURN_IF_ERROR(reader.status());
  return std::optional<QuantizationSpec>(std::move(spec));
}

// GPTQModel's settings of single modules: patterns that begin with "-:" leave them as they are,
// which their tensors say too.
absl::Status CheckDynamic(const json* dynamic) {
  if (dynamic == nullptr) {
    return absl::OkStatus();
  }
  if (!dynamic->is_object()) {
    return Unsupported(absl::StrCat(kWhere, "dynamic ", QuotedValue(*dynamic)));
  }
  for (const auto& [pattern, unused] : dynamic->items()) {
    if (!absl::StartsWith(pattern, "-:")) {
      return Unsupported(absl::StrCat(kWhere, "dynamic.", Quoted(pattern)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseGptq(const json& value) {
  FieldReader reader(&value, kWhere);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kGptq;
  RETURN_IF_ERROR(ReadBitsAndGroup(true, &reader, &spec.by_default));
  const char* const format = reader.Has("checkpoint_format") ? "checkpoint_format" : "format";
  Expect(&reader, format, {"gptq", "gptq_v2"});
  Expect(&reader, "pack_dtype", {"int32"});
  spec.zeros_less_one = reader.String(format, "gptq") == "gptq";
  // The order of inputs says nothing where all are of one group.
  spec.has_order = reader.Bool("desc_act", false) && spec.by_default.group != 0;
  if (reader.Bool("is_marlin_format", false)) {
    reader.Fail(Unsupported(absl::StrCat(kWhere, "is_marlin_format true")));
  }
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(CheckDynamic(reader.Find("dynamic")));
  return std::optional<QuantizationSpec>(std::move(spec));
}

// Sizes of a block of outputs and inputs.
absl::Status ReadBlock(const json& value, const std::string& name, QuantizationSpec* spec) {
  const auto size = [](const json& one) {
    return one.is_number_unsigned() && one.get<uint64_t>() >= 1 && one.get<uint64_t>() <= kMaxGroup;
  };
  if (!value.is_array() || value.size() != 2 || !size(value[0]) || !size(value[1])) {
    return Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
                 absl::StrCat(kWhere, name, " ", QuotedValue(value), " is not two sizes"));
  }
  spec->block_outputs = value[0].get<uint32_t>();
  spec->block_inputs = value[1].get<uint32_t>();
  return absl::OkStatus();
}

// `quant_method` fp8: a scale for each block, or for all. How a framework quantizes activations is
// its own affair.
absl::StatusOr<std::optional<QuantizationSpec>> ParseFp8(const json& value) {
  FieldReader reader(&value, kWhere);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kFloat8;
  Expect(&reader, "fmt", {"e4m3", "float8_e4m3fn"});
  Expect(&reader, "expert_dtype", {"fp8"});
  Expect(&reader, "activation_scheme", {"dynamic", "static"});
  ExpectNames(&reader, "modules_to_not_convert");
  RETURN_IF_ERROR(reader.status());
  if (const json* block = reader.Find("weight_block_size"); block != nullptr) {
    RETURN_IF_ERROR(ReadBlock(*block, "weight_block_size", &spec));
  }
  return std::optional<QuantizationSpec>(std::move(spec));
}

// `quant_method` fbgemm_fp8: a scale for each output.
absl::StatusOr<std::optional<QuantizationSpec>> ParseFbgemm(const json& value) {
  FieldReader reader(&value, kWhere);
  ExpectNames(&reader, "modules_to_not_convert");
  RETURN_IF_ERROR(reader.status());
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kFloat8;
  spec.block_outputs = 1;
  return std::optional<QuantizationSpec>(std::move(spec));
}

// Integers of compressed-tensors' pack-quantized.
absl::Status ReadPacked(const std::string& where, FieldReader* reader, QuantizationSpec* spec) {
  spec->method = QuantizationMethod::kPacked;
  const uint64_t bits = reader->Uint("num_bits", 1, 64);
  const std::string type = reader->String("type", "int");
  const std::string strategy = reader->String("strategy", "");
  const uint64_t group = strategy == "group" ? reader->Uint("group_size", 1, kMaxGroup) : 0;
  spec->has_zeros = !reader->Bool("symmetric", true);
  RETURN_IF_ERROR(reader->status());
  if (type != "int") {
    return Unsupported(absl::StrCat(where, "type ", Quoted(type), " in format \"pack-quantized\""));
  }
  if (!IsAffineBits(bits)) {
    return Unsupported(absl::StrCat(where, "num_bits ", bits));
  }
  if (strategy != "group" && strategy != "channel") {
    return Unsupported(absl::StrCat(where, "strategy ", Quoted(strategy)));
  }
  if (group % 32 != 0) {
    return Unsupported(absl::StrCat(where, "group_size ", group));
  }
  spec->by_default = {static_cast<uint32_t>(bits), static_cast<uint32_t>(group)};
  const json* order = reader->Find("actorder");
  if (order != nullptr && !order->is_boolean() && !order->is_string()) {
    return Unsupported(absl::StrCat(where, "actorder ", QuotedValue(*order)));
  }
  // "weight" and "static" are how scales were found; groups are in order.
  spec->has_order =
      order != nullptr && (*order == true || *order == "group" || *order == "dynamic");
  return absl::OkStatus();
}

// Floats of 8 bits, compressed-tensors' float-quantized.
absl::Status ReadFloats(const std::string& where, FieldReader* reader, QuantizationSpec* spec) {
  spec->method = QuantizationMethod::kFloat8;
  const uint64_t bits = reader->Uint("num_bits", 1, 64);
  const std::string type = reader->String("type", "int");
  const std::string strategy = reader->String("strategy", "");
  const bool symmetric = reader->Bool("symmetric", true);
  RETURN_IF_ERROR(reader->status());
  if (type != "float" || bits != 8 || !symmetric) {
    return Unsupported(absl::StrCat(where, "type ", Quoted(type), ", num_bits ", bits,
                                    symmetric ? "" : ", symmetric false",
                                    " in format \"float-quantized\""));
  }
  if (strategy == "block") {
    const json* block = reader->Find("block_structure");
    return ReadBlock(block == nullptr ? json() : *block, "block_structure", spec);
  }
  if (strategy != "channel" && strategy != "tensor") {
    return Unsupported(absl::StrCat(where, "strategy ", Quoted(strategy)));
  }
  spec->block_outputs = strategy == "channel" ? 1 : 0;
  return absl::OkStatus();
}

absl::StatusOr<QuantizationSpec> ParseGroup(const json& group, const std::string& name,
                                            const std::string& format) {
  const std::string where = absl::StrCat(kWhere, "config_groups.", Quoted(name), ".weights");
  const json* weights =
      group.is_object() && group.contains("weights") ? &group["weights"] : nullptr;
  if (weights == nullptr || !weights->is_object()) {
    return Unsupported(where + " that is no object");
  }
  QuantizationSpec spec;
  FieldReader reader(weights, where + ".");
  RETURN_IF_ERROR(format == "pack-quantized" ? ReadPacked(where + ".", &reader, &spec)
                                             : ReadFloats(where + ".", &reader, &spec));
  return spec;
}

// Which matrices are of a group, its targets and `ignore` say, and their tensors.
absl::StatusOr<std::optional<QuantizationSpec>> ParseCompressedTensors(const json& value) {
  FieldReader reader(&value, kWhere);
  Expect(&reader, "format", {"pack-quantized", "float-quantized"});
  Expect(&reader, "quantization_status", {"compressed"});
  ExpectNames(&reader, "ignore");
  RETURN_IF_ERROR(reader.status());
  for (const char* other : {"kv_cache_scheme", "sparsity_config", "transform_config"}) {
    const json* found = reader.Find(other);
    if (!IsNone(found) && !(found->is_object() && found->value("format", json()) == "dense")) {
      return Unsupported(absl::StrCat(kWhere, other, " ", QuotedValue(*found)));
    }
  }
  const json* groups = reader.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    return Unsupported(absl::StrCat(kWhere, "config_groups that is no object of groups"));
  }
  std::optional<QuantizationSpec> all;
  for (const auto& [name, group] : groups->items()) {
    ASSIGN_OR_RETURN(const QuantizationSpec spec,
                     ParseGroup(group, name, reader.String("format", "pack-quantized")));
    if (all.has_value() && !(*all == spec)) {
      return Unsupported(absl::StrCat(kWhere, "config_groups.", Quoted(name),
                                      ".weights that differ from another group's"));
    }
    all = spec;
  }
  return all;
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseOther(const json& value) {
  if (!value.is_object()) {
    return Unsupported("quantization_config " + QuotedValue(value));
  }
  FieldReader reader(&value, kWhere);
  const std::string method = reader.String("quant_method", "");
  RETURN_IF_ERROR(reader.status());
  if (method == "mxfp4") {  // gpt-oss' experts, which their tensors' names say too.
    return std::optional<QuantizationSpec>();
  }
  if (method == "awq") {
    return ParseAwq(value);
  }
  if (method == "gptq") {
    return ParseGptq(value);
  }
  if (method == "compressed-tensors") {
    return ParseCompressedTensors(value);
  }
  if (method == "fp8") {
    return ParseFp8(value);
  }
  if (method == "fbgemm_fp8") {
    return ParseFbgemm(value);
  }
  return Unsupported(method.empty() ? "quantization_config " + QuotedValue(value)
                                    : absl::StrCat(kWhere, "quant_method ", Quoted(method)));
}

}  // namespace

absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const json& config) {
  FieldReader reader(&config, "");
  const json* mlx = reader.Find("quantization");
  const json* other = reader.Find("quantization_config");
  if (!IsNone(mlx)) {
    // MLX repeats it.
    return IsNone(other) || *other == *mlx
               ? ParseMlx(*mlx)
               : Unsupported("quantization_config " + QuotedValue(*other));
  }
  if (!IsNone(other)) {
    return ParseOther(*other);
  }
  return std::optional<QuantizationSpec>();
}

}  // namespace strata
