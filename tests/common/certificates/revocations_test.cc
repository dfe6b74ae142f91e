#include "common/certificates/revocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/certificates/renewal.h"
#include "common/status.h"
#include "tests/common/certificates/made.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::MadeAuthority;

constexpr int64_t kDayS = 24 * 3600;
constexpr int64_t kNow = 1'800'000'000;

TEST(Renewal, ACertificateBeginsAnHourBeforeItIsIssuedUnlessItIsShort) {
  const CertificateTerm year = TermOfIssue(kNow, 365 * kDayS + kBackdatedS);
  EXPECT_EQ(year.not_before_s, kNow - 3600);
  EXPECT_EQ(year.not_after_s, kNow + 365 * kDayS);
  EXPECT_EQ(IssuedAtS(year), kNow);
  const CertificateTerm minute = TermOfIssue(kNow, 60);
  EXPECT_EQ(minute.not_before_s, kNow);
  EXPECT_EQ(minute.not_after_s, kNow + 60);
  EXPECT_EQ(IssuedAtS(minute), kNow);
}

TEST(Renewal, IsDueInTheLastThirdOrSoLongBeforeTheEnd) {
  const CertificateTerm term = {.not_before_s = 0, .not_after_s = 900};
  EXPECT_FALSE(RenewalIsDue(term, 0, 600));
  EXPECT_TRUE(RenewalIsDue(term, 0, 601));
  EXPECT_TRUE(RenewalIsDue(term, 0, 1000));
  EXPECT_FALSE(RenewalIsDue(term, 100, 800));
  EXPECT_TRUE(RenewalIsDue(term, 100, 801));
}

class RevocationsTest : public ::testing::Test {
 protected:
  std::string Issued(CertificateRole role, const std::string& name, int64_t at_s) {
    return IssueCertificate(authority_, MakeCertificateRequest(key_).value(), {role, "home", name},
                            {}, TermOfIssue(at_s, kDayS))
        .value();
  }
  std::string ReasonFor(const std::string& cert) {
    return ReasonOf(revocations_.Check(cert, "it"));
  }

  const CertifiedKey authority_ = MadeAuthority("home");
  const std::string key_ = MakePrivateKey().value();
  Revocations revocations_;
};

TEST_F(RevocationsTest, TakeAllThatAHolderWasIssuedUntilThenAndNothingElse) {
  revocations_.Add({CertificateRole::kWorker, "w0", kNow});
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kWorker, "w0", kNow)), "TLS_REVOKED");
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kWorker, "w0", kNow - kDayS)), "TLS_REVOKED");
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kWorker, "w0", kNow + 1)), "");
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kWorker, "w1", kNow)), "");
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kClient, "w0", kNow)), "");
  EXPECT_EQ(ReasonFor(authority_.cert), "");  // It names no role.
  const absl::Status said = revocations_.Check(Issued(CertificateRole::kWorker, "w0", kNow), "it");
  EXPECT_THAT(Describe(said), HasSubstr("it (worker w0) was revoked"));
  EXPECT_THAT(Describe(said), HasSubstr("strata node token"));
}

TEST_F(RevocationsTest, WhatIsIssuedNextIsGoodInTheSameSecondToo) {
  const CertificateHolder holder = {CertificateRole::kWorker, "home", "w0"};
  EXPECT_EQ(revocations_.NextIssueS(holder, kNow), kNow);
  revocations_.Add({CertificateRole::kWorker, "w0", kNow});
  const int64_t next_s = revocations_.NextIssueS(holder, kNow);
  EXPECT_EQ(ReasonFor(Issued(CertificateRole::kWorker, "w0", next_s)), "");
  EXPECT_EQ(revocations_.NextIssueS(holder, kNow + 100), kNow + 100);
}

TEST_F(RevocationsTest, OneOfAHolderTakesThePlaceOfTheOneBeforeAndTheyAreBounded) {
  for (size_t i = 0; i < kMaxRevocations + 5; ++i) {
    revocations_.Add({CertificateRole::kClient, "c" + std::to_string(i), kNow});
  }
  EXPECT_EQ(revocations_.all().size(), kMaxRevocations);
  EXPECT_EQ(revocations_.all().front().name, "c5");
  revocations_.Add({CertificateRole::kClient, "c7", kNow + 9});
  EXPECT_EQ(revocations_.all().size(), kMaxRevocations);
  EXPECT_EQ(revocations_.all().back(), (Revocation{CertificateRole::kClient, "c7", kNow + 9}));
}

}  // namespace
}  // namespace strata
