#include "common/checkpoint/gguf_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/gguf_ends.h"
#include "common/checkpoint/gguf_keys.h"
#include "common/checkpoint/gguf_latent.h"
#include "common/checkpoint/gguf_rope.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/limits.h"
#include "common/status.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr double kMost = 1e30;
// Of windowed layers, where a family has one for them and the file does not say it.
constexpr double kLocalTheta = 10000;

Error InvalidConfig(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_GGUF", what);
}

// Keys of Granite's multipliers, and config.json's fields.
constexpr struct {
  const char* key;
  const char* field;
} kMultipliers[] = {
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
};
constexpr const char* kSoftCaps[] = {"attn_logit_softcapping", "final_logit_softcapping"};

// A share whose product with `all`, cut off to a whole number, is `part`.
double ShareOf(uint64_t part, uint64_t all) {
  const double share = static_cast<double>(part) / static_cast<double>(all);
  const bool short_of_it = share * static_cast<double>(all) < static_cast<double>(part);
  return short_of_it ? std::nextafter(share, 1.0) : share;
}

class ConfigWriter {
 public:
  ConfigWriter(const GgufArchitecture& architecture, const GgufHeader& header,
               const std::vector<TensorEntry>& tensors)
      : architecture_(architecture),
        family_(*architecture.family),
        header_(header),
        reader_(&header),
        tensors_(tensors) {}

  absl::StatusOr<GgufConfig> Write(const GgufFactors& factors) {
    RETURN_IF_ERROR(CheckGgufKeys(architecture_, header_));
    RETURN_IF_ERROR(WriteSizes());
    RETURN_IF_ERROR(WriteExperts());
    RETURN_IF_ERROR(WriteScores());
    RETURN_IF_ERROR(WriteMultipliers());
    RETURN_IF_ERROR(WriteWindows());
    RETURN_IF_ERROR(WriteRotation());
    RETURN_IF_ERROR(
        WriteGgufRope(architecture_, header_, factors, rotary_dim_, context_, &config_));
    RETURN_IF_ERROR(WriteGgufEnds(header_, &config_, &generation_));
    return GgufConfig{config_.dump(), generation_.dump()};
  }

 private:
  std::string Key(const char* name) const { return architecture_.Key(name); }
  bool Has(const char* name) const { return reader_.Find(Key(name)) != nullptr; }
  // One number, or a list of one a layer that are all the same.
  uint64_t Count(const char* name, std::optional<uint64_t> fallback = std::nullopt) {
    const std::string key = Key(name);
    const GgufValue* value = reader_.Find(key);
    if (value == nullptr || !value->is_list) {
      return reader_.Uint(key, 1, UINT32_MAX, fallback);
    }
    const std::vector<int64_t> all = reader_.Ints(key);
    const bool same = !all.empty() && std::all_of(all.begin(), all.end(), [&](int64_t one) {
      return one == all.front() && one >= 1 && one <= int64_t{UINT32_MAX};
    });
    if (!same) {
      reader_.Fail(key, "is a list of numbers that are not all the same, which is not supported");
    }
    return same ? static_cast<uint64_t>(all.front()) : 1;
  }
  double Number(const char* name, double fallback) {
    return reader_.Number(Key(name), 0, kMost, fallback);
  }
  Error UnsupportedKey(const char* name) const {
    return UnsupportedModel("key " + Quoted(Key(name)));
  }

  const TensorEntry* Find(std::string_view name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const TensorEntry& tensor) { return tensor.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
  }

