// A schema as a document: where its parts are, and what their references mean. Immutable; any
// thread.
#ifndef STRATA_TEXT_GRAMMAR_SCHEMA_DOCUMENT_H_
#define STRATA_TEXT_GRAMMAR_SCHEMA_DOCUMENT_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "text/grammar/json_value.h"

namespace strata {

class SchemaDocument {
 public:
  // Of ParseJsonValue's result, which it keeps.
  static absl::StatusOr<SchemaDocument> Make(JsonValue root);

  const JsonValue& root() const { return *root_; }

  // The JSON pointer of a value of the document; empty for the root, and for what is not in it.
  std::string PathOf(const JsonValue* value) const;

  // What `reference`, the value of $ref in the schema `from`, means. SCHEMA_UNSUPPORTED where it
  // leads out of the document, SCHEMA_INVALID where it leads nowhere.
  absl::StatusOr<const JsonValue*> Resolve(const JsonValue* from, std::string_view reference) const;
  // The same of $dynamicRef; SCHEMA_UNSUPPORTED where that could mean several schemas.
  absl::StatusOr<const JsonValue*> ResolveDynamic(const JsonValue* from,
                                                  std::string_view reference) const;

  // Whether any object of the document has a member of that name.
  bool Mentions(std::string_view keyword) const { return mentioned_.contains(keyword); }

 private:
  struct Place {
    const JsonValue* parent;  // Null for the root.
    std::string_view name;    // Within an object; else empty,
    size_t index;             // and its place within an array.
    const std::string* base;  // URI of the schema resource that it is in.
  };

  // `names`: whether the members of `value` are named by whoever wrote the schema.
  absl::Status Visit(const JsonValue& value, bool names, Place place);
  absl::StatusOr<const JsonValue*> Follow(const JsonValue* from, const JsonValue* at,
                                          std::string_view pointer) const;

  std::unique_ptr<const JsonValue> root_;
  std::map<const JsonValue*, Place> places_;
  std::map<std::string, const JsonValue*, std::less<>> resources_;  // By URI.
  // By resource and name.
  std::map<std::pair<std::string, std::string>, const JsonValue*> anchors_;
  std::map<std::string, int, std::less<>> dynamic_anchors_;  // How often each is there.
  // Those of the resource that the root is in, by name.
  std::map<std::string, const JsonValue*, std::less<>> root_dynamic_anchors_;
  std::set<std::string> bases_;
  std::set<std::string, std::less<>> mentioned_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SCHEMA_DOCUMENT_H_
