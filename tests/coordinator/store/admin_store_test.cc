#include "coordinator/store/admin_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TempFolder;

class AdminStoreTest : public ::testing::Test {
 protected:
  void Reopen() {
    store_.reset();
    auto opened = AdminStore::Open(folder_.File("admin.db"));
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  void SetUp() override { Reopen(); }

  uint64_t Add(const std::string& object, uint64_t keep = 100, bool refused = false,
               uint64_t time_ms = 1000) {
    return store_
        ->AddEntry({.time_ms = time_ms,
                    .who = "operator anna",
                    .address = "10.0.0.9",
                    .call = "LoadModel",
                    .object = object,
                    .refused = refused},
                   keep)
        .value();
  }

  std::vector<std::string> Objects(const AuditQuery& query = {}) {
    std::vector<std::string> objects;
    const std::vector<AuditEntry> entries = store_->ListEntries(query).value();
    for (const AuditEntry& entry : entries) {
      objects.push_back(entry.object);
    }
    return objects;
  }

  TempFolder folder_;
  std::unique_ptr<AdminStore> store_;
};

TEST_F(AdminStoreTest, EntriesStayWithTheirOutcomes) {
  AuditEntry entry{.number = Add("m"), .time_ms = 2000, .object = "m-2", .outcome = "OK"};
  ASSERT_TRUE(store_->ChangeEntry(entry).ok());
  Reopen();
  const auto entries = store_->ListEntries({}).value();
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].number, entry.number);
  EXPECT_EQ(entries[0].time_ms, 2000u);
  EXPECT_EQ(entries[0].who, "operator anna");
  EXPECT_EQ(entries[0].address, "10.0.0.9");
  EXPECT_EQ(entries[0].call, "LoadModel");
  EXPECT_EQ(entries[0].object, "m-2");
  EXPECT_EQ(entries[0].outcome, "OK");
  EXPECT_FALSE(entries[0].refused);
  EXPECT_EQ(entries[0].times, 1u);
  entry.number += 1;
  EXPECT_TRUE(store_->ChangeEntry(entry).ok()) << "one that is gone";
  EXPECT_THAT(*store_->ListEntries({}), SizeIs(1));
}

TEST_F(AdminStoreTest, OnlyTheNewestOfEachKindAreKept) {
  Add("a");
  for (int i = 0; i < 20; ++i) Add("refused", 3, true);
  EXPECT_THAT(Objects(), ElementsAre("refused", "refused", "refused", "a"));
  const uint64_t last = Add("b", 2);
  Add("c", 2);
  EXPECT_THAT(Objects(), ElementsAre("c", "b", "refused", "refused", "refused"));
  Add("d", 1);
  EXPECT_THAT(Objects(), ElementsAre("d", "refused", "refused", "refused"));
  Reopen();
  EXPECT_EQ(Add("e", 1), last + 3) << "numbers are not given twice";
}

TEST_F(AdminStoreTest, FindsByTimeNameAndNumber) {
  Add("a", 100, false, 1000);
  const uint64_t b = Add("b", 100, false, 2000);
  ASSERT_TRUE(store_->AddEntry({.time_ms = 3000, .who = "key ci", .object = "c"}, 100).ok());
  EXPECT_THAT(Objects(), ElementsAre("c", "b", "a"));
  EXPECT_THAT(Objects({.since_ms = 2000}), ElementsAre("c", "b"));
  EXPECT_THAT(Objects({.who = "anna"}), ElementsAre("b", "a"));
  EXPECT_THAT(Objects({.who = "10.0.0"}), ElementsAre("b", "a"));
  EXPECT_THAT(Objects({.who = "%"}), IsEmpty());
  EXPECT_THAT(Objects({.before = b}), ElementsAre("a"));
  EXPECT_THAT(Objects({.limit = 1}), ElementsAre("c"));
}

TEST_F(AdminStoreTest, RecordsAreByKindAndName) {
  const std::string odd("a\0'\xff;", 5);
  ASSERT_TRUE(store_->ChangeRecords({{"k", odd, "1"}, {"k", "b", ""}, {"other", "b", "2"}}).ok());
  ASSERT_TRUE(store_->ChangeRecords({{"k", "b", "3"}, {"other", "b"}, {"k", "none"}}).ok());
  Reopen();
  const auto records = store_->ListRecords("k").value();
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(records[0].name, odd);
  EXPECT_EQ(records[0].value, "1");
  EXPECT_EQ(records[1].value, "3");
  EXPECT_THAT(*store_->ListRecords("other"), IsEmpty());
}

TEST_F(AdminStoreTest, IsNoOtherDatabase) {
  ASSERT_TRUE(AdminStore::Open(folder_.File("a.db")).ok());
  folder_.Write("b.db", std::string(8192, 'x'));
  EXPECT_EQ(ReasonOf(AdminStore::Open(folder_.File("b.db")).status()), "STORE_CORRUPT");
}

}  // namespace
}  // namespace strata
