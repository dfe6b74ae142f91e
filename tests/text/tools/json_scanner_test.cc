#include "text/tools/json_scanner.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace strata {
namespace {

TEST(JsonScanner, TakesWhatIsJsonAndNothingElse) {
  for (const char* good : {"{}", "[]", " [1, -0.5e+3, 0] ", "\"\\u00e9\\n\"", "true", "null", "-0",
                           "1e5", "{\"a\": {\"b\": [[], {}]}, \"c\": false}", "{ \"a\" : 1 }"}) {
    EXPECT_TRUE(IsJson(good)) << good;
    EXPECT_TRUE(nlohmann::json::accept(good)) << good;
  }
  for (const char* bad : {"{\"a\": 1", "[1",          "",       "{",        "}",          "[1,]",
                          "{\"a\"}",   "{\"a\":}",    "{a: 1}", "{'a': 1}", "01",         "1.",
                          ".5",        "-",           "1e",     "tru",      "True",       "nulll",
                          "\"\\x\"",   "\"\\u12g4\"", "\"",     "[1 2]",    "{\"a\":1,}", "[}",
                          "{]",        "1 2",         "{} {}",  "\"a\" b",  "\"a\nb\""}) {
    EXPECT_FALSE(IsJson(bad)) << bad;
    EXPECT_FALSE(nlohmann::json::accept(bad)) << bad;
  }
  EXPECT_TRUE(IsJson(std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(IsJson(std::string(65, '[') + std::string(65, ']')));
}

TEST(JsonScanner, EscapesControlCharactersThatStandInStrings) {
  JsonScanner scanner;
  std::string said;
  for (const char byte : std::string("{\"a\": \"x\ny\t\x01\"}")) {
    ASSERT_NE(scanner.Add(byte, &said), JsonScanner::Result::kBad);
  }
  EXPECT_EQ(said, "{\"a\": \"x\\ny\\t\\u0001\"}");
}

TEST(JsonScanner, EscapedTextIsAStringsInside) {
  const std::string text = "a\"b\\c\n\r\t\x02é";
  EXPECT_EQ(nlohmann::json::parse("\"" + JsonEscaped(text) + "\"").get<std::string>(), text);
}

}  // namespace
}  // namespace strata
