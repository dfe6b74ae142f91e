#include "common/checkpoint/gguf_latent.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr double kMostScale = 1e6;

}  // namespace

absl::Status WriteGgufLatent(const GgufArchitecture& architecture, const GgufHeader& header,
                             nlohmann::json* config, uint64_t* rotating) {
  GgufReader reader(&header);
  const auto key = [&](const char* name) { return architecture.Key(name); };
  const auto count = [&](const char* name) { return reader.Uint(key(name), 1, UINT32_MAX); };
  // A key that has to be what others make it.
  const auto expect = [&](const char* name, uint64_t wanted, const char* by) {
    if (const uint64_t is = reader.Uint(key(name), 0, UINT32_MAX, wanted);
        reader.status().ok() && is != wanted) {
      reader.Fail(key(name), absl::StrCat("is ", is, ", and by ", by, " it is ", wanted));
    }
  };
  const uint64_t heads = count("attention.head_count");
  const uint64_t rank = count("attention.kv_lora_rank");
  const uint64_t rope = count("rope.dimension_count");
  const bool in_one = reader.Find(key("attention.key_length_mla")) != nullptr;
  const uint64_t size = count(in_one ? "attention.key_length_mla" : "attention.key_length");
  const uint64_t value = count(in_one ? "attention.value_length_mla" : "attention.value_length");
  if (in_one) {
    expect("attention.head_count_kv", 1, "the keys of latent attention");
    expect("attention.key_length", rank + rope, "attention.kv_lora_rank and rope.dimension_count");
    expect("attention.value_length", rank, "attention.kv_lora_rank");
  } else {
    expect("attention.head_count_kv", heads, "attention.head_count");
  }
  if (reader.status().ok() && size <= rope) {
    reader.Fail(key("rope.dimension_count"),
                absl::StrCat("is ", rope, ", and a head has ", size, " dimensions"));
  }
  RETURN_IF_ERROR(reader.status());
  nlohmann::json& to = *config;
  to["num_key_value_heads"] = heads;
  to.erase("head_dim");
  to["kv_lora_rank"] = rank;
  to["q_lora_rank"] = nullptr;
  if (reader.Find(key("attention.q_lora_rank")) != nullptr) {
    to["q_lora_rank"] = count("attention.q_lora_rank");
  }
  to["qk_nope_head_dim"] = size - rope;
  to["qk_rope_head_dim"] = rope;
  to["v_head_dim"] = value;
  *rotating = rope;
  return reader.status();
}

absl::Status WriteGgufRouting(const GgufArchitecture& architecture, const GgufHeader& header,
                              nlohmann::json* config) {
  GgufReader reader(&header);
  const auto key = [&](const char* name) { return architecture.Key(name); };
  const auto count = [&](const char* name, uint64_t absent) {
    return reader.Uint(key(name), 0, UINT32_MAX, absent);
  };
  nlohmann::json& to = *config;
  const bool softmax = architecture.family->experts.scores == RouterScores::kSoftmax;
  const uint64_t groups = std::max<uint64_t>(1, count("expert_group_count", 1));
  to["n_group"] = groups;
  to["topk_group"] = std::max<uint64_t>(1, count("expert_group_used_count", 1));
  to["n_shared_experts"] = count("expert_shared_count", 0);
  to["first_k_dense_replace"] = count("leading_dense_block_count", 0);
  // 0 is as if it were not there.
  const double scale = reader.Number(key("expert_weights_scale"), 0, kMostScale, 0);
  to["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  const bool norm = reader.Bool(key("expert_weights_norm"), false);
  to["norm_topk_prob"] = norm;
  if (softmax) {
    to["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  }
  RETURN_IF_ERROR(reader.status());
  // Which transformers does not compute.
  if (softmax && norm) {
    return UnsupportedModel(
        absl::StrCat("key ", Quoted(key("expert_weights_norm")), " true with scores of softmax"));
  }
  return absl::OkStatus();
}

}  // namespace strata
