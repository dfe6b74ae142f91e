#include "common/model/target_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::string_view kPrefix = "re:";
constexpr size_t kLongest = 1000;
constexpr uint32_t kMostSteps = 20'000;

absl::Status Invalid(const std::string& text, const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_CONFIG",
               absl::StrCat("quantization_config: target \"", text, "\" ", why));
}

}  // namespace

absl::StatusOr<TargetPattern> TargetPattern::Parse(const std::string& text) {
  TargetPattern target;
  target.text_ = text;
  if (!text.starts_with(kPrefix)) {
    target.kind_ =
        text.find('.') == std::string::npos && text != "lm_head" ? Kind::kClass : Kind::kPath;
    return target;
  }
  if (text.size() > kLongest) {
    return Invalid(text.substr(0, 40) + "...", "is longer than 1000 characters");
  }
  target.kind_ = Kind::kPattern;
  const std::string pattern = text.substr(kPrefix.size());
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (compiled == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(code, message, sizeof(message));
    return Invalid(text, absl::StrCat("is no pattern: ", reinterpret_cast<const char*>(message)));
  }
  target.code_ = std::shared_ptr<const void>(compiled, [](const void* at) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(at)));
  });
  return target;
}

bool TargetPattern::Matches(const std::string& path, std::string_view class_name) const {
  switch (kind_) {
    case Kind::kPath:
      return path == text_;
    case Kind::kClass:
      // A module of one name has no dot either.
      return text_ == class_name || text_ == path;
    case Kind::kPattern:
      break;
  }
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kMostSteps);
  return pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                     reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0, 0, data.get(),
                     limits.get()) >= 0;
}

}  // namespace strata
