#include "common/rpc/text_status.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::string_view kReasonLine = "\nreason: ";
constexpr std::string_view kHintLine = "\nhint: ";
constexpr size_t kMaxReasonBytes = 64;
constexpr size_t kMaxLineBytes = 1024;

bool IsReason(std::string_view text) {
  return !text.empty() && text.size() <= kMaxReasonBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return absl::ascii_isupper(byte) || absl::ascii_isdigit(byte) || c == '_';
         });
}

}  // namespace

grpc::Status ToGrpcAsText(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  std::string text = Printable(detail.message(), kMaxLineBytes);
  text += kReasonLine;
  text += detail.reason();
  if (!detail.hint().empty()) {
    text += kHintLine;
    text += Printable(detail.hint(), kMaxLineBytes);
  }
  return {static_cast<grpc::StatusCode>(status.code()), text};
}

std::optional<absl::Status> FromText(absl::StatusCode code, std::string_view text) {
  const size_t message_end = text.find('\n');
  if (message_end == text.npos || !text.substr(message_end).starts_with(kReasonLine)) {
    return std::nullopt;
  }
  std::string_view rest = text.substr(message_end + kReasonLine.size());
  const size_t reason_end = std::min(rest.find('\n'), rest.size());
  const std::string_view reason = rest.substr(0, reason_end);
  rest.remove_prefix(reason_end);
  std::string_view hint;
  if (rest.starts_with(kHintLine)) {
    hint = rest.substr(kHintLine.size());
    rest = {};
  }
  if (!IsReason(reason) || !rest.empty() || hint.find('\n') != hint.npos) {
    return std::nullopt;
  }
  return Error(code, reason, text.substr(0, message_end)).Hint(hint);
}

}  // namespace strata
