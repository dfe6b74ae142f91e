#include "coordinator/http/constraint_fields.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/status.h"
#include "coordinator/http/lorax_request.h"
#include "coordinator/http/openai_request.h"

namespace strata {
namespace {

// As one line: the kind, what is in it, and "strict".
std::string Shown(const v1::GenerateRequest& request) {
  if (!request.has_constraint()) return "none";
  const v1::Constraint& constraint = request.constraint();
  const std::string strict = constraint.strict() ? " strict" : "";
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return "schema " + constraint.json_schema() + strict;
    case v1::Constraint::kJsonObject:
      return "object" + strict;
    case v1::Constraint::kRegex:
      return "regex " + constraint.regex() + strict;
    case v1::Constraint::kGrammar:
      return "grammar " + constraint.grammar() + strict;
    case v1::Constraint::kChoices: {
      std::string shown = "choices";
      for (const std::string& text : constraint.choices().texts()) shown += " " + text;
      return shown + strict;
    }
    default:
      return "empty";
  }
}

std::string OfStatus(const absl::Status& status) {
  return ReasonOf(status) + " " + FieldOf(status);
}

std::string OfChat(const std::string& fields) {
  const auto parsed = ParseChatCompletion(
      R"({"messages":[{"role":"user","content":"a"}],"stop":"x",)" + fields + "}");
  if (!parsed.ok()) return OfStatus(parsed.status());
  const v1::GenerateRequest& request = parsed->prompts.at(0);
  EXPECT_EQ(request.stop().empty(), request.has_constraint());
  return Shown(request);
}

std::string OfCompletion(const std::string& fields) {
  const auto parsed = ParseCompletion(R"({"prompt":["a","b"],)" + fields + "}");
  if (!parsed.ok()) return OfStatus(parsed.status());
  EXPECT_EQ(Shown(parsed->prompts.at(0)), Shown(parsed->prompts.at(1)));
  return Shown(parsed->prompts.at(0));
}

std::string OfLorax(const std::string& parameters) {
  const auto parsed = ParseLoraxRequest(R"({"inputs":"a","parameters":{)" + parameters + "}}");
  return parsed.ok() ? Shown(parsed->request) : OfStatus(parsed.status());
}

// Members in no order of the alphabet.
constexpr char kSchema[] = R"({"type":"object","properties":{"z":{},"a":{"const":0.1}}})";

std::string WithSchema(std::string text) {
  const size_t at = text.find('$');
  return at == std::string::npos ? text : text.replace(at, 1, kSchema);
}

TEST(ConstraintFields, EachSpellingOfAClientIsAConstraint) {
  const std::string schema = "schema " + std::string(kSchema);
  const std::pair<const char*, std::string> cases[] = {
      // OpenAI's.
      {R"("response_format":null)", "none"},
      {R"("response_format":{})", "none"},
      {R"("response_format":{"type":"text"})", "none"},
      {R"("response_format":{"type":"json_object"})", "object"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":$,"strict":true}})",
       schema + " strict"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":$,"strict":null}})",
       schema},
      // huggingface_hub's, LoRAX's, TGI's and Fireworks'.
      {R"("response_format":{"type":"json_object","value":$})", schema},
      {R"("response_format":{"type":"json_object","schema":$})", schema},
      {R"("response_format":{"type":"json_schema","value":{"name":"n","schema":$}})", schema},
      {R"("response_format":{"type":"json_schema","schema":$})", schema},
      {R"("response_format":{"type":"regex","value":"a+"})", "regex a+"},
      {R"("response_format":{"type":"grammar","grammar":"root ::= \"a\""})",
       "grammar root ::= \"a\""},
      // vLLM's.
      {R"("structured_outputs":{"json":$})", schema},
      {R"("structured_outputs":{"json":$,"disable_additional_properties":true})",
       schema + " strict"},
      {R"("structured_outputs":{"json":"{\"type\":1}"})", "schema {\"type\":1}"},
      {R"("structured_outputs":{"regex":"a"})", "regex a"},
      {R"("structured_outputs":{"choice":["b","a"]})", "choices b a"},
      {R"("structured_outputs":{"grammar":"g","json":null})", "grammar g"},
      {R"("structured_outputs":{"json_object":true,"disable_fallback":true})", "object"},
      {R"("structured_outputs":null)", "none"},
      {R"("guided_json":$,"guided_decoding_backend":"outlines")", schema},
      {R"("guided_json":"{}")", "schema {}"},
      {R"("guided_regex":"a")", "regex a"},
      {R"("guided_choice":["a"])", "choices a"},
      {R"("guided_grammar":"g")", "grammar g"},
      // SGLang's and llama.cpp's.
      {R"("json_schema":$)", schema},
      {R"("regex":"a")", "regex a"},
      {R"("ebnf":"g")", "grammar g"},
      {R"("grammar":"g")", "grammar g"},
  };
  for (const auto& [fields, want] : cases) {
    EXPECT_EQ(OfChat(WithSchema(fields)), want) << fields;
    EXPECT_EQ(OfCompletion(WithSchema(fields)), want) << fields;
  }
}

