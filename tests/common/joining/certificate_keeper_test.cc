#include "common/joining/certificate_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/certificates/renewal.h"
#include "common/certificates/tls_folder.h"
#include "common/status.h"
#include "coordinator/joining/joining.h"
#include "tests/common/certificates/made.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::MadeAuthority;
using ::testing::SizeIs;

constexpr int64_t kDayS = 24 * 3600;
// The last third of the first certificate has begun a day ago. The clock that is handed in lies
// before the machine's, by which certificates are verified.
constexpr int64_t kTotalS = 9 * kDayS;
const int64_t kNow = std::time(nullptr);
const int64_t kEarly = kNow - 2 * kDayS;

CertifiedKey LongLivedAuthority() {
  return MakeAuthority("home", {kNow - 30 * kDayS, kNow + 300 * kDayS}).value();
}

// A coordinator's answers, whose clock is the test's.
struct Coordinator {
  Joining joining;
  int64_t now_s = kNow;
  std::string cert{};  // That the caller shows.
  absl::Status down{};
  bool answers_with_anothers = false;
  int renewals = 0;
};

class SourceOfTest : public CertificateSource {
 public:
  explicit SourceOfTest(Coordinator* of) : of_(of) {}

  absl::StatusOr<v1::Trust> GetTrust(const v1::GetTrustRequest& /*request*/) override {
    RETURN_IF_ERROR(of_->down);
    v1::Trust trust;
    trust.set_authorities(of_->joining.authority().Trusted());
    trust.set_signer_sha256(of_->joining.signer_sha256());
    return trust;
  }
  absl::StatusOr<v1::RenewCertificateResponse> Renew(
      const v1::RenewCertificateRequest& request) override {
    ++of_->renewals;
    const std::string asked = of_->answers_with_anothers
                                  ? MakeCertificateRequest(MakePrivateKey().value()).value()
                                  : request.certificate_request();
    return of_->joining.Renew(of_->cert, asked, of_->now_s);
  }

 private:
  Coordinator* const of_;
};

class CertificateKeeperTest : public ::testing::Test {
 protected:
  CertificateKeeperTest() {
    fs::remove_all(top_);
    TlsFolder made;
    made.ca = first_.cert;
    made.own.key = MakePrivateKey().value();
    made.own.cert = IssueCertificate(first_, MakeCertificateRequest(made.own.key).value(),
                                     {CertificateRole::kWorker, "home", "w0"}, {"10.0.0.2"},
                                     TermOfIssue(kNow - 7 * kDayS, kTotalS))
                        .value();
    EXPECT_TRUE(WriteTlsFolder(top_ + "/given", made).ok());
    live_ = LiveTls::Open({.dir = top_ + "/given", .renewed_dir = top_ + "/renewed"}, kNow).value();
    following_ = live_->Follow().ok();
    keeper_ = std::make_unique<CertificateKeeper>(
        CertificateKeeperOptions{
            .node = "w0",
            .on_trust = nullptr,
            .on_failed = [this](const absl::Status& why) { failed_.push_back(ReasonOf(why)); }},
        live_, std::make_unique<SourceOfTest>(&coordinator_));
  }
  ~CertificateKeeperTest() override { fs::remove_all(top_); }

  // One round at `now_s`, after which what was renewed is in use.
  void Keep(int64_t now_s) {
    coordinator_.now_s = now_s;
    coordinator_.cert = live_->files()->cert;
    keeper_->KeepOnce(now_s);
    // The looker of its own may be the first.
    while (fs::exists(top_ + "/renewed") && LiveIsBehind()) {
      live_->Look(kNow);
    }
  }
  bool LiveIsBehind() const {
    const auto renewed = ReadTlsFiles(top_ + "/renewed", kNow);
    return renewed.ok() && renewed->cert != live_->files()->cert;
  }

  const std::string top_ = ::testing::TempDir() + "strata-certificate-keeper";
  const CertifiedKey first_ = LongLivedAuthority();
  const CertifiedKey second_ = LongLivedAuthority();
  Coordinator coordinator_{Joining::Make({.authority = {.signer = first_}}).value()};
  std::vector<std::string> failed_;
  std::shared_ptr<LiveTls> live_;
  bool following_ = false;
  std::unique_ptr<CertificateKeeper> keeper_;
};

