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

  NewKey Create(const std::string& name, const KeyLimits& limits = {}) {
    auto made = ring_.Create(name, limits, kUnix, kNow);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // "" when it is let in.
  std::string Knock(const std::string& authorization) {
    return ReasonOf(ring_.Authenticate(authorization, kUnix + 5).status());
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
  EXPECT_TRUE(KeyRing::Admit(nullptr, 1 << 30, kNow).ok());
  EXPECT_EQ(KeyRing::Scoped(nullptr, "id"), "id");
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
  const auto caller = ring_.Authenticate("Bearer " + alice.secret, kUnix);
  ASSERT_TRUE(caller.ok());
  const auto revoked = ring_.Revoke("alice", kUnix + 9);
  ASSERT_TRUE(revoked.ok());
  EXPECT_EQ(revoked->revoked, kUnix + 9);
  EXPECT_EQ(Knock("Bearer " + alice.secret), "KEY_REVOKED");
  EXPECT_EQ(Knock(""), "KEY_MISSING");
  EXPECT_EQ(ring_.Revoke("alice", kUnix + 20)->revoked, kUnix + 9);
  EXPECT_EQ(ReasonOf(ring_.Revoke("bob", kUnix).status()), "KEY_NOT_FOUND");
}

TEST_F(KeyRingTest, NamesAreUniqueForEverAndChecked) {
  Create("alice");
  EXPECT_EQ(ReasonOf(ring_.Create("alice", {}, kUnix, kNow).status()), "KEY_EXISTS");
  ASSERT_TRUE(ring_.Revoke("alice", kUnix).ok());
  EXPECT_EQ(ReasonOf(ring_.Create("alice", {}, kUnix, kNow).status()), "KEY_EXISTS");
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\n"),
                                  std::string(65, 'a'), std::string("\xc3\xa4")}) {
    EXPECT_EQ(ReasonOf(ring_.Create(name, {}, kUnix, kNow).status()), "BAD_KEY_NAME") << name;
  }
}

TEST_F(KeyRingTest, AnotherRingOnTheSameStoreKnowsTheSameKeys) {
  const NewKey alice = Create("alice", {.requests_in_flight = 1});
  const NewKey bob = Create("bob");
  ASSERT_TRUE(ring_.Revoke("bob", kUnix).ok());
  KeyRing again(store_.get(), [](std::function<void()>) {});
  ASSERT_TRUE(again.Load(kNow).ok());
  const auto caller = again.Authenticate("Bearer " + alice.secret, kUnix);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(ReasonOf(again.Authenticate("Bearer " + bob.secret, kUnix).status()), "KEY_REVOKED");
  const auto use = KeyRing::Admit(*caller, 1, kNow);
  ASSERT_TRUE(use.ok());
  EXPECT_EQ(ReasonOf(KeyRing::Admit(*caller, 1, kNow).status()), "KEY_REQUESTS_IN_FLIGHT");
}

TEST_F(KeyRingTest, AKeysLimitsAreItsOwnAndEndWithTheUse) {
  const NewKey alice = Create("alice", {.requests_in_flight = 1});
  const NewKey bob = Create("bob", {.tokens_per_minute = 10});
  const auto a = *ring_.Authenticate("Bearer " + alice.secret, kUnix);
  const auto b = *ring_.Authenticate("Bearer " + bob.secret, kUnix);
  auto first = KeyRing::Admit(a, 5, kNow);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(KeyRing::Admit(a, 5, kNow).ok());
  auto other = KeyRing::Admit(b, 5, kNow);
  ASSERT_TRUE(other.ok());
  first->reset();
  EXPECT_TRUE(KeyRing::Admit(a, 5, kNow).ok());
  (*other)->Generated(100, kNow);
  EXPECT_EQ(ReasonOf(KeyRing::Admit(b, 1, kNow).status()), "KEY_TOKEN_RATE");
}

TEST_F(KeyRingTest, AUseThatTheClusterRefusedCostsNoTokens) {
  const NewKey bob = Create("bob", {.tokens_per_minute = 10});
  const auto caller = *ring_.Authenticate("Bearer " + bob.secret, kUnix);
  auto use = KeyRing::Admit(caller, 50, kNow);
  ASSERT_TRUE(use.ok());
  (*use)->Refused();
  use->reset();
  EXPECT_TRUE(KeyRing::Admit(caller, 5, kNow).ok());
}

TEST_F(KeyRingTest, IdsOfTwoKeysNeverMeet) {
  const NewKey alice = Create("alice");
  const NewKey bob = Create("bob");
  const auto a = *ring_.Authenticate("Bearer " + alice.secret, kUnix);
  const auto b = *ring_.Authenticate("Bearer " + bob.secret, kUnix);
  EXPECT_NE(KeyRing::Scoped(a.get(), "id"), KeyRing::Scoped(b.get(), "id"));
  EXPECT_NE(KeyRing::Scoped(a.get(), "id"), KeyRing::Scoped(nullptr, "id"));
  EXPECT_EQ(KeyRing::Scoped(a.get(), "id"), KeyRing::Scoped(a.get(), "id"));
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
}

}  // namespace
}  // namespace strata
