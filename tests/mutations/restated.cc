#include "tests/mutations/restated.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "common/model/model_spec.h"
#include "tests/mutations/field_defaults.h"

namespace strata::testing {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> NumberIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}
std::string TextIn(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
bool HasIn(const Json& object, const char* name) {
  return object.contains(name) && !object[name].is_null();
}
// Qwen2.5-VL's fields of the text may stand beside those of its vision.
std::string FamilyOf(const Json& document) {
  const std::string type = TextIn(DecoderFields(document), "model_type");
  return type == "qwen2_vl" || type == "qwen2_5_vl" ? type + "_text" : type;
}
class Reading {
 public:
  Reading(const Json& before, const Json& config, const Facts& valid)
      : config_(config), family_(FamilyOf(before)), wanted_{valid, {}} {}

  void Read(const std::string& field) {
    const auto found = Table().find(field);
    if (found != Table().end()) (this->*found->second)();
  }
  Wanted Take() { return std::move(wanted_); }

  using Rule = void (Reading::*)();
  static const std::map<std::string, Rule>& Table();

 private:
  std::optional<double> Number(const char* name) const { return NumberIn(config_, name); }
  bool Is(std::string_view family) const { return family_ == family; }
  // DeepSeek-V3's mixtures.
  bool HasGroups() const {
    return Is("deepseek_v3") || Is("kimi_k2") || Is("glm4_moe") || Is("glm4_moe_lite");
  }
  bool IsGemma() const { return Is("gemma2") || Is("gemma3_text"); }
  double Of(uint64_t layer, std::string_view name) const {
    return wanted_.facts.at(FactOfLayer(layer, name));
  }
  void Set(uint64_t layer, std::string_view name, double value) {
    wanted_.facts[FactOfLayer(layer, name)] = value;
  }
  void Open(std::initializer_list<const char*> names) {
    wanted_.open.insert(names.begin(), names.end());
  }
  // A number, or what the family's configuration class has for one that is not there.
  double Value(const char* field) const {
    return Number(field).value_or(DefaultOf(family_, field));
  }

  void NormEps() {
    wanted_.SetInLayers("norm_eps", Value("rms_norm_eps"));
    wanted_.facts["final_norm_eps"] = Value("rms_norm_eps");
  }
  void Tied() {
    const bool given =
        config_.contains("tie_word_embeddings") && config_["tie_word_embeddings"].is_boolean();
    wanted_.facts["tied_head"] = given ? config_["tie_word_embeddings"].get<bool>()
                                       : DefaultOf(family_, "tie_word_embeddings") != 0;
  }
  void Context() {
    const double positions = Value("max_position_embeddings");
    const Json object = RopeObject();
    const double factor = NumberIn(object, "factor").value_or(1);
    const std::string type = TypeOf(object);
    const double extended = type == "yarn" && !Is("phi3") ? factor * Original(object)
                            : type == "dynamic"           ? factor * positions
                                                          : 0;
    wanted_.facts["context"] = std::max(positions, std::floor(extended));
    Windows();
  }
  void Bos() { Open({"bos"}); }
  void Eos() { Open({"eos"}); }

  // A cap that is null is none; of families without caps both fields are refused or neutral.
  void Caps() {
    if (!IsGemma()) return;
    const auto cap = [&](const char* field) {
      const bool none = config_.contains(field) && config_[field].is_null();
      return none ? 0 : Value(field);
    };
    wanted_.SetInLayers("soft_cap", cap("attn_logit_softcapping"));
    wanted_.facts["final_soft_cap"] = cap("final_logit_softcapping");
  }
  void Granite() {
    if (!Is("granite")) return;
    wanted_.facts["embedding_scale"] = Value("embedding_multiplier");
    wanted_.facts["input_embedding_scale"] = Value("embedding_multiplier");
    wanted_.facts["logits_divisor"] = Value("logits_scaling");
    wanted_.SetInLayers("branch_scale", Value("residual_multiplier"));
    Scores();
  }

  // By what scores are multiplied.
  void Scores() {
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      const double divisor = IsGemma() ? Value("query_pre_attn_scalar") : Of(i, "head_dim");
      const double scale = Is("granite") ? Value("attention_multiplier") : 1 / std::sqrt(divisor);
      Set(i, "scale", Of(i, "latent.rank") != 0 ? scale * LatentFactor() : scale);
    }
  }
  double LatentFactor() const {
    const Json object = RopeObject();
    const double by = NumberIn(object, "mscale_all_dim").value_or(0);
    const double m = by == 0 ? 1 : YarnScale(NumberIn(object, "factor").value_or(1), by);
    return m * m;
  }

  void Heads() {
    const double heads = Value("num_attention_heads");
    wanted_.SetInLayers("heads", heads);
    if (Of(0, "latent.rank") != 0) return;
    const bool own = HasDefault(family_, "num_key_value_heads");
    wanted_.SetInLayers("kv_heads", own ? Value("num_key_value_heads")
                                        : Number("num_key_value_heads").value_or(heads));
    wanted_.SetInLayers("head_dim",
                        HasDefault(family_, "head_dim")
                            ? Value("head_dim")
                            : Number("head_dim").value_or(wanted_.facts["hidden"] / heads));
    Scores();
    Ropes();
  }

  // Which layers look back through the window, and how far.
  std::vector<bool> Slides(double* window) const {
    const uint64_t layers = wanted_.layers();
    const bool flagged = Is("qwen2") || Is("qwen3") || Is("minicpmo") || Is("qwen2_vl_text") ||
                         Is("qwen2_5_vl_text");
    const bool alternates = Is("gpt_oss");
    std::vector<bool> slides(layers,
                             Is("mistral") || Is("mixtral") || Is("phi3") || Is("ministral3"));
    *window = Value("sliding_window");
    const bool none = config_.contains("sliding_window") && config_["sliding_window"].is_null();
    if (none || (flagged && config_.value("use_sliding_window", Json(false)) != true)) {
      *window = 0;
    }
    for (uint64_t i = 0; i < layers; ++i) {
      if (flagged) slides[i] = i >= Value("max_window_layers");
      if (alternates) slides[i] = i % 2 == 0;
      if (Is("gemma2")) slides[i] = i % 2 == 0;
      if (Is("olmo3")) slides[i] = (i + 1) % 4 != 0;
      if (Is("gemma3_text")) {
        const auto pattern = static_cast<uint64_t>(Value("sliding_window_pattern"));
        slides[i] = (i + 1) % pattern != 0;
      }
    }
    if (HasIn(config_, "layer_types") && (flagged || alternates || IsGemma() || Is("olmo3"))) {
      for (uint64_t i = 0; i < layers; ++i) {
        slides[i] = config_["layer_types"].at(i) == "sliding_attention";
      }
    }
    for (uint64_t i = 0; i < layers; ++i) slides[i] = slides[i] && *window != 0;
    return slides;
  }
  void Windows() {
    double window = 0;
    const std::vector<bool> slides = Slides(&window);
    for (uint64_t i = 0; i < slides.size(); ++i) {
      const bool within = slides[i] && window < wanted_.facts["context"];
      Set(i, "window", within ? window : 0);
      const bool latent = Of(i, "latent.rank") != 0;
      Set(i, "kept_by",
          static_cast<double>(within   ? KvKind::kWindow
                              : latent ? KvKind::kMla
                                       : KvKind::kFull));
    }
    Ropes();
  }

  Json RopeObject() const {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      if (HasIn(config_, name) && config_[name].is_object() && !config_[name].empty()) {
        return config_[name];
      }
    }
    if (Is("gpt_oss") && !HasIn(config_, "rope_parameters") && !HasIn(config_, "rope_scaling")) {
      return Json{{"type", "yarn"},
                  {"factor", 32},
                  {"truncate", false},
                  {"original_max_position_embeddings", 4096}};
    }
    return Json::object();
  }
  static std::string TypeOf(const Json& rope) {
    return HasIn(rope, "rope_type") ? TextIn(rope, "rope_type") : TextIn(rope, "type");
  }
  // What it was trained for: within, at the top level, or max_position_embeddings.
  double Original(const Json& rope) const {
    constexpr const char* kField = "original_max_position_embeddings";
    const double outside = Number(kField).value_or(Value("max_position_embeddings"));
    return NumberIn(rope, kField).value_or(outside);
  }
  void Ropes() {
    double window = 0;
    const std::vector<bool> slides = Slides(&window);
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      const bool local = (Is("gemma3_text") || Is("olmo3")) && slides[i];
      const Json object = local ? Json::object() : RopeObject();
      const double theta = local && IsGemma()
                               ? Value("rope_local_base_freq")
                               : NumberIn(object, "rope_theta").value_or(Value("rope_theta"));
      Rope(i, object, theta);
    }
  }
  void Rope(uint64_t layer, const Json& object, double theta) {
    const std::string prefix = FactOfLayer(layer, "rope.");
    std::erase_if(wanted_.facts, [&](const auto& fact) { return fact.first.starts_with(prefix); });
    const auto set = [&](const char* name, double value) { wanted_.facts[prefix + name] = value; };
    const RopeSpec none;
    double dim = Of(layer, Of(layer, "latent.rank") != 0 ? "latent.rope_dim" : "head_dim");
    constexpr const char* kShare = "partial_rotary_factor";
    if (Is("phi3")) {
      dim = std::floor(dim * NumberIn(object, kShare).value_or(Number(kShare).value_or(1)));
    } else if (Is("glm") || Is("glm4") || Is("glm4_moe") || Is("minimax_m2")) {
      const double turning = Is("minimax_m2") ? Number("rotary_dim").value_or(dim) : dim / 2;
      const auto share = NumberIn(object, kShare);
      dim = share || Number(kShare) ? std::floor(dim * share.value_or(Number(kShare).value_or(0)))
                                    : turning;
    }
    Set(layer, "query_growth", 0);
    Set(layer, "query_growth_every", 0);
    if (const double growth = NumberIn(object, "llama_4_scaling_beta").value_or(0);
        Is("ministral3") && growth != 0) {
      Set(layer, "query_growth", growth);
      Set(layer, "query_growth_every", Original(object));
    }
    set("dim", dim);
    set("theta", theta);
    set("scaling", static_cast<double>(RopeScaling::kNone));
    set("factor", none.factor);
    set("low", none.low_freq_factor);
    set("high", none.high_freq_factor);
    set("original", none.original_context);
    set("yarn_low", none.yarn_low);
    set("yarn_high", none.yarn_high);
    set("magnitude", none.magnitude);
    const std::string type = TypeOf(object);
    const double factor = NumberIn(object, "factor").value_or(1);
    constexpr const char* kOriginal = "original_max_position_embeddings";
    const double inside = NumberIn(object, kOriginal).value_or(0);
    if (type == "linear") {
      set("scaling", static_cast<double>(RopeScaling::kLinear));
      set("factor", factor);
    } else if (type == "llama3") {
      set("scaling", static_cast<double>(RopeScaling::kLlama3));
      set("factor", factor);
      set("low", NumberIn(object, "low_freq_factor").value_or(0));
      set("high", NumberIn(object, "high_freq_factor").value_or(0));
      set("original", HasIn(object, kOriginal) ? inside : Number(kOriginal).value_or(0));
    } else if (Is("phi3") && !type.empty() && type != "default") {
      const double original = Number(kOriginal).value_or(inside);
      set("scaling", static_cast<double>(RopeScaling::kLongRope));
      set("original", original);
      const double extended = wanted_.facts["context"] / original;
      const double magnitude =
          extended <= 1 ? 1 : std::sqrt(1 + std::log(extended) / std::log(original));
      set("magnitude", NumberIn(object, "attention_factor").value_or(magnitude));
      for (const auto& [list, name] :
           {std::pair("short_factor", "short."), std::pair("long_factor", "long.")}) {
        for (size_t i = 0; i < object.value(list, Json::array()).size(); ++i) {
          set((name + std::to_string(i)).c_str(), object[list][i].get<double>());
        }
      }
    } else if (type == "yarn") {
      set("scaling", static_cast<double>(RopeScaling::kYarn));
      set("factor", factor);
      set("original", Original(object));
      Yarn(object, factor, Original(object), dim, theta, prefix);
    } else if (type == "dynamic") {
      set("scaling", static_cast<double>(RopeScaling::kDynamic));
      set("factor", factor);
      set("original", Value("max_position_embeddings"));
    }
  }
  void Yarn(const Json& object, double factor, double original, double dim, double theta,
            const std::string& prefix) {
    const double by = NumberIn(object, "mscale").value_or(0);
    const double all = NumberIn(object, "mscale_all_dim").value_or(0);
    const double magnitude =
        by != 0 && all != 0 ? YarnScale(factor, by) / YarnScale(factor, all) : YarnScale(factor, 1);
    wanted_.facts[prefix + "magnitude"] = NumberIn(object, "attention_factor").value_or(magnitude);
    const YarnPairs pairs = YarnPairsOf(
        {.fast = NumberIn(object, "beta_fast").value_or(32),
         .slow = NumberIn(object, "beta_slow").value_or(1),
         .original = original,
         .dim = dim,
         .theta = theta,
         // mlx-lm does not look at what its files say of it.
         .whole = object.value("truncate", Json(true)) != false ||
                  (HasIn(config_, "quantization") &&
                   (HasIn(config_, "rope_scaling") || HasIn(config_, "rope_parameters")))});
    wanted_.facts[prefix + "yarn_low"] = pairs.low;
    wanted_.facts[prefix + "yarn_high"] = pairs.high;
  }
  void RopesAndScores() {
    Context();
    Scores();
  }

  void Rotates() {
    if (!Is("smollm3")) return;
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      const bool listed = HasIn(config_, "no_rope_layers");
      const auto interval = static_cast<uint64_t>(Value("no_rope_layer_interval"));
      Set(i, "rotates",
          listed ? config_["no_rope_layers"].at(i).get<double>() : (i + 1) % interval != 0);
    }
  }
  void Activation() {
    // Gemma's configurations have the other field for transformers of before.
    constexpr const char* field = "hidden_activation";
    if (!IsGemma() && !Is("gemma")) return;
    const char* const read = Is("gemma") ? "hidden_act" : field;
    const bool silu = HasIn(config_, read) && config_[read] == "silu";
    wanted_.SetInLayers("activation", static_cast<double>(silu ? ActivationKind::kSilu
                                                               : ActivationKind::kGeluTanh));
  }

  void Experts() {
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      if (Of(i, "experts") == 0) continue;
      Set(i, "router.used", Value("num_experts_per_tok"));
      if (Is("gpt_oss")) {
        Set(i, "clamp", Value("swiglu_limit"));
        Set(i, "gain", Value("swiglu_alpha"));
      }
      // Required where they are read.
      const auto take = [&](const char* field, const char* name) {
        Set(i, name, Number(field).value_or(Of(i, name)));
      };
      if (Is("deepseek_v2") || HasGroups()) take("routed_scaling_factor", "router.scale");
      if (HasGroups()) {
        take("n_group", "router.groups");
        take("topk_group", "router.groups_used");
      }
      // DeepSeek's second version has the field too, and does not look at it.
      if (Is("qwen3_moe") || HasGroups()) {
        Set(i, "router.renormalize",
            config_.contains("norm_topk_prob") ? config_["norm_topk_prob"] == true
                                               : DefaultOf(family_, "norm_topk_prob") != 0);
      }
    }
  }

  // As the formats' own libraries read their configurations: GPTQModel, compressed-tensors, and
  // transformers for FP8. MLX's and AWQ's say nothing that shapes do not.
  void Stored() {
    const Json stored = config_.value("quantization_config", Json::object());
    const auto block = [&](const Json& sizes) {
      wanted_.facts["stored.block_outputs"] = sizes.at(0).get<double>();
      wanted_.facts["stored.block_inputs"] = sizes.at(1).get<double>();
    };
    const std::string method = TextIn(stored, "quant_method");
    if (method == "gptq") {
      const bool named = HasIn(stored, "checkpoint_format") || HasIn(stored, "format");
      const char* const name = HasIn(stored, "checkpoint_format") ? "checkpoint_format" : "format";
      wanted_.facts["stored.zeros_less_one"] = !named || stored[name] == "gptq";
      wanted_.facts["stored.order"] = stored.value("desc_act", Json(false)) == true &&
                                      NumberIn(stored, "group_size").value_or(128) != -1;
    } else if (method == "fp8" && HasIn(stored, "weight_block_size")) {
      block(stored["weight_block_size"]);
    } else if (method == "compressed-tensors") {
      if (stored["config_groups"].size() == 1) {
        const Json& group = stored["config_groups"].front();
        CompressedTensors(group["weights"], HasIn(group, "format") ? TextIn(group, "format")
                                                                   : TextIn(stored, "format"));
      }
    }
  }
  // Of one scheme; of several, the wanted facts are those that were valid: a change has to be
  // refused, or change none.
  void CompressedTensors(const Json& weights, const std::string& format) {
    const bool symmetric = !HasIn(weights, "symmetric") || weights["symmetric"] != false;
    const std::string strategy = TextIn(weights, "strategy");
    if (format == "pack-quantized" || format == "int-quantized" || format.empty()) {
      wanted_.facts["stored.zeros"] = !symmetric;
    }
    if (format == "pack-quantized" || format.empty()) {
      const Json order = weights.value("actorder", Json());
      wanted_.facts["stored.order"] = order == "group" || order == "dynamic" || order == true;
    } else if (format == "int-quantized" || format == "float-quantized" ||
               format == "mxfp8-quantized") {
      const bool blocks = strategy == "block";
      const bool groups = strategy == "group";
      wanted_.facts["stored.block_outputs"] =
          blocks ? weights["block_structure"].at(0).get<double>()
                 : static_cast<double>(groups || strategy == "channel");
      wanted_.facts["stored.block_inputs"] = blocks ? weights["block_structure"].at(1).get<double>()
                                             : groups ? weights["group_size"].get<double>()
                                                      : 0;
    }
  }

  const Json config_;
  const std::string family_;
  Wanted wanted_;
};

