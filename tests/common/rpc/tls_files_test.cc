#include "common/rpc/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "common/rpc/connection_probe.h"
#include "common/rpc/openssl_text.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using openssl::Owned;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kDay = 24 * 3600;

struct Identity {
  Owned<X509> cert;
  Owned<EVP_PKEY> key;
};

std::string Pem(X509* cert) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), cert);
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(out.get(), &data));
  return {data, size};
}

std::string Pem(EVP_PKEY* key, const char* passphrase = nullptr) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(out.get(), key, passphrase != nullptr ? EVP_aes_128_cbc() : nullptr,
                                nullptr, 0, nullptr, const_cast<char*>(passphrase));
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(out.get(), &data));
  return {data, size};
}

void Extend(X509* cert, int nid, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

// Valid `from` to `to` seconds from now; of `issuer`, or an authority of its own.
Identity Make(const std::string& name, const Identity* issuer, int64_t from, int64_t to,
              const char* names = "IP:127.0.0.1", const char* usage = nullptr) {
  Identity made{Owned<X509>(X509_new()), Owned<EVP_PKEY>(EVP_EC_gen("P-256"))};
  X509* cert = made.cert.get();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), static_cast<long>(from));
  X509_gmtime_adj(X509_getm_notAfter(cert), static_cast<long>(to));
  X509_set_pubkey(cert, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer->cert.get() : cert));
  Extend(cert, NID_basic_constraints, issuer != nullptr ? "critical,CA:FALSE" : "critical,CA:TRUE");
  if (issuer != nullptr) {
    Extend(cert, NID_subject_alt_name, names);
  }
  if (usage != nullptr) {
    Extend(cert, NID_ext_key_usage, usage);
  }
  X509_sign(cert, issuer != nullptr ? issuer->key.get() : made.key.get(), EVP_sha256());
  return made;
}

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() { std::filesystem::remove_all(root_); }
  ~TlsFilesTest() override { std::filesystem::remove_all(root_); }

  // A folder of these three.
  std::string Folder(const std::string& name, const std::string& ca, const std::string& cert,
                     const std::string& key) {
    const std::filesystem::path dir = root_ / name;
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "ca.pem") << ca;
    std::ofstream(dir / "cert.pem") << cert;
    std::ofstream(dir / "key.pem") << key;
    return dir.string();
  }
  std::string Folder(const std::string& name, const Identity& ca, const Identity& own) {
    return Folder(name, Pem(ca.cert.get()), Pem(own.cert.get()), Pem(own.key.get()));
  }

  static absl::Status Read(const std::string& dir) {
    return ReadTlsFiles(dir, std::time(nullptr)).status();
  }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / "strata-tls-files";
  const Identity ours_ = Make("our CA", nullptr, -kDay, 900 * kDay);
  const Identity theirs_ = Make("their CA", nullptr, -kDay, 900 * kDay);
  const Identity good_ = Make("good", &ours_, -kDay, 800 * kDay);
};

