#include "common/rpc/live_tls.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/certificates/renewal.h"
#include "common/certificates/tls_folder.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/common/certificates/made.h"
#include "tests/eventually.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MadeAuthority;

constexpr int64_t kDayS = 24 * 3600;
const int64_t kNow = std::time(nullptr);

class LiveTlsTest : public ::testing::Test {
 protected:
  LiveTlsTest() { fs::remove_all(top_); }
  ~LiveTlsTest() override { fs::remove_all(top_); }

  // A folder of a worker's files, issued at `at_s`; its certificate.
  std::string Write(const std::string& folder, int64_t at_s, const std::string& name = "w0",
                    const std::string& host = "10.0.0.2", int64_t total_s = 10 * kDayS) {
    TlsFolder made;
    made.ca = authority_.cert;
    made.own.key = MakePrivateKey().value();
    made.own.cert = IssueCertificate(authority_, MakeCertificateRequest(made.own.key).value(),
                                     {CertificateRole::kWorker, "home", name}, {host},
                                     TermOfIssue(at_s, total_s))
                        .value();
    EXPECT_TRUE(WriteTlsFolder(folder, made).ok());
    return made.own.cert;
  }

  std::shared_ptr<LiveTls> Open() {
    auto live = LiveTls::Open({.dir = given_,
                               .renewed_dir = renewed_,
                               .on_taken = [this](const TlsFiles&) { ++taken_; },
                               .on_refused =
                                   [this](const absl::Status& why) {
                                     refused_.push_back(ReasonOf(why));
                                     said_ = Describe(why);
                                   }},
                              kNow);
    EXPECT_TRUE(live.ok()) << live.status();
    return *live;
  }

