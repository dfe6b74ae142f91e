#include "tests/mutations/facts.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "tests/mutations/loaded.h"

namespace strata::testing {
namespace {

constexpr std::string_view kLayers = "layers.";

// "rope.theta" of "layers.2.rope.theta".
std::string_view WithoutLayer(std::string_view name) {
  if (!name.starts_with(kLayers)) {
    return name;
  }
  name.remove_prefix(kLayers.size());
  return name.substr(name.find('.') + 1);
}

void AddRope(const RopeSpec& rope, const std::string& prefix, Facts* facts) {
  const auto add = [&](const char* name, double value) { (*facts)[prefix + name] = value; };
  add("dim", rope.rotary_dim);
  add("theta", rope.theta);
  add("scaling", static_cast<double>(rope.scaling));
  add("factor", rope.factor);
  add("low", rope.low_freq_factor);
  add("high", rope.high_freq_factor);
  add("original", rope.original_context);
  add("yarn_low", rope.yarn_low);
  add("yarn_high", rope.yarn_high);
  add("magnitude", rope.magnitude);
  const auto list = [&](const char* name, const auto& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      (*facts)[prefix + name + "." + std::to_string(i)] = static_cast<double>(values[i]);
    }
  };
  list("divisor", rope.divisors);
  list("short", rope.short_factors);
  list("long", rope.long_factors);
}

void AddAttention(const AttentionSpec& a, const ModelSpec& spec, const std::string& prefix,
                  Facts* facts) {
  const auto add = [&](const char* name, double value) { (*facts)[prefix + name] = value; };
  add("heads", a.heads);
  add("kv_heads", a.kv_heads);
  add("head_dim", a.head_dim);
  add("scale", a.scale);
  add("soft_cap", a.soft_cap);
  add("window", spec.kv_groups[a.kv_group].window);
  add("kept_by", static_cast<double>(spec.kv_groups[a.kv_group].kind));
  add("rotates", a.rotates);
  add("rotates_neighbours", a.rotates_neighbours);
  add("query_growth", a.query_growth);
  add("query_growth_every", a.query_growth_every);
  add("qk_norm", static_cast<double>(a.qk_norm));
  add("qkv_bias", a.qkv_bias);
  add("out_bias", a.out_bias);
  add("sinks", a.sinks);
  add("qk_rows_in_pairs", a.qk_rows_in_pairs);
  add("fused_qkv", a.fused_qkv);
  add("latent.rank", a.latent.rank);
  add("latent.query_rank", a.latent.query_rank);
  add("latent.nope_dim", a.latent.nope_dim);
  add("latent.rope_dim", a.latent.rope_dim);
  add("latent.value_dim", a.latent.value_dim);
  add("latent.norm_eps", a.latent.norm_eps);
  AddRope(a.rope, prefix + "rope.", facts);
}

void AddMlp(const MlpSpec& mlp, const std::string& prefix, Facts* facts) {
  const auto add = [&](const char* name, double value) { (*facts)[prefix + name] = value; };
  add("ffn", mlp.ffn);
  add("activation", static_cast<double>(mlp.activation));
  add("clamp", mlp.clamp);
  add("gain", mlp.gain);
  add("mlp_bias", mlp.bias);
  add("fused_gate_up", mlp.fused_gate_up);
  add("experts", mlp.experts);
  add("shared_ffn", mlp.shared_ffn);
  add("router.used", mlp.router.used);
  add("router.scores", static_cast<double>(mlp.router.scores));
  add("router.renormalize", mlp.router.renormalize);
  add("router.bias", mlp.router.bias);
  add("router.corrected", mlp.router.corrected);
  add("router.groups", mlp.router.groups);
  add("router.groups_used", mlp.router.groups_used);
  add("router.group_best", mlp.router.group_best);
  add("router.scale", mlp.router.scale);
}

bool Near(double a, double b) {
  return a == b || (std::isfinite(a) && std::isfinite(b) &&
                    std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)));
}

bool IsOpen(std::string_view name, const std::set<std::string>& open) {
  const std::string_view own = WithoutLayer(name);
  return std::any_of(open.begin(), open.end(), [&](const std::string& one) {
    return own == one || own.starts_with(one + ".");
  });
}

}  // namespace

