#include "coordinator/audit/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TempFolder;

constexpr uint64_t kNow = 1'800'000'000'000;

const absl::Status kRefused = Error(absl::StatusCode::kPermissionDenied, "ROLE_MAY_NOT", "may not");

class AuditLogTest : public ::testing::Test {
 protected:
  std::vector<AuditEntry> All() { return log_.List({.limit = 1'000'000}).value(); }

  TempFolder folder_;
  const std::unique_ptr<AdminStore> store_ = AdminStore::Open(folder_.File("admin.db")).value();
  AuditLog log_{store_.get(), {.entries = 100}};
};

TEST_F(AuditLogTest, ACallIsThereBeforeItHasEnded) {
  AuditEntry entry = log_.Begin({"operator anna", "10.0.0.9", "LoadModel", "m"}, kNow);
  auto all = All();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].who, "operator anna");
  EXPECT_EQ(all[0].address, "10.0.0.9");
  EXPECT_EQ(all[0].call, "LoadModel");
  EXPECT_EQ(all[0].object, "m");
  EXPECT_EQ(all[0].time_ms, kNow);
  EXPECT_EQ(all[0].outcome, "");
  entry.object = "m-2";
  log_.End(entry, absl::OkStatus());
  all = All();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].outcome, "OK");
  EXPECT_EQ(all[0].object, "m-2");
  log_.End(log_.Begin({"operator anna", "10.0.0.9", "DrainNode", "x"}, kNow),
           Error(absl::StatusCode::kNotFound, "NO_NODE", "there is none"));
  EXPECT_EQ(All()[0].outcome, "NO_NODE");
}

TEST_F(AuditLogTest, AFloodOfRefusalsPushesNothingOut) {
  log_.End(log_.Begin({"operator anna", "10.0.0.9", "DrainNode", "a"}, kNow), absl::OkStatus());
  for (int minute = 0; minute < 10; ++minute) {
    for (int i = 0; i < 2000; ++i) {
      log_.Refuse({"client " + std::to_string(i), "10.0.0.8", "DrainNode", "a"}, kRefused,
                  kNow + static_cast<uint64_t>(minute) * 60'000);
    }
  }
  const auto all = All();
  ASSERT_THAT(all, SizeIs(11)) << "a tenth of 100, and the one that matters";
  EXPECT_FALSE(all[10].refused);
  EXPECT_EQ(all[0].call, "more refusals");
  EXPECT_GE(all[0].times, 1024u);
  // Written when it doubles, not each time.
  EXPECT_LE(all[0].number, 10 * (AuditLog::kMostRefusals + 1) + 1);
}

TEST_F(AuditLogTest, RefusalsThatAreAlikeAreOne) {
  for (int i = 0; i < 5; ++i) {
    log_.Refuse({"client bob", "10.0.0.8", "DrainNode", "a"}, kRefused, kNow + i);
  }
  log_.Refuse({"client bob", "10.0.0.8", "RemoveNode", "a"}, kRefused, kNow);
  auto all = All();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[1].times, 4u);
  EXPECT_EQ(all[1].outcome, "ROLE_MAY_NOT");
  EXPECT_EQ(all[1].object, "a");
  EXPECT_TRUE(all[1].refused);
  log_.Refuse({"client bob", "10.0.0.8", "DrainNode", "a"}, kRefused, kNow + 60'000);
  EXPECT_THAT(All(), SizeIs(3)) << "another minute";
}

TEST_F(AuditLogTest, RefusedCallsOfOthersPushNoneOfOperatorsOut) {
  log_.Refuse({"client bob", "10.0.0.8", "DrainNode", "a"}, kRefused, kNow);
  for (int hour = 0; hour < 5; ++hour) {
    for (int i = 0; i < 2000; ++i) {
      log_.Refuse({"worker w", "10.0.0." + std::to_string(i), "Generate", ""}, kRefused,
                  kNow + static_cast<uint64_t>(hour) * 3'600'000, RefusedOf::kOthers);
    }
  }
  auto all = All();
  ASSERT_THAT(all, SizeIs(11)) << "a tenth of 100, and the one of operators";
  EXPECT_EQ(all[10].call, "DrainNode");
  EXPECT_EQ(all[0].call, "more refusals");
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(all[i].refused && all[i].of_others);
  // A call of operators has its own entries meanwhile.
  log_.Refuse({"client eve", "10.0.0.7", "DrainNode", "a"}, kRefused, kNow + 61'000);
  EXPECT_EQ(All()[0].who, "client eve");
}

TEST_F(AuditLogTest, RefusedCallsOfOthersThatAreAlikeWithinAnHourAreOne) {
  for (uint64_t minute = 0; minute < 60; ++minute) {
    log_.Refuse({"worker w", "10.0.0.8", "Generate", ""}, kRefused, kNow + minute * 60'000,
                RefusedOf::kOthers);
  }
  const auto all = All();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].times, 32u);
  log_.Refuse({"worker w", "10.0.0.8", "Generate", ""}, kRefused, kNow + 3'600'000,
              RefusedOf::kOthers);
  EXPECT_THAT(All(), SizeIs(2)) << "another hour";
}

TEST_F(AuditLogTest, WhatOthersSendIsPrintableAndShort) {
  log_.Begin({"operator \x1b[31m", "", "AddModel", std::string(10'000, 'x')}, kNow);
  const auto all = All();
  EXPECT_EQ(all[0].who.find('\x1b'), std::string::npos);
  EXPECT_LE(all[0].object.size(), 256u);
}

TEST_F(AuditLogTest, ADiskWithoutRoomIsAProblemAndStopsNobody) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const AuditEntry entry = log_.Begin({"plain text", "127.0.0.1", "RemoveModel", "m"}, kNow);
  log_.Probe();
  const auto problems = log_.Problems();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_THAT(problems[0].what(), HasSubstr("the audit cannot be written"));
  EXPECT_THAT(All(), IsEmpty());
  log_.Probe();
  EXPECT_THAT(log_.Problems(), IsEmpty());
  log_.End(entry, absl::OkStatus());
  ASSERT_THAT(All(), SizeIs(1)) << "the disk has room again";
  EXPECT_EQ(All()[0].outcome, "OK");
}

}  // namespace
}  // namespace strata
