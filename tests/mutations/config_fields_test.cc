// Single fields of golden config.json files, set, added or dropped: what transformers computes then
// (tests/golden/config_fields.json, by make_config_fields.py) is computed here too, or the file is
// refused by a sentence that names the field. So a field that transformers reads is never ignored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"
#include "tests/mutations/loaded.h"
#include "tests/worker/backend/models/golden_model.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata::testing {
namespace {

using Json = nlohmann::ordered_json;

// tests/golden/README.md.
constexpr double kTolerance = 5e-4;

const Json& AllFields() {
  static const auto* const fields =
      new Json(Json::parse(ReadFileOrFail(GoldenPath("config_fields.json"))));
  return *fields;
}

class ConfigFieldsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = *MakeBackend("cpu", {.cpu = {.threads = 1}});
    const std::string folder = GoldenPath("models/" + GetParam());
    LinkAllButConfig(folder, folder_);
    document_ = Json::parse(ReadFileOrFail(folder + "/config.json"));
    const auto valid = OpenCheckpoint(folder);
    ASSERT_TRUE(valid.ok()) << valid.status();
    for (const std::string& file : valid->weight_files) {
      files_.AddFile(folder, file);
    }
  }

  // The last row's logits of the model with this configuration.
  absl::StatusOr<std::vector<float>> LastRow(const Json& config) {
    folder_.Write("config.json", config.dump());
    ASSIGN_OR_RETURN(const Checkpoint opened, OpenCheckpoint(folder_.path()));
    const FileTensors tensors = TensorsFor(files_, opened.spec);
    ASSIGN_OR_RETURN(std::vector<float> logits,
                     LogitsOfModel(backend_.get(), opened.spec, tensors));
    context_ = opened.spec.context;
    logits.erase(logits.begin(), logits.end() - opened.spec.vocab);
    return logits;
  }

  // `path` is a field, or an object and a field in it.
  Json Changed(const std::vector<std::string>& path, const Json& value) const {
    Json changed = document_;
    Json* object = &changed;
    if (path.size() == 2) {
      object = &changed[path[0]];
    } else if (path[0] == "rope_scaling" || path[0] == "rope_parameters") {
      changed.erase(path[0] == "rope_scaling" ? "rope_parameters" : "rope_scaling");
    }
    if (value == "DROP") {
      object->erase(path.back());
    } else {
      (*object)[path.back()] = value;
    }
    return changed;
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  FileTensors files_;
  Json document_;
  uint32_t context_ = 0;  // Of the model of LastRow.
};

TEST_P(ConfigFieldsTest, EachIsReadAsTransformersReadsItOrRefusedByName) {
  const auto as_it_is = LastRow(document_);
  ASSERT_TRUE(as_it_is.ok()) << as_it_is.status();
  const Json& changes = AllFields().at(GetParam());
  EXPECT_GT(changes.size(), 50u);
  size_t refused = 0;
  for (const Json& change : changes) {
    const auto path = change[0].get<std::vector<std::string>>();
    SCOPED_TRACE(change[0].dump() + " := " + change[1].dump());
    const auto row = LastRow(Changed(path, change[1]));
    if (!row.ok()) {
      ++refused;
      EXPECT_FALSE(ReasonOf(row.status()).empty()) << row.status();
      EXPECT_TRUE(NamesOne(Describe(row.status()), path)) << row.status();
      continue;
    }
    if (context_ < kPromptTokens) {
      continue;  // No request is as long as the prompt.
    }
    double farthest = 0;
    for (size_t i = 0; i < (change[2].is_null() ? row->size() : change[2].size()); ++i) {
      const double wanted = change[2].is_null() ? (*as_it_is)[i] : change[2][i].get<double>();
      farthest = std::max(farthest, std::abs((*row)[i] - wanted));
    }
    EXPECT_LE(farthest, kTolerance) << "transformers computes something else";
  }
  EXPECT_LT(refused, changes.size() / 2);
}

std::vector<std::string> Models() {
  std::vector<std::string> models;
  for (const auto& [name, changes] : AllFields().items()) {
    models.push_back(name);
  }
  return models;
}

INSTANTIATE_TEST_SUITE_P(All, ConfigFieldsTest, ::testing::ValuesIn(Models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::testing
