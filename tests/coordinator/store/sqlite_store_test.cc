// What SQLite adds: files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "common/status.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/term_slot.h"
#include "coordinator/store/watched_store.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TempFolder;

// Runs SQL on a database file as another program would.
void RunSql(const std::string& path, const char* sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  sqlite3_close(handle);
}

TEST(SqliteStore, RemembersAfterReopening) {
  TempFolder folder;
  std::string cluster_id;
  {
    auto store = *OpenSqliteStore(folder.File("state.db"));
    cluster_id = *store->ClusterId();
    EXPECT_EQ(*store->RaiseTerm(), 1);
    EXPECT_EQ(*store->NextDeploymentId(), 1);
    ASSERT_TRUE(store->SaveModel({"m", "/p", "{}", "d", "path"}).ok());
    StoredDeployment deployment;
    deployment.id = 1;
    deployment.plan.set_epoch(9);
    ASSERT_TRUE(store->SaveDeployment(deployment).ok());
    ASSERT_TRUE(store->SaveNode("n", v1::NodeInfo(), true).ok());
    ASSERT_TRUE(store->SetSetting("k", "v").ok());
  }
  auto store = *OpenSqliteStore(folder.File("state.db"));
  EXPECT_EQ(*store->ClusterId(), cluster_id);
  EXPECT_EQ(*store->RaiseTerm(), 2);
  EXPECT_EQ(*store->NextDeploymentId(), 2);
  EXPECT_EQ(store->GetModel("m")->path, "/p");
  EXPECT_EQ((*store->ListDeployments())[0].plan.epoch(), 9);
  EXPECT_TRUE((*store->ListNodes())[0].draining);
  EXPECT_EQ(*store->GetSetting("k"), "v");
}

TEST(SqliteStore, DrawsAClusterIdPerStore) {
  TempFolder folder;
  EXPECT_NE(*(*OpenSqliteStore(folder.File("a.db")))->ClusterId(),
            *(*OpenSqliteStore(folder.File("b.db")))->ClusterId());
}

TEST(SqliteStore, KeepsWhatWasReturnedBeforeAKill) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = OpenSqliteStore(path);
    const bool saved = store.ok() && (*store)->RaiseTerm().ok() &&
                       (*store)->SaveModel({"m", "/p", "{}", "d", "path"}).ok();
    if (saved) {
      kill(getpid(), SIGKILL);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = OpenSqliteStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(*(*store)->RaiseTerm(), 2);
  EXPECT_THAT(*(*store)->ListModels(), SizeIs(1));
}

TEST(SqliteStore, IsWholeWhenItsFilesAreTakenAtAnyMoment) {
  TempFolder folder;
  TempFolder copy;
  auto store = *OpenSqliteStore(folder.File("state.db"));
  for (uint64_t term = 1; term <= 5; ++term) {
    EXPECT_EQ(*store->RaiseTerm(), term);
    // As the disk has it when the machine stops: the log is not merged yet.
    for (const char* name : {"state.db", "state.db-wal"}) {
      std::filesystem::copy_file(folder.File(name), copy.File(name),
                                 std::filesystem::copy_options::overwrite_existing);
    }
    auto copied = OpenSqliteStore(copy.File("state.db"));
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(*(*copied)->RaiseTerm(), term + 1);
  }
}

TEST(SqliteStore, TakesOverStoresOfEarlierSchemas) {
  for (const char* earlier :
       {"DROP TABLE keys; PRAGMA user_version=1",
        "DROP TABLE keys; CREATE TABLE keys (name BLOB PRIMARY KEY); PRAGMA user_version=2"}) {
    TempFolder folder;
    const std::string path = folder.File("state.db");
    {
      const auto store = OpenSqliteStore(path);
      ASSERT_TRUE(store.ok());
      ASSERT_TRUE((*store)->SaveModel({"m", "/p", "{}", "d", "path"}).ok());
    }
    RunSql(path, earlier);
    for (int i = 0; i < 2; ++i) {
      const auto store = OpenSqliteStore(path);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_TRUE((*store)->GetModel("m").ok());
      EXPECT_EQ((*store)->ListKeys()->size(), static_cast<size_t>(i));
      EXPECT_TRUE((*store)->SaveKey({.id = "a", .name = "", .hash = "h", .limits = {}}).ok());
    }
  }
}

