#include "coordinator/http/http_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "tests/common/certificates/made.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/coordinator/http/http_clients.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::MadeAuthority;
using testing::MadeCertificate;
using testing::TempFolder;

class HttpTlsTest : public ::testing::Test {
 protected:
  CertifiedKey NewKey() {
    return MadeCertificate(authority_, {CertificateRole::kWorker, "home", "web"}, {"127.0.0.1"});
  }
  void Put(const CertifiedKey& key) {
    folder_.Write("cert.pem", key.cert);
    folder_.Write("key.pem", key.key);
  }
  void SetUp() override {
    Put(NewKey());
    folder_.Write("ca.pem", authority_.cert);
    auto opened = HttpTls::Open(folder_.path(), "--http-tls-dir");
    ASSERT_TRUE(opened.ok()) << opened.status();
    tls_ = *std::move(opened);
  }
  absl::Status Opened() { return HttpTls::Open(folder_.path(), "--http-tls-dir").status(); }

  CURL* NewCurl(const std::string& url) {
    CURL* curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_CAINFO, folder_.File("ca.pem").c_str());
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(kGiveUpAfter.count()));
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(
        curl, CURLOPT_WRITEFUNCTION, +[](char*, size_t size, size_t n, void*) { return size * n; });
    return curl;
  }

  TempFolder folder_;
  const CertifiedKey authority_ = MadeAuthority("home");
  std::shared_ptr<HttpTls> tls_;
};

TEST_F(HttpTlsTest, ConnectionsServeOneRequestAfterAnother) {
  HttpOptions options;
  options.tls = tls_;
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string base = "https://" + (*server)->address();
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      CURL* curl = NewCurl(base + "/a");
      const std::string body(100'000, 'x');
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
      for (int n = 0; n < 25; ++n) {
        long connects = 0;
        good += curl_easy_perform(curl) == CURLE_OK &&
                curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK &&
                connects == (n == 0 ? 1 : 0);
      }
      curl_easy_cleanup(curl);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 100);
}

TEST_F(HttpTlsTest, AClientThatGoesIsSeen) {
  Held held;
  HttpOptions options;
  options.tls = tls_;
  auto server = HttpServer::Start("127.0.0.1:0", options, held.Handler());
  ASSERT_TRUE(server.ok()) << server.status();
  CURL* curl = NewCurl("https://" + (*server)->address() + "/a");
  std::atomic<bool> cancel = false;
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &cancel);
  curl_easy_setopt(
      curl, CURLOPT_XFERINFOFUNCTION,
      +[](void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
        return static_cast<std::atomic<bool>*>(data)->load() ? 1 : 0;
      });
  std::thread client([&] {
    curl_easy_perform(curl);
    curl_easy_cleanup(curl);
  });
  const auto responder = held.Take();
  std::atomic<bool> gone = false;
  responder->OnGone([&] { gone = true; });
  responder->Begin(kStream);
  cancel = true;
  EXPECT_TRUE(Eventually([&] { return gone.load(); }));
  client.join();
}

TEST_F(HttpTlsTest, WhoSpeaksPlainTextIsTold) {
  HttpOptions options;
  options.tls = tls_;
  auto server = HttpServer::Start("127.0.0.1:0", options, Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  RawClient client((*server)->address());
  client.Send(kGet);
  EXPECT_THAT(client.ReadAll(), HasSubstr("tls_wanted"));
  RawClient other((*server)->address());
  other.Send(std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10));
  EXPECT_TRUE(other.Ends());
}

TEST_F(HttpTlsTest, ChangedFilesAreTakenWhenTheyAreGood) {
  EXPECT_EQ(tls_->Reload(), std::nullopt) << "nothing has changed";
  const auto first = tls_->context();  // Kept, so that no other has its address.
  const CertifiedKey second = NewKey();
  folder_.Write("cert.pem", second.cert);
  EXPECT_EQ(tls_->Reload(), std::nullopt) << "its key may come";
  folder_.Write("key.pem", second.key);
  const auto taken = tls_->Reload();
  ASSERT_TRUE(taken.has_value() && taken->ok());
  EXPECT_NE(tls_->context(), first);
  EXPECT_TRUE(tls_->problem().ok());

  folder_.Write("key.pem", NewKey().key);
  EXPECT_EQ(tls_->Reload(), std::nullopt);
  const auto refused = tls_->Reload();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(ReasonOf(*refused), "TLS_KEY_MISMATCH");
  EXPECT_EQ(tls_->Reload(), std::nullopt) << "it is said once";
  EXPECT_EQ(ReasonOf(tls_->problem()), "TLS_KEY_MISMATCH");
  folder_.Write("key.pem", second.key);
  EXPECT_EQ(tls_->Reload(), std::nullopt) << "as it was";
  EXPECT_TRUE(tls_->problem().ok());
}

TEST_F(HttpTlsTest, FilesThatCannotBeUsedAreNamed) {
  const CertifiedKey good = NewKey();
  folder_.Write("key.pem", "nothing");
  EXPECT_EQ(ReasonOf(Opened()), "TLS_FILE_BAD");
  EXPECT_THAT(Describe(Opened()), HasSubstr(folder_.File("key.pem") + " has no private key"));
  Put({"nothing", good.key});
  EXPECT_THAT(Describe(Opened()), HasSubstr(folder_.File("cert.pem") + " has no certificate"));
  Put({std::string(2 << 20, 'x'), good.key});
  EXPECT_THAT(Describe(Opened()), HasSubstr("larger than a PEM file"));
  CertifiedKey lapsed = {.cert = "", .key = MakePrivateKey().value()};
  const auto make = [&](const CertificateTerm& term) {
    lapsed.cert = IssueCertificate(authority_, MakeCertificateRequest(lapsed.key).value(),
                                   {CertificateRole::kWorker, "home", "web"}, {}, term)
                      .value();
    Put(lapsed);
  };
  make({.not_before_s = 0, .not_after_s = 1000});
  EXPECT_EQ(ReasonOf(Opened()), "TLS_EXPIRED");
  make({.not_before_s = 4'000'000'000, .not_after_s = 4'000'001'000});
  EXPECT_EQ(ReasonOf(Opened()), "TLS_NOT_YET_VALID");
  std::filesystem::remove(folder_.File("cert.pem"));
  EXPECT_EQ(ReasonOf(Opened()), "TLS_FILE_MISSING");
  EXPECT_THAT(Describe(Opened()), HasSubstr("--http-tls-dir is a folder with"));
}

}  // namespace
}  // namespace strata
