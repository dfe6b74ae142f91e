// Names and shapes of the tensors of a decoder.
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/checkpoint/checkpoint.h"

namespace strata {
namespace {

class TensorList {
 public:
  void Add(std::string name, std::vector<uint64_t> shape) {
    tensors_.push_back({std::move(name), std::move(shape)});
  }
  // A projection: weight [out, in], and its bias [out].
  void AddLinear(const std::string& name, uint64_t out, uint64_t in, bool bias) {
    Add(name + ".weight", {out, in});
    if (bias) {
      Add(name + ".bias", {out});
    }
  }
  std::vector<StageTensor> Take() { return std::move(tensors_); }

 private:
  std::vector<StageTensor> tensors_;
};

void AddLayer(const ModelSpec& spec, uint32_t index, TensorList* list) {
  const LayerSpec& layer = spec.layers[index];
  const AttentionSpec& attention = layer.attention;
  const uint64_t hidden = spec.hidden;
  const uint64_t queries = uint64_t{attention.heads} * attention.head_dim;
  const uint64_t keys = uint64_t{attention.kv_heads} * attention.head_dim;
  const std::string prefix = absl::StrCat(spec.tensor_prefix, "model.layers.", index, ".");
  list->Add(prefix + "input_layernorm.weight", {hidden});
  list->AddLinear(prefix + "self_attn.q_proj", queries, hidden, attention.qkv_bias);
  list->AddLinear(prefix + "self_attn.k_proj", keys, hidden, attention.qkv_bias);
  list->AddLinear(prefix + "self_attn.v_proj", keys, hidden, attention.qkv_bias);
  list->AddLinear(prefix + "self_attn.o_proj", hidden, queries, attention.out_bias);
  list->Add(prefix + "post_attention_layernorm.weight", {hidden});
  list->AddLinear(prefix + "mlp.gate_proj", layer.mlp.ffn, hidden, layer.mlp.bias);
  list->AddLinear(prefix + "mlp.up_proj", layer.mlp.ffn, hidden, layer.mlp.bias);
  list->AddLinear(prefix + "mlp.down_proj", hidden, layer.mlp.ffn, layer.mlp.bias);
}

}  // namespace

std::vector<StageTensor> TensorsOf(const ModelSpec& spec, uint32_t first_layer, uint32_t last_layer,
                                   bool embeds, bool heads) {
  STRATA_CHECK(first_layer <= last_layer && last_layer < spec.layers.size());
  TensorList list;
  const std::string embedding = spec.tensor_prefix + "model.embed_tokens.weight";
  if (embeds || (heads && spec.tied_head)) {
    list.Add(embedding, {spec.vocab, spec.hidden});
  }
  for (uint32_t i = first_layer; i <= last_layer; ++i) {
    AddLayer(spec, i, &list);
  }
  if (heads) {
    list.Add(spec.tensor_prefix + "model.norm.weight", {spec.hidden});
    if (!spec.tied_head) {
      list.Add(spec.tensor_prefix + "lm_head.weight", {spec.vocab, spec.hidden});
    }
  }
  return list.Take();
}

}  // namespace strata
