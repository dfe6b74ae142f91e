#include "common/certificates/join_token.h"

#include "absl/strings/escaping.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::string_view kBegin = "strata-join-1.";
constexpr std::string_view kAnyVersion = "strata-join-";
constexpr size_t kDigestBytes = 32;  // SHA-256.

absl::Status Bad(const std::string& why) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN", "this is no token: " + why)
      .Hint("paste the whole line that `strata node token` printed");
}

}  // namespace

std::string JoinTokenText(const v1::JoinToken& token) {
  return std::string(kBegin) + absl::WebSafeBase64Escape(token.SerializeAsString());
}

absl::StatusOr<v1::JoinToken> ParseJoinToken(std::string_view text) {
  if (text.size() > kMaxJoinTokenBytes) {
    return Bad("it is longer than " + std::to_string(kMaxJoinTokenBytes) + " characters");
  }
  if (!text.starts_with(kBegin)) {
    return Bad(text.starts_with(kAnyVersion) ? "it is of another version of Strata"
                                             : "it does not begin with strata-join-");
  }
  text.remove_prefix(kBegin.size());
  std::string bytes;
  v1::JoinToken token;
  if (!absl::WebSafeBase64Unescape(absl::string_view(text.data(), text.size()), &bytes) ||
      !token.ParseFromString(bytes)) {
    return Bad("a part of it is missing or changed");
  }
  if (token.join_address().empty() || token.address().empty() ||
      token.authority_sha256().size() != kDigestBytes ||
      token.secret().size() != kJoinSecretBytes ||
      token.role() == v1::CERTIFICATE_ROLE_UNSPECIFIED ||
      !v1::CertificateRole_IsValid(token.role())) {
    return Bad("a part of it is missing or changed");
  }
  return token;
}

}  // namespace strata