std::string FactOfLayer(uint64_t layer, std::string_view name) {
  return std::string(kLayers) + std::to_string(layer) + "." + std::string(name);
}

Facts FactsOf(const ModelSpec& spec) {
  Facts facts = {{"hidden", spec.hidden},
                 {"vocab", spec.vocab},
                 {"context", spec.context},
                 {"tied_head", spec.tied_head},
                 {"embedding_scale", spec.embedding_scale},
                 {"input_embedding_scale", spec.input_embedding_scale},
                 {"final_norm", static_cast<double>(spec.final_norm)},
                 {"final_norm_eps", spec.final_norm_eps},
                 {"logits_divisor", spec.logits_divisor},
                 {"final_soft_cap", spec.final_soft_cap},
                 {"layers", static_cast<double>(spec.layers.size())}};
  if (const auto& stored = spec.quantization; stored.has_value()) {
    size_t number = 0;
    stored->ForSchemes([&](const StoredScheme& scheme) {
      const std::string which = number == 0 ? "" : std::to_string(number) + ".";
      const auto set = [&](const char* name, double value) {
        facts["stored." + which + name] = value;
      };
      set("zeros", scheme.has_zeros);
      set("zeros_less_one", scheme.zeros_less_one);
      set("order", scheme.has_order);
      set("block_outputs", scheme.block_outputs);
      set("block_inputs", scheme.block_inputs);
      ++number;
    });
  }
  if (spec.bos_id.has_value()) {
    facts["bos"] = *spec.bos_id;
  }
  for (size_t i = 0; i < spec.eos_ids.size(); ++i) {
    facts["eos." + std::to_string(i)] = spec.eos_ids[i];
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    facts[FactOfLayer(i, "norm")] = static_cast<double>(layer.norm);
    facts[FactOfLayer(i, "norm_places")] = static_cast<double>(layer.norm_places);
    facts[FactOfLayer(i, "norm_eps")] = layer.norm_eps;
    facts[FactOfLayer(i, "branch_scale")] = layer.branch_scale;
    AddAttention(layer.attention, spec, FactOfLayer(i, ""), &facts);
    AddMlp(layer.mlp, FactOfLayer(i, ""), &facts);
  }
  return facts;
}

void Wanted::SetInLayers(std::string_view name, double value) {
  for (uint64_t i = 0; i < layers(); ++i) {
    facts[FactOfLayer(i, name)] = value;
  }
}

std::string Disagreement(const Facts& loaded, const Wanted& wanted) {
  std::ostringstream text;
  std::set<std::string> names;
  for (const auto& [name, value] : loaded) names.insert(name);
  for (const auto& [name, value] : wanted.facts) names.insert(name);
  const auto of = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::nan("") : found->second;
  };
  for (const std::string& name : names) {
    if (!Near(of(loaded, name), of(wanted.facts, name)) && !IsOpen(name, wanted.open)) {
      text << name << " is " << of(loaded, name) << ", not " << of(wanted.facts, name) << "; ";
    }
  }
  return text.str();
}

bool DifferVisibly(const Facts& a, const Facts& b) {
  static const auto* const kSeen = new std::set<std::string_view>{"heads",
                                                                  "kv_heads",
                                                                  "head_dim",
                                                                  "scale",
                                                                  "soft_cap",
                                                                  "final_soft_cap",
                                                                  "branch_scale",
                                                                  "embedding_scale",
                                                                  "logits_divisor",
                                                                  "rotates",
                                                                  "rope.theta",
                                                                  "rope.dim",
                                                                  "router.used",
                                                                  "router.renormalize",
                                                                  "router.scale",
                                                                  "tied_head",
                                                                  "gain"};
  return std::any_of(a.begin(), a.end(), [&](const auto& fact) {
    const auto other = b.find(fact.first);
    if (other == b.end() || Near(other->second, fact.second)) {
      return false;
    }
    const std::string_view own = WithoutLayer(fact.first);
    // A window that is longer than the prompt hides nothing.
    const auto window = [](double tokens) { return tokens == 0 || tokens >= kPromptTokens; };
    return own == "window" ? window(fact.second) != window(other->second) : kSeen->contains(own);
  });
}

}  // namespace strata::testing
