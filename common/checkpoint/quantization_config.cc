#include "common/checkpoint/quantization_config.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/quantization_fields.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace strata {
namespace {

using nlohmann::json;

// Bits and group size of AWQ and GPTQ; -1: a group of all inputs.
absl::Status ReadBitsAndGroup(bool eight_too, FieldReader* reader, AffineSpec* spec) {
  const uint64_t bits = reader->Uint("bits", 1, 64);
  const json* group = reader->Find("group_size");
  const bool all = group != nullptr && group->is_number_integer() && *group == -1;
  spec->group =
      all ? 0 : static_cast<uint32_t>(reader->Uint("group_size", 1, kMaxQuantizationGroup, 128));
  RETURN_IF_ERROR(reader->status());
  if (bits != 4 && !(bits == 8 && eight_too)) {
    return UnsupportedQuantization(absl::StrCat(kQuantizationConfig, "bits ", bits));
  }
  if (spec->group % 32 != 0) {
    return UnsupportedQuantization(absl::StrCat(kQuantizationConfig, "group_size ", spec->group));
  }
  spec->bits = static_cast<uint32_t>(bits);
  return absl::OkStatus();
}

absl::StatusOr<QuantizationSpec> ParseAwq(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kAwq;
  RETURN_IF_ERROR(ReadBitsAndGroup(false, &reader, &spec.integers));
  ExpectQuantization(&reader, reader.Has("version") ? "version" : "format", {"gemm", "GEMM"});
  ExpectQuantization(&reader, "backend", {"auto", "autoawq"});
  ExpectListOfNames(&reader, "modules_to_not_convert");
  if (!reader.Bool("zero_point", true)) {
    reader.Fail(UnsupportedQuantization(absl::StrCat(kQuantizationConfig, "zero_point false")));
  }
  RETURN_IF_ERROR(reader.status());
  return spec;
}

// GPTQModel's settings of single modules: patterns that begin with "-:" leave them as they are,
// which their tensors say too.
absl::Status CheckDynamic(const json* dynamic) {
  if (dynamic == nullptr) {
    return absl::OkStatus();
  }
  if (!dynamic->is_object()) {
    return UnsupportedQuantization(
        absl::StrCat(kQuantizationConfig, "dynamic ", QuotedValue(*dynamic)));
  }
  for (const auto& [pattern, unused] : dynamic->items()) {
    if (!absl::StartsWith(pattern, "-:")) {
      return UnsupportedQuantization(
          absl::StrCat(kQuantizationConfig, "dynamic.", Quoted(pattern)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizationSpec> ParseGptq(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kGptq;
  RETURN_IF_ERROR(ReadBitsAndGroup(true, &reader, &spec.integers));
  const char* const format = reader.Has("checkpoint_format") ? "checkpoint_format" : "format";
  ExpectQuantization(&reader, format, {"gptq", "gptq_v2"});
  ExpectQuantization(&reader, "pack_dtype", {"int32"});
  spec.zeros_less_one = reader.String(format, "gptq") == "gptq";
  // The order of inputs says nothing where all are of one group.
  spec.has_order = reader.Bool("desc_act", false) && spec.integers.group != 0;
  if (reader.Bool("is_marlin_format", false)) {
    reader.Fail(
        UnsupportedQuantization(absl::StrCat(kQuantizationConfig, "is_marlin_format true")));
  }
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(CheckDynamic(reader.Find("dynamic")));
  return spec;
}

// `quant_method` fp8: a scale for each block, or for all. How a framework quantizes activations is
// its own affair.
absl::StatusOr<QuantizationSpec> ParseFp8(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kFloat8;
  ExpectQuantization(&reader, "fmt", {"e4m3", "float8_e4m3fn"});
  ExpectQuantization(&reader, "expert_dtype", {"fp8"});
  ExpectQuantization(&reader, "activation_scheme", {"dynamic", "static"});
  ExpectListOfNames(&reader, "modules_to_not_convert");
  RETURN_IF_ERROR(reader.status());
  if (const json* block = reader.Find("weight_block_size"); block != nullptr) {
    RETURN_IF_ERROR(ReadQuantizationBlock(*block, "weight_block_size", &spec));
  }
  return spec;
}

// `quant_method` fbgemm_fp8: a scale for each output.
absl::StatusOr<QuantizationSpec> ParseFbgemm(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  ExpectListOfNames(&reader, "modules_to_not_convert");
  RETURN_IF_ERROR(reader.status());
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kFloat8;
  spec.block_outputs = 1;
  return spec;
}

// The fields of ModelOpt's mixed files name a format for each module; their tensors say it too.
absl::StatusOr<QuantizationSpec> ParseModelOpt(const json& all) {
  const auto within = all.find("quantization");  // As ModelOpt's own file has it.
  const json& value = within != all.end() && within->is_object() ? *within : all;
  FieldReader reader(&value, kQuantizationConfig);
  ExpectQuantization(&reader, "quant_algo", {"NVFP4", "FP8", "MIXED_PRECISION", "MXFP8"});
  ExpectListOfNames(&reader, "ignore");
  ExpectListOfNames(&reader, "exclude_modules");
  const std::string algorithm = reader.String("quant_algo", "");
  if (algorithm.empty()) {
    reader.Fail("quant_algo", "is missing");
  }
  if (reader.Uint("group_size", 1, kMaxQuantizationGroup, 16) != 16 && algorithm == "NVFP4") {
    reader.Fail(UnsupportedQuantization(absl::StrCat(
        kQuantizationConfig, "group_size ", QuotedValue(value["group_size"]), " of NVFP4")));
  }
  RETURN_IF_ERROR(reader.status());
  QuantizationSpec spec;
  if (algorithm == "MXFP8") {
    spec.method = QuantizationMethod::kFloat8;
    spec.block_outputs = 1;
    spec.block_inputs = 32;
    return spec;
  }
  spec.method = QuantizationMethod::kModelOpt;
  spec.integers = {4, 16};
  return spec;
}

// Which types, sizes and scales there are, the tensors' own state says; a worker compares it.
absl::StatusOr<QuantizationSpec> ParseBitsAndBytes(const json& value) {
  FieldReader reader(&value, kQuantizationConfig);
  ExpectQuantization(&reader, "bnb_4bit_quant_type", {"fp4", "nf4"});
  ExpectQuantization(&reader, "bnb_4bit_quant_storage", {"uint8"});
  ExpectListOfNames(&reader, "llm_int8_skip_modules");
  if (reader.Bool("llm_int8_has_fp16_weight", false)) {
    reader.Fail(UnsupportedQuantization(
        absl::StrCat(kQuantizationConfig, "llm_int8_has_fp16_weight true")));
  }
  RETURN_IF_ERROR(reader.status());
  QuantizationSpec spec;
  spec.method = QuantizationMethod::kBitsAndBytes;
  spec.integers = {4, 64};
  return spec;
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseOther(const json& value) {
  if (!value.is_object()) {
    return UnsupportedQuantization("quantization_config " + QuotedValue(value));
  }
  FieldReader reader(&value, kQuantizationConfig);
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
  if (method == "modelopt") {
    return ParseModelOpt(value);
  }
  if (method == "bitsandbytes") {
    return ParseBitsAndBytes(value);
  }
  return UnsupportedQuantization(
      method.empty() ? "quantization_config " + QuotedValue(value)
                     : absl::StrCat(kQuantizationConfig, "quant_method ", Quoted(method)));
}

}  // namespace

bool IsNoQuantization(const json* value) {
  return value == nullptr || value->is_null() || value->empty() ||
         (value->is_boolean() && !value->get<bool>());
}

void ExpectQuantization(FieldReader* reader, const char* name,
                        std::initializer_list<const char*> known) {
  const std::string value = reader->String(name, *known.begin());
  if (std::none_of(known.begin(), known.end(), [&](const char* one) { return value == one; })) {
    reader->Fail(
        UnsupportedQuantization(absl::StrCat(kQuantizationConfig, name, " ", Quoted(value))));
  }
}

void ExpectListOfNames(FieldReader* reader, const char* name) {
  const json* value = reader->Find(name);
  if (value != nullptr &&
      (!value->is_array() || std::any_of(value->begin(), value->end(),
                                         [](const json& one) { return !one.is_string(); }))) {
    reader->Fail(name, QuotedValue(*value) + " is not a list of names");
  }
}

absl::Status UnsupportedQuantization(const std::string& what) {
  return UnsupportedModel(what).Hint(
      "use a checkpoint in F32, F16 or BF16, or one in a quantized format that "
      "docs/internals/weights.md names");
}

absl::Status ReadQuantizationBlock(const json& value, const std::string& name,
                                   StoredScheme* scheme) {
  const auto size = [](const json& one) {
    return one.is_number_unsigned() && one.get<uint64_t>() >= 1 &&
           one.get<uint64_t>() <= kMaxQuantizationGroup;
  };
  if (!value.is_array() || value.size() != 2 || !size(value[0]) || !size(value[1])) {
    return Error(
        absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
        absl::StrCat(kQuantizationConfig, name, " ", QuotedValue(value), " is not two sizes"));
  }
  scheme->block_outputs = value[0].get<uint32_t>();
  scheme->block_inputs = value[1].get<uint32_t>();
  return absl::OkStatus();
}

absl::StatusOr<std::string> AddModelOpt(const std::string& config_json, std::string_view stored) {
  constexpr const char* kAlgorithm = "quant_algo";
  ASSIGN_OR_RETURN(json config,
                   ParseJsonObject(config_json, "config.json", "INVALID_CONFIG", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const json file,
                   ParseJsonObject(stored, kModelOptName, "INVALID_CONFIG", kMaxConfigBytes));
  FieldReader reader(&file, absl::StrCat(kModelOptName, ": "));
  const json* said = reader.Find("quantization");
  if (said == nullptr || !said->is_object()) {
    reader.Fail("quantization", said == nullptr ? "is missing" : "is not an object");
    return reader.status();
  }
  json& own = config["quantization_config"];
  if (IsNoQuantization(&own)) {
    own = *said;
    own["quant_method"] = "modelopt";
    return config.dump();
  }
  const json of_config = own.is_object() ? own.value(kAlgorithm, json()) : json();
  const json of_file = said->value(kAlgorithm, json());
  if (!of_config.is_null() && !of_file.is_null() && of_config != of_file) {
    reader.Fail(absl::StrCat("quantization.", kAlgorithm),
                absl::StrCat("is ", QuotedValue(of_file), ", and quantization_config.", kAlgorithm,
                             " of config.json ", QuotedValue(of_config)));
    return reader.status();
  }
  return config_json;
}

absl::StatusOr<std::optional<QuantizationSpec>> ParseQuantization(const json& config) {
  FieldReader reader(&config, "");
  const json* mlx = reader.Find("quantization");
  const json* other = reader.Find("quantization_config");
  if (!IsNoQuantization(mlx)) {
    // MLX repeats it, or keeps what was said of the files that it quantized; it looks at its own.
    const bool of_source =
        other != nullptr && other->is_object() && other->contains("quant_method");
    if (!IsNoQuantization(other) && !of_source && *other != *mlx) {
      return UnsupportedQuantization("quantization_config " + QuotedValue(*other) +
                                     " beside another quantization");
    }
    ASSIGN_OR_RETURN(QuantizationSpec spec, ParseMlxQuantization(*mlx));
    return std::optional<QuantizationSpec>(std::move(spec));
  }
  if (!IsNoQuantization(other)) {
    return ParseOther(*other);
  }
  return std::optional<QuantizationSpec>();
}

}  // namespace strata
