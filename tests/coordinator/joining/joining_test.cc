#include "coordinator/joining/joining.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/certificates/join_token.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "tests/common/certificates/made.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::kTerm;
using testing::MadeAuthority;
using testing::TempFolder;

const int64_t kNow = kTerm.not_before_s + 3600;

class JoiningTest : public ::testing::Test {
 protected:
  // A token's secret.
  std::string Token(v1::CertificateRole role = v1::CERTIFICATE_ROLE_UNSPECIFIED,
                    uint32_t uses = 0) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_uses(uses);
    const std::string secret(kJoinSecretBytes, static_cast<char>('a' + ++made_));
    const auto token = joining_->CreateToken(request, secret, kNow);
    EXPECT_TRUE(token.ok()) << token.status();
    return secret;
  }

  static v1::JoinRequest Request(const std::string& secret, const std::string& key,
                                 const std::string& name = "box") {
    v1::JoinRequest request;
    request.set_secret(secret);
    request.set_certificate_request(MakeCertificateRequest(key).value());
    request.set_name(name);
    request.add_hosts("10.0.0.2");
    return request;
  }

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request, int64_t now_s = kNow) {
    return joining_->Join(
        request, [this](const std::string& name) { return name == member_; }, now_s);
  }

  const CertifiedKey authority_ = MadeAuthority("home");
  std::optional<Joining> joining_ = Joining::Make({.authority = {.signer = authority_}}).value();
  const std::string key_ = MakePrivateKey().value();
  std::string member_;
  int made_ = 0;
};

TEST_F(JoiningTest, AWorkerGetsACertificateOfItsNameAndHosts) {
  const auto joined = Join(Request(Token(), key_));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->authority(), authority_.cert);
  EXPECT_EQ(joined->cluster(), "home");
  EXPECT_EQ(HolderOf(joined->certificate()).value(),
            (CertificateHolder{CertificateRole::kWorker, "home", "box"}));
  EXPECT_TRUE(CheckPeerCertificate(authority_.cert, joined->certificate(), "", "it").ok());
  EXPECT_TRUE(CheckCertificateName(joined->certificate(), "10.0.0.2", "it").ok());
}

TEST_F(JoiningTest, ATokenLetsJoinAsWhatItSaysOnly) {
  v1::JoinRequest request = Request(Token(v1::CERTIFICATE_ROLE_OPERATOR), key_, "me");
  EXPECT_EQ(ReasonOf(Join(request).status()), "BAD_HOST");
  request.clear_hosts();
  const auto joined = Join(request);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(HolderOf(joined->certificate())->role, CertificateRole::kOperator);
  request = Request(Token(), key_);
  request.clear_hosts();
  EXPECT_EQ(ReasonOf(Join(request).status()), "BAD_HOST");
}

TEST_F(JoiningTest, WhatIsRefusedTakesNoUse) {
  const std::string secret = Token();
  v1::JoinRequest request = Request(secret, key_);
  request.set_certificate_request("nothing");
  EXPECT_EQ(ReasonOf(Join(request).status()), "TLS_REQUEST_BAD");
  request = Request(secret, key_, "a b");
  EXPECT_EQ(ReasonOf(Join(request).status()), "BAD_NAME");
  request = Request(secret, key_);
  request.add_hosts("x:1");
  EXPECT_EQ(ReasonOf(Join(request).status()), "BAD_HOST");
  EXPECT_TRUE(Join(Request(secret, key_)).ok());
  EXPECT_EQ(ReasonOf(Join(Request(secret, key_)).status()), "TOKEN_USED");
}

TEST_F(JoiningTest, AMembersNameIsForWhoHasItsKey) {
  ASSERT_TRUE(Join(Request(Token(), key_)).ok());
  member_ = "box";
  const absl::Status taken = Join(Request(Token(), MakePrivateKey().value())).status();
  EXPECT_EQ(ReasonOf(taken), "NAME_TAKEN");
  EXPECT_THAT(Describe(taken), HasSubstr("strata node remove box"));
  EXPECT_TRUE(Join(Request(Token(), key_)).ok()) << "the same machine again";
  member_ = "another";
  EXPECT_TRUE(Join(Request(Token(), MakePrivateKey().value())).ok()) << "it was removed";
}

// What another coordinator, started on the same folder, knows of tokens and names.
TEST_F(JoiningTest, TokensAndKeysOutliveIt) {
  TempFolder folder;
  auto store = AdminStore::Open(folder.File("admin.db")).value();
  const auto start = [&] {
    auto joining = Joining::Make({.authority = {.signer = authority_}, .store = store.get()});
    EXPECT_TRUE(joining.ok()) << joining.status();
    joining_.emplace(*std::move(joining));
  };
  const auto restart = [&] {
    joining_.reset();
    store.reset();
    store = AdminStore::Open(folder.File("admin.db")).value();
    start();
  };
  start();
  const std::string secret = Token(v1::CERTIFICATE_ROLE_WORKER, 3);
  restart();
  ASSERT_TRUE(Join(Request(secret, key_)).ok());
  restart();
  member_ = "box";
  EXPECT_EQ(ReasonOf(Join(Request(secret, MakePrivateKey().value())).status()), "NAME_TAKEN");
  EXPECT_TRUE(Join(Request(secret, key_)).ok()) << "the same machine again";
  EXPECT_TRUE(Join(Request(secret, key_, "other")).ok());
  restart();
  EXPECT_EQ(ReasonOf(Join(Request(secret, key_)).status()), "TOKEN_USED");
  const std::string person = Token(v1::CERTIFICATE_ROLE_CLIENT);
  restart();
  v1::JoinRequest request = Request(person, key_, "me");
  request.clear_hosts();
  EXPECT_EQ(ReasonOf(Join(request, kNow + kDefaultTokenS).status()), "TOKEN_EXPIRED");
  const auto joined = Join(request);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(HolderOf(joined->certificate())->role, CertificateRole::kClient);
}