TEST_F(TlsFilesTest, EachFaultOfTheFilesIsASentenceOfItsOwn) {
  EXPECT_EQ(Read(Folder("good", ours_, good_)), absl::OkStatus());

  absl::Status status = Read(Folder("expired", ours_, Make("old", &ours_, -9 * kDay, -kDay)));
  EXPECT_EQ(ReasonOf(status), "TLS_EXPIRED");
  EXPECT_THAT(Describe(status), AllOf(HasSubstr("cert.pem"), HasSubstr("expired on")));

  status = Read(Folder("future", ours_, Make("new", &ours_, kDay, 9 * kDay)));
  EXPECT_EQ(ReasonOf(status), "TLS_NOT_YET_VALID");
  EXPECT_THAT(Describe(status), HasSubstr("clock"));

  const Identity dead = Make("dead CA", nullptr, -9 * kDay, -kDay);
  status = Read(Folder("deadca", dead, Make("orphan", &dead, -kDay, 9 * kDay)));
  EXPECT_EQ(ReasonOf(status), "TLS_EXPIRED");
  EXPECT_THAT(Describe(status), HasSubstr("ca.pem"));

  status = Read(Folder("mismatch", Pem(ours_.cert.get()), Pem(good_.cert.get()),
                       Pem(Make("other", &ours_, -kDay, kDay).key.get())));
  EXPECT_EQ(ReasonOf(status), "TLS_KEY_MISMATCH");
  EXPECT_THAT(Describe(status), AllOf(HasSubstr("key.pem"), HasSubstr("cert.pem")));

  status = Read(Folder("passphrase", Pem(ours_.cert.get()), Pem(good_.cert.get()),
                       Pem(good_.key.get(), "secret")));
  EXPECT_EQ(ReasonOf(status), "TLS_FILE_BAD");
  EXPECT_THAT(Describe(status), HasSubstr("passphrase"));

  status =
      Read(Folder("swapped", Pem(ours_.cert.get()), Pem(good_.key.get()), Pem(good_.cert.get())));
  EXPECT_EQ(ReasonOf(status), "TLS_FILE_BAD");
  EXPECT_THAT(Describe(status), HasSubstr("cert.pem has no certificate"));

  const std::string folder = Folder("folder", ours_, good_);
  std::filesystem::remove(folder + "/key.pem");
  EXPECT_EQ(ReasonOf(Read(folder)), "TLS_FILE_MISSING");
  std::filesystem::create_directory(folder + "/key.pem");
  EXPECT_EQ(ReasonOf(Read(folder)), "TLS_FILE_UNREADABLE");
}

TEST_F(TlsFilesTest, WhoServesNeedsACertificateOfItsOwnAuthorityAndName) {
  const auto stranger = Transport::Make(
      {.tls_dir = Folder("stranger", ours_, Make("stranger", &theirs_, -kDay, kDay))});
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  const absl::Status refused = stranger->CheckServes("");
  EXPECT_EQ(ReasonOf(refused), "TLS_WRONG_CA");
  EXPECT_THAT(Describe(refused), AllOf(HasSubstr("their CA"), HasSubstr("our CA")));

  const auto good = Transport::Make({.tls_dir = Folder("good", ours_, good_)});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->CheckServes("127.0.0.1"), absl::OkStatus());
  const absl::Status unnamed = good->CheckServes("10.0.0.7");
  EXPECT_EQ(ReasonOf(unnamed), "TLS_WRONG_NAME");
  EXPECT_THAT(Describe(unnamed), HasSubstr("IP:127.0.0.1"));
}

TEST_F(TlsFilesTest, AClientsCertificateIsTakenOnlyIfTheAuthorityMadeItAndItIsValidNow) {
  const std::string ca = Pem(ours_.cert.get());
  const auto check = [&](const Identity& client) {
    return ReasonOf(CheckPeerCertificate(ca, Pem(client.cert.get()), "", "a client's certificate"));
  };
  EXPECT_EQ(check(good_), "");
  EXPECT_EQ(check(Make("both", &ours_, -kDay, kDay, "IP:1.2.3.4", "serverAuth,clientAuth")), "");
  EXPECT_EQ(check(Make("expired", &ours_, -9 * kDay, -kDay)), "TLS_EXPIRED");
  EXPECT_EQ(check(Make("future", &ours_, kDay, 9 * kDay)), "TLS_NOT_YET_VALID");
  EXPECT_EQ(check(Make("stranger", &theirs_, -kDay, kDay)), "TLS_WRONG_CA");
  EXPECT_EQ(check(Make("self", nullptr, -kDay, kDay)), "TLS_WRONG_CA");
  EXPECT_EQ(check(Make("server", &ours_, -kDay, kDay, "IP:1.2.3.4", "serverAuth")),
            "TLS_WRONG_PURPOSE");
  // One that has the authority's name and not its key.
  const Identity false_ca = Make("our CA", nullptr, -kDay, kDay);
  EXPECT_EQ(check(Make("forged", &false_ca, -kDay, kDay)), "TLS_WRONG_CA");
  // One that a good certificate, which is no authority, signed.
  const Identity below = Make("below", &good_, -kDay, kDay);
  EXPECT_NE(ReasonOf(CheckPeerCertificate(ca, Pem(below.cert.get()), Pem(good_.cert.get()), "x")),
            "");
  EXPECT_EQ(ReasonOf(CheckPeerCertificate(ca, "", "", "x")), "TLS_NO_CERTIFICATE");
  EXPECT_EQ(ReasonOf(CheckPeerCertificate(ca, "-----BEGIN X", "", "x")), "TLS_NO_CERTIFICATE");
}