  absl::Status WriteSizes() {
    const TensorEntry* embedding = Find("model.embed_tokens.weight");
    if (embedding == nullptr) {
      return InvalidConfig("there is no tensor \"token_embd.weight\"");
    }
    const GgufValue* tokens = reader_.Find("tokenizer.ggml.tokens");
    if (tokens != nullptr && tokens->is_list && tokens->count != embedding->shape[0]) {
      return InvalidConfig(absl::StrCat("tensor \"token_embd.weight\" is of ", embedding->shape[0],
                                        " tokens, key \"tokenizer.ggml.tokens\" of ",
                                        tokens->count));
    }
    hidden_ = Count("embedding_length");
    heads_ = Count("attention.head_count");
    const uint64_t blocks = reader_.Uint(Key("block_count"), 1, kMaxLayers);
    layers_ = GgufLayers(architecture_, header_);
    if (reader_.status().ok() && layers_ == 0) {
      reader_.Fail(Key("nextn_predict_layers"),
                   absl::StrCat("is not below the ", blocks, " of block_count"));
    }
    context_ = Count("context_length");
    const uint64_t kv_heads = Count("attention.head_count_kv", heads_);
    // Of fewer layers the tensors that are missing are named.
    constexpr uint64_t kUncounted = 256;
    if (blocks > std::max<uint64_t>(tensors_.size(), kUncounted)) {
      return InvalidConfig(absl::StrCat("key ", Quoted(Key("block_count")), " is ", blocks,
                                        ", and there are ", tensors_.size(), " tensors"));
    }
    // Of a head's size the rows of the matrix that makes queries, where no key says it.
    constexpr char kQueries[] = "model.layers.0.self_attn.q_proj.weight";
    constexpr char kFused[] = "model.layers.0.self_attn.qkv_proj.weight";
    const TensorEntry* queries = Find(family_.fused ? kFused : kQueries);
    const uint64_t rows = queries == nullptr ? hidden_ : queries->shape[0];
    const uint64_t of = queries != nullptr && family_.fused ? heads_ + 2 * kv_heads : heads_;
    head_dim_ = Count("attention.key_length", std::max<uint64_t>(1, rows / of));
    if (reader_.status().ok() && head_dim_ % 2 != 0 && !family_.latent) {
      return UnsupportedModel(absl::StrCat("an odd size of heads, ", head_dim_, " by ", HeadsBy()));
    }
    config_ = {{"model_type", architecture_.model_type},
               {"architectures", json::array({family_.architecture})},
               {"hidden_size", hidden_},
               {"num_hidden_layers", layers_},
               {"num_attention_heads", heads_},
               {"num_key_value_heads", kv_heads},
               {"head_dim", head_dim_},
               {"rms_norm_eps", reader_.Number(Key("attention.layer_norm_rms_epsilon"), 0, 1)},
               {"max_position_embeddings", context_},
               {"vocab_size", embedding->shape[0]},
               {"tie_word_embeddings", Find("lm_head.weight") == nullptr}};
    if (!architecture_.mixture()) {
      config_["intermediate_size"] = Count("feed_forward_length");
    }
    if (family_.latent) {
      return WriteGgufLatent(architecture_, header_, &config_, &head_dim_);
    }
    if (architecture_.pairs) {
      config_["qk_rows_in_pairs"] = true;
    }
    const bool own_out_bias = family_.out_bias != OutBias::kAsOthers;
    if (std::string_view(family_.name) == "llama" || own_out_bias) {
      config_["attention_bias"] = Find("model.layers.0.self_attn.q_proj.bias") != nullptr;
    }
    if (family_.out_bias == OutBias::kOwnField) {
      config_["attention_out_bias"] = Find("model.layers.0.self_attn.o_proj.bias") != nullptr;
    }
    if (family_.qk_norm_field != nullptr) {
      config_[family_.qk_norm_field] = Find("model.layers.0.self_attn.q_norm.weight") != nullptr;
    }
    if (family_.norm == NormKind::kRmsOnePlus) {
      config_["norm_weights_include_one"] = true;
    }
    for (const char* name :
         {"attention.value_length", "attention.key_length_swa", "attention.value_length_swa"}) {
      if (const uint64_t size = Count(name, head_dim_); size != head_dim_) {
        return NotOfHeads(name, size);
      }
    }
    return reader_.status();
  }

  // What a head's size is by.
  std::string HeadsBy() const {
    const std::string heads = Quoted(Key("attention.head_count"));
    return Has("attention.key_length") ? Quoted(Key("attention.key_length"))
           : family_.fused ? absl::StrCat(heads, ", ", Quoted(Key("attention.head_count_kv")),
                                          " and tensor \"blk.0.attn_qkv.weight\"")
                           : heads + " and tensor \"blk.0.attn_q.weight\"";
  }
  Error NotOfHeads(const char* name, uint64_t size) const {
    return UnsupportedModel(absl::StrCat("key ", Quoted(Key(name)), " ", size, " with heads of ",
                                         head_dim_, ", by ", HeadsBy()));
  }

  absl::Status WriteExperts() {
    if (!architecture_.mixture()) {
      return absl::OkStatus();
    }
    const uint64_t ffn = Count("feed_forward_length");
    config_["intermediate_size"] = ffn;
    if (family_.experts.deepseek) {
      RETURN_IF_ERROR(WriteGgufRouting(architecture_, header_, &config_));
    }
    config_[family_.experts.ffn_field] = Count("expert_feed_forward_length", ffn);
    config_[family_.experts.experts_field] = Count("expert_count");
    config_["num_experts_per_tok"] = Count("expert_used_count");
    if (family_.experts.scores == RouterScores::kSoftmax && !family_.experts.deepseek) {
      config_["norm_topk_prob"] = true;
    }
    return reader_.status();
  }

  // What scores are multiplied by, and capped at.
  absl::Status WriteScores() {
    if (family_.score_divisor == 0) {
      for (const char* name : kSoftCaps) {
        if (reader_.Number(Key(name), -kMost, kMost, 0) != 0) {
          return UnsupportedKey(name);
        }
      }
      return reader_.status();
    }
    const bool wide = layers_ == architecture_.wide_layers;
    config_["query_pre_attn_scalar"] = wide ? hidden_ / heads_ : head_dim_;
    for (const char* name : kSoftCaps) {
      if (Has(name)) {
        const double cap = Number(name, 0);
        config_[name] = cap == 0 ? json(nullptr) : json(cap);
      }
    }
    return reader_.status();
  }

