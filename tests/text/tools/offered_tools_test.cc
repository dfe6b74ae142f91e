#include "text/tools/offered_tools.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

TEST(OfferedTools, NamesWhatIsWrongWithOne) {
  const auto field = [](const std::string& tool) {
    const auto offered = OfferedTools::Parse({tool});
    return offered.ok() ? "" : DetailOf(offered.status()).facts().at("field");
  };
  EXPECT_EQ(field(R"({"type": "function", "function": {"name": "f"}})"), "");
  EXPECT_EQ(field(R"({"function": {"name": "f", "parameters": {}}})"), "");
  EXPECT_EQ(field(R"({"type": "custom", "custom": {"name": "f"}})"), "tools[0].type");
  EXPECT_EQ(field(R"({"type": "function"})"), "tools[0].function");
  EXPECT_EQ(field(R"({"type": "function", "function": {}})"), "tools[0].function.name");
  EXPECT_EQ(field(R"({"function": {"name": "f", "parameters": 3}})"),
            "tools[0].function.parameters");
  EXPECT_EQ(field("3"), "tools[0].function");
  EXPECT_EQ(DetailOf(OfferedTools::Parse({"no JSON"}).status()).reason(), "BAD_JSON");
  EXPECT_FALSE(
      OfferedTools::Parse({R"({"function": {"name": "f"}})", R"({"function": {"name": "f"}})"})
          .ok());
  EXPECT_FALSE(OfferedTools::Parse(std::vector<std::string>(kMaxTools + 1, "{}")).ok());
}

TEST(OfferedTools, ParametersAreKeptAsTheyAreWritten) {
  const auto offered = OfferedTools::Parse(
      {R"({"function": {"name": "f", "parameters": {"const": 12345678901234567890123, "a": 1.50}}})",
       R"({"function": {"name": "g"}})", R"({"function": {"name": "h", "parameters": null}})"});
  ASSERT_TRUE(offered.ok()) << offered.status();
  EXPECT_EQ((*offered)->tools()[0].parameters, R"({"const":12345678901234567890123,"a":1.50})");
  EXPECT_EQ((*offered)->tools()[1].parameters, "");
  EXPECT_EQ((*offered)->tools()[2].parameters, "");
}

TEST(ParameterTypes, SayWhatPlainTextMeans) {
  const ParameterTypes types(nlohmann::ordered_json::parse(R"({
    "$defs": {"Unit": {"enum": ["C", "F"]}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
      "text": {"type": "string"}, "count": {"type": "integer"}, "share": {"type": "number"},
      "on": {"type": "boolean"}, "list": {"type": "array"}, "box": {"type": "object"},
      "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "either": {"type": ["integer", "string"]}, "unit": {"$ref": "#/$defs/Unit"},
      "loop": {"$ref": "#/$defs/Loop"}, "odd": {"$ref": "elsewhere"}}})"));
  EXPECT_TRUE(types.IsText("text"));
  EXPECT_TRUE(types.IsText("unit"));
  for (const char* name : {"count", "maybe", "either", "loop", "odd", "unknown"}) {
    EXPECT_FALSE(types.IsText(name)) << name;
  }
  EXPECT_EQ(types.Value("text", "007"), "\"007\"");
  EXPECT_EQ(types.Value("count", " 7 "), "7");
  EXPECT_EQ(types.Value("count", "seven"), "\"seven\"");
  EXPECT_EQ(types.Value("share", "-1.5"), "-1.5");
  EXPECT_EQ(types.Value("on", "True"), "true");
  EXPECT_EQ(types.Value("on", "1"), "\"1\"");
  EXPECT_EQ(types.Value("list", "[1, \"a\"]"), "[1, \"a\"]");
  EXPECT_EQ(types.Value("box", "{\"a\": {}}"), "{\"a\": {}}");
  EXPECT_EQ(types.Value("box", "{'a'}"), "\"{'a'}\"");
  EXPECT_EQ(types.Value("maybe", "null"), "null");
  EXPECT_EQ(types.Value("maybe", "5"), "\"5\"");
  EXPECT_EQ(types.Value("either", "5"), "5");
  EXPECT_EQ(types.Value("either", "\"5\""), "\"\\\"5\\\"\"");
  EXPECT_EQ(types.Value("unknown", "5"), "5");
  EXPECT_EQ(types.Value("unknown", "5 apples"), "\"5 apples\"");
}

}  // namespace
}  // namespace strata
