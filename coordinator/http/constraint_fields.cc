#include "coordinator/http/constraint_fields.h"

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "text/tools/json_text.h"

namespace strata {
namespace {

// Reads one request's.
class ConstraintReader {
 public:
  ConstraintReader(Fields* fields, OrderedBody* body, std::string below,
                   v1::GenerateRequest* request)
      : fields_(fields), body_(body), below_(std::move(below)), request_(request) {}

  // The one member of these that is there, by what each is read.
  void Schema(const char* name) {
    const Json* value = fields_->Find(name);
    if (!Given(*fields_, name)) {
      return;
    }
    const std::string_view written = Written(name);
    SetSchema(*value, written, fields_->Name(name), Claim(fields_->Name(name)));
  }

  void Regex(const char* name) { SetRegex(fields_, name); }
  void Ebnf(const char* name) { SetEbnf(fields_, name); }

  void Choice(const char* name) { SetChoices(fields_, name); }

  void JsonObject(const char* name) {
    if (fields_->BoolOr(name, false)) {
      if (v1::Constraint* out = Claim(fields_->Name(name))) out->set_json_object(true);
    }
  }

  // vLLM's, whose members say what.
  void StructuredOutputs(const char* name) {
    if (!Given(*fields_, name)) {
      return;
    }
    const Json* object = fields_->Object(name);
    if (object == nullptr) {
      return;
    }
    const std::string prefix = fields_->Name(name) + ".";
    Fields inner(*object, prefix);
    const std::string_view written = Written(name);
    inner.Refuse("structural_tag");
    inner.Refuse("whitespace_pattern");
    inner.Refuse("disable_any_whitespace");
    const bool closed = inner.BoolOr("disable_additional_properties", false);
    if (const Json* schema = inner.Find("json"); Given(inner, "json") && !written.empty()) {
      v1::Constraint* out = Claim(prefix + "json");
      SetSchema(*schema, MemberText(written, "json"), prefix + "json", out);
      if (out != nullptr) out->set_strict(closed);
    }
    SetRegex(&inner, "regex");
    SetEbnf(&inner, "grammar");
    if (inner.BoolOr("json_object", false)) {
      if (v1::Constraint* out = Claim(prefix + "json_object")) out->set_json_object(true);
    }
    SetChoices(&inner, "choice");
    fields_->Fail(inner.status());
  }

  // {"type": ..., ...}, of OpenAI, LoRAX, TGI and others.
  void Typed(const char* name) {
    if (!Given(*fields_, name)) {
      return;
    }
    const Json* object = fields_->Object(name);
    if (object == nullptr || object->empty()) {
      return;
    }
    const std::string prefix = fields_->Name(name) + ".";
    Fields inner(*object, prefix);
    const std::string type = inner.Text("type").value_or("");
    const std::string_view written = Written(name);
    if (!inner.status().ok() || written.empty() || type == "text") {
      fields_->Fail(inner.status());
      return;
    }
    v1::Constraint* out = Claim(fields_->Name(name));
    if (out == nullptr) {
      return;
    }
    if (type == "json_object" || type == "json") {
      const char* const member = FirstOf(inner, {"value", "schema"});
      if (member != nullptr) {
        SetSchema(*inner.Find(member), MemberText(written, member), prefix + member, out);
      } else if (type == "json_object") {
        out->set_json_object(true);
      } else {
        fields_->Fail(BadField(prefix + "value", "a JSON schema"));
      }
    } else if (type == "json_schema") {
      NamedSchema(inner, written, prefix, out);
    } else if (type == "regex" || type == "grammar") {
      const char* const member = FirstOf(inner, {"value", type == "regex" ? "pattern" : "grammar"});
      const auto text = member == nullptr ? std::nullopt : inner.Text(member);
      if (!text.has_value()) {
        fields_->Fail(BadField(prefix + "value", "a string"));
      } else if (type == "regex") {
        out->set_regex(*text);
      } else {
        out->set_grammar(*text);
      }
    } else {
      fields_->Fail(NotSupported(fields_->Name(name) + ".type",
                                 "only \"text\", \"json_object\", \"json_schema\", \"json\", "
                                 "\"regex\" and \"grammar\" are"));
    }
    fields_->Fail(inner.status());
  }

 private:
  // The member of the fields' object as it is written. "" after an error.
  std::string_view Written(const char* name) {
    const auto member = body_->Written(below_.empty() ? name : below_);
    if (!member.ok()) {
      fields_->Fail(member.status());
      return "";
    }
    return below_.empty() ? *member : MemberText(*member, name);
  }

  // Whether there is anything in it: clients send fields that they do not use as empty.
  static bool Given(const Fields& fields, const char* name) {
    const Json* value = fields.Find(name);
    return value != nullptr && *value != "" && *value != Json::array();
  }

