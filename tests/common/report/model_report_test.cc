#include "common/report/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

void AddLayers(int count, uint64_t weights, const char* group, uint32_t experts,
               v1::ModelFacts* facts) {
  for (int i = 0; i < count; ++i) {
    v1::LayerFacts* layer = facts->add_layers();
    layer->set_weight_bytes(weights);
    layer->set_kv_bytes_per_token(1024);
    layer->set_kv_group(group);
    layer->set_experts(experts);
    layer->set_experts_per_token(experts / 32);
  }
}

v1::Model Described() {
  v1::Model model;
  model.set_family("deepseek_v3");
  model.set_layers(61);
  model.set_hidden_size(7168);
  model.set_vocab_size(129280);
  model.set_context(163840);
  model.set_dtype("bf16");
  model.set_kv_bytes_per_token(61 * 1024);
  v1::ModelFacts* facts = model.mutable_facts();
  facts->set_container("safetensors");
  v1::StoredFormat* format = facts->add_formats();
  format->set_name("BF16");
  format->set_tensors(700);
  format->set_bytes(3 * kMiB);
  facts->set_weight_bytes_none(2 * kMiB);
  facts->set_embedding_bytes(kMiB);
  facts->set_head_bytes(kMiB);
  return model;
}

TEST(ModelReport, PutsLayersThatAreAlikeOnOneLine) {
  v1::Model model = Described();
  AddLayers(3, 5 * kMiB, "mla", 0, model.mutable_facts());
  AddLayers(58, 70 * kMiB, "mla", 256, model.mutable_facts());
  EXPECT_EQ(
      ModelReport(model),
      "  shape        deepseek_v3, 61 layers, hidden 7168, vocabulary 129280, context 163840\n"
      "  files        safetensors: BF16, 700 tensors of 3.0 MiB\n"
      "  weights      2.0 MiB in memory\n"
      "  layers       3 (0-2): 5.0 MiB; KV mla, 1.0 KiB a token\n"
      "               58 (3-60): 70 MiB, 8 of 256 experts a token; KV mla, 1.0 KiB a token\n"
      "  ends         embedding 1.0 MiB, head 1.0 MiB\n"
      "  KV           61 KiB a token at float16\n"
      "  tokenizer    none: token ids only\n"
      "  template     none\n");
}

TEST(ModelReport, NamesAlternatingLayersOfAKindBriefly) {
  v1::Model model = Described();
  for (int i = 0; i < 10; ++i) {
    AddLayers(1, kMiB, "window-128", 0, model.mutable_facts());
    AddLayers(1, kMiB, "full", 0, model.mutable_facts());
  }
  EXPECT_THAT(ModelReport(model), AllOf(HasSubstr("10 (0, 2, 4, ..., 18): 1.0 MiB; KV window-128"),
                                        HasSubstr("10 (1, 3, 5, ..., 19): 1.0 MiB; KV full")));
}

TEST(ModelReport, LeavesOutKindsBeyondTheFirst) {
  v1::Model model = Described();
  for (uint64_t i = 1; i <= 10; ++i) {
    AddLayers(1, i * kMiB, "full", 0, model.mutable_facts());
  }
  EXPECT_THAT(ModelReport(model), AllOf(HasSubstr("1 (7): 8.0 MiB"), Not(HasSubstr("9.0 MiB")),
                                        HasSubstr("               and 2 kinds more (--json)\n")));
}

TEST(ModelReport, HasWhatQuantizingMakesAndWhatCannotBeDone) {
  v1::Model model = Described();
  v1::ModelFacts* facts = model.mutable_facts();
  AddLayers(1, 4 * kMiB, "full", 0, facts);
  facts->mutable_layers(0)->set_weight_bytes_int8(2 * kMiB);
  facts->mutable_layers(0)->set_weight_bytes_int4(kMiB);
  facts->set_tokenizer("byte-level BPE (tokenizer.json)");
  facts->set_tokenizer_ids(1);
  facts->set_chat_template("chat_template.jinja");
  facts->add_cannot("it cannot fly");
  model.add_notes("it is old");
  EXPECT_THAT(ModelReport(model),
              AllOf(HasSubstr("1 (0): 4.0 MiB (int8 2.0 MiB, int4 1.0 MiB); KV full"),
                    HasSubstr("  tokenizer    byte-level BPE (tokenizer.json), 1 id\n"),
                    HasSubstr("  template     chat_template.jinja\n"),
                    HasSubstr("  note         it is old\n  cannot       it cannot fly\n")));
}

TEST(ModelReport, SaysWhatIsKnownWithoutFacts) {
  v1::Model model = Described();
  model.clear_facts();
  model.set_weight_bytes(kMiB);
  model.set_has_tokenizer(true);
  EXPECT_THAT(ModelReport(model), AllOf(HasSubstr("  weights      1.0 MiB as bf16\n"),
                                        HasSubstr("  text         tokenizer, no chat template\n")));
}

}  // namespace
}  // namespace strata