TEST(SqliteStore, KeysOfTheThirdSchemaStayAndMayAskForNothingNew) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  const StoredKey key{.id = "a", .name = "n", .hash = "h", .limits = {.requests_in_flight = 3}};
  {
    const auto store = OpenSqliteStore(path);
    ASSERT_TRUE(store.ok());
    StoredKey more = key;
    more.limits.max_priority = 5;
    more.limits.guaranteed = true;
    ASSERT_TRUE((*store)->SaveKey(more).ok());
  }
  RunSql(path,
         "ALTER TABLE keys DROP COLUMN max_priority; ALTER TABLE keys DROP COLUMN guaranteed; "
         "PRAGMA user_version=3");
  const auto store = OpenSqliteStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto keys = (*store)->ListKeys();
  ASSERT_EQ(keys->size(), 1u);
  EXPECT_EQ(keys->front().name, "n");
  EXPECT_EQ(keys->front().limits, key.limits);
}

TEST(SqliteStore, RefusesANewerSchema) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  ASSERT_TRUE(OpenSqliteStore(path).ok());
  RunSql(path, "PRAGMA user_version=1000");
  const auto store = OpenSqliteStore(path);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(store.status()), "STORE_NEWER");
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("1000"));
}

TEST(SqliteStore, RefusesAnotherProgramsDatabase) {
  TempFolder folder;
  const std::string path = folder.File("other.db");
  RunSql(path, "CREATE TABLE t (x)");
  EXPECT_EQ(ReasonOf(OpenSqliteStore(path).status()), "STORE_FOREIGN");
}

TEST(SqliteStore, NamesADamagedFileAndWhatToDo) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  folder.Write("state.db", std::string(8192, 'x'));
  const auto garbage = OpenSqliteStore(path);
  EXPECT_EQ(garbage.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(garbage.status()), "STORE_CORRUPT");
  EXPECT_THAT(std::string(garbage.status().message()), HasSubstr(path));
  EXPECT_FALSE(DetailOf(garbage.status()).hint().empty());

  TempFolder other;
  {
    auto store = *OpenSqliteStore(other.File("state.db"));
    ASSERT_TRUE(store->SaveModel({"m", "/p", std::string(100000, 'z'), "d", "path"}).ok());
  }
  std::string bytes = other.Read("state.db");
  for (size_t i = 4096; i < bytes.size(); i += 512) {
    bytes.replace(i, 16, 16, '\x5a');
  }
  other.Write("state.db", bytes);
  const auto damaged = OpenSqliteStore(other.File("state.db"));
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
}

TEST(SqliteStore, NamesAUnreadableRecord) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  {
    auto store = *OpenSqliteStore(path);
    ASSERT_TRUE(store->SaveNode("n", v1::NodeInfo(), false).ok());
  }
  RunSql(path, "UPDATE nodes SET info = x'ffffff'");
  auto store = *OpenSqliteStore(path);
  EXPECT_EQ(ReasonOf(store->ListNodes().status()), "STORE_CORRUPT");
  EXPECT_THAT(std::string(store->ListNodes().status().message()), HasSubstr("'n'"));
}

TEST(SqliteStore, NamesAFolderThatIsNotThere) {
  TempFolder folder;
  const auto store = OpenSqliteStore(folder.File("none/state.db"));
  EXPECT_EQ(ReasonOf(store.status()), "STORE_IO");
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(folder.File("none/state.db")));
}

