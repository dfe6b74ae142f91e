#include "common/certificates/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <set>
#include <string>
#include <vector>

#include "common/certificates/openssl_owned.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "tests/common/certificates/made.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::kTerm;
using testing::MadeAuthority;
using testing::MadeCertificate;

TEST(CertificatesTest, WhatWasIssuedIsOfTheAuthorityAndNamesItsHolder) {
  const CertifiedKey authority = MadeAuthority("home");
  for (const CertificateRole role : kCertificateRoles) {
    const CertificateHolder holder = {role, "home", "gpu-box"};
    const CertifiedKey made = MadeCertificate(authority, holder);
    const auto named = HolderOf(made.cert);
    ASSERT_TRUE(named.ok()) << named.status();
    EXPECT_EQ(*named, holder);
    const absl::Status peer = CheckPeerCertificate(authority.cert, made.cert, "", "it");
    EXPECT_TRUE(peer.ok()) << peer;
  }
}

TEST(CertificatesTest, AHolderIsReachedByItsHostsOnly) {
  const CertifiedKey authority = MadeAuthority("home");
  const CertifiedKey made = MadeCertificate(authority, {CertificateRole::kWorker, "home", "w"},
                                            {"10.0.0.2", "fd00::2", "gpu-box.lan"});
  for (const char* host : {"10.0.0.2", "fd00::2", "gpu-box.lan"}) {
    EXPECT_TRUE(CheckCertificateName(made.cert, host, "it").ok()) << host;
  }
  EXPECT_EQ(CertificateHosts(made.cert),
            (std::vector<std::string>{"10.0.0.2", "fd00::2", "gpu-box.lan"}));
  EXPECT_TRUE(CertificateHosts(authority.cert).empty());
  for (const char* host : {"10.0.0.3", "w", "lan", "other.lan"}) {
    EXPECT_EQ(ReasonOf(CheckCertificateName(made.cert, host, "it")), "TLS_WRONG_NAME") << host;
  }
}

TEST(CertificatesTest, AnotherAuthorityOfTheSameNameIsAnother) {
  const CertifiedKey ours = MadeAuthority("home");
  const CertifiedKey theirs = MadeAuthority("home");
  const CertifiedKey made = MadeCertificate(theirs, {CertificateRole::kWorker, "home", "w"});
  EXPECT_EQ(ReasonOf(CheckPeerCertificate(ours.cert, made.cert, "", "it")), "TLS_WRONG_CA");
  EXPECT_NE(CertificateFingerprint(ours.cert).value(), CertificateFingerprint(theirs.cert).value());
}

// The key of a holder signs no certificates that count.
TEST(CertificatesTest, AHolderIsNoAuthority) {
  const CertifiedKey authority = MadeAuthority("home");
  const CertifiedKey worker = MadeCertificate(authority, {CertificateRole::kWorker, "home", "w"});
  const CertifiedKey forged = MadeCertificate(worker, {CertificateRole::kOperator, "home", "me"});
  EXPECT_FALSE(CheckPeerCertificate(authority.cert, forged.cert, worker.cert, "it").ok());
}

TEST(CertificatesTest, SerialNumbersAndFingerprintsDiffer) {
  const CertifiedKey authority = MadeAuthority("home");
  std::set<std::string> fingerprints;
  for (int i = 0; i < 20; ++i) {
    const CertifiedKey made = MadeCertificate(authority, {CertificateRole::kClient, "home", "me"});
    const std::string fingerprint = CertificateFingerprint(made.cert).value();
    EXPECT_EQ(fingerprint.size(), 64u);
    fingerprints.insert(fingerprint);
  }
  EXPECT_EQ(fingerprints.size(), 20u);
}

TEST(CertificatesTest, TermsAreAsAskedFor) {
  const CertifiedKey authority = MadeAuthority("home");
  const CertifiedKey made = MadeCertificate(authority, {CertificateRole::kClient, "home", "me"});
  const auto times = TimesOf(made.cert);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->not_before_s, kTerm.not_before_s);
  EXPECT_EQ(times->not_after_s, kTerm.not_after_s);
}

