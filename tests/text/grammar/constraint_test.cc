#include "text/grammar/constraint.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "text/grammar/recognizer.h"

namespace strata {
namespace {

constexpr size_t kMaxStates = 1'000'000;

Recognizer Made(const absl::StatusOr<Grammar>& grammar) {
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *Recognizer::Make(*grammar, kMaxStates);
}

Recognizer OfSchema(std::string_view schema, bool closed = false) {
  SCOPED_TRACE(schema);
  return Made(GrammarOfSchema(schema, {.closed = closed, .limits = {}}));
}

// `schema` takes all of `taken` and none of `refused`.
void Check(std::string_view schema, const std::vector<std::string>& taken,
           const std::vector<std::string>& refused, bool closed = false) {
  const Recognizer recognizer = OfSchema(schema, closed);
  for (const std::string& text : taken) {
    EXPECT_TRUE(recognizer.Check(text).complete) << schema << " on " << text;
  }
  for (const std::string& text : refused) {
    EXPECT_FALSE(recognizer.Check(text).complete) << schema << " on " << text;
  }
}

std::string FactOf(const absl::Status& status, const std::string& fact) {
  const v1::ErrorDetail detail = DetailOf(status);
  const auto found = detail.facts().find(fact);
  return found == detail.facts().end() ? "" : found->second;
}

std::string Repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

// So many strings of JSON, each another one.
std::string Strings(size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&result, i == 0 ? "" : ",", "\"", i, "\"");
  }
  return result;
}

// Of a character from U+0800 to U+FFFF.
std::string Utf8(uint32_t c) {
  return {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3F)),
          static_cast<char>(0x80 | (c & 0x3F))};
}

TEST(Constraint, MembersComeInTheOrderDeclared) {
  Check(
      R"({"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
            "required": ["a", "c"], "additionalProperties": {"type": "null"}})",
      {R"({"a":1,"c":null})", R"({"b":"","a":1,"c":null})", R"({"b":"","a":1,"c":null,"x":null})"},
      {R"({"a":1})", R"({"a":1,"b":"","c":null})", R"({"c":null,"a":1})",
       R"({"a":1,"c":null,"x":1})", R"({"a":1,"c":null,"b":""})", R"({"a":1,"a":1,"c":null})",
       R"({"a":1,"c":null,"\u0061":null})"});
}

TEST(Constraint, SiblingsOfEveryKeywordHold) {
  Check(
      R"({"type": "object", "required": ["a"], "anyOf": [{"required": ["b"]}, {"required": ["c"]}]})",
      {R"({"a":1,"b":2})", R"({"a":1,"c":2})"}, {R"("text")", R"({"a":1})", R"({"b":1,"c":2})"});
  Check(R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1})", {R"("a")"},
        {R"("ab")", "1"});
  Check(R"({"enum": [1, "a", "abc"], "type": "string", "minLength": 2})", {R"("abc")"},
        {"1", R"("a")"});
  Check(R"({"allOf": [{"minimum": 2}, {"type": "integer"}, {"maximum": 3}]})", {"2", "3"},
        {"1", "4", "2.5", R"("a")"});
  Check(R"({"minimum": 5})", {"5", R"("a")", "[]"}, {"4"});
}

TEST(Constraint, StringsAreCountedAndMatchedAsTheyAreMeant) {
  Check(R"({"type": "string", "minLength": 1, "maxLength": 2})",
        {R"("a")", R"("\"\\")", R"("\u00e9\n")", "\"\xC3\xA9\"", R"("\ud83d\ude00\/")"},
        {R"("")", R"("abc")", R"("\n\n\n")", R"("\ud83d")", "\"\n\""});
  Check(R"({"type": "string", "pattern": "^\"C:\\\\[a-z]+\"$"})",
        {R"("\"C:\\temp\"")", R"("\u0022C:\u005ct\"")"},
        {R"("C:\\temp")", R"("\"C:\temp\"")", R"("\"C:\\Temp\"")"});
  Check(R"({"type": "string", "pattern": "b", "maxLength": 2})",
        {R"("b")", R"("ab")", R"("\u0062")"}, {R"("a")", R"("aab")"});
  Check(R"({"const": "é\"/a"})", {R"("\u00e9\"/a")", "\"\xC3\xA9\\\"\\/a\"", R"("\u00E9\u0022/a")"},
        {R"("e\"/a")"});
}

