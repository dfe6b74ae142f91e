// The tools that a request offers, as OpenAI's API describes them. Const after construction; any
// thread.
#ifndef STRATA_TEXT_TOOLS_OFFERED_TOOLS_H_
#define STRATA_TEXT_TOOLS_OFFERED_TOOLS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace strata {

inline constexpr size_t kMaxTools = 128;

// What of a tool's parameters says how a value that is written as plain text is meant.
class ParameterTypes {
 public:
  // `schema`: the tool's "parameters".
  explicit ParameterTypes(nlohmann::ordered_json schema) : schema_(std::move(schema)) {}

  // Names of JSON schema's types that a parameter may have; empty: any.
  std::vector<std::string> TypesOf(const std::string& parameter) const;
  // Whether it is a text whatever is written, so that it needs no look at all of it.
  bool IsText(const std::string& parameter) const;
  // The JSON of a value: a number, boolean, null, list or object where the schema has such and the
  // text is one; else a string.
  std::string Value(const std::string& parameter, std::string_view written) const;

 private:
  const nlohmann::ordered_json schema_;
};

// The JSON of a value of which is known that it is no text: `written` itself if it is JSON, in
// Python's spelling too; else a string.
std::string JsonOrText(std::string_view written);

struct OfferedTool {
  std::string name;
  ParameterTypes types;    // Of a null schema where there is none.
  std::string parameters;  // The schema as it is written, blanks left out; "": there is none.
  bool strict = false;     // Arguments have to be as the schema says.
};

class OfferedTools {
 public:
  // `tools`: {"type": "function", "function": {"name", "parameters"?, "strict"?, ...}}, each as
  // text. INVALID_ARGUMENT (BAD_FIELD, NOT_SUPPORTED) names the field.
  static absl::StatusOr<std::shared_ptr<const OfferedTools>> Parse(
      const std::vector<std::string>& tools);

  // In the order in which they were offered.
  const std::vector<OfferedTool>& tools() const { return tools_; }
  // One of them is strict, so that all calls are held to what they may be.
  bool HasStrict() const;
  // What they were read from.
  const std::string& source() const { return source_; }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  // Null: there is no such tool.
  const ParameterTypes* Find(std::string_view name) const;

 private:
  std::string source_;
  std::vector<OfferedTool> tools_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_OFFERED_TOOLS_H_
