// Single mutations of every golden tokenizer.json: each gives the ids that Hugging Face's library
// gives for the same file (tests/golden/tokenizers/mutations.jsonl), or is refused by a sentence
// that names the field; whatever the change, nothing crashes, hangs, or takes more memory than the
// file could need.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "tests/cost.h"
#include "tests/golden.h"
#include "tests/mutations/loaded.h"
#include "tests/mutations/mutate_json.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace strata::testing {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kEach = 24;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;

std::vector<std::string> Families() {
  std::vector<std::string> families;
  for (const std::string& line : ReadLinesOrFail(GoldenPath("tokenizers/mutations.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("tokenizer") &&
        (families.empty() || families.back() != entry["tokenizer"].get<std::string>())) {
      families.push_back(entry["tokenizer"].get<std::string>());
    }
  }
  return families;
}

Json Document(const std::string& family) {
  return Json::parse(ReadFileOrFail(GoldenPath("tokenizers/" + family + "/tokenizer.json")));
}

using Ids = std::vector<std::vector<uint32_t>>;

// The ids of each text, or why the file is refused.
absl::StatusOr<Ids> EncodeAll(const std::string& file, const std::vector<std::string>& texts) {
  ASSIGN_OR_RETURN(const auto tokenizer, ParseTokenizer(file));
  Ids all;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(std::vector<uint32_t> ids, tokenizer->Encode(text, true));
    tokenizer->Decode(ids, true);
    all.push_back(std::move(ids));
  }
  return all;
}

absl::StatusOr<Ids> EncodeWithin(const std::string& file, const std::vector<std::string>& texts) {
  Cost cost;
  auto ids = Measured([&] { return EncodeAll(file, texts); }, &cost);
  ExpectReadWithin(cost, file.size(), kMostBytes);
  return ids;
}

// The names on the way of a JSON pointer.
std::vector<std::string> FieldsOf(const std::string& pointer) {
  std::vector<std::string> fields;
  Json::json_pointer path(pointer);
  for (; !path.empty(); path.pop_back()) {
    if (path.back().find_first_not_of("0123456789") != std::string::npos) {
      fields.push_back(path.back());
    }
  }
  return fields;
}

TEST(TokenizerMutations, GiveTheIdsOfTheReferenceOrAreRefusedByName) {
  std::map<std::string, Json> documents;
  std::map<std::string, Ids> unchanged;
  std::vector<std::string> texts;
  int right = 0;
  int refused = 0;
  for (const std::string& line : ReadLinesOrFail(GoldenPath("tokenizers/mutations.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("texts")) {
      texts = entry["texts"].get<std::vector<std::string>>();
      continue;
    }
    SCOPED_TRACE(line.substr(0, 300));
    const auto family = entry["tokenizer"].get<std::string>();
    if (!documents.contains(family)) {
      documents[family] = Document(family);
      unchanged[family] = *EncodeAll(documents[family].dump(), texts);
    }
    const std::string file = documents[family].patch(Json::array({entry["patch"]})).dump();
    const auto ids = EncodeWithin(file, texts);
    if (!ids.ok()) {
      ++refused;
      EXPECT_FALSE(ReasonOf(ids.status()).empty()) << ids.status();
      EXPECT_TRUE(NamesOne(Describe(ids.status()), FieldsOf(entry["patch"]["path"])))
          << ids.status();
    } else {
      ++right;
      // What it refuses, and is read here, is nothing that ids depend on.
      EXPECT_EQ(*ids, entry["ids"].is_null() ? unchanged[family] : entry["ids"].get<Ids>());
    }
  }
  EXPECT_GT(right, 100);
  EXPECT_GT(refused, 100);
}

// The files beside a tokenizer.json (config_mutations.jsonl). A change that transformers refuses
// may be read here: an object for a token that has no "__type", as older releases wrote it.
TEST(TokenizerMutations, OfFilesBesideGiveWhatTransformersGivesOrAreRefusedByName) {
  std::map<std::string, Json> cases;
  Json bases;
  std::vector<std::string> texts;
  for (const std::string& line : ReadLinesOrFail(GoldenPath("tokenizers/configs.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("bases")) {
      bases = entry["bases"];
      texts = entry["texts"].get<std::vector<std::string>>();
    } else if (entry.contains("name")) {
      cases[entry["name"].get<std::string>()] = entry;
    }
  }
  int right = 0;
  int refused = 0;
  for (const std::string& line : ReadLinesOrFail(GoldenPath("tokenizers/config_mutations.jsonl"))) {
    SCOPED_TRACE(line.substr(0, 400));
    const Json entry = Json::parse(line);
    const Json& original = cases[entry["name"].get<std::string>()];
    Json document = bases[original["base"].get<std::string>()];
    document["added_tokens"] = original["added_tokens"];
    const Json files = original["files"].patch(Json::array({entry["patch"]}));
    const FilesBesideTokenizer beside =
        *ReadFilesBesideTokenizer([&](const char* name) -> absl::StatusOr<std::string> {
          return files.contains(name) ? files[name].dump() : "";
        });
    const auto tokenizer = ParseTokenizer(document.dump(), beside);
    const auto config = ParseTokenizerConfig(beside);
    if (!tokenizer.ok()) {
      ++refused;
      EXPECT_FALSE(ReasonOf(tokenizer.status()).empty());
      std::vector<std::string> fields = FieldsOf(entry["patch"]["path"]);
      fields.pop_back();  // The file.
      EXPECT_TRUE(NamesOne(Describe(tokenizer.status()), fields)) << tokenizer.status();
      continue;
    }
    ASSERT_TRUE(config.ok()) << config.status();
    if (entry["ids"].is_null()) {
      continue;
    }
    ++right;
    Json named = Json::object();
    for (const auto& [name, token] : config->named) {
      named[name] = token.content;
    }
    EXPECT_EQ(named, entry["named"]);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(*(*tokenizer)->Encode(texts[i], true),
                entry["ids"][i].get<std::vector<uint32_t>>());
    }
  }
  EXPECT_GT(right, 40);
  EXPECT_GT(refused, 10);
}

TEST(TokenizerMutations, NeitherCrashNorHangNorTakeMuchMemory) {
  std::mt19937_64 random(20261123);
  const std::vector<std::string> texts = {"Hello  w\xC3\xB6rld 123 \xE4\xB8\xAD <s> x\n", ""};
  for (const std::string& family : Families()) {
    const Json document = Document(family);
    for (int i = 0; i < kEach; ++i) {
      const JsonMutation mutation = MutateJson(document, &random);
      SCOPED_TRACE(family + ": " + mutation.what);
      const auto ids = EncodeWithin(mutation.text, texts);
      if (!ids.ok()) {
        EXPECT_FALSE(ReasonOf(ids.status()).empty()) << ids.status();
        EXPECT_TRUE(mutation.fields.empty() || NamesOne(Describe(ids.status()), mutation.fields))
            << ids.status();
      }
    }
  }
}

}  // namespace
}  // namespace strata::testing