  static const char* FirstOf(const Fields& fields, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (fields.Find(name) != nullptr) {
        return name;
      }
    }
    return nullptr;
  }

  // Where the constraint goes that `name` is; null where there is one already.
  v1::Constraint* Claim(const std::string& name) {
    if (!fields_->status().ok()) {
      return nullptr;
    }
    if (!claimed_.empty()) {
      fields_->Fail(
          BadField(name, "left out beside " + claimed_ + ": an answer is held to one constraint"));
      return nullptr;
    }
    claimed_ = name;
    return request_->mutable_constraint();
  }

  // A schema, or the text of one.
  void SetSchema(const Json& value, std::string_view written, const std::string& name,
                 v1::Constraint* out) {
    if (out == nullptr || written.empty()) {
      return;
    }
    if (value.is_string()) {
      out->set_json_schema(value.get<std::string>());
    } else if (value.is_object() || value.is_boolean()) {
      out->set_json_schema(CompactJson(written));
    } else {
      fields_->Fail(BadField(name, "a JSON schema"));
    }
  }

  // {"name", "schema", "strict"} in `json_schema` or, TGI's, `value`; or a schema at once.
  void NamedSchema(const Fields& fields, std::string_view written, const std::string& prefix,
                   v1::Constraint* out) {
    const char* const member = FirstOf(fields, {"json_schema", "value"});
    const Json* named = member == nullptr ? nullptr : fields.Find(member);
    const std::string place = member == nullptr ? prefix : prefix + member + ".";
    if (named != nullptr && named->is_object() && named->contains("schema")) {
      Fields inner(*named, place);
      const Json* schema = inner.Find("schema");
      out->set_strict(inner.BoolOr("strict", false));
      fields_->Fail(inner.status());
      if (schema != nullptr) {
        SetSchema(*schema, MemberText(MemberText(written, member), "schema"), place + "schema",
                  out);
        return;
      }
    }
    if (named == nullptr && fields.Find("schema") != nullptr) {
      SetSchema(*fields.Find("schema"), MemberText(written, "schema"), prefix + "schema", out);
      return;
    }
    fields_->Fail(BadField(prefix + "json_schema.schema", "a JSON schema"));
  }

  void SetRegex(Fields* fields, const char* name) {
    if (const auto text = GivenText(fields, name)) {
      if (v1::Constraint* out = Claim(fields->Name(name))) out->set_regex(*text);
    }
  }

  void SetEbnf(Fields* fields, const char* name) {
    if (const auto text = GivenText(fields, name)) {
      if (v1::Constraint* out = Claim(fields->Name(name))) out->set_grammar(*text);
    }
  }

  static std::optional<std::string> GivenText(Fields* fields, const char* name) {
    return Given(*fields, name) ? fields->Text(name) : std::nullopt;
  }

  void SetChoices(Fields* fields, const char* name) {
    if (!Given(*fields, name)) {
      return;
    }
    const std::vector<std::string> texts = fields->Texts(name);
    if (!fields->status().ok()) {
      return;
    }
    if (v1::Constraint* out = Claim(fields->Name(name))) {
      out->mutable_choices();
      for (const std::string& text : texts) {
        out->mutable_choices()->add_texts(text);
      }
    }
  }

  Fields* const fields_;
  OrderedBody* const body_;
  const std::string below_;  // The member of the body that the fields are of; "": the body itself.
  v1::GenerateRequest* const request_;
  std::string claimed_;
};

}  // namespace

const std::vector<std::string>& ConstraintMembers() {
  static const auto& members = *new std::vector<std::string>{
      "response_format", "structured_outputs", "guided_json", "json_schema", "parameters"};
  return members;
}

void ReadConstraint(Fields* fields, OrderedBody* body, v1::GenerateRequest* request) {
  ConstraintReader reader(fields, body, "", request);
  reader.Typed("response_format");
  reader.StructuredOutputs("structured_outputs");
  reader.Schema("guided_json");
  reader.Regex("guided_regex");
  reader.Choice("guided_choice");
  reader.Ebnf("guided_grammar");
  reader.JsonObject("guided_json_object");
  reader.Schema("json_schema");
  reader.Regex("regex");
  reader.Ebnf("ebnf");
  reader.Ebnf("grammar");
  for (const char* name : {"guided_whitespace_pattern", "structural_tag"}) {
    fields->Refuse(name);
  }
}

void ReadLoraxConstraint(Fields* parameters, OrderedBody* body, v1::GenerateRequest* request) {
  ConstraintReader reader(parameters, body, "parameters", request);
  reader.Typed("response_format");
  reader.Schema("schema");
  reader.Typed("grammar");
}

}  // namespace strata
