#include "text/grammar/schema_errors.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {

std::string QuotedText(std::string_view text) {
  constexpr size_t kShown = 100;
  const std::string shown = absl::Utf8SafeCEscape(
      absl::string_view(text.data(), text.size() < kShown ? text.size() : kShown));
  return absl::StrCat("\"", shown, text.size() > kShown ? "...\"" : "\"");
}

absl::Status SchemaInvalid(std::string_view path, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "SCHEMA_INVALID",
               absl::StrCat("the schema's #", std::string(path), " ", std::string(what)))
      .Fact("path", absl::StrCat("#", std::string(path)));
}

absl::Status SchemaUnsupported(std::string_view keyword, std::string_view path,
                               std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "SCHEMA_UNSUPPORTED",
               absl::StrCat("the schema's keyword ", std::string(keyword), " at #",
                            std::string(path), " cannot be held: ", std::string(why)))
      .Fact("keyword", keyword)
      .Fact("path", absl::StrCat("#", std::string(path)))
      .Hint("leave the keyword out, or say it another way");
}

absl::Status SchemaTooComplex(std::string_view what, size_t limit) {
  return Error(absl::StatusCode::kInvalidArgument, "SCHEMA_TOO_COMPLEX",
               absl::StrCat("the constraint needs more than ", limit, " ", std::string(what)))
      .Limit(absl::StrCat(limit, " ", std::string(what)))
      .Hint("make the schema, pattern or grammar smaller");
}

absl::Status SchemaAdmitsNothing() {
  return Error(absl::StatusCode::kInvalidArgument, "SCHEMA_ADMITS_NOTHING",
               "no value satisfies the schema")
      .Hint("look for keywords that contradict each other");
}

}  // namespace strata
