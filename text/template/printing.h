// How Python prints values: str, repr, and json.dumps as transformers' tojson calls it.
#ifndef STRATA_TEXT_TEMPLATE_PRINTING_H_
#define STRATA_TEXT_TEMPLATE_PRINTING_H_

#include <optional>
#include <string>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

// str(v): appended to *out, which may not grow past the limit of a value.
void AppendString(Runtime& runtime, const Value& v, std::string* out);
std::string ToString(Runtime& runtime, const Value& v);
// str(v) as a value; a string stays what it is.
Value StringOf(Runtime& runtime, const Value& v);
std::string ToRepr(Runtime& runtime, const Value& v, bool sort_keys = false);

std::string FloatRepr(double d);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // One level of it; none: one line.
  std::optional<std::string> item_separator;
  std::optional<std::string> key_separator;
};
std::string ToJson(Runtime& runtime, const Value& v, const JsonOptions& options);

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_PRINTING_H_