TEST_F(JoiningTest, NothingIsGivenThatTheStoreDidNotTake) {
  TempFolder folder;
  const auto store = AdminStore::Open(folder.File("admin.db")).value();
  joining_.emplace(
      Joining::Make({.authority = {.signer = authority_}, .store = store.get()}).value());
  const std::string secret = Token();
  // Whoever may not enlarge files has a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status refused = Join(Request(secret, key_)).status();
  v1::CreateTokenRequest another;
  const absl::Status unmade = joining_->CreateToken(another, "another", kNow).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(unmade.ok());
  EXPECT_EQ(ReasonOf(Join(Request("another", key_)).status()), "TOKEN_UNKNOWN");
  EXPECT_TRUE(Join(Request(secret, key_)).ok()) << "no use was taken";
}

TEST_F(JoiningTest, TermsThatCannotBeAreRefused) {
  v1::CreateTokenRequest request;
  request.set_expires_s(kMaxTokenS + 1);
  EXPECT_EQ(ReasonOf(joining_->CreateToken(request, "s", kNow).status()), "BAD_TOKEN_TERMS");
  request.set_expires_s(1);
  request.set_uses(kMaxTokenUses + 1);
  EXPECT_EQ(ReasonOf(joining_->CreateToken(request, "s", kNow).status()), "BAD_TOKEN_TERMS");
  request.set_uses(1);
  request.set_role(static_cast<v1::CertificateRole>(99));
  EXPECT_EQ(ReasonOf(joining_->CreateToken(request, "s", kNow).status()), "BAD_TOKEN_TERMS");
}

TEST_F(JoiningTest, AnAuthorityThatCannotSignIsNotTaken) {
  const CertifiedKey mixed = {authority_.cert, MadeAuthority("home").key};
  EXPECT_EQ(ReasonOf(Joining::Make({.authority = {.signer = mixed}}).status()), "TLS_KEY_MISMATCH");
  EXPECT_EQ(ReasonOf(Joining::Make({.authority = {.signer = {"", ""}}}).status()), "TLS_FILE_BAD");
}

TEST(JoinTokenTest, ATokenReadsBackFromItsText) {
  Joining joining = Joining::Make({.authority = {.signer = MadeAuthority("home")}}).value();
  v1::JoinToken token = joining.CreateToken({}, std::string(kJoinSecretBytes, 's'), kNow).value();
  token.set_join_address("[fd00::1]:7071");
  token.set_address("[fd00::1]:7070");
  const std::string text = JoinTokenText(token);
  EXPECT_EQ(
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."),
      text.npos);
  const auto read = ParseJoinToken(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), token.SerializeAsString());
}

TEST(JoinTokenTest, WhatIsNoTokenSaysWhy) {
  Joining joining = Joining::Make({.authority = {.signer = MadeAuthority("home")}}).value();
  v1::JoinToken token = joining.CreateToken({}, std::string(kJoinSecretBytes, 's'), kNow).value();
  token.set_join_address("a:1");
  token.set_address("a:2");
  const std::string text = JoinTokenText(token);
  EXPECT_THAT(ParseJoinToken("hello").status().message(), HasSubstr("does not begin"));
  EXPECT_THAT(ParseJoinToken("strata-join-2.AAAA").status().message(),
              HasSubstr("another version"));
  EXPECT_THAT(ParseJoinToken(text + std::string(kMaxJoinTokenBytes, 'A')).status().message(),
              HasSubstr("longer"));
  for (size_t end = 0; end < text.size(); ++end) {
    EXPECT_EQ(ReasonOf(ParseJoinToken(std::string_view(text).substr(0, end)).status()), "BAD_TOKEN")
        << end;
  }
}

TEST_F(JoiningTest, ACertificateIsRenewedForItsHolderAndForAsLongAndForNoOther) {
  const auto joined = Join(Request(Token(), key_));
  ASSERT_TRUE(joined.ok()) << joined.status();
  const std::string request = MakeCertificateRequest(MakePrivateKey().value()).value();
  const int64_t later_s = kNow + 200 * 24 * 3600;
  const auto renewed = joining_->Renew(joined->certificate(), request, later_s);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(HolderOf(renewed->certificate()).value(), HolderOf(joined->certificate()).value());
  EXPECT_EQ(CertificateHosts(renewed->certificate()), CertificateHosts(joined->certificate()));
  EXPECT_EQ(TermOf(renewed->certificate())->not_after_s, later_s + 365 * 24 * 3600);
  EXPECT_EQ(CertificateKeyDigest(renewed->certificate()).value(),
            RequestKeyDigest(request).value());
  EXPECT_EQ(ReasonOf(joining_->Renew(joined->certificate(), "", later_s).status()),
            "TLS_REQUEST_BAD");
  // No role, and another cluster.
  EXPECT_EQ(ReasonOf(joining_->Renew(authority_.cert, request, later_s).status()), "NOT_RENEWABLE");
  Joining elsewhere = Joining::Make({.authority = {.signer = MadeAuthority("there")}}).value();
  EXPECT_EQ(ReasonOf(elsewhere.Renew(joined->certificate(), request, later_s).status()),
            "NOT_RENEWABLE");
}

TEST_F(JoiningTest, WhatIsIssuedAfterARevocationIsNotRevoked) {
  Revocations revocations;
  revocations.Add({CertificateRole::kWorker, "box", kNow});
  joining_->SetRevocations(revocations);
  const auto joined = Join(Request(Token(), key_));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(revocations.Check(joined->certificate(), "it").ok());
}

}  // namespace
}  // namespace strata
