#include "common/rpc/address.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

TEST(Address, ParsesHostsAndPorts) {
  EXPECT_EQ(ParseHostPort("box:7070")->host, "box");
  EXPECT_EQ(ParseHostPort("127.0.0.1:0")->port, 0);
  EXPECT_EQ(ParseHostPort("[::1]:7071")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:7071")->ToString(), "[::1]:7071");
  EXPECT_EQ(ParseHostPort(":7071")->ToString(), ":7071");
}

TEST(Address, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", "box", "box:", "box:x", "box:70707", "box:-1", "box:1 ", "::1:70", "[::1:70", "[]x:70",
        "a b:70", "box\n:70", "x\x1b:70", "[box]:70", "-x:70", ".x:70", "http://x:70", "a/b:70"}) {
    const auto parsed = ParseHostPort(text);
    EXPECT_EQ(ReasonOf(parsed.status()), "BAD_ADDRESS") << text;
  }
}

TEST(Address, WhatIsDialledHasAHostAndAPort) {
  EXPECT_EQ(ParseDialled("box:7070")->port, 7070);
  EXPECT_EQ(ParseDialled("[fe80::1%eth0]:7070")->host, "fe80::1%eth0");
  for (const char* text : {"box:0", ":7070", "[::1]:0", "box", "a b:7070"}) {
    EXPECT_EQ(ReasonOf(ParseDialled(text).status()), "BAD_ADDRESS") << text;
  }
}

TEST(Address, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "1270.0.0.1", "fe80::1", "box", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(Address, TheLocalEndTowardsLoopbackIsLoopback) {
  const auto local = LocalAddressTowards({"127.0.0.1", 7070});
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_EQ(*local, "127.0.0.1");
}

TEST(Address, AForeignAddressCannotBeListenedOn) {
  // TEST-NET-1 (RFC 5737): never an address of this machine.
  const absl::Status status = CanListen({"192.0.2.1", 0});
  EXPECT_EQ(ReasonOf(status), "CANNOT_LISTEN") << status;
}

}  // namespace
}  // namespace strata