const std::map<std::string, Reading::Rule>& Reading::Table() {
  static const auto* const table = new std::map<std::string, Rule>{
      {"rms_norm_eps", &Reading::NormEps},
      {"tie_word_embeddings", &Reading::Tied},
      {"max_position_embeddings", &Reading::Context},
      {"bos_token_id", &Reading::Bos},
      {"eos_token_id", &Reading::Eos},
      {"attn_logit_softcapping", &Reading::Caps},
      {"final_logit_softcapping", &Reading::Caps},
      {"embedding_multiplier", &Reading::Granite},
      {"residual_multiplier", &Reading::Granite},
      {"logits_scaling", &Reading::Granite},
      {"attention_multiplier", &Reading::Granite},
      {"query_pre_attn_scalar", &Reading::Scores},
      {"num_attention_heads", &Reading::Heads},
      {"num_key_value_heads", &Reading::Heads},
      {"head_dim", &Reading::Heads},
      {"sliding_window", &Reading::Windows},
      {"use_sliding_window", &Reading::Windows},
      {"max_window_layers", &Reading::Windows},
      {"sliding_window_pattern", &Reading::Windows},
      {"layer_types", &Reading::Windows},
      {"rope_theta", &Reading::Ropes},
      {"rope_local_base_freq", &Reading::Ropes},
      {"rope_scaling", &Reading::RopesAndScores},
      {"rope_parameters", &Reading::RopesAndScores},
      {"partial_rotary_factor", &Reading::Ropes},
      {"original_max_position_embeddings", &Reading::Context},
      {"rotary_dim", &Reading::Ropes},
      {"no_rope_layers", &Reading::Rotates},
      {"no_rope_layer_interval", &Reading::Rotates},
      {"hidden_act", &Reading::Activation},
      {"hidden_activation", &Reading::Activation},
      {"num_experts_per_tok", &Reading::Experts},
      {"norm_topk_prob", &Reading::Experts},
      {"swiglu_limit", &Reading::Experts},
      {"swiglu_alpha", &Reading::Experts},
      {"routed_scaling_factor", &Reading::Experts},
      {"n_group", &Reading::Experts},
      {"topk_group", &Reading::Experts},
      {"quantization_config", &Reading::Stored},
  };
  return *table;
}

}  // namespace