TEST(Constraint, NumbersAreComparedExactly) {
  Check(R"({"enum": [0.1, 3]})", {"0.1", "0.10", "1e-1", "3", "3.0", "3e0"},
        {"0.10000000000000001", "30"});
  Check(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 0.333333333})",
        {"0.333333333", "0.00000000000000000001", "1e-7", "3.3e-1"},
        {"0", "-0.0", "0.3333333331", "3.4e-1"});
  Check(R"({"type": "integer", "minimum": 1.5, "maximum": 123456789012345678901234567890})",
        {"2", "123456789012345678901234567890", "1e29", "2.0"},
        {"1", "123456789012345678901234567891", "1e30"});
  Check(R"({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 20})", {"0", "7", "14"},
        {"21", "6", "-7"});
}

TEST(Constraint, ConditionsThatMustNotHoldDoNot) {
  Check(
      R"({"type": "object", "not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}})",
      {"{}", R"({"a":1})", R"({"b":"x"})"}, {R"({"a":"x"})"});
  Check(R"({"oneOf": [{"type": "integer", "minimum": 2}, {"type": "number", "maximum": 3}]})",
        {"1", "4", "2.5"}, {"2", "3", "3.5"});
  Check(R"({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}})",
        {R"("ab")", "null"}, {R"("a")", "1"});
  Check(R"({"type": "array", "not": {"items": {"type": "integer"}}, "maxItems": 2})",
        {R"(["a"])", R"([1,"a"])"}, {"[]", "[1]", R"([1,2,"a"])"});
}

TEST(Constraint, BranchesByATagExcludeEachOther) {
  Check(R"({"oneOf": [
             {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
              "required": ["kind", "x"], "additionalProperties": false},
             {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"$ref": "#"}},
              "required": ["kind"], "additionalProperties": false}]})",
        {R"({"kind":"a","x":1})", R"({"kind":"b","y":{"kind":"b"}})"},
        {R"({"kind":"b","x":1})", R"({"kind":"a"})"});
}

TEST(Constraint, ClosedObjectsHaveWhatIsListed) {
  const std::string_view schema = R"({"type": "object", "properties": {"a": {"type": "object"}}})";
  Check(schema, {R"({"b":1})"}, {});
  Check(schema, {"{}", R"({"a":{"b":1}})"}, {R"({"b":1})"}, true);
  Check(R"({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "null"}})",
        {R"({"b":null})"}, {R"({"b":1})"}, true);
  Check(R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "type": "object"})",
        {R"({"a":1,"b":1})"}, {R"({"a":1,"c":1})"}, true);
  Check(R"({"type": "object", "properties": {}})", {"{}", "{ }"}, {R"({"a":1})"}, true);
}

TEST(Constraint, FewListedItemsAreKeptApart) {
  Check(
      R"({"type": "array", "items": {"enum": ["a", "b", null]}, "uniqueItems": true, "minItems": 1, "maxItems": 2})",
      {R"(["a"])", R"(["b","a"])", R"([null,"b"])"},
      {"[]", R"(["a","a"])", R"(["a","b",null])", R"([1])"});
}

TEST(Constraint, BlanksAreBounded) {
  const Recognizer recognizer = OfSchema(R"({"type": "array", "items": {"type": "integer"}})");
  EXPECT_TRUE(recognizer.Check(absl::StrCat("[", std::string(32, ' '), "1\n,\t2\r]")).complete);
  EXPECT_FALSE(recognizer.Check(absl::StrCat("[", std::string(33, ' '), "1]")).complete);
  EXPECT_FALSE(recognizer.Check(" [1]").complete);
  EXPECT_FALSE(recognizer.Check("[1] ").complete);
}

TEST(Constraint, NoWayEndsBeforeATextIsComplete) {
  // Behind the first quotation mark nothing could follow: the property cannot be there at all.
  const Recognizer recognizer = OfSchema(
      R"({"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 1}},
          "additionalProperties": false})");
  EXPECT_EQ(recognizer.Check(R"({"a)").prefix, 1U);
  EXPECT_TRUE(recognizer.Check("{}").complete);
}

