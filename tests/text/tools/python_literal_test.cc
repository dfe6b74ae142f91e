#include "text/tools/python_literal.h"

#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

std::string AsJson(std::string_view value) { return JsonOfPython(value).value_or("none"); }

TEST(PythonLiteral, IsWrittenAsJson) {
  EXPECT_EQ(AsJson("'a\"b\\'c'"), R"("a\"b'c")");
  EXPECT_EQ(AsJson("\"\\x41\\u00e9\\U0001F600\\n\\q\""), "\"A\u00e9\U0001F600\\n\\\\q\"");
  EXPECT_EQ(AsJson(R"("\ud83d\ude00\/")"), "\"\U0001F600/\"");
  EXPECT_EQ(AsJson(" True "), "true");
  EXPECT_EQ(AsJson("None"), "null");
  EXPECT_EQ(AsJson("false"), "false");
  EXPECT_EQ(AsJson("-1.5e3"), "-1.5e3");
  EXPECT_EQ(AsJson("+2"), "2");
  EXPECT_EQ(AsJson("[1, 'a', (True,), (2), {}, ]"), R"([1, "a", [true], 2, {}])");
  EXPECT_EQ(AsJson("{'a': {'b': None}, \"c\": [1,2],}"), R"({"a": {"b": null}, "c": [1, 2]})");
}

TEST(PythonLiteral, WhatIsNoneIsRefused) {
  for (const char* value : {"", "Bern", "1 2", "f(1)", "'a", "\"\\ud83d\"", "\"\\x4\"", "[1",
                            "{1: 2}", "{'a'}", "[1 2]", "01", "1_000", "'a' 'b'", "'a\\"}) {
    EXPECT_EQ(AsJson(value), "none") << value;
  }
  EXPECT_EQ(AsJson(std::string(100, '[') + std::string(100, ']')), "none");
}

TEST(PythonLiteral, ItsEndIsFoundInTextThatGrows) {
  const std::string text = "{'a,)': [1, (2)]}, b";
  PythonValueEnd end;
  for (size_t size = 0; size < 17; ++size) {
    EXPECT_FALSE(end.Find(std::string_view(text).substr(0, size)).has_value()) << size;
  }
  EXPECT_EQ(end.Find(text), 17u);
}

}  // namespace
}  // namespace strata
