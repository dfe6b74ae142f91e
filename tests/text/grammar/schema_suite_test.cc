// The public JSON Schema test suite, draft 2020-12: a schema that is taken admits exactly what is
// valid, in compact and in spaced writing and in the order of members that the grammar has; any
// other is refused by name.
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "tests/text/grammar/json_writings.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

constexpr size_t kMaxTexts = 1'000;
constexpr char kDocument[] = "docs/internals/constraints.md";
constexpr char kBegin[] = "<!-- made by schema_suite_test -->\n";
constexpr char kEnd[] = "<!-- end -->\n";

struct Tally {
  int groups = 0;
  int taken = 0;
  std::map<std::string, int> refused;  // By the keyword that is named.
};

struct Suite {
  std::map<std::string, Tally> by_keyword;
  int typed = 0;  // Schemas that fix a type at the top.
  int typed_taken = 0;
  int instances = 0;
  std::vector<std::string> faults;
};

std::string NamedKeyword(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  const auto keyword = detail.facts().find("keyword");
  return keyword == detail.facts().end() ? detail.reason() : keyword->second;
}

void CheckGroup(const nlohmann::json& group, Suite* suite) {
  const std::string schema = group["schema"];
  const std::string name =
      absl::StrCat(std::string(group["keyword"]), ": ", std::string(group["about"]));

  Tally& tally = suite->by_keyword[group["keyword"]];
  ++tally.groups;
  const nlohmann::json parsed = nlohmann::json::parse(schema);
  const bool typed = parsed.is_object() && parsed.contains("type");
  suite->typed += typed ? 1 : 0;
  const absl::StatusOr<Grammar> grammar = GrammarOfSchema(schema, {});
  if (!grammar.ok()) {
    const std::string reason = ReasonOf(grammar.status());
    // What admits nothing is taken, and says so at once.
    if (reason != "SCHEMA_ADMITS_NOTHING") {
      ++tally.refused[NamedKeyword(grammar.status())];
      EXPECT_EQ(reason, "SCHEMA_UNSUPPORTED") << name << ": " << grammar.status();
      return;
    }
    for (const auto& test : group["tests"]) {
      if (test[2]) {
        suite->faults.push_back(absl::StrCat(name, ": admits nothing"));
      }
    }
  }
  ++tally.taken;
  suite->typed_taken += typed ? 1 : 0;
  if (!grammar.ok()) {
    return;
  }
  const absl::StatusOr<Recognizer> recognizer = Recognizer::Make(*grammar, 1'000'000);
  ASSERT_TRUE(recognizer.ok()) << name << recognizer.status();
  for (const auto& test : group["tests"]) {
    const std::string instance = test[1];
    ++suite->instances;
    for (const testing::Blanks& blanks :
         {testing::Blanks(), testing::Blanks{.comma = ", ", .colon = ": ", .inner = ""},
          testing::Blanks{.comma = " ,\n\t", .colon = " : ", .inner = "\r\n  "}}) {
      bool admitted = false;
      for (const std::string& text : testing::EveryOrder(instance, blanks, kMaxTexts)) {
        admitted = admitted || recognizer->Check(text).complete;
      }
      if (admitted != test[2]) {
        suite->faults.push_back(absl::StrCat(name, ": ", admitted ? "admits " : "refuses ",
                                             instance, blanks.comma == "," ? "" : " (spaced)"));
      }
    }
  }
}

std::string TableOf(const Suite& suite) {
  std::string table = "| the suite's file | schemas | taken | refused for |\n|---|---|---|---|\n";
  int groups = 0;
  int taken = 0;
  for (const auto& [keyword, tally] : suite.by_keyword) {
    groups += tally.groups;
    taken += tally.taken;
    std::string refused;
    for (const auto& [cause, count] : tally.refused) {
      absl::StrAppend(&refused, refused.empty() ? "" : ", ", "`", cause, "` ", count);
    }
    absl::StrAppend(&table, "| ", keyword, " | ", tally.groups, " | ", tally.taken, " | ", refused,
                    refused.empty() ? "|\n" : " |\n");
  }
  absl::StrAppend(&table, "| all | ", groups, " | ", taken, " | |\n");
  absl::StrAppend(&table, "| with `type` at the top | ", suite.typed, " | ", suite.typed_taken,
                  " | |\n");
  return table;
}

Suite RunSuite() {
  Suite suite;
  for (const std::string& line :
       testing::ReadLinesOrFail(testing::GoldenPath("json_schema/draft2020_12.jsonl"))) {
    CheckGroup(nlohmann::json::parse(line), &suite);
  }
  return suite;
}

TEST(SchemaSuite, SchemasThatAreTakenAdmitWhatIsValidAlone) {
  const Suite suite = RunSuite();
  for (const std::string& fault : suite.faults) {
    ADD_FAILURE() << fault;
  }
  EXPECT_GT(suite.instances, 900);
  EXPECT_GE(suite.typed_taken * 10, suite.typed * 8)
      << suite.typed_taken << " of " << suite.typed << " schemas with a type are taken";
}

TEST(SchemaSuite, TheDocumentHasTheTable) {
  const std::string table = TableOf(RunSuite());
  const std::string path = testing::SourcePath(kDocument);
  std::string document = testing::ReadFileOrFail(path);
  const size_t begin = document.find(kBegin);
  const size_t end = document.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t from = begin + std::string(kBegin).size();
  if (std::getenv("STRATA_UPDATE_TABLE") != nullptr) {
    document.replace(from, end - from, table);
    std::ofstream(path) << document;
    return;
  }
  EXPECT_EQ(document.substr(from, end - from), table)
      << "STRATA_UPDATE_TABLE=1 in the environment of this test writes it anew";
}

}  // namespace
}  // namespace strata