TEST(SqliteStore, SaysWhenAnotherProcessHoldsTheFile) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  EXPECT_EQ(*(*OpenSqliteStore(path))->RaiseTerm(), 1);
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto store = OpenSqliteStore(path);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(store.status()), "STORE_LOCKED");
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path));
  sqlite3_close(other);
  EXPECT_EQ(*(*OpenSqliteStore(path))->RaiseTerm(), 2);
}

// Of a process whose files cannot grow beyond 4096 bytes, as on a disk without room.
TEST(SqliteStore, TermsRiseWhereTheDatabaseHasNoRoom) {
  TempFolder folder;
  const std::string path = folder.File("state.db");
  {
    auto store = *OpenSqliteStore(path);
    ASSERT_EQ(*store->RaiseTerm(), 1);
    ASSERT_TRUE(store->SaveModel({"m", "/p", "{}", "d", "path"}).ok());
  }
  const auto start = [&](uint64_t expected) {
    return [&path, expected]() -> int {
      const rlimit slot_only{4096, 4096};  // The database is larger, and cannot be written to.
      if (setrlimit(RLIMIT_FSIZE, &slot_only) != 0) return 10;
      const auto store = OpenSqliteStore(path);
      if (!store.ok()) return 11;
      const auto term = (*store)->RaiseTerm();
      if (!term.ok()) return 12;
      if (*term != expected) return 13;
      if (!(*store)->GetModel("m").ok()) return 14;
      return (*store)->SaveModel({"n", "/p", "{}", "d", "path"}).ok() ? 15 : 0;
    };
  };
  const auto in_child = [](const auto& body) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  };
  EXPECT_EQ(in_child(start(2)), 0);
  EXPECT_EQ(in_child(start(3)), 0);
  auto store = *OpenSqliteStore(path);
  EXPECT_EQ(*store->RaiseTerm(), 4) << "above those that the database never saw";
  store.reset();
  std::filesystem::remove(path + ".term");
  EXPECT_EQ(*(*OpenSqliteStore(path))->RaiseTerm(), 5) << "the database has it now";
}

TEST(TermSlot, HoldsTheNewestTermAndNothingThatItDoesNotUnderstand) {
  TempFolder folder;
  const TermSlot slot(folder.File("term"));
  EXPECT_EQ(slot.Read(), 0);
  ASSERT_TRUE(slot.Write(7).ok());
  EXPECT_EQ(slot.Read(), 7);
  EXPECT_EQ(std::filesystem::file_size(folder.File("term")), 4096);
  ASSERT_TRUE(slot.Write(123456).ok());
  EXPECT_EQ(slot.Read(), 123456);
  folder.Write("term", "term 5 6\n");
  EXPECT_EQ(slot.Read(), 0);
  EXPECT_EQ(ReasonOf(TermSlot(folder.File("no/such/folder")).Write(1)), "STORE_IO");
}

TEST(WatchedStore, SaysWhyTheNewestChangeFailedUntilOneComesThrough) {
  TempFolder folder;
  const SystemClock clock;
  auto sqlite = *OpenSqliteStore(folder.File("state.db"));
  WatchedStore store(sqlite.get(), &clock);
  EXPECT_TRUE(store.problem().ok());
  EXPECT_EQ(store.changing_for(), nanoseconds(0));
  EXPECT_EQ(ReasonOf(store.RemoveModel("none")), "NO_MODEL");
  EXPECT_TRUE(store.problem().ok()) << "the store works";
  sqlite.reset();
  RunSql(folder.File("state.db"), "DROP TABLE nodes");
  sqlite = *OpenSqliteStore(folder.File("state.db"));
  WatchedStore broken(sqlite.get(), &clock);
  EXPECT_FALSE(broken.SaveNode("n", v1::NodeInfo(), false).ok());
  EXPECT_FALSE(broken.problem().ok());
  broken.Probe();
  EXPECT_TRUE(broken.problem().ok());
}

}  // namespace
}  // namespace strata
