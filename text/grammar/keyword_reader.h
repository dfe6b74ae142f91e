// The keywords of one schema that look at a value of one type and at nothing beside it. Pure; one
// thread, as the budget is.
#ifndef STRATA_TEXT_GRAMMAR_KEYWORD_READER_H_
#define STRATA_TEXT_GRAMMAR_KEYWORD_READER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/shape.h"

namespace strata {

class KeywordReader {
 public:
  // All must outlive this. `tracks_members`: whether the names that keywords look at are needed.
  KeywordReader(const SchemaDocument* document, bool tracks_members, WorkBudget* budget)
      : document_(*document), tracks_members_(tracks_members), budget_(budget) {}

  // Whether the keyword is one of those that Own reads for the type.
  static bool IsOwn(std::string_view keyword, JsonType type);
  // What all such keywords of `schema` admit together.
  absl::StatusOr<Shape> Own(const JsonValue& schema, JsonType type);
  // What at least one of them refuses: of arrays and objects alone.
  absl::StatusOr<Shapes> OwnFails(const JsonValue& schema, JsonType type);

  // Values of the type that `type` admits; nothing where that is none.
  absl::StatusOr<std::optional<Shape>> Type(const JsonValue& schema, JsonType type);
  // Values of the type among those of `enum` or `const`, and those that are not.
  absl::StatusOr<Shapes> Equals(const JsonValue& value, JsonType type);
  absl::StatusOr<Shapes> Differs(const JsonValue& value, JsonType type);
  absl::StatusOr<Shapes> OneOf(std::span<const JsonValue> values, JsonType type);
  // What none of the shapes admits: of numbers, strings, booleans and null alone.
  absl::StatusOr<Shapes> NoneOf(const Shapes& shapes, JsonType type);

  // Errors that name a keyword of `schema`.
  absl::Status Invalid(const JsonValue& schema, std::string_view keyword, std::string_view what);
  absl::Status Unsupported(const JsonValue& schema, std::string_view keyword, std::string_view why);

 private:
  absl::StatusOr<Shape> Numbers(const JsonValue& schema);
  absl::StatusOr<Shape> Strings(const JsonValue& schema);
  absl::StatusOr<Shape> Arrays(const JsonValue& schema);
  absl::StatusOr<Shape> Objects(const JsonValue& schema);
  absl::StatusOr<Shapes> ArrayFails(const JsonValue& schema);
  absl::StatusOr<Shapes> ObjectFails(const JsonValue& schema);
  absl::Status ReadNames(const JsonValue& schema, ObjectShape* shape);

  // The keyword's value as a count; `otherwise` without the keyword.
  absl::StatusOr<size_t> Count(const JsonValue& schema, std::string_view keyword, size_t otherwise);
  absl::StatusOr<RegexPtr> Pattern(const JsonValue& schema, std::string_view keyword,
                                   const std::string& pattern);
  // Fails where the keyword's value is of another kind; null without it.
  absl::StatusOr<const JsonValue*> Find(const JsonValue& schema, std::string_view keyword,
                                        JsonValue::Kind kind);
  // The same for a schema.
  absl::StatusOr<const JsonValue*> FindSchema(const JsonValue& schema, std::string_view keyword);
  absl::Status CheckSchema(const JsonValue& schema, std::string_view keyword,
                           const JsonValue& value);

  const SchemaDocument& document_;
  const bool tracks_members_;
  WorkBudget* const budget_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_KEYWORD_READER_H_
