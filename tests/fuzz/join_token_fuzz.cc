// What somebody who joins brings: a token, and, behind a line of "----", a request for a
// certificate. What is taken reads back from its own text, and becomes a certificate that says what
// it was to say.
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "common/certificates/authority.h"
#include "common/certificates/join_token.h"
#include "common/check.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace strata {
namespace {

constexpr CertificateTerm kTerm = {1'700'000'000, 1'900'000'000};

void CheckToken(std::string_view text) {
  const auto token = ParseJoinToken(text);
  if (token.ok()) {
    const auto again = ParseJoinToken(JoinTokenText(*token));
    STRATA_CHECK(again.ok() && again->SerializeAsString() == token->SerializeAsString());
  }
}

void CheckRequest(std::string_view request) {
  static const CertifiedKey authority = MakeAuthority("home", kTerm).value();
  const CertificateHolder holder = {CertificateRole::kWorker, "home", "box"};
  const auto digest = RequestKeyDigest(request);
  const auto cert = IssueCertificate(authority, request, holder, {"10.0.0.2"}, kTerm);
  STRATA_CHECK(digest.ok() == cert.ok());
  if (cert.ok()) {
    STRATA_CHECK(HolderOf(*cert).value() == holder);
  }
  // A certificate instead, which whoever connects shows.
  (void)HolderOf(request);
  (void)CertificateHosts(request);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kCut = "\n----\n";
  const size_t cut = text.find(kCut);
  strata::CheckToken(text.substr(0, cut));
  if (cut != text.npos) {
    strata::CheckRequest(text.substr(cut + kCut.size()));
  }
  return 0;
}
