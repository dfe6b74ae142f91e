#include "coordinator/keys/key_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TimePoint kNow = std::chrono::seconds(1000);
constexpr uint64_t kUnix = 1'700'000'000;

class KeyRingTest : public ::testing::Test {
 protected:
  KeyRingTest() { EXPECT_TRUE(ring_.Load(kNow).ok()); }

  NewKey Create(const std::string& name, const KeyLimits& limits = {}, bool admin = false) {
    auto made = ring_.Create({name, admin, limits}, kUnix, kNow);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // "" when it is let in.
  std::string Knock(const std::string& authorization) {
    return ReasonOf(ring_.Authenticate(authorization, kUnix + 5).status());
  }
  std::shared_ptr<Caller> CallerOf(const NewKey& key) {
    return *ring_.Authenticate("Bearer " + key.secret, kUnix);
  }
  // A request of `caller` that begins, or null.
  static std::unique_ptr<KeyUse> Begin(const std::shared_ptr<Caller>& caller,
                                       uint64_t prompt_tokens = 1) {
    auto use = std::make_unique<KeyUse>(caller);
    const absl::Status admitted = use->Admit("id", false, prompt_tokens, kNow);
    return admitted.ok() ? std::move(use) : nullptr;
  }
  // Why a request of `caller` does not begin.
  static std::string WhyNot(const std::shared_ptr<Caller>& caller) {
    return ReasonOf(KeyUse(caller).Admit("id", false, 1, kNow));
  }
  // "" when an operator's call is taken from anybody's, "own" when only the caller's own.
  std::string Operate(const std::string& authorization, OperatorCall call = OperatorCall::kAny) {
    const auto caller = ring_.AuthenticateOperator(authorization, call, kUnix);
    return !caller.ok() ? ReasonOf(caller.status()) : *caller == nullptr ? "" : "own";
  }
  void RunTasks() {
    for (const auto& task : std::exchange(tasks_, {})) task();
  }

  std::unique_ptr<StateStore> store_ = MakeMemoryStore(std::string(32, 'c'));
  std::vector<std::function<void()>> tasks_;
  KeyRing ring_{store_.get(),
                [this](std::function<void()> task) { tasks_.push_back(std::move(task)); }};
};

TEST_F(KeyRingTest, WithoutAnyKeyEverybodyMayEnter) {
  for (const char* authorization : {"", "Bearer whatever", "nonsense"}) {
    const auto caller = ring_.Authenticate(authorization, kUnix);
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ(*caller, nullptr);
  }
  EXPECT_TRUE(KeyUse(nullptr).Admit("id", false, 1 << 30, kNow).ok());
  EXPECT_EQ(ScopedId(nullptr, "id"), "id");
  EXPECT_EQ(KeyOfScopedId("id"), "");
  EXPECT_EQ(Operate(""), "");
  EXPECT_EQ(Operate("Bearer whatever"), "");
}

TEST_F(KeyRingTest, FromTheFirstKeyOnOneIsNeeded) {
  const NewKey alice = Create("alice");
  EXPECT_EQ(Knock(""), "KEY_MISSING");
  EXPECT_EQ(Knock("Basic " + alice.secret), "KEY_MISSING");
  EXPECT_EQ(Knock(alice.secret), "KEY_MISSING");
  EXPECT_EQ(Knock("Bearer "), "KEY_MISSING");
  EXPECT_EQ(Knock("Bearer x"), "KEY_UNKNOWN");
  EXPECT_EQ(Knock("Bearer " + alice.secret + "0"), "KEY_UNKNOWN");
  EXPECT_EQ(Knock("Bearer " + alice.key.hash), "KEY_UNKNOWN") << "the hash opens nothing";
  EXPECT_EQ(Knock("Bearer " + alice.secret), "");
  EXPECT_EQ(Knock("bearer  " + alice.secret + " "), "");
  EXPECT_EQ(ring_.Authenticate("", kUnix).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(Describe(ring_.Authenticate("", kUnix).status()), HasSubstr("STRATA_API_KEY"));
}

TEST_F(KeyRingTest, KeysAreLongDifferentAndNowhereInTheStore) {
  std::set<std::string> secrets;
  for (int i = 0; i < 20; ++i) {
    const NewKey made = Create("k" + std::to_string(i));
    EXPECT_THAT(made.secret, SizeIs(7 + 64));
    EXPECT_EQ(made.key.hash, Sha256Hex(made.secret));
    secrets.insert(made.secret);
  }
  EXPECT_THAT(secrets, SizeIs(20));
  const auto stored = store_->ListKeys();
  ASSERT_TRUE(stored.ok());
  ASSERT_THAT(*stored, SizeIs(20));
  for (const StoredKey& key : *stored) {
    EXPECT_FALSE(secrets.contains(key.hash));
    EXPECT_EQ(key.created, kUnix);
  }
}

TEST_F(KeyRingTest, ARevokedKeyOpensNothingAndTheDoorStaysShut) {
  const NewKey alice = Create("alice");
  EXPECT_EQ(Knock("Bearer " + alice.secret), "");
  const auto revoked = ring_.Revoke(alice.key.id, kUnix + 9);
  ASSERT_TRUE(revoked.ok());
  EXPECT_EQ(revoked->revoked, kUnix + 9);
  EXPECT_EQ(Knock("Bearer " + alice.secret), "KEY_REVOKED");
  EXPECT_EQ(Knock(""), "KEY_MISSING");
  EXPECT_EQ(ring_.Revoke(alice.key.id, kUnix + 20)->revoked, kUnix + 9);
  EXPECT_EQ(ReasonOf(ring_.Revoke("alice", kUnix).status()), "KEY_NOT_FOUND");
}

TEST_F(KeyRingTest, NamesAreForPeopleAndIdsForTheRest) {
  const NewKey old = Create("alice");
  const NewKey next = Create("alice");
  EXPECT_NE(old.key.id, next.key.id);
  EXPECT_EQ(old.key.id.substr(0, 4), "key-");
  EXPECT_THAT(old.key.id, SizeIs(12));
  EXPECT_EQ(ring_.NameOf(next.key.id), "alice");
  EXPECT_EQ(ring_.NameOf("key-?"), "");
  ASSERT_TRUE(ring_.Revoke(old.key.id, kUnix).ok());
  EXPECT_EQ(Knock("Bearer " + old.secret), "KEY_REVOKED");
  EXPECT_EQ(Knock("Bearer " + next.secret), "");
  EXPECT_EQ(Create("").key.name, "");
  for (const std::string& name :
       {std::string("a b"), std::string("a\n"), std::string(65, 'a'), std::string("\xc3\xa4")}) {
    EXPECT_EQ(ReasonOf(ring_.Create({.name = name, .limits = {}}, kUnix, kNow).status()),
              "BAD_KEY_NAME")
        << name;
  }
}

TEST_F(KeyRingTest, OperatorsNeedAnAdminKeyFromTheFirstOneOn) {
  const std::string alice = "Bearer " + Create("alice").secret;
  EXPECT_EQ(Operate(""), "") << "none is an admin key yet";
  EXPECT_EQ(Operate(alice), "");
  EXPECT_EQ(Operate(alice, OperatorCall::kOwn), "own");
  EXPECT_EQ(Operate("Bearer wrong"), "KEY_UNKNOWN");

  const NewKey admin = Create("me", {}, /*admin=*/true);
  EXPECT_EQ(Operate(""), "KEY_MISSING");
  EXPECT_EQ(Operate("", OperatorCall::kOwn), "KEY_MISSING");
  EXPECT_EQ(Operate(alice), "KEY_NOT_ADMIN");
  EXPECT_EQ(Operate(alice, OperatorCall::kOwn), "own");
  EXPECT_EQ(Operate("Bearer " + admin.secret), "");
  EXPECT_EQ(Operate("Bearer " + admin.secret, OperatorCall::kOwn), "");
  EXPECT_EQ(Knock("Bearer " + admin.secret), "") << "it sends requests, too";

  // The door neither opens again nor is it shut for good.
  EXPECT_EQ(ReasonOf(ring_.Revoke(admin.key.id, kUnix).status()), "LAST_ADMIN_KEY");
  const NewKey next = Create("me", {}, /*admin=*/true);
  ASSERT_TRUE(ring_.Revoke(admin.key.id, kUnix).ok());
  EXPECT_EQ(Operate("Bearer " + admin.secret), "KEY_REVOKED");
  EXPECT_EQ(Operate("Bearer " + next.secret), "");
  EXPECT_TRUE(ring_.Revoke(admin.key.id, kUnix).ok()) << "once more";
}

TEST_F(KeyRingTest, AnotherRingOnTheSameStoreKnowsTheSameKeys) {
  const NewKey alice = Create("alice", {.requests_in_flight = 1});
  const NewKey bob = Create("bob");
  ASSERT_TRUE(ring_.Revoke(bob.key.id, kUnix).ok());
  KeyRing again(store_.get(), [](std::function<void()>) {});
  ASSERT_TRUE(again.Load(kNow).ok());
  const auto caller = again.Authenticate("Bearer " + alice.secret, kUnix);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(ReasonOf(again.Authenticate("Bearer " + bob.secret, kUnix).status()), "KEY_REVOKED");
  EXPECT_EQ((*caller)->id(), alice.key.id);
  const auto use = Begin(*caller);
  ASSERT_NE(use, nullptr);
  EXPECT_EQ(WhyNot(*caller), "KEY_REQUESTS_IN_FLIGHT");
}

TEST_F(KeyRingTest, AKeysLimitsAreItsOwnAndEndWithTheUse) {
  const auto a = CallerOf(Create("alice", {.requests_in_flight = 1}));
  const auto b = CallerOf(Create("bob", {.tokens_per_minute = 10}));
  auto first = Begin(a, 5);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(WhyNot(a), "KEY_REQUESTS_IN_FLIGHT");
  const auto other = Begin(b, 5);
  ASSERT_NE(other, nullptr);
  first.reset();
  EXPECT_NE(Begin(a, 5), nullptr);
  other->Generated(100, kNow);
  EXPECT_EQ(WhyNot(b), "KEY_TOKEN_RATE");
}

TEST_F(KeyRingTest, AllAnswersOfACallAreOneRequest) {
  const auto caller =
      CallerOf(Create("alice", {.requests_in_flight = 1, .tokens_per_minute = 100}));
  auto call = std::make_unique<KeyUse>(caller);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(call->Admit("id#" + std::to_string(i), false, 20, kNow).ok());
  }
  EXPECT_EQ(WhyNot(caller), "KEY_REQUESTS_IN_FLIGHT");
  call.reset();
  EXPECT_EQ(WhyNot(caller), "KEY_TOKEN_RATE") << "each took its tokens";
}

TEST_F(KeyRingTest, OneThatWasNeverAdmittedTakesNoPlace) {
  const auto caller = CallerOf(Create("alice", {.requests_in_flight = 1}));
  { const KeyUse unused(caller); }
  const auto use = Begin(caller);
  EXPECT_EQ(WhyNot(caller), "KEY_REQUESTS_IN_FLIGHT");
  EXPECT_EQ(WhyNot(caller), "KEY_REQUESTS_IN_FLIGHT");
}

TEST_F(KeyRingTest, ARequestSentAgainIsNotInItsOwnWay) {
  const auto caller = CallerOf(Create("alice", {.requests_in_flight = 1}));
  auto lost = std::make_unique<KeyUse>(caller);
  ASSERT_TRUE(lost->Admit("x", false, 1, kNow).ok());
  KeyUse other(caller);
  EXPECT_FALSE(other.Admit("y", /*replace=*/true, 1, kNow).ok()) << "there is no y";
  EXPECT_FALSE(other.Admit("x", /*replace=*/false, 1, kNow).ok());
  EXPECT_TRUE(other.Admit("x", /*replace=*/true, 1, kNow).ok());
  lost.reset();
  EXPECT_EQ(WhyNot(caller), "KEY_REQUESTS_IN_FLIGHT");
}

TEST_F(KeyRingTest, AUseThatTheClusterRefusedCostsNoTokens) {
  const auto caller = CallerOf(Create("bob", {.tokens_per_minute = 10}));
  auto use = Begin(caller, 50);
  ASSERT_NE(use, nullptr);
  use->GiveBack(50);
  use.reset();
  EXPECT_NE(Begin(caller, 5), nullptr);
}

TEST_F(KeyRingTest, WhatAKeysRequestsMayAskForAtTheCostOfOthersIsSet) {
  const auto plain = CallerOf(Create("alice"));
  EXPECT_TRUE(plain->CheckClaims(0, false).ok());
  EXPECT_TRUE(plain->CheckClaims(-3, false).ok());
  EXPECT_EQ(ReasonOf(plain->CheckClaims(1, false)), "KEY_PRIORITY");
  EXPECT_EQ(ReasonOf(plain->CheckClaims(0, true)), "KEY_GUARANTEED");
  const auto batch = CallerOf(Create("batch", {.max_priority = -1}));
  EXPECT_EQ(ReasonOf(batch->CheckClaims(0, false)), "KEY_PRIORITY");
  const auto first = CallerOf(Create("first", {.max_priority = 2, .guaranteed = true}));
  EXPECT_TRUE(first->CheckClaims(2, true).ok());
  EXPECT_EQ(ReasonOf(first->CheckClaims(3, true)), "KEY_PRIORITY");
  const auto made = ring_.Create({.name = "me", .admin = true, .limits = {}}, kUnix, kNow);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(CallerOf(*made)->CheckClaims(1000, true).ok());
}

TEST_F(KeyRingTest, IdsOfTwoKeysNeverMeet) {
  const NewKey alice = Create("alice");
  const auto a = CallerOf(alice);
  const auto b = CallerOf(Create("bob"));
  EXPECT_NE(ScopedId(a.get(), "id"), ScopedId(b.get(), "id"));
  EXPECT_NE(ScopedId(a.get(), "id"), ScopedId(nullptr, "id"));
  EXPECT_EQ(ScopedId(a.get(), "id"), ScopedId(a.get(), "id"));
  EXPECT_EQ(KeyOfScopedId(ScopedId(a.get(), "id")), alice.key.id);
}

TEST_F(KeyRingTest, ARefusalNamesTheKeyTheLimitAndWhenToTryAgain) {
  const NewKey alice = Create("alice", {.requests_per_minute = 30});
  const auto caller = CallerOf(alice);
  for (int i = 0; i < 30; ++i) ASSERT_NE(Begin(caller), nullptr);
  const std::string line = Describe(KeyUse(caller).Admit("id", false, 1, kNow));
  EXPECT_THAT(line, HasSubstr("'alice' (" + alice.key.id + ")"));
  EXPECT_THAT(line, HasSubstr("requests_per_minute=30"));
  EXPECT_THAT(line, HasSubstr("try again in 2 s"));
}

TEST_F(KeyRingTest, LastUseIsListedAtOnceAndWrittenOnceAMinute) {
  const NewKey alice = Create("alice");
  EXPECT_EQ(ring_.List().at(0).last_used, 0u);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(ring_.Authenticate("Bearer " + alice.secret, kUnix + i).ok());
  }
  EXPECT_EQ(ring_.List().at(0).last_used, kUnix + 9);
  EXPECT_THAT(tasks_, SizeIs(1));
  EXPECT_EQ(store_->ListKeys()->at(0).last_used, 0u);
  RunTasks();
  EXPECT_EQ(store_->ListKeys()->at(0).last_used, kUnix + 9);
  ASSERT_TRUE(ring_.Authenticate("Bearer " + alice.secret, kUnix + 30).ok());
  EXPECT_THAT(tasks_, IsEmpty());
  ASSERT_TRUE(ring_.Authenticate("Bearer " + alice.secret, kUnix + 61).ok());
  EXPECT_THAT(tasks_, SizeIs(1));
  ring_.Close();
  EXPECT_EQ(store_->ListKeys()->at(0).last_used, kUnix + 61);
  RunTasks();
  ASSERT_TRUE(ring_.Authenticate("Bearer " + alice.secret, kUnix + 1000).ok());
  EXPECT_THAT(tasks_, IsEmpty());
}

}  // namespace
}  // namespace strata
