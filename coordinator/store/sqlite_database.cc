#include "coordinator/store/sqlite_database.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace strata {

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      bound_(other.bound_),
      bind_result_(other.bind_result_) {}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

SqliteStatement& SqliteStatement::Bind(uint64_t value) {
  const int result = sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value));
  if (bind_result_ == SQLITE_OK) {
    bind_result_ = result;
  }
  return *this;
}

SqliteStatement& SqliteStatement::Bind(std::string_view value) {
  // A blob keeps every byte; a null pointer would bind NULL.
  const char* data = value.empty() ? "" : value.data();
  const int result =
      sqlite3_bind_blob64(statement_, ++bound_, data, value.size(), SQLITE_TRANSIENT);
  if (bind_result_ == SQLITE_OK) {
    bind_result_ = result;
  }
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (bind_result_ != SQLITE_OK) {
    return database_->ErrorOf(bind_result_);
  }
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) {
    return true;
  }
  if (result == SQLITE_DONE) {
    return false;
  }
  return database_->ErrorOf(result);
}

absl::Status SqliteStatement::Run() { return Step().status(); }

uint64_t SqliteStatement::Integer(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_, column));
}

std::string SqliteStatement::Text(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int bytes = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path,
                                                                     int busy_timeout_ms) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  STRATA_CHECK(handle != nullptr);  // It is null only without memory.
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path, handle));
  if (result != SQLITE_OK) {
    return database->ErrorOf(result);
  }
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, busy_timeout_ms);
  return database;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(handle_); }

absl::Status SqliteDatabase::Claim() const {
  // One process has the file, and so needs none that is shared: the file can then be read where
  // the disk has no room for another.
  RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  {
    ASSIGN_OR_RETURN(SqliteStatement check, Prepare("PRAGMA quick_check(1)"));
    ASSIGN_OR_RETURN(const bool row, check.Step());
    if (!row || check.Text(0) != "ok") {
      return Corrupt(row ? check.Text(0) : "it cannot be checked");
    }
  }
  return Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;");
}

absl::Status SqliteDatabase::Commit(absl::Status done) const {
  if (done.ok()) {
    done = Execute("COMMIT");
  }
  if (!done.ok()) {
    (void)Execute("ROLLBACK");
  }
  return done;
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) {
    return ErrorOf(result);
  }
  return SqliteStatement(this, statement);
}

absl::Status SqliteDatabase::Execute(const std::string& sql) const {
  const int result = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : ErrorOf(result);
}

absl::StatusOr<uint64_t> SqliteDatabase::QueryInteger(std::string_view sql) const {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) {
    return Corrupt("a value is missing");
  }
  return statement.Integer(0);
}

int SqliteDatabase::Changes() const { return sqlite3_changes(handle_); }

absl::Status SqliteDatabase::ErrorOf(int result) const {
  const std::string message = absl::StrCat("state store ", path_, ": ", sqlite3_errmsg(handle_));
  switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(absl::StatusCode::kUnavailable, "STORE_LOCKED", message)
          .Hint("another process holds the file; stop it, or use another --data-dir");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Corrupt(sqlite3_errmsg(handle_));
    case SQLITE_FULL:
      return Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", message)
          .Hint("make room on the disk of --data-dir");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Error(absl::StatusCode::kPermissionDenied, "STORE_PERMISSION", message)
          .Hint("let the coordinator's user write to the file and its folder");
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return Error(absl::StatusCode::kUnavailable, "STORE_IO", message)
          .Hint("check that the folder exists, can be written to, and that its disk is sound");
    default:
      return Error(absl::StatusCode::kInternal, "STORE_ERROR", message);
  }
}

absl::Status SqliteDatabase::Corrupt(std::string_view what) const {
  return Error(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
               absl::StrCat("state store ", path_, " is damaged: ", std::string(what)))
      .Hint(
          "put back a copy of it, or move it away and start again: models then have to be added "
          "and loaded anew");
}

}  // namespace strata