TEST(Constraint, WhatNoGrammarHoldsIsRefusedByNameAndPath) {
  struct Case {
    std::string schema;
    std::string keyword;
    std::string path;
  };
  for (const Case& refused : std::vector<Case>{
           {R"({"properties": {"a/b": {"type": "array", "uniqueItems": true}}})", "uniqueItems",
            "#/properties/a~1b"},
           {R"({"items": {"type": "string", "pattern": "(?=a)b"}})", "pattern", "#/items"},
           {R"({"type": "number", "multipleOf": 0.123456789})", "multipleOf", "#"},
           {R"({"$ref": "https://json-schema.org/draft/2020-12/schema"})", "$ref", "#"},
           {R"({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})", "$ref", "#/$defs/a"},
           {R"({"type": "object", "minProperties": 2})", "minProperties", "#"},
           {R"({"type": "object", "not": {"additionalProperties": {"type": "string"}}})",
            "additionalProperties", "#/not"}}) {
    const absl::StatusOr<Grammar> grammar = GrammarOfSchema(refused.schema, {});
    EXPECT_EQ(ReasonOf(grammar.status()), "SCHEMA_UNSUPPORTED")
        << refused.schema << grammar.status();
    EXPECT_EQ(FactOf(grammar.status(), "keyword"), refused.keyword) << refused.schema;
    EXPECT_EQ(FactOf(grammar.status(), "path"), refused.path) << refused.schema;
  }
}

TEST(Constraint, WhatIsNoSchemaIsRefused) {
  for (const std::string schema :
       {"", "{", "1", R"("a")", R"({"type": "text"})", R"({"type": 5})",
        R"({"type": "string", "minLength": -1})", R"({"properties": []})", R"({"items": 1})",
        R"({"anyOf": []})", R"({"$ref": "#/nowhere"})", R"({"$ref": "#x"})", R"({"a": 1, "a": 2})",
        R"({"type": "string", "pattern": "("})", R"({"required": [1], "type": "object"})",
        R"({"type": "number", "multipleOf": 0})", R"({"minimum": 1e9999999})"}) {
    const absl::StatusOr<Grammar> grammar = GrammarOfSchema(schema, {});
    EXPECT_EQ(ReasonOf(grammar.status()), "SCHEMA_INVALID") << schema << " " << grammar.status();
  }
  for (const std::string schema :
       {"false", R"({"not": {}})", R"({"type": "string", "enum": [1]})",
        R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})"}) {
    EXPECT_EQ(ReasonOf(GrammarOfSchema(schema, {}).status()), "SCHEMA_ADMITS_NOTHING") << schema;
  }
}

TEST(Constraint, WhatIsTooLargeIsRefused) {
  std::string deep = "true";
  for (int i = 0; i < 100; ++i) {
    deep = absl::StrCat(R"({"items": )", deep, "}");
  }
  std::string wide = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 5'000; ++i) {
    absl::StrAppend(&wide, i == 0 ? "" : ",", "\"p", i, "\": true");
  }
  wide += "}}";
  for (const std::string& schema :
       {deep, wide, std::string(300 << 10, ' '),
        std::string(R"({"type": "string", "maxLength": 100000})"),
        std::string(R"({"type": "string", "pattern": "a{50000}", "minLength": 3})")}) {
    EXPECT_EQ(ReasonOf(GrammarOfSchema(schema, {}).status()), "SCHEMA_TOO_COMPLEX")
        << schema.substr(0, 60);
  }
}

