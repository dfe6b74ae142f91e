// Reads a schema as shapes. One thread.
#ifndef STRATA_TEXT_GRAMMAR_SCHEMA_READER_H_
#define STRATA_TEXT_GRAMMAR_SCHEMA_READER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "text/grammar/keyword_reader.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/schema_options.h"
#include "text/grammar/shape.h"

namespace strata {

class SchemaReader {
 public:
  // Both must outlive this.
  SchemaReader(const SchemaDocument* document, bool closed, WorkBudget* budget);

  // What `goal` admits of a type. Fails with SCHEMA_INVALID, SCHEMA_UNSUPPORTED and
  // SCHEMA_TOO_COMPLEX.
  absl::StatusOr<Shapes> Read(const Goal& goal, JsonType type);
  // Whether it is seen to admit nothing; false is no promise.
  bool IsNever(const Goal& goal);

  KeywordReader& keywords() { return keywords_; }

 private:
  using Key = std::pair<Condition, JsonType>;

  // One condition, once.
  absl::StatusOr<Shapes> Expand(const Condition& condition, JsonType type);
  absl::StatusOr<Shapes> Compute(const Condition& condition, JsonType type);
  absl::StatusOr<Shapes> Holds(const JsonValue& schema, JsonType type);
  absl::StatusOr<Shapes> Fails(const JsonValue& schema, JsonType type);
  // What one keyword admits, or refuses; its schema gives the siblings that it needs. Nothing where
  // it says nothing about values of that type.
  absl::StatusOr<std::optional<Shapes>> KeywordHolds(const JsonValue& schema,
                                                     std::string_view keyword,
                                                     const JsonValue& value, JsonType type);
  absl::StatusOr<Shapes> KeywordFails(const JsonValue& schema, std::string_view keyword,
                                      const JsonValue& value, JsonType type);

  absl::Status CheckDialect(const JsonValue& schema, const JsonValue& dialect);
  absl::StatusOr<Shapes> AnyOf(const JsonValue& schema, const JsonValue& list, JsonType type);
  absl::StatusOr<Shapes> OneOf(const JsonValue& schema, const JsonValue& list, JsonType type);
  absl::StatusOr<Shapes> IfHolds(const JsonValue& schema, JsonType type);
  absl::StatusOr<Shapes> DependentHolds(const JsonValue& schema, std::string_view keyword,
                                        const JsonValue& value);
  absl::StatusOr<Shapes> DependentFails(const JsonValue& schema, std::string_view keyword,
                                        const JsonValue& value);
  absl::StatusOr<Shapes> PropertyNames(const JsonValue& value);
  absl::StatusOr<Shapes> Unevaluated(const JsonValue& schema, Shapes shapes, JsonType type);

  // What both admit, without what is seen to be empty.
  absl::StatusOr<Shapes> Product(const Shapes& a, const Shapes& b);
  absl::StatusOr<Shapes> ProductOfAll(const std::vector<Condition>& conditions, JsonType type);
  bool LacksRequired(const ObjectShape& shape);
  absl::StatusOr<const std::vector<JsonValue>*> ListOf(const JsonValue& schema,
                                                       std::string_view keyword,
                                                       const JsonValue& value);
  absl::StatusOr<const JsonValue*> Target(const JsonValue& schema, std::string_view keyword,
                                          const JsonValue& value);
  bool Tracks(JsonType type) const;

  const SchemaDocument& document_;
  const bool closed_;
  const bool tracks_items_;
  const bool tracks_members_;
  WorkBudget* const budget_;
  KeywordReader keywords_;
  std::map<Key, Shapes> known_;
  std::set<Key> open_;
  std::map<Goal, bool> never_;
  size_t never_depth_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SCHEMA_READER_H_
