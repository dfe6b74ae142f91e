#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/store_errors.h"
#include "coordinator/store/term_slot.h"

namespace strata {
namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr uint64_t kSchemaVersion = 4;
constexpr uint64_t kApplicationId = 0x53545241;  // "STRA", in SQLite's header.

// All texts are stored as blobs: names compare byte by byte, and nothing is converted.
constexpr char kSchema[] = R"(
  CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
  INSERT INTO counters VALUES ('term', 0), ('deployment', 0);
  CREATE TABLE settings (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT;
  CREATE TABLE identity (cluster_id TEXT NOT NULL) STRICT;
  INSERT INTO identity VALUES (lower(hex(randomblob(16))));
  CREATE TABLE models (name BLOB PRIMARY KEY, path BLOB NOT NULL, manifest BLOB NOT NULL,
                       digest BLOB NOT NULL, origin BLOB NOT NULL) STRICT;
  CREATE TABLE deployments (id INTEGER PRIMARY KEY, model BLOB NOT NULL, options BLOB NOT NULL,
                            plan BLOB NOT NULL, epoch INTEGER NOT NULL,
                            desired_state BLOB NOT NULL) STRICT;
  CREATE TABLE nodes (name BLOB PRIMARY KEY, info BLOB NOT NULL,
                      draining INTEGER NOT NULL) STRICT;
)";

// What it added to versions 1, which had no keys, and 2, which had a table of them that nothing
// could fill.
constexpr char kSchemaOf3[] = R"(
  DROP TABLE IF EXISTS keys;
  CREATE TABLE keys (id BLOB PRIMARY KEY, name BLOB NOT NULL, hash BLOB NOT NULL UNIQUE,
                     admin INTEGER NOT NULL, created INTEGER NOT NULL,
                     last_used INTEGER NOT NULL, revoked INTEGER NOT NULL,
                     requests_in_flight INTEGER NOT NULL, requests_per_minute INTEGER NOT NULL,
                     tokens_per_minute INTEGER NOT NULL) STRICT;
)";

// What version 4 added: keys that were there may ask for nothing of it.
constexpr char kSchemaOf4[] = R"(
  ALTER TABLE keys ADD COLUMN max_priority INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE keys ADD COLUMN guaranteed INTEGER NOT NULL DEFAULT 0;
)";

class SqliteStore : public StateStore {
 public:
  explicit SqliteStore(std::unique_ptr<SqliteDatabase> database)
      : term_slot_(database->path() + ".term"), database_(std::move(database)) {}

  // Checks the file, and makes the tables in a new one.
  absl::Status Prepare() {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(database_->Claim());
    // One process at a time sees an empty file, so one makes the tables.
    return Transact([this]() STRATA_REQUIRES(mutex_) { return MakeTables(); });
  }

  absl::StatusOr<uint64_t> RaiseTerm() override {
    const uint64_t kept = term_slot_.Read();
    absl::StatusOr<uint64_t> term = Count("term", kept);
    if (term.ok()) {
      // For a start that finds no room; a store that has just been written has some.
      term_slot_.Write(*term).IgnoreError();
      return term;
    }
    const std::string reason = ReasonOf(term.status());
    if (reason != "STORE_FULL" && reason != "STORE_IO") {
      return term;
    }
    ASSIGN_OR_RETURN(const uint64_t recorded, CountOf("term"));
    const uint64_t next = std::max(recorded, kept) + 1;
    if (!term_slot_.Write(next).ok()) {
      return term.status();
    }
    return next;
  }

