#include "tests/mutations/gguf_meaning.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/model/model_spec.h"
#include "tests/mutations/restated.h"

namespace strata::testing {
namespace {

// Texts of tokens that end an answer or a turn.
constexpr std::string_view kEnds[] = {
    "</s>",       "<eos>",      "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",
    "<|eom_id|>", "<|im_end|>", "<|end|>",       "<|return|>",    "<|call|>"};

class Meaning {
 public:
  Meaning(const Facts& valid, const GgufKeys& keys) : keys_(keys), wanted_{valid, {}} {
    const GgufKey* name = Find("general.architecture");
    if (name != nullptr && name->texts.size() == 1) architecture_ = name->texts[0];
    Norms();
    Numbers();
    Multipliers();
    Windows();
    Rope();
    Bos();
    Ends();
  }
  Wanted Take() && { return std::move(wanted_); }

 private:
  bool Is(std::string_view architecture) const { return architecture_ == architecture; }
  bool IsLatent() const { return Is("deepseek2"); }
  bool IsGemma() const { return Is("gemma2") || Is("gemma3"); }
  uint64_t layers() const { return wanted_.layers(); }
  double OfLayer(uint64_t layer, const char* name) const {
    return wanted_.facts.at(FactOfLayer(layer, name));
  }
  void Set(uint64_t layer, const std::string& name, double value) {
    wanted_.facts[FactOfLayer(layer, name)] = value;
  }

  const GgufKey* Find(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? nullptr : &found->second;
  }
  const GgufKey* Own(const char* key) const { return Find(architecture_ + "." + key); }
  void Refused(const std::string& key) { wanted_.facts["refused for " + key] = 1; }

  // A number, a count or a text; without a default the key has to be there.
  double NumberOf(const char* key, bool (GgufKey::*is)() const, std::optional<double> absent) {
    const GgufKey* const value = Own(key);
    const bool right = value == nullptr ? absent.has_value() : !value->list && (value->*is)();
    if (!right) Refused(key);
    return value == nullptr || !right ? absent.value_or(0) : value->numbers[0];
  }
  double Number(const char* key, std::optional<double> absent) {
    return NumberOf(key, &GgufKey::is_float, absent);
  }
  double Count(const char* key, std::optional<double> absent) {
    return NumberOf(key, &GgufKey::is_integer, absent);
  }
  std::string Text(const char* key, const char* absent) {
    const GgufKey* const value = Own(key);
    const bool right = value == nullptr || (!value->list && value->type == kGgufString);
    if (!right) Refused(key);
    return value == nullptr || !right ? absent : value->texts[0];
  }

  void Norms() {
    const double eps = Number("attention.layer_norm_rms_epsilon", std::nullopt);
    wanted_.SetInLayers("norm_eps", eps);
    wanted_.facts["final_norm_eps"] = eps;
  }

  void Numbers() {
    trained_ = Count("context_length", std::nullopt);
    const double factor = Number("rope.scaling.factor", 1);
    const bool yarn = Text("rope.scaling.type", "linear") == "yarn" && factor != 1;
    const double longer =
        yarn ? std::floor(factor * Count("rope.scaling.original_context_length", trained_)) : 0;
    wanted_.facts["context"] =
        std::min(std::max(trained_, longer), static_cast<double>(kMaxContextTokens));
    if (OfLayer(layers() - 1, "experts") != 0) {
      const double used = Count("expert_used_count", std::nullopt);
      for (uint64_t i = 0; i < layers(); ++i) {
        if (OfLayer(i, "experts") != 0) Set(i, "router.used", used);
      }
    }
    if (IsLatent() || Is("glm4moe")) Routing();
    if (IsGemma()) {
      wanted_.SetInLayers("soft_cap", Number("attn_logit_softcapping", Is("gemma2") ? 50 : 0));
      wanted_.facts["final_soft_cap"] = Number("final_logit_softcapping", Is("gemma2") ? 30 : 0);
    }
  }

  // DeepSeek's. Counts of 0 are as if they were not there.
  void Routing() {
    const bool third = !IsLatent() || Count("expert_gating_func", 1) == 2;
    const bool norm = Flag("expert_weights_norm", false);
    const double scale = Number("expert_weights_scale", 0);
    const double groups = std::max(1.0, Count("expert_group_count", 1));
    const double groups_used = std::max(1.0, Count("expert_group_used_count", 1));
    const double dense = Count("leading_dense_block_count", 0);
    if (norm && !third) Refused("expert_weights_norm");
    for (uint64_t i = 0; i < layers(); ++i) {
      if ((static_cast<double>(i) < dense) != (OfLayer(i, "experts") == 0)) {
        Refused("leading_dense_block_count");
      }
      if (OfLayer(i, "experts") == 0) continue;
      Set(i, "router.renormalize", norm);
      Set(i, "router.scale", scale == 0 ? 1 : scale);
      Set(i, "router.groups", third || groups > 1 ? groups : 1);
      Set(i, "router.groups_used", third || groups > 1 ? groups_used : 1);
    }
  }

