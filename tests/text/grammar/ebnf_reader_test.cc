#include <string>
#include <string_view>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

bool TakesText(const std::string& ebnf, std::string_view text) {
  const auto grammar = GrammarOfEbnf(ebnf, {});
  EXPECT_TRUE(grammar.ok()) << ebnf << ": " << grammar.status();
  return grammar.ok() && Recognizer::Make(*grammar, 100'000)->Check(text).complete;
}

TEST(EbnfReader, ReadsWhatLlamaCppAndXGrammarWrite) {
  const std::string arithmetic = R"g(# Of llama.cpp's documents.
root  ::= (expr "=" term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= num | "(" expr ")"
num   ::= [0-9]+)g";
  EXPECT_TRUE(TakesText(arithmetic, "1+(2*3)=7\n"));
  EXPECT_FALSE(TakesText(arithmetic, "1+=7\n"));
  // A body goes on in the next line until a rule begins there.
  const std::string lines = "root ::=\n  \"a\"\n  | b-1\n  | \"c\" # or this\nb-1 ::= \"b\"{2,3}\n";
  EXPECT_TRUE(TakesText(lines, "a"));
  EXPECT_TRUE(TakesText(lines, "bbb"));
  EXPECT_FALSE(TakesText(lines, "b"));
  EXPECT_TRUE(TakesText(lines, "c"));
  EXPECT_TRUE(TakesText("root ::= \"x\" {2}", "xx"));
  EXPECT_TRUE(TakesText("root ::= \"x\"{,2}", ""));
  EXPECT_FALSE(TakesText("root ::= \"x\"{,2}", "xxx"));
  EXPECT_TRUE(TakesText("root ::= \"x\"{1,}", "xxxx"));
  EXPECT_TRUE(TakesText("root ::= (\"x\"?)+ . \"\"", "xx."));
  EXPECT_TRUE(TakesText("root ::= root \"x\" | \"y\"", "yxx"));
}

TEST(EbnfReader, EscapesAndClassesAreCharacters) {
  EXPECT_TRUE(TakesText(R"(root ::= "\"\\\n\t\x41\u00e9\U0001F600")", "\"\\\n\tA\u00e9\U0001F600"));
  EXPECT_TRUE(TakesText(R"(root ::= [^\n"]+)", "a\\b"));
  EXPECT_FALSE(TakesText(R"(root ::= [^\n"]+)", "a\"b"));
  EXPECT_TRUE(TakesText(R"(root ::= [a\-c\]-]+)", "a-c]"));
  EXPECT_FALSE(TakesText(R"(root ::= [a\-c])", "b"));
  EXPECT_TRUE(TakesText("root ::= [à-ü]", "é"));
  EXPECT_TRUE(TakesText(R"(root ::= [\u4e00-\u9fff]+)", "漢字"));
}

TEST(EbnfReader, WhatIsWrongIsNamedWithItsLine) {
  const auto refuse = [](const std::string& ebnf) {
    const absl::Status status = GrammarOfEbnf(ebnf, {}).status();
    return ReasonOf(status) + ": " + std::string(status.message());
  };
  EXPECT_THAT(refuse("a ::= \"b\""),
              HasSubstr("GRAMMAR_INVALID: the grammar has no rule \"root\""));
  EXPECT_THAT(refuse("root ::= \"a\"\n  other"), HasSubstr("\"other\" in line 2"));
  EXPECT_THAT(refuse("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("line 2"));
  EXPECT_THAT(refuse("root ::= (\"a\""), HasSubstr("not closed"));
  EXPECT_THAT(refuse("root ::= \"a\")"), HasSubstr("not open"));
  EXPECT_THAT(refuse("root ::= \"a"), HasSubstr("not closed"));
  EXPECT_THAT(refuse("root ::= [a"), HasSubstr("not closed"));
  EXPECT_THAT(refuse("root ::= [b-a]"), HasSubstr("ends before"));
  EXPECT_THAT(refuse("root ::= \"\\q\""), HasSubstr("not known"));
  EXPECT_THAT(refuse("root ::= \"\\ud800\""), HasSubstr("no character"));
  EXPECT_THAT(refuse("root ::= \"a\"{2,1}"), HasSubstr("a count is"));
  EXPECT_THAT(refuse("root ::= \"a\"{}"), HasSubstr("a count is"));
  EXPECT_THAT(refuse("root ::= *"), HasSubstr("begins no"));
  EXPECT_THAT(refuse("root ::= root"), HasSubstr("has no text"));
  EXPECT_THAT(refuse("root ::= \"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(refuse(""), HasSubstr("GRAMMAR_INVALID"));
  EXPECT_THAT(refuse("root ::= \"a\" (= \"b\")"), HasSubstr("GRAMMAR_UNSUPPORTED"));
  EXPECT_THAT(refuse("root ::= TagDispatch((\"a\", root))"), HasSubstr("TagDispatch()"));
  EXPECT_THAT(refuse("root ::= <think> \"a\""), HasSubstr("GRAMMAR_UNSUPPORTED"));
  EXPECT_THAT(refuse("start: \"a\" | b\nb: \"b\""), HasSubstr("Lark"));
  EXPECT_THAT(refuse("?start: value\n%import common.WS"), HasSubstr("Lark"));
}

TEST(EbnfReader, WhatItTakesIsLimited) {
  const auto refuse = [](const std::string& ebnf) {
    return ReasonOf(GrammarOfEbnf(ebnf, {}).status());
  };
  const GrammarLimits limits;
  EXPECT_EQ(refuse("root ::= \"" + std::string(limits.max_source_bytes, 'a') + "\""),
            "SCHEMA_TOO_COMPLEX");
  EXPECT_EQ(refuse("root ::= " + std::string(limits.max_pattern_depth, '(') + "\"a\"" +
                   std::string(limits.max_pattern_depth, ')')),
            "SCHEMA_TOO_COMPLEX");
  EXPECT_EQ(refuse("root ::= \"a\"" + std::string(100, '*')), "SCHEMA_TOO_COMPLEX");
  EXPECT_EQ(refuse("root ::= \"a\"{99999999999999999999}"), "SCHEMA_TOO_COMPLEX");
}

}  // namespace
}  // namespace strata
