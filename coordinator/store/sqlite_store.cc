#include <sqlite3.h>

#include <functional>
#include <random>
#include <utility>
#include <variant>

#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/store/state_store.h"

namespace strata {
namespace {

constexpr int kSchemaVersion = 1;

constexpr char kSchema[] = R"(
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE models (name TEXT PRIMARY KEY, path TEXT NOT NULL, manifest BLOB NOT NULL,
                     owned INTEGER NOT NULL);
CREATE TABLE deployments (id INTEGER PRIMARY KEY, model TEXT NOT NULL, options BLOB NOT NULL,
                          plan BLOB NOT NULL);
CREATE TABLE nodes (name TEXT PRIMARY KEY, info BLOB NOT NULL, draining INTEGER NOT NULL);
INSERT INTO settings VALUES ('term', '0'), ('next_deployment', '1');
PRAGMA user_version = 1;
)";

// A value for a statement's parameter.
using Value = std::variant<int64_t, std::string>;

class SqliteStore : public StateStore {
 public:
  explicit SqliteStore(std::string path) : path_(std::move(path)) {}
  ~SqliteStore() override { sqlite3_close(db_); }

  absl::Status Open() {
    MutexLock lock(&mutex_);
    if (sqlite3_open(path_.c_str(), &db_) != SQLITE_OK) {
      return Broken();
    }
    sqlite3_busy_timeout(db_, 5000);
    RETURN_IF_ERROR(Script("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
    int version = 0;
    RETURN_IF_ERROR(Query("PRAGMA user_version", {},
                          [&](sqlite3_stmt* row) { version = sqlite3_column_int(row, 0); }));
    if (version > kSchemaVersion) {
      return Error(absl::StatusCode::kFailedPrecondition, "STORE_NEWER",
                   path_ + " was written by a newer version of strata-coordinator (schema " +
                       std::to_string(version) + ", this one knows " +
                       std::to_string(kSchemaVersion) + ")")
          .Hint("run that version, or choose another --data-dir");
    }
    if (version == 0) {
      RETURN_IF_ERROR(Script(std::string("BEGIN IMMEDIATE;") + kSchema + "COMMIT;"));
      std::random_device device;
      std::string id;
      for (int i = 0; i < 16; ++i) {
        id += "0123456789abcdef"[device() % 16];
      }
      RETURN_IF_ERROR(Query("INSERT INTO settings VALUES ('cluster_id', ?)", {id}));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> RaiseTerm() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const uint64_t before, Increment("term"));
    return before + 1;
  }

  absl::StatusOr<uint64_t> NextDeploymentId() override {
    MutexLock lock(&mutex_);
    return Increment("next_deployment");
  }

  absl::StatusOr<std::string> ClusterId() override {
    MutexLock lock(&mutex_);
    std::string id;
    RETURN_IF_ERROR(Query("SELECT value FROM settings WHERE name = 'cluster_id'", {},
                          [&](sqlite3_stmt* row) { id = Text(row, 0); }));
    return id;
  }

  absl::Status SaveModel(const StoredModel& model) override {
    MutexLock lock(&mutex_);
    return Query("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)",
                 {model.name, model.path, model.manifest, int64_t{model.owned}});
  }

  absl::Status RemoveModel(const std::string& name) override {
    MutexLock lock(&mutex_);
    return Query("DELETE FROM models WHERE name = ?", {name});
  }

  absl::StatusOr<std::vector<StoredModel>> ListModels() override {
    MutexLock lock(&mutex_);
    std::vector<StoredModel> models;
    RETURN_IF_ERROR(Query(
        "SELECT name, path, manifest, owned FROM models ORDER BY name", {}, [&](sqlite3_stmt* row) {
          models.push_back(
              {Text(row, 0), Text(row, 1), Text(row, 2), sqlite3_column_int(row, 3) != 0});
        }));
    return models;
  }

  absl::Status SaveDeployment(const StoredDeployment& deployment) override {
    MutexLock lock(&mutex_);
    return Query("INSERT OR REPLACE INTO deployments VALUES (?, ?, ?, ?)",
                 {static_cast<int64_t>(deployment.id), deployment.model,
                  deployment.options.SerializeAsString(), deployment.plan.SerializeAsString()});
  }

  absl::Status UpdatePlan(uint64_t id, const v1::Plan& plan) override {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(Query("UPDATE deployments SET plan = ? WHERE id = ?",
                          {plan.SerializeAsString(), static_cast<int64_t>(id)}));
    if (sqlite3_changes(db_) == 0) {
      return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
                   "deployment " + std::to_string(id) + " is not in the store");
    }
    return absl::OkStatus();
  }

  absl::Status RemoveDeployment(uint64_t id) override {
    MutexLock lock(&mutex_);
    return Query("DELETE FROM deployments WHERE id = ?", {static_cast<int64_t>(id)});
  }

  absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() override {
    MutexLock lock(&mutex_);
    std::vector<StoredDeployment> deployments;
    bool parsed = true;
    RETURN_IF_ERROR(Query("SELECT id, model, options, plan FROM deployments ORDER BY id", {},
                          [&](sqlite3_stmt* row) {
                            StoredDeployment& d = deployments.emplace_back();
                            d.id = static_cast<uint64_t>(sqlite3_column_int64(row, 0));
                            d.model = Text(row, 1);
                            parsed = parsed && d.options.ParseFromString(Text(row, 2)) &&
                                     d.plan.ParseFromString(Text(row, 3));
                          }));
    if (!parsed) {
      return Unreadable("a deployment");
    }
    return deployments;
  }

  absl::Status SaveNode(const std::string& name, const v1::NodeInfo& info, bool draining) override {
    MutexLock lock(&mutex_);
    return Query("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?)",
                 {name, info.SerializeAsString(), int64_t{draining}});
  }

  absl::Status RemoveNode(const std::string& name) override {
    MutexLock lock(&mutex_);
    return Query("DELETE FROM nodes WHERE name = ?", {name});
  }

  absl::StatusOr<std::vector<StoredNode>> ListNodes() override {
    MutexLock lock(&mutex_);
    std::vector<StoredNode> nodes;
    bool parsed = true;
    RETURN_IF_ERROR(
        Query("SELECT info, draining FROM nodes ORDER BY name", {}, [&](sqlite3_stmt* row) {
          StoredNode& node = nodes.emplace_back();
          parsed = parsed && node.info.ParseFromString(Text(row, 0));
          node.draining = sqlite3_column_int(row, 1) != 0;
        }));
    if (!parsed) {
      return Unreadable("a node");
    }
    return nodes;
  }

 private:
  static std::string Text(sqlite3_stmt* row, int column) {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(row, column));
    const auto bytes = static_cast<size_t>(sqlite3_column_bytes(row, column));
    return data == nullptr ? "" : std::string(data, bytes);
  }

