#include "coordinator/store/admin_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr int kBusyMs = 5000;
constexpr uint64_t kAdminSchema = 1;
constexpr uint64_t kAdminApplication = 0x53545244;  // "STRD", in SQLite's header.

// Texts are blobs: they compare byte by byte, and nothing is converted. Numbers are never given
// twice (AUTOINCREMENT), also where the newest entry is removed.
constexpr char kAdminTables[] = R"(
  CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL,
                      who BLOB NOT NULL, address BLOB NOT NULL, call BLOB NOT NULL,
                      object BLOB NOT NULL, outcome BLOB NOT NULL, refused INTEGER NOT NULL,
                      times INTEGER NOT NULL) STRICT;
  CREATE INDEX audit_kinds ON audit (refused, number);
  CREATE TABLE records (kind BLOB NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL,
                        PRIMARY KEY (kind, name)) STRICT;
)";

// What an entry is in the column `refused`.
uint64_t KindOf(const AuditEntry& entry) { return !entry.refused ? 0 : entry.of_others ? 2 : 1; }

// The most that SQLite counts to.
constexpr auto kMostNumber = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

}  // namespace

absl::StatusOr<std::unique_ptr<AdminStore>> AdminStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database, SqliteDatabase::Open(path, kBusyMs));
  std::unique_ptr<AdminStore> store(new AdminStore(std::move(database)));
  RETURN_IF_ERROR(store->Prepare());
  return store;
}

absl::Status AdminStore::Prepare() {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(database_->Claim());
  RETURN_IF_ERROR(database_->Begin());
  return database_->Commit(MakeTables());
}

absl::Status AdminStore::MakeTables() {
  ASSIGN_OR_RETURN(const uint64_t version, database_->QueryInteger("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const uint64_t application, database_->QueryInteger("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const uint64_t tables,
                   database_->QueryInteger("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0 && version == 0) {
    return database_->Execute(absl::StrCat(kAdminTables, "PRAGMA user_version=", kAdminSchema,
                                           "; PRAGMA application_id=", kAdminApplication));
  }
  if (application != kAdminApplication) {
    return Error(absl::StatusCode::kFailedPrecondition, "STORE_FOREIGN",
                 database_->path() + " is a database of another program")
        .Hint("use another --data-dir");
  }
  if (version > kAdminSchema) {
    return Error(absl::StatusCode::kFailedPrecondition, "STORE_NEWER",
                 absl::StrCat(database_->path(), " has schema version ", version,
                              ", written by a newer Strata; this one knows ", kAdminSchema))
        .Limit(absl::StrCat("schema_version=", kAdminSchema))
        .Hint("run the newer version, or use another --data-dir");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AdminStore::AddEntry(const AuditEntry& entry, uint64_t keep) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(database_->Begin());
  absl::StatusOr<uint64_t> number = Add(entry, keep);
  RETURN_IF_ERROR(database_->Commit(number.status()));
  return number;
}

absl::StatusOr<uint64_t> AdminStore::Add(const AuditEntry& entry, uint64_t keep) {
  {
    ASSIGN_OR_RETURN(
        SqliteStatement insert,
        database_->Prepare("INSERT INTO audit (time_ms, who, address, call, object, outcome, "
                           "refused, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
    RETURN_IF_ERROR(insert.Bind(entry.time_ms)
                        .Bind(entry.who)
                        .Bind(entry.address)
                        .Bind(entry.call)
                        .Bind(entry.object)
                        .Bind(entry.outcome)
                        .Bind(KindOf(entry))
                        .Bind(entry.times)
                        .Run());
  }
  ASSIGN_OR_RETURN(const uint64_t number, database_->QueryInteger("SELECT last_insert_rowid()"));
  ASSIGN_OR_RETURN(SqliteStatement prune,
                   database_->Prepare("DELETE FROM audit WHERE refused = ? AND number <= "
                                      "(SELECT number FROM audit WHERE refused = ? "
                                      "ORDER BY number DESC LIMIT 1 OFFSET ?)"));
  RETURN_IF_ERROR(prune.Bind(KindOf(entry)).Bind(KindOf(entry)).Bind(keep).Run());
  return number;
}

absl::Status AdminStore::ChangeEntry(const AuditEntry& entry) {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   database_->Prepare("UPDATE audit SET time_ms = ?, object = ?, outcome = ?, "
                                      "times = ? WHERE number = ?"));
  return statement.Bind(entry.time_ms)
      .Bind(entry.object)
      .Bind(entry.outcome)
      .Bind(entry.times)
      .Bind(entry.number)
      .Run();
}

absl::StatusOr<std::vector<AuditEntry>> AdminStore::ListEntries(const AuditQuery& query) {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare("SELECT number, time_ms, who, address, call, object, outcome, refused, "
                         "times FROM audit WHERE number < ? AND time_ms >= ? AND "
                         "(instr(who, ?) > 0 OR instr(address, ?) > 0) "
                         "ORDER BY number DESC LIMIT ?"));
  statement.Bind(std::min(query.before.value_or(kMostNumber), kMostNumber))
      .Bind(std::min(query.since_ms, kMostNumber))
      .Bind(query.who)
      .Bind(query.who)
      .Bind(std::min(query.limit, kMostNumber));
  std::vector<AuditEntry> entries;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) {
      return entries;
    }
    AuditEntry& entry = entries.emplace_back();
    entry.number = statement.Integer(0);
    entry.time_ms = statement.Integer(1);
    entry.who = statement.Text(2);
    entry.address = statement.Text(3);
    entry.call = statement.Text(4);
    entry.object = statement.Text(5);
    entry.outcome = statement.Text(6);
    entry.refused = statement.Integer(7) != 0;
    entry.of_others = statement.Integer(7) == 2;
    entry.times = statement.Integer(8);
  }
}

absl::Status AdminStore::ChangeRecords(const std::vector<StoredRecord>& changes) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(database_->Begin());
  absl::Status done;
  for (const StoredRecord& change : changes) {
    if (done.ok()) done = Change(change);
  }
  return database_->Commit(done);
}

absl::Status AdminStore::Change(const StoredRecord& change) {
  if (!change.value.has_value()) {
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("DELETE FROM records WHERE kind = ? AND name = ?"));
    return statement.Bind(change.kind).Bind(change.name).Run();
  }
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   database_->Prepare("INSERT OR REPLACE INTO records VALUES (?, ?, ?)"));
  return statement.Bind(change.kind).Bind(change.name).Bind(*change.value).Run();
}

absl::StatusOr<std::vector<StoredRecord>> AdminStore::ListRecords(std::string_view kind) {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare("SELECT name, value FROM records WHERE kind = ? ORDER BY name"));
  statement.Bind(kind);
  std::vector<StoredRecord> records;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) {
      return records;
    }
    records.push_back({std::string(kind), statement.Text(0), statement.Text(1)});
  }
}

}  // namespace strata