  static std::string TextOf(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const std::string top_ = ::testing::TempDir() + "strata-live-tls";
  const std::string given_ = top_ + "/given";
  const std::string renewed_ = top_ + "/data/tls";
  const CertifiedKey authority_ = MadeAuthority("home");
  int taken_ = 0;
  std::vector<std::string> refused_;
  std::string said_;
};

TEST_F(LiveTlsTest, NewFilesAreTakenAsAWhole) {
  const std::string first = Write(given_, kNow - 100);
  const auto live = Open();
  live->Look(kNow);
  EXPECT_EQ(live->files()->cert, first);
  EXPECT_EQ(taken_, 0);
  const std::string second = Write(given_, kNow - 50);
  live->Look(kNow);
  EXPECT_EQ(live->files()->cert, second);
  EXPECT_EQ(taken_, 1);
  EXPECT_TRUE(refused_.empty());
}

TEST_F(LiveTlsTest, FilesThatAreBadTwiceInARowAreToldOnceAndThoseBeforeGoOn) {
  const std::string first = Write(given_, kNow - 100);
  const auto live = Open();
  std::ofstream(given_ + "/key.pem") << "nonsense";
  live->Look(kNow);
  EXPECT_TRUE(refused_.empty());  // They may just be being written.
  live->Look(kNow);
  live->Look(kNow);
  EXPECT_THAT(refused_, ElementsAre("TLS_FILE_BAD"));
  EXPECT_THAT(said_, HasSubstr("key.pem is no PEM file"));
  EXPECT_EQ(live->files()->cert, first);
  const std::string second = Write(given_, kNow - 50);
  live->Look(kNow);
  EXPECT_EQ(live->files()->cert, second);
}

TEST_F(LiveTlsTest, AnothersFilesAndThoseThatCannotServeAreNotTaken) {
  const std::string first = Write(given_, kNow - 100);
  const auto live = Open();
  const auto look_twice = [&] {
    live->Look(kNow);
    live->Look(kNow);
  };
  Write(given_, kNow - 50, "w1");
  look_twice();
  EXPECT_THAT(said_, HasSubstr("is of worker w1 of home, and this process is worker w0 of home"));
  live->KeepHost("10.0.0.2");
  Write(given_, kNow - 50, "w0", "10.0.0.3");
  look_twice();
  EXPECT_THAT(said_, HasSubstr("it has IP:10.0.0.3"));
  const CertifiedKey other = MadeAuthority("home");
  std::ofstream(given_ + "/ca.pem") << other.cert;
  look_twice();
  EXPECT_THAT(refused_, ElementsAre("TLS_OTHER_HOLDER", "TLS_WRONG_NAME", "TLS_WRONG_CA"));
  EXPECT_EQ(live->files()->cert, first);
}

TEST_F(LiveTlsTest, RenewedFilesAreUsedWhileTheyAreTheLater) {
  Write(given_, kNow - 100);
  const std::string renewed = Write(renewed_, kNow - 50);
  const auto live = Open();
  EXPECT_EQ(live->files()->cert, renewed);
  EXPECT_EQ(live->files()->dir, renewed_);
  const std::string by_hand = Write(given_, kNow - 20);
  live->Look(kNow);
  EXPECT_EQ(live->files()->cert, by_hand);
}

TEST_F(LiveTlsTest, RenewedFilesOutliveTheGivenOnesAndNoOthersTakeTheirPlace) {
  Write(given_, kNow - 20 * kDayS, "w0", "10.0.0.2", 10 * kDayS);  // Lapsed.
  EXPECT_EQ(ReasonOf(LiveTls::Open({.dir = given_, .renewed_dir = renewed_}, kNow).status()),
            "TLS_EXPIRED");
  Write(renewed_, kNow - 50, "w1");
  EXPECT_EQ(ReasonOf(LiveTls::Open({.dir = given_, .renewed_dir = renewed_}, kNow).status()),
            "TLS_EXPIRED");
  const std::string renewed = Write(renewed_, kNow - 50);
  EXPECT_EQ(Open()->files()->cert, renewed);
}

TEST_F(LiveTlsTest, WhatGrpcReadsFollowsWholeAndUnderTheSamePath) {
  Write(given_, kNow - 100);
  const auto live = Open();
  const absl::Status followed = live->Follow();
  if (absl::IsUnimplemented(followed)) {
    GTEST_SKIP() << followed;
  }
  ASSERT_TRUE(followed.ok()) << followed;
  const std::string path = live->pair_file()->path();
  const auto matches = [&] {
    const std::string pair = TextOf(path);
    return pair == live->files()->key + "\n" + live->files()->cert + "\n" &&
           TextOf(live->ca_file()->path()) == live->files()->ca;
  };
  EXPECT_TRUE(matches());
  const auto changed_at = fs::last_write_time(path);
  const std::string second = Write(given_, kNow - 50);
  // The looker of its own may be the first.
  while (live->files()->cert != second) {
    live->Look(kNow);
  }
  EXPECT_EQ(live->pair_file()->path(), path);
  EXPECT_TRUE(matches());
  EXPECT_GE(fs::last_write_time(path) - changed_at, std::chrono::seconds(1));
}

TEST_F(LiveTlsTest, RevokedAndLapsedCertificatesAreRefused) {
  const std::string cert = Write(given_, kNow - 100);
  const auto live = Open();
  EXPECT_TRUE(live->CheckPeer(cert, "", "it").ok());
  EXPECT_TRUE(live->CheckStillGood(cert, kNow).ok());
  EXPECT_EQ(ReasonOf(live->CheckStillGood(cert, kNow + 11 * kDayS)), "TLS_EXPIRED");
  Revocations revocations;
  revocations.Add({CertificateRole::kWorker, "w0", kNow});
  live->SetRevocations(revocations);
  EXPECT_EQ(ReasonOf(live->CheckPeer(cert, "", "it")), "TLS_REVOKED");
  EXPECT_EQ(ReasonOf(live->CheckStillGood(cert, kNow)), "TLS_REVOKED");
}

TEST_F(LiveTlsTest, ACallOfAnOpenConnectionIsToldWhyItIsRefused) {
  Write(given_, kNow - 100, "w0", "127.0.0.1");
  const auto server_side = Transport::Make({.tls_dir = given_});
  const auto client_side = Transport::Make({.tls_dir = given_});
  ASSERT_TRUE(server_side.ok() && client_side.ok());
  const auto server = RpcServer::Start(*server_side, "127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub =
      grpc::health::v1::Health::NewStub(client_side->MakeChannel((*server)->address()));
  const auto call = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
    grpc::health::v1::HealthCheckResponse response;
    return FromGrpc(stub->Check(&context, {}, &response));
  };
  EXPECT_TRUE(call().ok());
  Revocations revocations;
  revocations.Add({CertificateRole::kWorker, "w0", kNow});
  server_side->live()->SetRevocations(revocations);
  const absl::Status refused = call();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_EQ(ReasonOf(refused), "TLS_REVOKED");
  EXPECT_THAT(DetailOf(refused).message(), HasSubstr("(worker w0) was revoked"));
  EXPECT_THAT(DetailOf(refused).hint(), HasSubstr("strata node token"));
}

}  // namespace
}  // namespace strata