  absl::Status Unreadable(const std::string& what) const {
    return Error(absl::StatusCode::kFailedPrecondition, "STORE_BROKEN",
                 what + " in " + path_ + " cannot be read")
        .Hint("restore the file from a backup, or choose another --data-dir");
  }

  absl::Status Broken() const STRATA_REQUIRES(mutex_) {
    const int code = sqlite3_errcode(db_);
    const std::string why = sqlite3_errmsg(db_);
    if (code == SQLITE_FULL) {
      return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                   "cannot write " + path_ + ": " + why)
          .Hint("free some disk space");
    }
    return Error(absl::StatusCode::kFailedPrecondition, "STORE_BROKEN",
                 "cannot use " + path_ + ": " + why)
        .Hint(code == SQLITE_BUSY ? "another process holds it; stop that one"
                                  : "restore it from a backup, or choose another --data-dir");
  }

  absl::Status Script(const std::string& sql) STRATA_REQUIRES(mutex_) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                                  : Broken();
  }

  absl::Status Query(const char* sql, const std::vector<Value>& values,
                     const std::function<void(sqlite3_stmt*)>& on_row = nullptr)
      STRATA_REQUIRES(mutex_) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr) != SQLITE_OK) {
      return Broken();
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const int at = static_cast<int>(i) + 1;
      if (const auto* number = std::get_if<int64_t>(&values[i])) {
        sqlite3_bind_int64(statement, at, *number);
      } else {
        const auto& text = std::get<std::string>(values[i]);
        sqlite3_bind_text64(statement, at, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
      }
    }
    int step = SQLITE_ROW;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
      if (on_row) on_row(statement);
    }
    const absl::Status status = step == SQLITE_DONE ? absl::OkStatus() : Broken();
    sqlite3_finalize(statement);
    return status;
  }

  // The setting's value before it was raised by one.
  absl::StatusOr<uint64_t> Increment(const std::string& name) STRATA_REQUIRES(mutex_) {
    uint64_t value = 0;
    RETURN_IF_ERROR(Query(
        "UPDATE settings SET value = CAST(value AS INTEGER) + 1 WHERE name = ? "
        "RETURNING CAST(value AS INTEGER) - 1",
        {name},
        [&](sqlite3_stmt* row) { value = static_cast<uint64_t>(sqlite3_column_int64(row, 0)); }));
    return value;
  }

  const std::string path_;
  Mutex mutex_;
  sqlite3* db_ STRATA_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path) {
  auto store = std::make_unique<SqliteStore>(path);
  RETURN_IF_ERROR(store->Open());
  return store;
}

}  // namespace strata