  absl::StatusOr<std::string> ClusterId() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT cluster_id FROM identity"));
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) {
      return database_->Corrupt("the cluster id is missing");
    }
    return statement.Text(0);
  }

  absl::Status SaveModel(const StoredModel& model) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?)"));
    return statement.Bind(model.name)
        .Bind(model.path)
        .Bind(model.manifest)
        .Bind(model.digest)
        .Bind(model.origin)
        .Run();
  }

  absl::StatusOr<StoredModel> GetModel(std::string_view name) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT * FROM models WHERE name = ?"));
    ASSIGN_OR_RETURN(const bool row, statement.Bind(name).Step());
    if (!row) {
      return NoSuchModel(name);
    }
    return ModelOf(statement);
  }

  absl::StatusOr<std::vector<StoredModel>> ListModels() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT * FROM models ORDER BY name"));
    std::vector<StoredModel> models;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) {
        return models;
      }
      models.push_back(ModelOf(statement));
    }
  }

  absl::Status RemoveModel(std::string_view name) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("DELETE FROM models WHERE name = ?"));
    RETURN_IF_ERROR(statement.Bind(name).Run());
    return database_->Changes() == 0 ? NoSuchModel(name) : absl::OkStatus();
  }

  absl::StatusOr<uint64_t> NextDeploymentId() override { return Count("deployment", 0); }

  absl::Status SaveDeployment(const StoredDeployment& deployment) override {
    MutexLock lock(&mutex_);
    return Save(deployment);
  }

  absl::Status ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) override {
    MutexLock lock(&mutex_);
    return Transact([&]() STRATA_REQUIRES(mutex_) -> absl::Status {
      RETURN_IF_ERROR(Remove(old));
      return Save(deployment);
    });
  }

  absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT id, model, options, plan, desired_state "
                                        "FROM deployments ORDER BY id"));
    std::vector<StoredDeployment> deployments;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) {
        return deployments;
      }
      StoredDeployment deployment;
      deployment.id = statement.Integer(0);
      deployment.model = statement.Text(1);
      deployment.desired_state = statement.Text(4);
      if (!deployment.options.ParseFromString(statement.Text(2)) ||
          !deployment.plan.ParseFromString(statement.Text(3))) {
        return database_->Corrupt(absl::StrCat("deployment ", deployment.id, " is unreadable"));
      }
      deployments.push_back(std::move(deployment));
    }
  }

  absl::Status RemoveDeployment(uint64_t deployment) override {
    MutexLock lock(&mutex_);
    return Remove(deployment);
  }

  absl::Status SaveNode(std::string_view name, const v1::NodeInfo& info, bool draining) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?)"));
    return statement.Bind(name)
        .Bind(info.SerializeAsString())
        .Bind(uint64_t{draining ? 1u : 0u})
        .Run();
  }

  absl::StatusOr<std::vector<StoredNode>> ListNodes() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT name, info, draining FROM nodes ORDER BY name"));
    std::vector<StoredNode> nodes;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) {
        return nodes;
      }
      StoredNode node;
      node.name = statement.Text(0);
      node.draining = statement.Integer(2) != 0;
      if (!node.info.ParseFromString(statement.Text(1))) {
        return database_->Corrupt("node '" + node.name + "' is unreadable");
      }
      nodes.push_back(std::move(node));
    }
  }

  absl::Status RemoveNode(std::string_view name) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("DELETE FROM nodes WHERE name = ?"));
    RETURN_IF_ERROR(statement.Bind(name).Run());
    return database_->Changes() == 0 ? NoSuchNode(name) : absl::OkStatus();
  }

  absl::Status RemoveNodes(const std::vector<std::string>& names) override {
    MutexLock lock(&mutex_);
    return Transact([&]() STRATA_REQUIRES(mutex_) -> absl::Status {
      for (const std::string& name : names) {
        ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("DELETE FROM nodes WHERE name = ?"));
        RETURN_IF_ERROR(statement.Bind(name).Run());
      }
      return absl::OkStatus();
    });
  }

  absl::Status SaveKey(const StoredKey& key) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(
        SqliteStatement statement,
        database_->Prepare("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                           "ON CONFLICT (id) DO UPDATE SET name = excluded.name, "
                           "hash = excluded.hash, admin = excluded.admin, "
                           "created = excluded.created, "
                           "last_used = excluded.last_used, "
                           "revoked = excluded.revoked, "
                           "requests_in_flight = excluded.requests_in_flight, "
                           "requests_per_minute = excluded.requests_per_minute, "
                           "tokens_per_minute = excluded.tokens_per_minute, "
                           "max_priority = excluded.max_priority, "
                           "guaranteed = excluded.guaranteed"));
    return statement.Bind(key.id)
        .Bind(key.name)
        .Bind(key.hash)
        .Bind(uint64_t{key.admin})
        .Bind(key.created)
        .Bind(key.last_used)
        .Bind(key.revoked)
        .Bind(uint64_t{key.limits.requests_in_flight})
        .Bind(uint64_t{key.limits.requests_per_minute})
        .Bind(key.limits.tokens_per_minute)
        .Bind(static_cast<uint64_t>(int64_t{key.limits.max_priority}))
        .Bind(uint64_t{key.limits.guaranteed})
        .Run();
  }

  absl::StatusOr<std::vector<StoredKey>> ListKeys() override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT id, name, hash, admin, created, last_used, "
                                        "revoked, requests_in_flight, requests_per_minute, "
                                        "tokens_per_minute, max_priority, guaranteed FROM keys "
                                        "ORDER BY id"));
    std::vector<StoredKey> keys;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) {
        return keys;
      }
      StoredKey key;
      key.id = statement.Text(0);
      key.name = statement.Text(1);
      key.hash = statement.Text(2);
      key.admin = statement.Integer(3) != 0;
      key.created = statement.Integer(4);
      key.last_used = statement.Integer(5);
      key.revoked = statement.Integer(6);
      key.limits.requests_in_flight = static_cast<uint32_t>(statement.Integer(7));
      key.limits.requests_per_minute = static_cast<uint32_t>(statement.Integer(8));
      key.limits.tokens_per_minute = statement.Integer(9);
      key.limits.max_priority = static_cast<int32_t>(statement.Integer(10));
      key.limits.guaranteed = statement.Integer(11) != 0;
      keys.push_back(std::move(key));
    }
  }

  absl::Status SetSetting(std::string_view key, std::string_view value) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("INSERT OR REPLACE INTO settings VALUES (?, ?)"));
    return statement.Bind(key).Bind(value).Run();
  }

  absl::StatusOr<std::optional<std::string>> GetSetting(std::string_view key) override {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT value FROM settings WHERE key = ?"));
    ASSIGN_OR_RETURN(const bool row, statement.Bind(key).Step());
    return row ? std::optional(statement.Text(0)) : std::nullopt;
  }

 private:
  // All that `change` does, or nothing.
  template <typename Change>
  absl::Status Transact(const Change& change) STRATA_REQUIRES(mutex_) {
    RETURN_IF_ERROR(database_->Begin());
    return database_->Commit(change());
  }

  absl::Status MakeTables() STRATA_REQUIRES(mutex_) {
    ASSIGN_OR_RETURN(const uint64_t version, database_->QueryInteger("PRAGMA user_version"));
    ASSIGN_OR_RETURN(const uint64_t application, database_->QueryInteger("PRAGMA application_id"));
    ASSIGN_OR_RETURN(const uint64_t tables,
                     database_->QueryInteger("SELECT count(*) FROM sqlite_schema"));
    if (tables == 0 && version == 0) {
      return database_->Execute(absl::StrCat(kSchema, kSchemaOf3, kSchemaOf4,
                                             "PRAGMA user_version=", kSchemaVersion,
                                             "; PRAGMA application_id=", kApplicationId));
    }
    if (application != kApplicationId) {
      return Error(absl::StatusCode::kFailedPrecondition, "STORE_FOREIGN",
                   database_->path() + " is a database of another program")
          .Hint("use another --data-dir");
    }
    if (version > kSchemaVersion) {
      return Error(absl::StatusCode::kFailedPrecondition, "STORE_NEWER",
                   absl::StrCat("state store ", database_->path(), " has schema version ", version,
                                ", written by a newer Strata; this one knows ", kSchemaVersion))
          .Limit(absl::StrCat("schema_version=", kSchemaVersion))
          .Hint("run the newer version, or use another --data-dir");
    }
    if (version == kSchemaVersion) {
      return absl::OkStatus();
    }
    return database_->Execute(absl::StrCat(version < 3 ? kSchemaOf3 : "", kSchemaOf4,
                                           "PRAGMA user_version=", kSchemaVersion));
  }

  absl::StatusOr<uint64_t> CountOf(std::string_view name) {
    MutexLock lock(&mutex_);
    return database_->QueryInteger(
        absl::StrCat("SELECT value FROM counters WHERE name = '", std::string(name), "'"));
  }

  // Raises a counter above what it is and above `least`, and returns it.
  absl::StatusOr<uint64_t> Count(std::string_view name, uint64_t least) {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare(absl::StrCat("UPDATE counters SET value = max(value, ",
                                                     least, ") + 1 WHERE name = '",
                                                     std::string(name), "' RETURNING value")));
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) {
      return database_->Corrupt("a counter is missing");
    }
    const uint64_t value = statement.Integer(0);
    // The change is committed when the statement has run to its end.
    RETURN_IF_ERROR(statement.Run());
    return value;
  }

  absl::Status Save(const StoredDeployment& deployment) STRATA_REQUIRES(mutex_) {
    ASSIGN_OR_RETURN(
        SqliteStatement statement,
        database_->Prepare("INSERT INTO deployments VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) "
                           "DO UPDATE SET model = excluded.model, options = excluded.options, "
                           "plan = excluded.plan, epoch = excluded.epoch, "
                           "desired_state = excluded.desired_state "
                           "WHERE excluded.epoch >= epoch"));
    RETURN_IF_ERROR(statement.Bind(deployment.id)
                        .Bind(deployment.model)
                        .Bind(deployment.options.SerializeAsString())
                        .Bind(deployment.plan.SerializeAsString())
                        .Bind(deployment.plan.epoch())
                        .Bind(deployment.desired_state)
                        .Run());
    return database_->Changes() == 0 ? WhyUnchanged(deployment.id, deployment.plan.epoch())
                                     : absl::OkStatus();
  }

  absl::Status Remove(uint64_t deployment) STRATA_REQUIRES(mutex_) {
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("DELETE FROM deployments WHERE id = ?"));
    RETURN_IF_ERROR(statement.Bind(deployment).Run());
    return database_->Changes() == 0 ? NoSuchDeployment(deployment) : absl::OkStatus();
  }

  absl::Status WhyUnchanged(uint64_t deployment, uint64_t epoch) STRATA_REQUIRES(mutex_) {
    ASSIGN_OR_RETURN(SqliteStatement statement,
                     database_->Prepare("SELECT epoch FROM deployments WHERE id = ?"));
    ASSIGN_OR_RETURN(const bool row, statement.Bind(deployment).Step());
    return row ? StaleEpoch(deployment, epoch, statement.Integer(0)) : NoSuchDeployment(deployment);
  }

  static StoredModel ModelOf(const SqliteStatement& row) {
    return {row.Text(0), row.Text(1), row.Text(2), row.Text(3), row.Text(4)};
  }

  const TermSlot term_slot_;
  Mutex mutex_;
  const std::unique_ptr<SqliteDatabase> database_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database,
                   SqliteDatabase::Open(path, kBusyTimeoutMs));
  auto store = std::make_unique<SqliteStore>(std::move(database));
  RETURN_IF_ERROR(store->Prepare());
  return store;
}

}  // namespace strata
