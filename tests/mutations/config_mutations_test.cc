// Single mutations of every golden model's config.json, with its weights beside it: each loads, and
// computes what the original does unless the field is one that says otherwise; or is refused by a
// sentence that names the field.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"
#include "tests/mutations/cost.h"
#include "tests/mutations/loaded.h"
#include "tests/mutations/mutate_json.h"
#include "tests/worker/backend/golden_model.h"

namespace strata::testing {
namespace {

constexpr int kEach = 60;
constexpr double kMostSeconds = 10;
// The layers of a configuration may be 4096, whatever its length.
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

// What may change what is computed. All else is refused, or changes nothing.
const std::set<std::string>& Meaningful() {
  static const auto* const fields = new std::set<std::string>{"rope_theta",
                                                              "rope_scaling",
                                                              "rope_parameters",
                                                              "rms_norm_eps",
                                                              "sliding_window",
                                                              "use_sliding_window",
                                                              "max_window_layers",
                                                              "layer_types",
                                                              "sliding_window_pattern",
                                                              "max_position_embeddings",
                                                              "original_max_position_embeddings",
                                                              "partial_rotary_factor",
                                                              "tie_word_embeddings",
                                                              "hidden_act",
                                                              "hidden_activation",
                                                              "query_pre_attn_scalar",
                                                              "attn_logit_softcapping",
                                                              "final_logit_softcapping",
                                                              "rope_local_base_freq",
                                                              "attention_multiplier",
                                                              "embedding_multiplier",
                                                              "residual_multiplier",
                                                              "logits_scaling",
                                                              "no_rope_layers",
                                                              "no_rope_layer_interval",
                                                              "num_experts_per_tok",
                                                              "norm_topk_prob",
                                                              "swiglu_limit",
                                                              "routed_scaling_factor",
                                                              "topk_method",
                                                              "topk_group",
                                                              "n_group",
                                                              "head_dim",
                                                              "num_attention_heads",
                                                              "num_key_value_heads"};
  return *fields;
}

// Those of which twice as much must change it.
bool Matters(const std::string& field) {
  static const auto* const fields = new std::set<std::string>{
      "query_pre_attn_scalar", "attention_multiplier", "embedding_multiplier",
      "residual_multiplier",   "logits_scaling",       "final_logit_softcapping"};
  return fields->contains(field);
}

class ConfigMutationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = *MakeBackend("cpu", {.threads = 1});
    golden_ = LoadGoldenModel(GetParam());
    const std::string folder = GoldenPath("models/" + GetParam());
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name != "config.json" && name != "expected.safetensors") {
        std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                        folder_.File(name));
      }
    }
    document_ = nlohmann::ordered_json::parse(ReadFileOrFail(folder + "/config.json"));
    const auto right = LogitsOfModel(backend_.get(), golden_.spec, golden_.weights);
    ASSERT_TRUE(right.ok()) << right.status();
    right_ = *right;
  }

  void Check(const JsonMutation& mutation) {
    folder_.Write("config.json", mutation.text);
    Cost cost;
    const auto opened = Measured([&] { return OpenCheckpoint(folder_.path()); }, &cost);
    EXPECT_LT(cost.seconds, kMostSeconds);
    EXPECT_LT(cost.bytes, kMostBytes + 64 * mutation.text.size());
    const auto logits = opened.ok() ? LogitsOfModel(backend_.get(), opened->spec, golden_.weights)
                                    : absl::StatusOr<std::vector<float>>(opened.status());
    if (!logits.ok()) {
      ++refused_;
      EXPECT_FALSE(ReasonOf(logits.status()).empty()) << logits.status();
      std::vector<std::string> names = mutation.fields;
      if (names.empty()) {
        names = {"config.json", "field"};  // No JSON any more, or of another name.
        for (const auto& [name, value] : document_.items()) names.push_back(name);
      }
      EXPECT_TRUE(NamesOne(Describe(logits.status()), names)) << logits.status();
      return;
    }
    const bool same = *logits == right_;
    const std::string field = mutation.fields.empty() ? "" : mutation.fields.back();
    EXPECT_TRUE(same || mutation.fields.empty() || Meaningful().contains(field))
        << "it loads and computes something else";
    EXPECT_TRUE(!same || !mutation.scaled || !Matters(field)) << "it is not looked at";
    EXPECT_TRUE(
        std::all_of(logits->begin(), logits->end(), [](float x) { return std::isfinite(x); }));
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  GoldenModel golden_;
  nlohmann::ordered_json document_;
  std::vector<float> right_;
  int refused_ = 0;
};

TEST_P(ConfigMutationTest, EachLoadsRightOrIsRefusedByName) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kEach; ++i) {
    const JsonMutation mutation = MutateJson(document_, &random);
    SCOPED_TRACE(mutation.what);
    Check(mutation);
  }
  EXPECT_GT(refused_, kEach / 8);
}

std::vector<std::string> Models() {
  std::vector<std::string> models;
  for (const std::string& name : GoldenModelNames()) {
    if (name != "recall" && !name.starts_with("gguf/")) {
      models.push_back(name);
    }
  }
  return models;
}

INSTANTIATE_TEST_SUITE_P(All, ConfigMutationTest, ::testing::ValuesIn(Models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::testing
