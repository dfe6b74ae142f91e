#include "common/discovery/found_coordinators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kHome(64, 'a');
const std::string kOther(64, 'b');

std::string Line(const std::string& address, const std::string& facts,
                 const std::string& port = "7069", const std::string& interface = "e0") {
  return "=;" + interface + ";IPv4;home\\032on\\032va;_strata._tcp;local;va.local;" + address +
         ";" + port + ";" + facts + "\n";
}

std::string Facts(const std::string& authority, const std::string& port = "7070") {
  return "\"port=" + port + "\" \"ca=" + authority + "\"";
}

// As avahi-browse 0.8 writes it.
TEST(FoundCoordinatorsTest, AnAnswerIsRead) {
  const auto found = ReadFoundCoordinators(
      "+;e0;IPv4;home\\032\\034x\\034\\059\\032on\\032va;_strata._tcp;local\n"
      "=;e0;IPv4;home\\032\\034x\\034\\059\\032on\\032va;_strata._tcp;local;va.local;10.9.0.1;7069;"
      "\"x=\\195\\169\\\"\\\\;\" \"port=7070\" \"ca=" +
      kHome + "\"\n");
  EXPECT_THAT(found, ElementsAre(FoundCoordinator{.name = "home \"x\"; on va",
                                                  .interface = "e0",
                                                  .address = "10.9.0.1",
                                                  .join_port = 7069,
                                                  .port = 7070,
                                                  .authority_sha256 = kHome}));
}

TEST(FoundCoordinatorsTest, OtherMachinesComeFirstAndEachOnce) {
  const auto found = ReadFoundCoordinators(
      Line("127.0.0.1", Facts(kHome), "7069", "lo") + Line("fd00::1", Facts(kHome)) +
      Line("10.9.0.1", Facts(kHome)) + Line("10.9.0.1", Facts(kHome), "7069", "e1"));
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].address, "10.9.0.1");
  EXPECT_EQ(found[0].interface, "e0");
  EXPECT_EQ(found[1].address, "fd00::1");
  EXPECT_EQ(found[2].address, "127.0.0.1");
}

TEST(FoundCoordinatorsTest, WhatIsNoWholeAnswerIsLeftOut) {
  for (const std::string& line : {
           std::string("\n"),
           std::string("=;e0;IPv4\n"),
           Line("10.9.0.1", ""),
           Line("10.9.0.1", "\"port=7070\""),
           Line("10.9.0.1", "\"ca=" + kHome + "\""),
           Line("10.9.0.1", Facts("short")),
           Line("10.9.0.1", Facts(std::string(64, 'A'))),
           Line("10.9.0.1", Facts(kHome, "0")),
           Line("10.9.0.1", Facts(kHome, "65536")),
           Line("10.9.0.1", Facts(kHome, "70 70")),
           Line("10.9.0.1", Facts(kHome), "0"),
           Line("10.9.0.1", Facts(kHome), "-1"),
           Line("10.9.0.1", "\"port=7070\" \"ca=" + kHome),
           Line("10.9.0.1", "\"port=7070\" \"ca=" + kHome + "\\"),
           Line("va.local", Facts(kHome)),
           Line(std::string("10.9.0.1\0x", 10), Facts(kHome)),
           Line(std::string("fd00::1\0", 8), Facts(kHome)),
           Line("169.254.3.4", Facts(kHome)),
           Line("fe80::1", Facts(kHome)),
           Line("0.0.0.0", Facts(kHome)),
           Line("::", Facts(kHome)),
           Line("10.9.0.1", "\"x=" + std::string(kMaxFoundLineBytes, 'x') + "\" " + Facts(kHome)),
       }) {
    EXPECT_THAT(ReadFoundCoordinators(line), IsEmpty()) << line;
  }
}

TEST(FoundCoordinatorsTest, AFloodOfAnswersIsBounded) {
  std::string said;
  for (size_t i = 0; i < kMaxFoundLines + 10; ++i) {
    said += Line("10.9." + std::to_string(i / 256) + "." + std::to_string(i % 256), Facts(kHome));
  }
  EXPECT_THAT(ReadFoundCoordinators(said), SizeIs(kMaxFoundCoordinators));
  const std::string empty_lines(kMaxFoundLines, '\n');
  EXPECT_THAT(ReadFoundCoordinators(empty_lines + Line("10.9.0.1", Facts(kHome))), IsEmpty());
}

TEST(FoundCoordinatorsTest, ThoseOfTheAuthorityAreToldFromOthers) {
  const auto found =
      ReadFoundCoordinators(Line("10.9.0.1", Facts(kOther)) + Line("fd00::2", Facts(kHome)));
  ASSERT_THAT(found, SizeIs(2));
  const auto of = CoordinatorsOf(found, kHome);
  ASSERT_THAT(of, SizeIs(1));
  EXPECT_EQ(of[0].address, "fd00::2");
  const std::string said = DescribeFound(found, kHome);
  EXPECT_THAT(said, HasSubstr("home on va at 10.9.0.1:7069 (e0), of another authority, bbbb"));
  EXPECT_THAT(said, HasSubstr("home on va at [fd00::2]:7069 (e0), of the token's authority, aaaa"));
}

TEST(FoundCoordinatorsTest, WhatOthersSayIsPrintable) {
  std::string line = Line("10.9.0.1", Facts(kHome), "7069", "e\x1b[31m");
  line.replace(line.find("home"), 4, "\\027[31m");
  const auto found = ReadFoundCoordinators(line);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(DescribeFound(found, kHome), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace strata
