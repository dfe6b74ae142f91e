#include "tests/mutations/restated.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "common/model_spec.h"

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
// A context that was extended by `factor`, in YaRN's words.
double YarnScale(double factor, double by) {
  return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1;
}

class Reading {
 public:
  Reading(const Json& before, const Json& config, const Facts& valid)
      : config_(config), family_(TextIn(before, "model_type")), wanted_{valid, {}} {}

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
  // One number, of all layers.
  void TakeForLayers(const char* field, const char* name) {
    if (const auto value = Number(field)) {
      wanted_.SetInLayers(name, *value);
    } else {
      Open({name});
    }
  }
  void TakeForModel(const char* field, const char* name) {
    if (const auto value = Number(field)) {
      wanted_.facts[name] = *value;
    } else {
      Open({name});
    }
  }

  void NormEps() {
    TakeForLayers("rms_norm_eps", "norm_eps");
    TakeForModel("rms_norm_eps", "final_norm_eps");
  }
  void Tied() {
    if (config_.contains("tie_word_embeddings") && config_["tie_word_embeddings"].is_boolean()) {
      wanted_.facts["tied_head"] = config_["tie_word_embeddings"].get<bool>();
    } else {
      Open({"tied_head"});
    }
  }
  void Context() {
    TakeForModel("max_position_embeddings", "context");
    if (!Number("max_position_embeddings").has_value()) Open({"window", "kept_by", "rope"});
    Windows();
  }
  void Bos() { Open({"bos"}); }
  void Eos() { Open({"eos"}); }

  // A cap that is null is none; of families without caps both fields are refused or neutral.
  void Caps() {
    if (!IsGemma()) return;
    Cap("attn_logit_softcapping", "soft_cap", true);
    Cap("final_logit_softcapping", "final_soft_cap", false);
  }
  void Cap(const char* field, const char* name, bool of_layers) {
    const bool none = config_.contains(field) && config_[field].is_null();
    const auto value = none ? 0 : Number(field);
    if (!value.has_value()) {
      Open({name});
    } else if (of_layers) {
      wanted_.SetInLayers(name, *value);
    } else {
      wanted_.facts[name] = *value;
    }
  }
  void Granite() {
    if (!Is("granite")) return;
    TakeForModel("embedding_multiplier", "embedding_scale");
    TakeForModel("embedding_multiplier", "input_embedding_scale");
    TakeForModel("logits_scaling", "logits_divisor");
    TakeForLayers("residual_multiplier", "branch_scale");
    Scores();
  }