TEST(ConstraintFields, NumbersOfASchemaKeepEveryDigit) {
  const std::string schema =
      R"({"enum":[12345678901234567890123,0.1000000000000000055511151231257827,1.50,-0,1E+2]})";
  const std::string spaced =
      R"( { "enum" : [12345678901234567890123, 0.1000000000000000055511151231257827, 1.50,
            -0, 1E+2] } )";
  for (const std::string& written : {schema, spaced}) {
    EXPECT_EQ(OfChat("\"guided_json\":" + written), "schema " + schema);
    EXPECT_EQ(OfCompletion("\"structured_outputs\":{\"json\":" + written + "}"),
              "schema " + schema);
    EXPECT_EQ(OfChat(R"("response_format":{"type":"json_schema","json_schema":{"schema":)" +
                     written + "}}"),
              "schema " + schema);
    EXPECT_EQ(OfChat(R"("response_format":{"type":"json_schema","schema":)" + written + "}"),
              "schema " + schema);
    EXPECT_EQ(OfLorax(R"("grammar":{"type":"json","value":)" + written + "}"), "schema " + schema);
    EXPECT_EQ(OfLorax("\"schema\":" + written), "schema " + schema);
  }
}

TEST(ConstraintFields, WhatIsEmptyIsNotGiven) {
  const std::string empty =
      R"("response_format":null,"structured_outputs":{"json":"","regex":"","grammar":"","choice":[]},)"
      R"("guided_json":"","guided_regex":"","guided_choice":[],"guided_grammar":"",)"
      R"("guided_json_object":false,"json_schema":null,"regex":"","ebnf":"")";
  EXPECT_EQ(OfChat(empty), "none");
  EXPECT_EQ(OfCompletion(empty), "none");
  EXPECT_EQ(OfChat(empty + R"(,"grammar":"g")"), "grammar g");
  EXPECT_EQ(OfChat(R"("regex":"","grammar":"","json_schema":"")"), "none");
  EXPECT_EQ(OfChat(R"("response_format":"","structured_outputs":[],"guided_choice":"")"), "none");
  EXPECT_EQ(OfLorax(R"("response_format":"","schema":"","grammar":"")"), "none");
}

TEST(ConstraintFields, LoraxAndTgiHaveThemAmongTheParameters) {
  const std::string schema = "schema " + std::string(kSchema);
  const std::pair<const char*, std::string> cases[] = {
      {R"("response_format":null,"schema":null,"grammar":null)", "none"},
      {R"("response_format":{"type":"json_object"})", "object"},
      {R"("response_format":{"type":"json_object","schema":$})", schema},
      {R"("schema":$)", schema},
      {R"("schema":"{\"a\":1}")", "schema {\"a\":1}"},
      {R"("grammar":{"type":"json","value":$})", schema},
      {R"("grammar":{"type":"regex","value":"a"})", "regex a"},
      {R"("grammar":{"type":"json_schema","value":{"name":"n","schema":$}})", schema},
  };
  for (const auto& [fields, want] : cases) {
    EXPECT_EQ(OfLorax(WithSchema(fields)), want) << fields;
  }
  EXPECT_EQ(OfLorax(R"("schema":{},"grammar":{"type":"regex","value":"a"})"),
            "BAD_FIELD parameters.grammar");
  EXPECT_EQ(OfLorax(R"("grammar":"g")"), "BAD_FIELD parameters.grammar");
}

TEST(ConstraintFields, TwoOfThemAndWhatIsNoneAreRefusedByName) {
  EXPECT_EQ(OfChat(R"("guided_regex":"a","response_format":{"type":"json_object"})"),
            "BAD_FIELD guided_regex");
  EXPECT_EQ(OfChat(R"("structured_outputs":{"regex":"a","choice":["a"]})"),
            "BAD_FIELD structured_outputs.choice");
  EXPECT_EQ(OfChat(R"("guided_json":{},"guided_choice":["a"])"), "BAD_FIELD guided_choice");
  EXPECT_EQ(OfChat(R"("response_format":{"type":"structural_tag"})"),
            "NOT_SUPPORTED response_format.type");
  EXPECT_EQ(OfChat(R"("response_format":{"type":"json_schema"})"),
            "BAD_FIELD response_format.json_schema.schema");
  EXPECT_EQ(OfChat(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})"),
            "BAD_FIELD response_format.json_schema.schema");
  EXPECT_EQ(OfChat(R"("response_format":{"type":"regex"})"), "BAD_FIELD response_format.value");
  EXPECT_EQ(OfChat(R"("response_format":"json")"), "BAD_FIELD response_format");
  EXPECT_EQ(OfChat(R"("structured_outputs":{"structural_tag":"x"})"),
            "NOT_SUPPORTED structured_outputs.structural_tag");
  EXPECT_EQ(OfChat(R"("structured_outputs":{"whitespace_pattern":" "})"),
            "NOT_SUPPORTED structured_outputs.whitespace_pattern");
  EXPECT_EQ(OfChat(R"("guided_json":7)"), "BAD_FIELD guided_json");
  EXPECT_EQ(OfChat(R"("guided_choice":[1])"), "BAD_FIELD guided_choice");
  EXPECT_EQ(OfChat(R"("guided_regex":{})"), "BAD_FIELD guided_regex");
}

}  // namespace
}  // namespace strata