double YarnScale(double factor, double by) {
  return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1;
}

YarnPairs YarnPairsOf(const YarnTurns& turns) {
  const auto pair = [&](double of) {
    return turns.dim * std::log(turns.original / (of * 2 * std::numbers::pi)) /
           (2 * std::log(turns.theta));
  };
  const double fast = pair(turns.fast);
  const double slow = pair(turns.slow);
  const double low = std::max(turns.whole ? std::floor(fast) : fast, 0.0);
  const double high = std::min(turns.whole ? std::ceil(slow) : slow, turns.dim - 1);
  return {low, low == high ? high + 0.001 : high};
}

std::vector<std::string> ChangedFields(const Json& before, const Json& after) {
  std::vector<std::string> changed;
  for (const auto& [name, value] : before.items()) {
    if (!after.contains(name) || after[name] != value) changed.push_back(name);
  }
  for (const auto& [name, value] : after.items()) {
    if (!before.contains(name)) changed.push_back(name);
  }
  return changed;
}

Json DecoderFields(const Json& document) {
  const auto text = document.find("text_config");
  if (text == document.end() || !text->is_object()) return document;
  Json fields = *text;
  for (const auto& [name, value] : document.items()) {
    const bool tied = name == "tie_word_embeddings" && !value.is_null();
    if (name != "text_config" && (tied || !fields.contains(name))) fields[name] = value;
  }
  return fields;
}

Wanted Restated(const Json& before, const Json& after, const Facts& valid) {
  const Json fields = DecoderFields(after);
  Reading reading(before, fields, valid);
  for (const std::string& field : ChangedFields(DecoderFields(before), fields)) {
    reading.Read(field);
  }
  return reading.Take();
}

Wanted RestatedField(const Json& config, const std::string& field, const Facts& valid) {
  Reading reading(config, DecoderFields(config), valid);
  reading.Read(field);
  return reading.Take();
}

std::vector<std::string> MeaningfulFields() {
  std::vector<std::string> fields;
  for (const auto& [name, rule] : Reading::Table()) fields.push_back(name);
  return fields;
}

}  // namespace strata::testing
