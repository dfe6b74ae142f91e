#include "text/tokenizer/pre_tokenized.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

// The most that a normal form makes of a character is 11 times its bytes (U+FDFA), and bytes as
// characters are 2 times.
constexpr size_t kMaxGrowth = 32;
constexpr size_t kMinGrownBytes = 4096;
constexpr size_t kMaxGrownBytes = size_t{256} << 20;

}  // namespace

size_t MaxGrownBytes(size_t bytes) {
  return std::min(kMaxGrownBytes, kMinGrownBytes + kMaxGrowth * bytes);
}

absl::Status CheckGrown(size_t bytes, size_t max_bytes) {
  if (bytes <= max_bytes) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "TEXT_TOO_LONG",
               absl::StrCat("the tokenizer makes ", bytes, " bytes of this text"))
      .Limit(absl::StrCat("normalized_bytes=", max_bytes))
      .Hint("send a shorter text");
}

}  // namespace strata