// What would take hours or all memory, but for the budget.
TEST(Constraint, WhatTakesTooManyStepsIsRefused) {
  std::string ranges;  // A class of single characters with gaps.
  for (uint32_t c = 0x4E00; c < 0x9E00; c += 2) {
    absl::StrAppend(&ranges, Utf8(c));
  }
  std::string branches = "a";
  for (int i = 0; i < 900; ++i) {
    absl::StrAppend(&branches, "|^b");
  }
  std::string same;  // References to one list.
  std::string values = Strings(10'000);
  for (int i = 0; i < 600; ++i) {
    absl::StrAppend(&same, i == 0 ? "" : ",", R"({"$ref": "#/$defs/a"})");
  }
  for (const std::string& schema : {
           std::string(R"({"type": "number", "minimum": 1e-1000000})"),
           std::string(R"({"type": "number", "maximum": -1e-999999})"),
           std::string(R"({"type": "number", "exclusiveMaximum": 1e-1000000})"),
           absl::StrCat(R"({"type": "number", "minimum": 0.)", std::string(100'000, '5'), "}"),
           absl::StrCat(R"({"enum": [1)", Repeated(",1e-1000000", 10'000), "]}"),
           absl::StrCat(R"({"type": "string", "minLength": 2, "pattern": "^[)", ranges,
                        "]{9000}$\"}"),
           absl::StrCat(R"({"type": "string", "pattern": "(?:)", branches, ")",
                        std::string(9'000, 'c'), "\"}"),
           absl::StrCat(R"({"$defs": {"a": {"enum": [)", values, R"(]}}, "allOf": [)", same, "]}"),
           absl::StrCat(R"({"not": {"prefixItems": [{})", Repeated(",{}", 15'000), "]}}"),
           absl::StrCat(R"({"not": {"const": [1)", Repeated(",1", 15'000), "]}}"),
       }) {
    EXPECT_EQ(ReasonOf(GrammarOfSchema(schema, {}).status()), "SCHEMA_TOO_COMPLEX")
        << schema.substr(0, 60);
  }
}

TEST(Constraint, KeywordsThatSayNothingCostNothing) {
  std::string schema = absl::StrCat(R"({"enum": [)", Strings(3'000), "]");
  for (int i = 0; i < 3'000; ++i) {
    absl::StrAppend(&schema, ",\"x", i, "\":0");
  }
  GrammarLimits limits;
  limits.max_parts = 30'000;  // The list a few times.
  limits.max_total_alternatives = 100;
  const absl::StatusOr<Grammar> grammar =
      GrammarOfSchema(schema + "}", {.closed = false, .limits = limits});
  EXPECT_TRUE(grammar.ok()) << grammar.status();
}

TEST(Constraint, ObjectsPatternsAndChoicesAreGrammarsToo) {
  const Recognizer object = *Recognizer::Make(GrammarOfJsonObject({}), kMaxStates);
  EXPECT_TRUE(object.Check(R"({"b":[1,{"a":null}],"a":-1.5e+3})").complete);
  EXPECT_FALSE(object.Check("[]").complete);
  EXPECT_FALSE(object.Check(R"({"a":01})").complete);
  const Recognizer pattern = Made(GrammarOfPattern("\\d{2}|x", {}));
  EXPECT_TRUE(pattern.Check("12").complete);
  EXPECT_FALSE(pattern.Check("123").complete);
  EXPECT_EQ(ReasonOf(GrammarOfPattern("(", {}).status()), "PATTERN_INVALID");
  EXPECT_EQ(ReasonOf(GrammarOfPattern("(?=a)", {}).status()), "PATTERN_UNSUPPORTED");
  const Recognizer choices = Made(GrammarOfChoices({"yes", "no \"more\""}, {}));
  EXPECT_TRUE(choices.Check("no \"more\"").complete);
  EXPECT_FALSE(choices.Check("no").complete);
  EXPECT_EQ(choices.Check("no x").prefix, 3U);
  EXPECT_EQ(ReasonOf(GrammarOfChoices({}, {}).status()), "CHOICES_INVALID");
}

TEST(Constraint, EbnfNamesItsRootAndEscapes) {
  const absl::StatusOr<Grammar> grammar =
      GrammarOfPattern("a\\n\"[\\]\\-x-z\xC3\xA9]{2,3}(b|c)*", {});
  ASSERT_TRUE(grammar.ok());
  EXPECT_EQ(EbnfOf(*grammar), "root ::= [a] [\\u000A] [\"] [\\-\\]x-z\\u00E9]{2,3} ([b] | [c])*\n");
}

}  // namespace
}  // namespace strata
