#include "text/tools/json_text.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace strata {
namespace {

using Texts = std::vector<std::string_view>;

TEST(JsonText, AMemberIsWhatIsWritten) {
  constexpr std::string_view kObject =
      " { \"a\" : 12345678901234567890123 ,\"b\":{\"a\":\"}\\\"\"},\n\"c\":[ 1, {} ] , "
      "\"\\u0064\": "
      "0.10, \"e\":null,\"f\":\"\",\"a b\":true } ";
  EXPECT_EQ(MemberText(kObject, "a"), "12345678901234567890123");
  EXPECT_EQ(MemberText(kObject, "b"), R"({"a":"}\""})");
  EXPECT_EQ(MemberText(kObject, "c"), "[ 1, {} ]");
  EXPECT_EQ(MemberText(kObject, "d"), "0.10");
  EXPECT_EQ(MemberText(kObject, "e"), "null");
  EXPECT_EQ(MemberText(kObject, "f"), "\"\"");
  EXPECT_EQ(MemberText(kObject, "a b"), "true");
  EXPECT_EQ(MemberText(kObject, "g"), "");
  EXPECT_EQ(MemberText("[1]", "a"), "");
  EXPECT_EQ(MemberText("{}", ""), "");
}

TEST(JsonText, IsTheValueThatTheParserKeeps) {
  constexpr std::string_view kTwice = "\xEF\xBB\xBF{\"a\":[1],\"\\u0061\":{\"a\":2}}";
  const auto parsed = nlohmann::json::parse(kTwice);
  EXPECT_EQ(MemberText(kTwice, "a"), parsed["a"].dump());
  EXPECT_EQ(ItemTexts("\xEF\xBB\xBF[1]"), Texts{"1"});
}

TEST(JsonText, ItemsAreTheElementsOfAnArray) {
  EXPECT_EQ(ItemTexts(" [ 1e2 , \"a,]\" ,[[],{\"x\":\"]\"}],{} ] "),
            (Texts{"1e2", "\"a,]\"", R"([[],{"x":"]"}])", "{}"}));
  EXPECT_EQ(ItemTexts("[ ]"), Texts{});
  EXPECT_EQ(ItemTexts("{\"a\":1}"), Texts{});
}

TEST(JsonText, CompactIsWithoutBlanksButThoseOfTexts) {
  EXPECT_EQ(CompactJson(" { \"a b\" :\t[ 1.00 ,\r\n\" \\\" \" ] } "), R"({"a b":[1.00," \" "]})");
}

TEST(JsonText, WhatIsCutOffIsNotReadBeyond) {
  for (const std::string_view cut :
       {"", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":\"\\", "{\"a\":["}) {
    EXPECT_NE(MemberText(cut, "a"), "1") << cut;
    EXPECT_LE(CompactJson(cut).size(), cut.size());
  }
}

}  // namespace
}  // namespace strata