  bool Flag(const char* key, bool absent) {
    const GgufKey* const value = Own(key);
    const bool right = value == nullptr || (!value->list && value->type == kGgufBool);
    if (!right) Refused(key);
    return value == nullptr || !right ? absent : value->numbers[0] != 0;
  }

  // Granite's. 0 is as if they were not there.
  void Multipliers() {
    if (!Is("granite")) return;
    const auto or_else = [](double multiplier, double neutral) {
      return multiplier == 0 ? neutral : multiplier;
    };
    const double embedding = or_else(Number("embedding_scale", 0), 1);
    wanted_.facts["embedding_scale"] = embedding;
    wanted_.facts["input_embedding_scale"] = embedding;
    wanted_.facts["logits_divisor"] = or_else(Number("logit_scale", std::nullopt), 1);
    const double scale = Number("attention.scale", 0);
    const double branch = or_else(Number("residual_scale", 0), 1);
    for (uint64_t i = 0; i < layers(); ++i) {
      Set(i, "scale", or_else(scale, 1 / std::sqrt(OfLayer(i, "head_dim"))));
      Set(i, "branch_scale", branch);
    }
  }

  // Of each `every` layers the last sees all, if there are windows and no list says otherwise.
  void Windows() {
    slides_.assign(layers(), false);
    const bool pattern = IsGemma() || Is("gpt-oss") || Is("olmo2");
    if (!pattern && !Is("phi3")) return;
    const double window = Count("attention.sliding_window", Is("gemma2")    ? 4096
                                                            : Is("gpt-oss") ? 128
                                                                            : 0);
    constexpr const char* kPattern = "attention.sliding_window_pattern";
    const GgufKey* const list = Own(kPattern);
    const bool listed = list != nullptr && list->list;
    const double by_family = Is("gemma3") ? 6 : Is("olmo2") ? 4 : 2;
    const auto every = static_cast<uint64_t>(listed ? by_family : Count(kPattern, by_family));
    if (every == 0 || (listed && list->numbers.size() != layers())) return Refused(kPattern);
    for (uint64_t i = 0; i < layers(); ++i) {
      const bool slides = listed ? list->numbers[i] != 0 : (i + 1) % every != 0;
      slides_[i] = window != 0 && (!pattern || slides);
      // One as long as the context is none.
      const bool seen = slides_[i] && window < wanted_.facts.at("context");
      Set(i, "window", seen ? window : 0);
      Set(i, "kept_by", static_cast<double>(seen ? KvKind::kWindow : KvKind::kFull));
    }
  }

  void Rope() {
    constexpr double kTheta = 10000;
    const double theta = Number("rope.freq_base", kTheta);
    const double local = Number("rope.freq_base_swa", Is("gemma3") ? kTheta : theta);
    for (uint64_t i = 0; i < layers(); ++i) {
      Set(i, "rope.dim", Count("rope.dimension_count", OfLayer(i, "head_dim")));
      Set(i, "rope.theta", Is("gemma3") && slides_[i] ? local : theta);
      Scaling(i, theta);
    }
  }

