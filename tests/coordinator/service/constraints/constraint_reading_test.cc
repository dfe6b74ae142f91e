#include "coordinator/service/constraints/constraint_reading.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "common/status.h"
#include "text/grammar/constraint.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

constexpr size_t kMost = size_t{256} << 10;

bool Takes(const v1::Constraint& constraint, const std::string& text) {
  const auto ebnf = EbnfOfConstraint(constraint, kMost);
  EXPECT_TRUE(ebnf.ok()) << ebnf.status();
  // What may follow a value is a hint to what makes masks.
  const auto grammar =
      GrammarOfEbnf(std::regex_replace(*ebnf, std::regex(R"( \(=[^\n]*)"), ""), {});
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return Recognizer::Make(*grammar, 100'000)->Check(text).complete;
}

TEST(ConstraintReading, EachKindBecomesAGrammar) {
  v1::Constraint schema;
  schema.set_json_schema(R"({"type": "object", "properties": {"a": {"type": "integer"}}})");
  EXPECT_TRUE(Takes(schema, R"({"a": 1, "b": 2})"));
  schema.set_strict(true);
  EXPECT_TRUE(Takes(schema, R"({"a": 1})"));
  EXPECT_FALSE(Takes(schema, R"({"a": 1, "b": 2})"));
  v1::Constraint object;
  object.set_json_object(true);
  EXPECT_TRUE(Takes(object, R"({"x": []})"));
  EXPECT_FALSE(Takes(object, "1"));
  v1::Constraint regex;
  regex.set_regex("a+b");
  EXPECT_TRUE(Takes(regex, "aab"));
  EXPECT_FALSE(Takes(regex, "aabc"));
  v1::Constraint choices;
  choices.mutable_choices()->add_texts("yes");
  choices.mutable_choices()->add_texts("no");
  EXPECT_TRUE(Takes(choices, "no"));
  EXPECT_FALSE(Takes(choices, "yesno"));
  v1::Constraint grammar;
  grammar.set_grammar("root ::= [0-9]{2} \"!\"");
  EXPECT_TRUE(Takes(grammar, "42!"));
}

TEST(ConstraintReading, WhatIsNoneIsRefused) {
  v1::Constraint none;
  EXPECT_EQ(ReasonOf(CheckConstraint(none, kMost)), "BAD_FIELD");
  none.set_json_object(false);
  EXPECT_EQ(ReasonOf(CheckConstraint(none, kMost)), "BAD_FIELD");
  v1::Constraint choices;
  for (int i = 0; i < 4; ++i) choices.mutable_choices()->add_texts("abcd");
  EXPECT_TRUE(CheckConstraint(choices, 20).ok());
  EXPECT_EQ(ReasonOf(CheckConstraint(choices, 19)), "CONSTRAINT_TOO_LONG");
  v1::Constraint nothing;
  nothing.set_json_schema("false");
  EXPECT_EQ(ReasonOf(EbnfOfConstraint(nothing, kMost).status()), "SCHEMA_ADMITS_NOTHING");
  nothing.set_json_schema(R"({"type": "array", "uniqueItems": true, "items": {"type": "object"}})");
  EXPECT_EQ(ReasonOf(EbnfOfConstraint(nothing, kMost).status()), "SCHEMA_UNSUPPORTED");
}

}  // namespace
}  // namespace strata
