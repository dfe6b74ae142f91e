// Single mutations of every golden model's config.json, with its weights beside it: each loads as
// what it then says (restated.h), and computes what the original does where that is the same; or is
// refused by a sentence that names the field.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/cost.h"
#include "tests/golden.h"
#include "tests/mutations/facts.h"
#include "tests/mutations/loaded.h"
#include "tests/mutations/mutate_json.h"
#include "tests/mutations/restated.h"
#include "tests/worker/backend/models/golden_model.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata::testing {
namespace {

constexpr int kEach = 60;
// The layers of a configuration may be 4096, whatever its length.
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

using Json = nlohmann::ordered_json;

class ConfigMutationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = *MakeBackend("cpu", {.cpu = {.threads = 1}});
    const std::string folder = GoldenPath("models/" + GetParam());
    LinkAllButConfig(folder, folder_);
    document_ = Json::parse(ReadFileOrFail(folder + "/config.json"));
    const auto valid = OpenCheckpoint(folder);
    ASSERT_TRUE(valid.ok()) << valid.status();
    files_.AddCheckpoint(*valid);
    for (const std::string& file : valid->weight_files) {
      file_bytes_ += std::filesystem::file_size(folder + "/" + file);
    }
    facts_ = FactsOf(valid->spec);
    Cost cost;
    const auto right =
        LogitsOfModel(backend_.get(), valid->spec, TensorsFor(files_, valid->spec), &cost);
    ASSERT_TRUE(right.ok()) << right.status();
    right_ = *right;
    ExpectLoadedWithin(cost, file_bytes_);
    EXPECT_TRUE(!CountsAllocations() || cost.bytes > 0);
  }

  absl::StatusOr<std::vector<float>> Load(const ModelSpec& spec) {
    Cost cost;
    auto logits = LogitsOfModel(backend_.get(), spec, TensorsFor(files_, spec), &cost);
    ExpectLoadedWithin(cost, file_bytes_);
    return logits;
  }

  void CheckSaid(const absl::Status& status, const JsonMutation& mutation, const Json& after) {
    ++refused_;
    EXPECT_FALSE(ReasonOf(status).empty()) << status;
    std::vector<std::string> names = mutation.fields;
    if (after.is_discarded()) {
      names = {"config.json is not valid JSON"};
    } else if (!after.is_object()) {
      names = {"config.json is not a JSON object"};
    } else if (names.empty()) {
      names = ChangedFields(document_, after);
      for (std::string& name : ChangedFields(DecoderFields(document_), DecoderFields(after))) {
        names.push_back(std::move(name));
      }
      names.emplace_back("config.json has the key");  // Twice.
    }
    EXPECT_TRUE(NamesOne(Describe(status), names)) << status;
  }

  void Check(const JsonMutation& mutation) {
    folder_.Write("config.json", mutation.text);
    const Json after = Json::parse(mutation.text, nullptr, false);
    Cost cost;
    const auto opened = Measured([&] { return OpenCheckpoint(folder_.path()); }, &cost);
    ExpectReadWithin(cost, mutation.text.size(), kMostBytes);
    if (!opened.ok()) {
      CheckSaid(opened.status(), mutation, after);
      return;
    }
    ASSERT_TRUE(after.is_object());
    // What was loaded is what the configuration says, and nothing else changed with it.
    const Facts loaded = FactsOf(opened->spec);
    EXPECT_EQ(Disagreement(loaded, Restated(document_, after, facts_)), "")
        << "by restated.cc, whose defaults are in field_defaults.cc";
    const auto logits = Load(opened->spec);
    if (!logits.ok()) {
      CheckSaid(logits.status(), mutation, after);
      return;
    }
    if (loaded == facts_) {
      EXPECT_TRUE(*logits == right_) << "it computes something else";
    } else if (DifferVisibly(loaded, facts_)) {
      EXPECT_TRUE(*logits != right_) << "what changed is not looked at";
    }
    EXPECT_TRUE(
        std::all_of(logits->begin(), logits->end(), [](float x) { return std::isfinite(x); }));
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  FileTensors files_;
  uint64_t file_bytes_ = 0;
  Json document_;
  Facts facts_;
  std::vector<float> right_;
  int refused_ = 0;
};

// The second reading says of the file as it is what was loaded.
TEST_P(ConfigMutationTest, ItsFieldsAreReadAsTheReferenceReadsThem) {
  const Json fields = DecoderFields(document_);
  for (const std::string& field : MeaningfulFields()) {
    if (!fields.contains(field)) continue;
    SCOPED_TRACE(field);
    EXPECT_EQ(Disagreement(facts_, RestatedField(document_, field, facts_)), "");
  }
}

// One by one, and those within them.
TEST_P(ConfigMutationTest, WithoutAFieldItsDefaultIsTheReferences) {
  const auto without = [&](const Json& changed, const std::vector<std::string>& fields) {
    SCOPED_TRACE(fields.front() + " removed");
    Check({.text = changed.dump(), .fields = fields, .what = ""});
  };
  // Of the document, or of its decoder's object.
  const auto each = [&](const std::vector<std::string>& within) {
    const auto object = [&](Json* document) -> Json& {
      return within.empty() ? *document : (*document)[within[0]];
    };
    const Json fields = object(&document_);
    for (const std::string& field : MeaningfulFields()) {
      if (!fields.contains(field)) continue;
      Json changed = document_;
      object(&changed).erase(field);
      without(changed, {field});
      if (!fields[field].is_object()) continue;
      for (const auto& [key, value] : fields[field].items()) {
        changed = document_;
        object(&changed)[field].erase(key);
        without(changed, {key, field});
      }
    }
  };
  each({});
  if (document_.contains("text_config")) each({"text_config"});
}

TEST_P(ConfigMutationTest, EachLoadsRightOrIsRefusedByName) {
  std::mt19937_64 random(20261123);
  const std::vector<std::string> favoured = MeaningfulFields();
  for (int i = 0; i < kEach; ++i) {
    const JsonMutation mutation = MutateJson(document_, &random, favoured);
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
