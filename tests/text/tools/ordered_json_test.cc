#include "text/tools/ordered_json.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string Object(size_t members) {
  std::string text = "{";
  for (size_t i = 0; i < members; ++i) {
    text += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": 1";
  }
  return text + "}";
}

std::string LimitOf(const absl::StatusOr<Json>& json) {
  return json.ok() ? "" : DetailOf(json.status()).limit();
}

TEST(OrderedJson, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {R"({"b": [1, -2, 2.5, "x", true, null, {"z": {}, "a": []}], "a": {"y": 1, "b": 2}})", "[]",
        "7", "\"t\"", R"({"a": 1, "b": 2, "a": {"c": 3}})", "[[[1], 2], {}, 3]"}) {
    const auto read = ParseOrderedJson(text, "it");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dump(), Json::parse(text).dump());
  }
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "\"\xff\"", "1 2"}) {
    EXPECT_FALSE(ParseOrderedJson(text, "it").ok()) << text;
  }
}

TEST(OrderedJson, KeepsTheMembersThatAreAskedFor) {
  const auto read = ParseOrderedJson(
      R"({"x": {"a": [1, {"b": 2}]}, "b": {"x": 1}, "y": 3, "a": [{"y": 1}], "z": [[], {}]})", "it",
      {"a", "b"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dump(), R"({"b":{"x":1},"a":[{"y":1}]})");
}

TEST(OrderedJson, RefusesMoreLevelsAndMembersThanTheLimits) {
  EXPECT_TRUE(ParseOrderedJson(Nested(kMaxOrderedJsonDepth), "it").ok());
  EXPECT_EQ(LimitOf(ParseOrderedJson(Nested(kMaxOrderedJsonDepth + 1), "it")), "json_depth=64");
  EXPECT_EQ(LimitOf(ParseOrderedJson("{\"a\": " + Nested(100000) + "}", "it", {"b"})),
            "json_depth=64");
  EXPECT_TRUE(ParseOrderedJson(Object(kMaxOrderedJsonMembers), "it").ok());
  EXPECT_EQ(LimitOf(ParseOrderedJson(Object(kMaxOrderedJsonMembers + 1), "it")),
            "json_members=1024");
  // What is left out is not counted.
  const auto rest = ParseOrderedJson(
      "{\"a\": 1, \"x\": " + Object(kMaxOrderedJsonMembers + 1) + ", \"b\": 2}", "it", {"a", "b"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->dump(), R"({"a":1,"b":2})");
}

}  // namespace
}  // namespace strata
