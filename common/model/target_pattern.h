// What compressed-tensors calls a target: which modules a scheme is for.
#ifndef STRATA_COMMON_MODEL_TARGET_PATTERN_H_
#define STRATA_COMMON_MODEL_TARGET_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata {

// Const; any thread. A copy shares the compiled pattern.
class TargetPattern {
 public:
  // From most to least specific, which is the order that targets are looked at in.
  enum class Kind { kPath, kPattern, kClass };

  TargetPattern() = default;
  // "re:PATTERN" (which matches from the beginning of a path on, as Python's re.match), the name of
  // a class, which has no dot, or a path. INVALID_ARGUMENT where a pattern is none, or is longer
  // than 1000 characters.
  static absl::StatusOr<TargetPattern> Parse(const std::string& text);

  // Of a module at a path, of class "Linear" or "Embedding". Of a path that a pattern needs more
  // than 20,000 steps for it says no.
  bool Matches(const std::string& path, std::string_view class_name) const;
  Kind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  bool operator==(const TargetPattern& other) const { return text_ == other.text_; }

 private:
  std::string text_;
  Kind kind_ = Kind::kPath;
  std::shared_ptr<const void> code_;  // Of PCRE2.
};

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_TARGET_PATTERN_H_
