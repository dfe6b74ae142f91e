// A SQLite connection and its statements, with typed errors.
#ifndef STRATA_COORDINATOR_STORE_SQLITE_DATABASE_H_
#define STRATA_COORDINATOR_STORE_SQLITE_DATABASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace strata {

class SqliteDatabase;

// A prepared statement. Parameters and columns count from 0. Must not outlive its database.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Bind the next parameter.
  SqliteStatement& Bind(uint64_t value);
  SqliteStatement& Bind(std::string_view value);
  // Whether there is a row.
  absl::StatusOr<bool> Step();
  // Runs a statement without rows.
  absl::Status Run();

  uint64_t Integer(int column) const;
  std::string Text(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(const SqliteDatabase* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}

  const SqliteDatabase* const database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int bind_result_ = 0;
};

// One thread at a time.
class SqliteDatabase {
 public:
  // Opens or makes the file; waits at most `busy_timeout_ms` for another process's lock.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path,
                                                              int busy_timeout_ms);
  ~SqliteDatabase();

  // Makes this process the only one that has the file, checks it (DATA_LOSS, STORE_CORRUPT), and
  // has every change on the disk when it is committed. Once, first.
  absl::Status Claim() const;
  // What runs between these is committed as one, or not at all: Commit undoes all when `done` is
  // an error, or it cannot be written, and returns why.
  absl::Status Begin() const { return Execute("BEGIN IMMEDIATE"); }
  absl::Status Commit(absl::Status done) const;

  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  absl::StatusOr<SqliteStatement> Prepare(std::string_view sql) const;
  // Statements without parameters and rows.
  absl::Status Execute(const std::string& sql) const;
  // The one integer that a query gives.
  absl::StatusOr<uint64_t> QueryInteger(std::string_view sql) const;
  // Rows that the newest statement changed.
  int Changes() const;

  // The typed error of a result code: names the file and what to do.
  absl::Status ErrorOf(int result) const;
  absl::Status Corrupt(std::string_view what) const;
  const std::string& path() const { return path_; }

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_SQLITE_DATABASE_H_
