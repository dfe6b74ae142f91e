#include "coordinator/joining/token_book.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using testing::TempFolder;

constexpr int64_t kNow = 1'800'000'000;

TokenTerms Terms(uint32_t uses, int64_t for_s = 3600) {
  return {.role = CertificateRole::kWorker, .expires_at_s = kNow + for_s, .uses = uses};
}

TEST(TokenBookTest, ATokenIsGoodForItsUsesAndNoMore) {
  TokenBook book(10);
  ASSERT_TRUE(book.Add("a", Terms(2), kNow).ok());
  for (int i = 0; i < 2; ++i) {
    // Asking takes nothing.
    for (int j = 0; j < 3; ++j) {
      EXPECT_TRUE(book.RoleOf("a", kNow).ok());
    }
    ASSERT_TRUE(book.Use("a", kNow).ok());
  }
  EXPECT_EQ(ReasonOf(book.RoleOf("a", kNow).status()), "TOKEN_USED");
  EXPECT_EQ(ReasonOf(book.RoleOf("b", kNow).status()), "TOKEN_UNKNOWN");
}

TEST(TokenBookTest, ATokenLapsesAtItsEnd) {
  TokenBook book(10);
  ASSERT_TRUE(book.Add("a", Terms(1, 10), kNow).ok());
  EXPECT_TRUE(book.RoleOf("a", kNow + 9).ok());
  EXPECT_EQ(ReasonOf(book.RoleOf("a", kNow + 10).status()), "TOKEN_EXPIRED");
}

TEST(TokenBookTest, TokensThatNobodyUsedAreLimited) {
  TokenBook book(2);
  ASSERT_TRUE(book.Add("a", Terms(1), kNow).ok());
  ASSERT_TRUE(book.Add("b", Terms(1, 10), kNow).ok());
  const absl::Status status = book.Add("c", Terms(1), kNow);
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_TOKENS");
  EXPECT_EQ(DetailOf(status).limit(), "join_tokens=2");
  EXPECT_TRUE(book.Add("c", Terms(1), kNow + 10).ok()) << "one has lapsed";
  ASSERT_TRUE(book.Use("a", kNow + 10).ok());
  EXPECT_TRUE(book.Add("d", Terms(1), kNow + 10).ok()) << "one was used";
}

// An operator may make and use any number, one after another.
TEST(TokenBookTest, UsedTokensDoNotStandInTheWayOfNewOnes) {
  TokenBook book(2);
  for (int i = 0; i < 100; ++i) {
    const std::string secret = std::to_string(i);
    ASSERT_TRUE(book.Add(secret, Terms(1), kNow).ok());
    ASSERT_TRUE(book.Use(secret, kNow).ok());
    EXPECT_EQ(ReasonOf(book.RoleOf(secret, kNow).status()), "TOKEN_USED");
  }
}

TEST(TokenBookTest, WhatIsForgottenIsGoneFromTheStoreToo) {
  TempFolder folder;
  const auto store = AdminStore::Open(folder.File("admin.db")).value();
  TokenBook book(2, store.get());
  for (int i = 0; i < 20; ++i) {
    const std::string secret = std::to_string(i);
    ASSERT_TRUE(book.Add(secret, Terms(1), kNow).ok());
    ASSERT_TRUE(book.Use(secret, kNow).ok());
  }
  EXPECT_LE(store->ListRecords("token")->size(), 5u);
  constexpr int64_t kMonth = 30 * 24 * 3600;
  ASSERT_TRUE(book.Add("late", Terms(1, 2 * kMonth), kNow + kMonth).ok());
  EXPECT_EQ(store->ListRecords("token")->size(), 1u);
}

TEST(TokenBookTest, ATokenThatCannotBeReadIsNamed) {
  TempFolder folder;
  const auto store = AdminStore::Open(folder.File("admin.db")).value();
  for (const char* value : {"", "worker 1", "king 1 2", "worker x 2", "worker 1 2 3"}) {
    ASSERT_TRUE(store->ChangeRecords({{"token", "0123456789abcdef", value}}).ok());
    TokenBook book(2, store.get());
    EXPECT_EQ(ReasonOf(book.Load()), "STORE_CORRUPT") << value;
  }
}

}  // namespace
}  // namespace strata