TEST_F(CertificateKeeperTest, RenewsInTheLastThirdWithANewKeyForTheSameHolder) {
  if (!following_) GTEST_SKIP() << "no files in memory";
  const auto before = live_->files();
  Keep(kEarly);
  EXPECT_EQ(coordinator_.renewals, 0);
  Keep(kNow);
  EXPECT_EQ(coordinator_.renewals, 1);
  const auto renewed = ReadTlsFiles(top_ + "/renewed", kNow);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(renewed->holder, before->holder);
  EXPECT_NE(renewed->key, before->key);
  EXPECT_EQ(CertificateHosts(renewed->cert), CertificateHosts(before->cert));
  EXPECT_EQ(renewed->term.not_after_s - renewed->term.not_before_s, kTotalS);
  EXPECT_TRUE(failed_.empty());
}

TEST_F(CertificateKeeperTest, FollowsTheAuthorityThroughBothSteps) {
  if (!following_) GTEST_SKIP() << "no files in memory";
  const auto print = [](const CertifiedKey& one) {
    return CertificateFingerprint(one.cert).value();
  };
  ASSERT_TRUE(coordinator_.joining.SetAuthority({.signer = first_, .next = second_.cert}).ok());
  Keep(kEarly);
  EXPECT_EQ(CertificateFingerprints(live_->files()->ca),
            (std::vector{print(first_), print(second_)}));
  EXPECT_TRUE(IsIssuedBy(live_->files()->cert, first_.cert));
  ASSERT_TRUE(coordinator_.joining.SetAuthority({.signer = second_, .previous = first_.cert}).ok());
  Keep(kEarly + 10);
  EXPECT_TRUE(IsIssuedBy(live_->files()->cert, second_.cert));
  EXPECT_THAT(CertificateFingerprints(live_->files()->ca), SizeIs(2));
  ASSERT_TRUE(coordinator_.joining.SetAuthority({.signer = second_}).ok());
  Keep(kEarly + 20);
  EXPECT_EQ(CertificateFingerprints(live_->files()->ca), std::vector{print(second_)});
  Keep(kEarly + 30);
  EXPECT_EQ(coordinator_.renewals, 3);
}

TEST_F(CertificateKeeperTest, TriesMoreRarelyWhileItFailsAndSaysSoOnce) {
  if (!following_) GTEST_SKIP() << "no files in memory";
  coordinator_.down = Error(absl::StatusCode::kUnavailable, "DOWN", "it is not there");
  Keep(kEarly);
  EXPECT_TRUE(failed_.empty());  // Nothing is to be renewed.
  coordinator_.down = absl::OkStatus();
  coordinator_.answers_with_anothers = true;
  const int64_t due_s = kNow - 800;
  for (int64_t s = 0; s < 600; s += 3) {
    Keep(due_s + s);
  }
  EXPECT_EQ(failed_, std::vector<std::string>{"TLS_BAD_ANSWER"});
  EXPECT_GE(coordinator_.renewals, 10);
  EXPECT_LE(coordinator_.renewals, 15);  // 5 s, 10 s, ... and then each minute.
  EXPECT_FALSE(fs::exists(top_ + "/renewed"));
  coordinator_.answers_with_anothers = false;
  Keep(due_s + 700);
  EXPECT_TRUE(fs::exists(top_ + "/renewed"));
}

TEST(WantsRenewal, NeverWhereFilesNameNoRoleOrNobodySigns) {
  TlsFiles files;
  files.term = {.not_before_s = 0, .not_after_s = 1};
  v1::Trust trust;
  trust.set_authorities(MadeAuthority("home").cert);
  EXPECT_FALSE(WantsRenewal(files, trust, 0, 100));
  files.holder = CertificateHolder{CertificateRole::kWorker, "home", "w0"};
  EXPECT_TRUE(WantsRenewal(files, trust, 0, 100));
  EXPECT_FALSE(WantsRenewal(files, v1::Trust(), 0, 100));
}

}  // namespace
}  // namespace strata