  // By what scores are multiplied.
  void Scores() {
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      std::optional<double> scale = 1 / std::sqrt(Of(i, "head_dim"));
      if (Is("granite")) {
        scale = Number("attention_multiplier");
      } else if (IsGemma()) {
        scale = Number("query_pre_attn_scalar");
        if (scale) scale = 1 / std::sqrt(*scale);
      } else if (Of(i, "latent.rank") != 0) {
        scale = *scale * LatentFactor();
      }
      if (scale) {
        Set(i, "scale", *scale);
      } else {
        Open({"scale"});
      }
    }
  }
  double LatentFactor() const {
    const Json object = RopeObject();
    const double by = NumberIn(object, "mscale_all_dim").value_or(0);
    const double m = by == 0 ? 1 : YarnScale(NumberIn(object, "factor").value_or(1), by);
    return m * m;
  }

  void Heads() {
    const bool latent = Of(0, "latent.rank") != 0;
    const auto heads = Number("num_attention_heads");
    if (!heads) return Open({"heads", "kv_heads", "head_dim", "scale", "rope"});
    wanted_.SetInLayers("heads", *heads);
    if (latent) return;
    if (const auto keys = Number("num_key_value_heads")) {
      wanted_.SetInLayers("kv_heads", *keys);
    } else if (IsGemma() || Is("gpt_oss")) {
      Open({"kv_heads"});
    } else {
      wanted_.SetInLayers("kv_heads", *heads);
    }
    if (const auto dim = Number("head_dim")) {
      wanted_.SetInLayers("head_dim", *dim);
    } else if (Is("qwen3")) {
      wanted_.SetInLayers("head_dim", 128);
    } else if (IsGemma() || Is("gpt_oss")) {
      wanted_.SetInLayers("head_dim", Is("gpt_oss") ? 64 : 256);
    } else {
      wanted_.SetInLayers("head_dim", wanted_.facts["hidden"] / *heads);
    }
    Scores();
    Ropes();
  }

  // Which layers look back through the window, and how far.
  std::vector<bool> Slides(double* window) const {
    const uint64_t layers = wanted_.layers();
    const bool flagged = Is("qwen2") || Is("qwen3") || Is("minicpmo");
    const bool alternates = Is("gpt_oss");
    std::vector<bool> slides(layers, Is("mistral") || Is("mixtral") || Is("phi3"));
    *window = Number("sliding_window")
                  .value_or(Is("phi3") || Is("mixtral") ? 0
                            : alternates                ? 128
                                                        : 4096);
    const bool none = config_.contains("sliding_window") && config_["sliding_window"].is_null();
    if (none || (flagged && config_.value("use_sliding_window", Json(false)) != true)) {
      *window = 0;
    }
    for (uint64_t i = 0; i < layers; ++i) {
      if (flagged) slides[i] = i >= Number("max_window_layers").value_or(28);
      if (alternates) slides[i] = i % 2 == 0;
      if (Is("gemma2")) slides[i] = i % 2 == 0;
      if (Is("gemma3_text")) {
        const auto pattern = static_cast<uint64_t>(Number("sliding_window_pattern").value_or(6));
        slides[i] = (i + 1) % pattern != 0;
      }
    }
    if (HasIn(config_, "layer_types") && (flagged || alternates || IsGemma())) {
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
    return Json::object();
  }
  void Ropes() {
    double window = 0;
    const std::vector<bool> slides = Slides(&window);
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      const bool local = Is("gemma3_text") && slides[i];
      const Json object = local ? Json::object() : RopeObject();
      auto theta = local ? Number("rope_local_base_freq") : NumberIn(object, "rope_theta");
      if (!local && !theta) theta = Number("rope_theta");
      if (!theta) Open({"rope.theta", "rope.yarn_low", "rope.yarn_high"});
      Rope(i, object, theta.value_or(Of(i, "rope.theta")));
    }
  }
  void Rope(uint64_t layer, const Json& object, double theta) {
    const std::string prefix = FactOfLayer(layer, "rope.");
    std::erase_if(wanted_.facts, [&](const auto& fact) { return fact.first.starts_with(prefix); });
    const auto set = [&](const char* name, double value) { wanted_.facts[prefix + name] = value; };
    const RopeSpec none;
    double dim = Of(layer, Of(layer, "latent.rank") != 0 ? "latent.rope_dim" : "head_dim");
    if (Is("phi3")) {
      constexpr const char* kShare = "partial_rotary_factor";
      dim = std::floor(dim * NumberIn(object, kShare).value_or(Number(kShare).value_or(1)));
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
    const std::string type =
        HasIn(object, "rope_type") ? TextIn(object, "rope_type") : TextIn(object, "type");
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
      set("original", inside);
      Yarn(object, factor, inside, dim, theta, prefix);
    }
  }
  void Yarn(const Json& object, double factor, double original, double dim, double theta,
            const std::string& prefix) {
    const double by = NumberIn(object, "mscale").value_or(0);
    const double all = NumberIn(object, "mscale_all_dim").value_or(0);
    const double magnitude =
        by != 0 && all != 0 ? YarnScale(factor, by) / YarnScale(factor, all) : YarnScale(factor, 1);
    wanted_.facts[prefix + "magnitude"] = NumberIn(object, "attention_factor").value_or(magnitude);
    const bool whole = object.value("truncate", Json(true)) != false;
    const auto pair = [&](const char* name, double fallback) {
      const double turns = NumberIn(object, name).value_or(fallback);
      return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double fast = pair("beta_fast", 32);
    const double slow = pair("beta_slow", 1);
    const double low = std::max(whole ? std::floor(fast) : fast, 0.0);
    const double high = std::min(whole ? std::ceil(slow) : slow, dim - 1);
    wanted_.facts[prefix + "yarn_low"] = low;
    wanted_.facts[prefix + "yarn_high"] = low == high ? high + 0.001 : high;
  }
  void RopesAndScores() {
    Ropes();
    Scores();
  }

  void Rotates() {
    if (!Is("smollm3")) return;
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      const bool listed = HasIn(config_, "no_rope_layers");
      const auto interval = static_cast<uint64_t>(Number("no_rope_layer_interval").value_or(4));
      Set(i, "rotates",
          listed ? config_["no_rope_layers"].at(i).get<double>() : (i + 1) % interval != 0);
    }
  }
  void Activation() {
    // Gemma's configurations have the other field for transformers of before.
    const char* field = IsGemma() ? "hidden_activation" : "hidden_act";
    if (!HasIn(config_, field)) return Open({"activation"});
    if (config_[field] == "silu" && IsGemma()) {
      wanted_.SetInLayers("activation", static_cast<double>(ActivationKind::kSilu));
    }
  }

  void Experts() {
    for (uint64_t i = 0; i < wanted_.layers(); ++i) {
      if (Of(i, "experts") == 0) continue;
      const auto take = [&](const char* field, const char* name) {
        if (const auto value = Number(field)) {
          Set(i, name, *value);
        } else {
          Open({name});
        }
      };
      take("num_experts_per_tok", "router.used");
      if (Is("gpt_oss")) take("swiglu_limit", "clamp");
      if (Is("deepseek_v2") || Is("deepseek_v3")) take("routed_scaling_factor", "router.scale");
      if (Is("deepseek_v3")) {
        take("n_group", "router.groups");
        take("topk_group", "router.groups_used");
      }
      // DeepSeek's second version has the field too, and does not look at it.
      if (Is("qwen3_moe") || Is("deepseek_v3")) {
        if (HasIn(config_, "norm_topk_prob")) {
          Set(i, "router.renormalize", config_["norm_topk_prob"] == true);
        } else {
          Open({"router.renormalize"});
        }
      }
    }
  }

  const Json& config_;
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
      {"original_max_position_embeddings", &Reading::Ropes},
      {"no_rope_layers", &Reading::Rotates},
      {"no_rope_layer_interval", &Reading::Rotates},
      {"hidden_act", &Reading::Activation},
      {"hidden_activation", &Reading::Activation},
      {"num_experts_per_tok", &Reading::Experts},
      {"norm_topk_prob", &Reading::Experts},
      {"swiglu_limit", &Reading::Experts},
      {"routed_scaling_factor", &Reading::Experts},
      {"n_group", &Reading::Experts},
      {"topk_group", &Reading::Experts},
  };
  return *table;
}

}  // namespace

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

Wanted Restated(const Json& before, const Json& after, const Facts& valid) {
  Reading reading(before, after, valid);
  for (const std::string& field : ChangedFields(before, after)) {
    reading.Read(field);
  }
  return reading.Take();
}

Wanted RestatedField(const Json& config, const std::string& field, const Facts& valid) {
  Reading reading(config, config, valid);
  reading.Read(field);
  return reading.Take();
}

std::vector<std::string> MeaningfulFields() {
  std::vector<std::string> fields;
  for (const auto& [name, rule] : Reading::Table()) fields.push_back(name);
  return fields;
}

}  // namespace strata::testing