TEST_F(TlsFilesTest, TheProbeSaysWhoseCertificateIsWrong) {
  const auto server_of = [&](const Identity& ca, const Identity& own) {
    auto transport = Transport::Make({.tls_dir = Folder("server", ca, own)});
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *transport;
  };
  const auto server = RpcServer::Start(server_of(ours_, good_), "127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const auto probe = [](const std::string& to, const std::string& dir) {
    const auto files = ReadTlsFiles(dir, std::time(nullptr));
    EXPECT_TRUE(files.ok()) << files.status();
    return ProbeConnection(to, &*files, kGiveUpAfter);
  };
  EXPECT_EQ(probe(address, Folder("client", ours_, good_)), absl::OkStatus());
  EXPECT_EQ(
      ReasonOf(probe(address, Folder("client", theirs_, Make("theirs", &theirs_, -kDay, kDay)))),
      "TLS_WRONG_CA");
  const absl::Status ours =
      probe(address, Folder("client", ours_, Make("theirs", &theirs_, -kDay, kDay)));
  EXPECT_EQ(ReasonOf(ours), "TLS_NOT_ACCEPTED");
  EXPECT_THAT(Describe(ours), AllOf(HasSubstr("cert.pem"), HasSubstr("their CA")));
  EXPECT_EQ(ReasonOf(ProbeConnection(address, nullptr, kGiveUpAfter)), "CONNECTION_CLOSED");

  const auto elsewhere = RpcServer::Start(
      server_of(ours_, Make("elsewhere", &ours_, -kDay, kDay, "IP:10.0.0.9")), "127.0.0.1:0", {});
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  const absl::Status named = probe((*elsewhere)->address(), Folder("client", ours_, good_));
  EXPECT_EQ(ReasonOf(named), "TLS_WRONG_NAME");
  EXPECT_THAT(Describe(named), HasSubstr("IP:10.0.0.9"));

  const auto plain = RpcServer::Start(*Transport::Make({}), "127.0.0.1:0", {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(ProbeConnection((*plain)->address(), nullptr, kGiveUpAfter), absl::OkStatus());
  EXPECT_EQ(ReasonOf(probe((*plain)->address(), Folder("client", ours_, good_))), "NO_TLS");
}

TEST(CertificateTimes, EndSoonWithinThirtyDaysAndTheLastThird) {
  const auto ends = [](int64_t lasts_days, int64_t left_days) {
    return EndsSoon({"x", 0, lasts_days * kDay}, (lasts_days - left_days) * kDay);
  };
  EXPECT_EQ(ends(825, 31), "");
  EXPECT_EQ(ends(825, 29), "expires on 1972-04-05 00:00 UTC");
  EXPECT_EQ(ends(9, 5), "");  // One that is made for a few days.
  EXPECT_THAT(ends(9, 2), HasSubstr("expires on"));
  EXPECT_THAT(ends(9, -1), HasSubstr("expired on"));
  EXPECT_EQ(EndsSoon({}, 1000 * kDay), "");  // Of a peer in plain text.
}

}  // namespace
}  // namespace strata