TEST(CertificatesTest, WhatIsNoRequestIsRefused) {
  const CertifiedKey authority = MadeAuthority("home");
  const CertificateHolder holder = {CertificateRole::kWorker, "home", "w"};
  std::string request = MakeCertificateRequest(MakePrivateKey().value()).value();
  for (const std::string& text :
       {std::string(), std::string("-----BEGIN CERTIFICATE REQUEST-----\n"), authority.cert}) {
    EXPECT_EQ(ReasonOf(IssueCertificate(authority, text, holder, {}, kTerm).status()),
              "TLS_REQUEST_BAD");
  }
  // A character within the signature or the key.
  const size_t at = request.size() * 2 / 3;
  request[at] = request[at] == 'A' ? 'B' : 'A';
  EXPECT_EQ(ReasonOf(IssueCertificate(authority, request, holder, {}, kTerm).status()),
            "TLS_REQUEST_BAD");
}

TEST(CertificatesTest, AKeyThatTlsWouldNotTakeIsRefused) {
  const openssl::Owned<EVP_PKEY> weak(EVP_RSA_gen(1024));
  const openssl::Owned<X509_REQ> request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), weak.get());
  X509_REQ_sign(request.get(), weak.get(), EVP_sha256());
  const openssl::Owned<BIO> out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(out.get(), request.get());
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(out.get(), &data));
  const absl::Status status = IssueCertificate(MadeAuthority("home"), {data, size},
                                               {CertificateRole::kWorker, "home", "w"}, {}, kTerm)
                                  .status();
  EXPECT_EQ(ReasonOf(status), "TLS_REQUEST_BAD");
  EXPECT_THAT(status.message(), HasSubstr("too weak"));
}

TEST(CertificatesTest, HostsAndNamesThatCannotBeAreRefused) {
  const CertifiedKey authority = MadeAuthority("home");
  const std::string request = MakeCertificateRequest(MakePrivateKey().value()).value();
  const CertificateHolder holder = {CertificateRole::kWorker, "home", "w"};
  for (const std::string host :
       {"", "a b", "10.0.0.1:7070", "x,DNS:y", "*.lan", "-a", ".lan", "\xc3\xa4"}) {
    const absl::Status status =
        IssueCertificate(authority, request, holder, {host}, kTerm).status();
    EXPECT_EQ(ReasonOf(status), "BAD_HOST") << host;
  }
  EXPECT_EQ(
      ReasonOf(IssueCertificate(authority, request, holder,
                                std::vector<std::string>(kMaxCertificateHosts + 1, "a"), kTerm)
                   .status()),
      "BAD_HOST");
  for (const std::string& name :
       {std::string(), std::string(kMaxCertificateNameBytes + 1, 'a'), std::string("a\nb")}) {
    EXPECT_EQ(ReasonOf(IssueCertificate(authority, request,
                                        {CertificateRole::kWorker, "home", name}, {}, kTerm)
                           .status()),
              "BAD_NAME");
    EXPECT_EQ(ReasonOf(MakeAuthority(name, kTerm).status()), "BAD_NAME");
  }
}

TEST(CertificatesTest, AnAuthoritysKeyIsTheOneOfItsCertificate) {
  const std::string request = MakeCertificateRequest(MakePrivateKey().value()).value();
  const CertifiedKey mixed = {MadeAuthority("home").cert, MadeAuthority("home").key};
  EXPECT_EQ(
      ReasonOf(IssueCertificate(mixed, request, {CertificateRole::kWorker, "home", "w"}, {}, kTerm)
                   .status()),
      "TLS_KEY_MISMATCH");
}

TEST(CertificatesTest, WhatNamesNoRoleIsSaidToBeSo) {
  const absl::Status status = HolderOf(MadeAuthority("home").cert).status();
  EXPECT_EQ(ReasonOf(status), "TLS_NO_ROLE");
  EXPECT_THAT(status.message(), HasSubstr("home authority"));
  EXPECT_EQ(ReasonOf(HolderOf("nothing").status()), "TLS_FILE_BAD");
}

}  // namespace
}  // namespace strata
