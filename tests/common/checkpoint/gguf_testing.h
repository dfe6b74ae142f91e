// What tests of GGUF models share.
#ifndef STRATA_TESTS_COMMON_CHECKPOINT_GGUF_TESTING_H_
#define STRATA_TESTS_COMMON_CHECKPOINT_GGUF_TESTING_H_

#include <gtest/gtest.h>

#include "common/model/model_spec.h"

namespace strata::testing {

// All that a GGUF file and a config.json say alike, but for rotations, which may be said in other
// words, and the kind of the norms.
inline void ExpectTheSameModel(const ModelSpec& gguf, const ModelSpec& hf) {
  EXPECT_EQ(gguf.family, hf.family);
  EXPECT_EQ(gguf.hidden, hf.hidden);
  EXPECT_EQ(gguf.vocab, hf.vocab);
  EXPECT_EQ(gguf.context, hf.context);
  EXPECT_EQ(gguf.tied_head, hf.tied_head);
  EXPECT_EQ(gguf.final_norm_eps, hf.final_norm_eps);
  EXPECT_EQ(gguf.embedding_scale, hf.embedding_scale);
  EXPECT_EQ(gguf.final_soft_cap, hf.final_soft_cap);
  EXPECT_EQ(gguf.logits_divisor, hf.logits_divisor);
  EXPECT_EQ(gguf.bos_id, hf.bos_id);
  EXPECT_EQ(gguf.kv_groups, hf.kv_groups);
  ASSERT_EQ(gguf.layers.size(), hf.layers.size());
  for (size_t i = 0; i < hf.layers.size(); ++i) {
    const AttentionSpec& a = gguf.layers[i].attention;
    const AttentionSpec& b = hf.layers[i].attention;
    EXPECT_EQ(a.heads, b.heads);
    EXPECT_EQ(a.kv_heads, b.kv_heads);
    EXPECT_EQ(a.head_dim, b.head_dim);
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.soft_cap, b.soft_cap);
    EXPECT_EQ(a.kv_group, b.kv_group);
    EXPECT_EQ(a.qk_norm, b.qk_norm);
    EXPECT_EQ(a.qkv_bias, b.qkv_bias);
    EXPECT_EQ(a.out_bias, b.out_bias);
    EXPECT_EQ(a.sinks, b.sinks);
    EXPECT_EQ(a.rotates, b.rotates);
    EXPECT_EQ(a.rotates_neighbours, b.rotates_neighbours);
    EXPECT_EQ(a.query_growth, b.query_growth);
    EXPECT_EQ(a.query_growth_every, b.query_growth_every);
    EXPECT_EQ(a.fused_qkv, b.fused_qkv);
    EXPECT_EQ(a.latent.rank, b.latent.rank);
    EXPECT_EQ(a.latent.query_rank, b.latent.query_rank);
    EXPECT_EQ(a.latent.nope_dim, b.latent.nope_dim);
    EXPECT_EQ(a.latent.rope_dim, b.latent.rope_dim);
    EXPECT_EQ(a.latent.value_dim, b.latent.value_dim);
    EXPECT_EQ(a.rope.rotary_dim, b.rope.rotary_dim);
    EXPECT_EQ(a.rope.theta, b.rope.theta);
    EXPECT_EQ(gguf.layers[i].norm_places, hf.layers[i].norm_places);
    EXPECT_EQ(gguf.layers[i].norm_eps, hf.layers[i].norm_eps);
    EXPECT_EQ(gguf.layers[i].branch_scale, hf.layers[i].branch_scale);
    const MlpSpec& c = gguf.layers[i].mlp;
    const MlpSpec& d = hf.layers[i].mlp;
    EXPECT_EQ(c.ffn, d.ffn);
    EXPECT_EQ(c.activation, d.activation);
    EXPECT_EQ(c.clamp, d.clamp);
    EXPECT_EQ(c.gain, d.gain);
    EXPECT_EQ(c.bias, d.bias);
    EXPECT_EQ(c.experts, d.experts);
    EXPECT_EQ(c.expert_names, d.expert_names);
    EXPECT_EQ(c.router.used, d.router.used);
    EXPECT_EQ(c.router.scores, d.router.scores);
    EXPECT_EQ(c.router.renormalize, d.router.renormalize);
    EXPECT_EQ(c.router.bias, d.router.bias);
    EXPECT_EQ(c.router.corrected, d.router.corrected);
    EXPECT_EQ(c.router.groups, d.router.groups);
    EXPECT_EQ(c.router.groups_used, d.router.groups_used);
    EXPECT_EQ(c.router.group_best, d.router.group_best);
    EXPECT_EQ(c.router.scale, d.router.scale);
    EXPECT_EQ(c.shared_ffn, d.shared_ffn);
  }
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COMMON_CHECKPOINT_GGUF_TESTING_H_