  void Scaling(uint64_t layer, double theta) {
    const std::string prefix = FactOfLayer(layer, "rope.");
    const std::string type = Text("rope.scaling.type", "linear");
    const double factor = Number("rope.scaling.factor", 1);
    const double magnitude = Number("rope.scaling.attn_factor", 1);
    const auto original = [&] { return Count("rope.scaling.original_context_length", trained_); };
    const bool scales = type != "none" && factor != 0 && factor != 1;
    const bool long_rope = wanted_.facts.count(prefix + "long.0") != 0;
    if (scales && (long_rope || wanted_.facts.count(prefix + "divisor.0") != 0)) {
      Refused("rope.scaling.factor");
    }
    if (long_rope) {
      wanted_.facts[prefix + "original"] = original();
      wanted_.facts[prefix + "magnitude"] = magnitude;
      return;
    }
    if (magnitude != 1) Refused("rope.scaling.attn_factor");
    if (wanted_.facts.count(prefix + "divisor.0") != 0) return;
    const RopeSpec none;
    const bool scaled = scales && !((Is("gemma3") || Is("olmo2")) && slides_[layer]);
    const bool yarn = scaled && type == "yarn";
    if (scales && type != "linear" && type != "yarn") Refused("rope.scaling.type");
    wanted_.facts[prefix + "scaling"] = static_cast<double>(yarn     ? RopeScaling::kYarn
                                                            : scaled ? RopeScaling::kLinear
                                                                     : RopeScaling::kNone);
    wanted_.facts[prefix + "factor"] = scaled ? factor : none.factor;
    wanted_.facts[prefix + "original"] = yarn ? original() : none.original_context;
    // The file says no attention factor: it is YaRN's, or of latent attention in the scores.
    const double log = IsLatent() ? Number("rope.scaling.yarn_log_multiplier", 0) / 0.1 : 0;
    // Ministral's two cancel each other.
    const double own = Number("rope.scaling.yarn_attn_factor", 0);
    wanted_.facts[prefix + "magnitude"] = !yarn            ? none.magnitude
                                          : own != 0       ? own
                                          : Is("mistral3") ? Mistrals(factor)
                                          : log == 0       ? YarnScale(factor, 1)
                                                           : none.magnitude;
    if (Is("mistral3")) {
      const double growth = Number("attention.temperature_scale", 0);
      if (growth != 0 && !yarn) Refused("attention.temperature_scale");
      Set(layer, "query_growth", growth);
      Set(layer, "query_growth_every", growth == 0 ? 0 : original());
    }
    if (IsLatent()) {
      const double root = std::sqrt(OfLayer(layer, "head_dim"));
      const double score = yarn && log != 0 ? YarnScale(factor, log) : 1;
      Set(layer, "scale", score * score / root);
    }
    const YarnPairs pairs = yarn ? YarnPairsOf({.fast = Number("rope.scaling.yarn_beta_fast", 32),
                                                .slow = Number("rope.scaling.yarn_beta_slow", 1),
                                                .original = original(),
                                                .dim = OfLayer(layer, "rope.dim"),
                                                .theta = theta,
                                                .whole = !Is("gpt-oss")})
                                 : YarnPairs{none.yarn_low, none.yarn_high};
    wanted_.facts[prefix + "yarn_low"] = pairs.low;
    wanted_.facts[prefix + "yarn_high"] = pairs.high;
  }

  double Mistrals(double factor) {
    const double all = Number("rope.scaling.yarn_log_multiplier", 0);
    return all == 0 ? YarnScale(factor, 1) : YarnScale(factor, 1) / YarnScale(factor, all);
  }

  std::optional<double> Token(const std::string& name) {
    const GgufKey* const key = Find("tokenizer.ggml." + name + "_token_id");
    if (key == nullptr) return std::nullopt;
    if (key->list || !key->is_integer()) {
      Refused(name);
      return std::nullopt;
    }
    return key->numbers[0];
  }

  void Bos() {
    const std::optional<double> bos = Token("bos");
    bos ? void(wanted_.facts["bos"] = *bos) : void(wanted_.facts.erase("bos"));
  }

  // Those that keys name, and then special tokens by their texts.
  void Ends() {
    std::vector<double> ends;
    const auto add = [&](double id) {
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
    };
    for (const char* name : {"eos", "eot", "eom"}) {
      const std::optional<double> id = Token(name);
      if (id.has_value() && *id < wanted_.facts.at("vocab")) add(*id);
    }
    const GgufKey* tokens = Find("tokenizer.ggml.tokens");
    const GgufKey* kinds = Find("tokenizer.ggml.token_type");
    for (size_t id = 0; tokens != nullptr && tokens->list && id < tokens->texts.size(); ++id) {
      const bool said = kinds != nullptr && kinds->list && kinds->is_integer() &&
                        kinds->numbers.size() == tokens->texts.size();
      const bool special = !said || kinds->numbers[id] == 3 || kinds->numbers[id] == 4;
      if (special &&
          std::find(std::begin(kEnds), std::end(kEnds), tokens->texts[id]) != std::end(kEnds)) {
        add(static_cast<double>(id));
      }
    }
    std::erase_if(wanted_.facts, [](const auto& fact) { return fact.first.starts_with("eos."); });
    for (size_t i = 0; i < ends.size(); ++i) {
      wanted_.facts["eos." + std::to_string(i)] = ends[i];
    }
  }

  const GgufKeys& keys_;
  Wanted wanted_;
  std::string architecture_;
  double trained_ = 0;        // context_length.
  std::vector<bool> slides_;  // Layers with a window, also where that is as long as the context.
};

}  // namespace

Wanted GgufMeaning(const Facts& valid, const GgufKeys& keys) { return Meaning(valid, keys).Take(); }

}  // namespace strata::testing
