#include "cli/doctor/redact.h"

#include <gtest/gtest.h>

#include <string>

namespace strata::cli {
namespace {

std::string Without(const std::string& text) { return Redact(text, {}); }

TEST(RedactTest, WhatIsNotSecretStays) {
  for (const char* text :
       {"2026-11-29T23:00:00Z info a request ended model=m prompt_tokens=12 generated_tokens=3",
        "strata-worker strata-coordinator strata_requests_total{model=\"m\"} 3",
        "{\"prompt_tokens\": 12, \"limit\": \"input is too long\"}",
        "a connection was refused: its certificate is of another CA; input: what it says",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}) {
    EXPECT_EQ(Without(text), text);
  }
}

TEST(RedactTest, PrivateKeysGo) {
  EXPECT_EQ(Without("a\n-----BEGIN PRIVATE KEY-----\nMIIEsecret\n-----END PRIVATE KEY-----\nb"),
            "a\n(removed)\nb");
  EXPECT_EQ(Without("-----BEGIN EC PRIVATE KEY-----\nMIIEcut off"), "(removed)");
  EXPECT_EQ(Without("\"k\": \"-----BEGIN PRIVATE KEY-----\\nMII\\n-----END PRIVATE KEY-----\\n\""),
            "\"k\": \"(removed)\\n\"");
}

TEST(RedactTest, TokensAndKeysGo) {
  EXPECT_EQ(Without("strata-worker join strata-join-1.CgABCDEFGH-_ now"),
            "strata-worker join strata-join-1.(removed) now");
  EXPECT_EQ(Without("with strata-0123456789abcdef0123456789abcdef."), "with strata-(removed)");
  EXPECT_EQ(Without("authorization: Bearer abc.def"), "authorization: Bearer (removed)");
  EXPECT_EQ(Without("HF_TOKEN=hf_abcdefghijklmnopqrst x"), "HF_TOKEN=(removed) x");
}

TEST(RedactTest, WhatSomebodyAskedAModelGoes) {
  EXPECT_EQ(Without(R"x({"prompt": "how do I \"do\" it", "model": "m"})x"),
            R"x({"prompt": "(removed)", "model": "m"})x");
  EXPECT_EQ(Without(R"x({"messages": [{"content": "a ] b"}], "n": 1})x"),
            R"x({"messages": "(removed)", "n": 1})x");
  EXPECT_EQ(Without("warn bad body prompt=\"tell me\" model=m"),
            "warn bad body prompt=(removed) model=m");
}

TEST(RedactTest, GivenSecretsGoWhereverTheyStand) {
  EXPECT_EQ(Redact("xhunter2hunter2x", {"hunter2hunter2"}), "x(removed)x");
  EXPECT_EQ(Redact("a b", {"a"}), "a b") << "too short to be one";
}

}  // namespace
}  // namespace strata::cli