  absl::Status WriteMultipliers() {
    const bool granite = std::string_view(family_.name) == "granite";
    if (granite) {
      config_[kMultipliers[0].field] = 1 / std::sqrt(static_cast<double>(head_dim_));
    }
    for (const auto& [key, field] : kMultipliers) {
      // Of these every converter writes what logits are divided by.
      const bool required = granite && std::string_view(key) == "logit_scale";
      const double multiplier = reader_.Number(Key(key), -kMost, kMost,
                                               required ? std::nullopt : std::optional<double>(0));
      if (multiplier != 0 && !granite) {
        return UnsupportedKey(key);
      }
      if (multiplier != 0) {
        config_[field] = multiplier;
      }
    }
    // Granite's files say by it that nothing rotates.
    if (granite && !reader_.Bool(Key("rope.scaling.finetuned"), true)) {
      return UnsupportedKey("rope.scaling.finetuned");
    }
    return reader_.status();
  }

  absl::Status WriteWindows() {
    constexpr char kWindow[] = "attention.sliding_window";
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    const bool pattern =
        family_.windows == WindowRule::kPattern || family_.windows == WindowRule::kAlternating;
    // No key: Gemma 3 and Phi-3 have none, the others what is their family's.
    const uint64_t absent = family_.local_theta != 0 || !pattern ? 0 : family_.window;
    const uint64_t window = reader_.Uint(Key(kWindow), 0, UINT32_MAX, absent);
    if (window != 0 && !pattern && family_.windows != WindowRule::kAll) {
      return UnsupportedKey(kWindow);
    }
    if (window != 0 && !pattern && Has(kPattern)) {
      return UnsupportedKey(kPattern);
    }
    config_["sliding_window"] = window == 0 ? json(nullptr) : json(window);
    if (!pattern || window == 0) {
      return reader_.status();
    }
    std::vector<bool> slides(layers_);
    const GgufValue* value = reader_.Find(Key(kPattern));
    if (value != nullptr && value->is_list) {
      slides = reader_.Bools(Key(kPattern));
      if (slides.size() != layers_) {
        reader_.Fail(Key(kPattern),
                     absl::StrCat("is no list of ", layers_, " values, one a layer"));
      }
    } else {
      const uint64_t every = reader_.Uint(Key(kPattern), 1, kMaxLayers,
                                          family_.window_pattern == 0 ? 2 : family_.window_pattern);
      for (uint64_t i = 0; i < layers_; ++i) {
        slides[i] = (i + 1) % every != 0;
      }
    }
    json kinds = json::array();
    for (const bool one : slides) {
      kinds.push_back(one ? "sliding_attention" : "full_attention");
    }
    config_["layer_types"] = std::move(kinds);
    return reader_.status();
  }

  absl::Status WriteRotation() {
    // Converters leave out what llama.cpp takes where nothing is said, and no other base.
    constexpr double kAbsent = 10000;
    const double theta =
        reader_.Number(Key("rope.freq_base"), 1, kMost,
                       family_.theta == kAbsent ? std::optional<double>(kAbsent) : std::nullopt);
    const bool two = family_.local_theta != 0;
    const double local =
        reader_.Number(Key("rope.freq_base_swa"), 1, kMost, two ? kLocalTheta : theta);
    config_["rope_theta"] = theta;
    if (two) {
      config_["rope_local_base_freq"] = local;
    } else if (local != theta) {
      return UnsupportedKey("rope.freq_base_swa");
    }
    const uint64_t dims = reader_.Uint(Key("rope.dimension_count"), 0, UINT32_MAX, head_dim_);
    if (dims != head_dim_) {
      if (!family_.partial_rotary || dims < 2 || dims % 2 != 0 || dims > head_dim_) {
        return NotOfHeads("rope.dimension_count", dims);
      }
    }
    if (dims != head_dim_ || family_.partial_share != 1) {
      config_["partial_rotary_factor"] = ShareOf(dims, head_dim_);
    }
    rotary_dim_ = dims;
    if (Count("rope.dimension_count_swa", std::max<uint64_t>(dims, 1)) != dims) {
      return UnsupportedKey("rope.dimension_count_swa");
    }
    return reader_.status();
  }

  const GgufArchitecture& architecture_;
  const Family& family_;
  const GgufHeader& header_;
  GgufReader reader_;
  const std::vector<TensorEntry>& tensors_;
  uint64_t hidden_ = 0;
  uint64_t heads_ = 0;
  uint64_t head_dim_ = 0;
  uint64_t rotary_dim_ = 0;
  uint64_t layers_ = 0;
  uint64_t context_ = 0;
  json config_;
  json generation_;
};

}  // namespace

absl::StatusOr<GgufConfig> WriteGgufConfig(const GgufArchitecture& architecture,
                                           const GgufHeader& header,
                                           const std::vector<TensorEntry>& tensors,
                                           const GgufFactors& factors) {
  return ConfigWriter(architecture, header, tensors).Write(factors);
}

}  // namespace strata
