#include "common/rpc/transport.h"

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/rpc/address.h"
#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

TEST(Transport, PortZeroPicksAFreePortAndSaysWhich) {
  auto transport = Transport::Make({});
  ASSERT_TRUE(transport.ok()) << transport.status();
  auto server = RpcServer::Start(*transport, "127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
  EXPECT_EQ((*server)->address(), "127.0.0.1:" + std::to_string((*server)->port()));
  auto channel = transport->MakeChannel((*server)->address());
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + kGiveUpAfter));
}

TEST(Transport, ATakenPortIsRefusedWithWhatToDo) {
  auto transport = Transport::Make({});
  ASSERT_TRUE(transport.ok());
  auto first = RpcServer::Start(*transport, "127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = RpcServer::Start(*transport, (*first)->address(), {});
  EXPECT_EQ(ReasonOf(second.status()), "ADDRESS_IN_USE") << second.status();
  EXPECT_NE(Describe(second.status()).find("--listen"), std::string::npos);
}

TEST(Transport, OffLoopbackOneOfTheTwoFlagsIsRequired) {
  auto plain = Transport::Make({});
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->CheckAddress("127.0.0.1:7070", "--listen").ok());
  const absl::Status refused = plain->CheckAddress("0.0.0.0:7070", "--listen");
  EXPECT_EQ(ReasonOf(refused), "SECURITY_REQUIRED");
  EXPECT_NE(Describe(refused).find("--insecure"), std::string::npos);
  auto insecure = Transport::Make({.tls_dir = "", .insecure = true});
  ASSERT_TRUE(insecure.ok());
  EXPECT_TRUE(insecure->CheckAddress("0.0.0.0:7070", "--listen").ok());
}

TEST(Transport, AMissingOrBadTlsFileIsNamed) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "strata-tls-test";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  auto missing = Transport::Make({.tls_dir = dir.string()});
  EXPECT_EQ(ReasonOf(missing.status()), "TLS_FILE_MISSING");
  EXPECT_NE(missing.status().message().find("ca.pem"), absl::string_view::npos);
  std::ofstream(dir / "ca.pem") << "hello";
  EXPECT_EQ(ReasonOf(Transport::Make({.tls_dir = dir.string()}).status()), "TLS_FILE_BAD");
  EXPECT_EQ(ReasonOf(Transport::Make({.tls_dir = dir.string(), .insecure = true}).status()),
            "BAD_FLAGS");
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace strata
