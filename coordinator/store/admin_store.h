// What administrating leaves behind that a restart must not forget: the audit, and what joining
// remembers. A database of its own, so that what is recorded of calls waits for nothing else.
#ifndef STRATA_COORDINATOR_STORE_ADMIN_STORE_H_
#define STRATA_COORDINATOR_STORE_ADMIN_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/store/sqlite_database.h"

namespace strata {

// One call of the audit.
struct AuditEntry {
  uint64_t number = 0;       // Counts up from 1.
  uint64_t time_ms = 0;      // Since 1970.
  std::string who = {};      // For people, as in "operator anna".
  std::string address = {};  // From where.
  std::string call = {};     // As in "LoadModel".
  std::string object = {};   // The name of what it was about.
  std::string outcome = {};  // "": under way, or cut off; "OK"; or the reason of an error.
  bool refused = false;      // Its caller might not.
  bool of_others = false;    // Of these: a call that is not for operators.
  uint64_t times = 1;        // So often, of refusals that are alike.
};

struct AuditQuery {
  uint64_t since_ms = 0;                // Those of then and later.
  std::string who = {};                 // Those whose `who` or `address` has this text in it.
  std::optional<uint64_t> before = {};  // Those of lower numbers.
  uint64_t limit = 100;                 // The newest so many.
};

// A small value by its kind and name; without one it is to be removed.
struct StoredRecord {
  std::string kind;
  std::string name;
  std::optional<std::string> value = {};
};

// Any thread. A change is durable when its call has returned ok, and absent when it has failed.
// Errors as StateStore's.
class AdminStore {
 public:
  // Opens or makes the SQLite database `path`, whose folder exists.
  static absl::StatusOr<std::unique_ptr<AdminStore>> Open(const std::string& path);

  // Adds the entry under a number of its own, which it returns, and removes the oldest ones of
  // those that are refused, and of others, as this is, until `keep` of these are left.
  absl::StatusOr<uint64_t> AddEntry(const AuditEntry& entry, uint64_t keep) STRATA_EXCLUDES(mutex_);
  // Changes the time, object, outcome and times of the entry with this number, if it is still
  // there.
  absl::Status ChangeEntry(const AuditEntry& entry) STRATA_EXCLUDES(mutex_);
  // Newest first.
  absl::StatusOr<std::vector<AuditEntry>> ListEntries(const AuditQuery& query)
      STRATA_EXCLUDES(mutex_);

  // All of them or none.
  absl::Status ChangeRecords(const std::vector<StoredRecord>& changes) STRATA_EXCLUDES(mutex_);
  absl::StatusOr<std::vector<StoredRecord>> ListRecords(std::string_view kind)
      STRATA_EXCLUDES(mutex_);  // By name.

 private:
  explicit AdminStore(std::unique_ptr<SqliteDatabase> database) : database_(std::move(database)) {}

  absl::Status Prepare() STRATA_EXCLUDES(mutex_);
  absl::Status MakeTables() STRATA_REQUIRES(mutex_);
  absl::StatusOr<uint64_t> Add(const AuditEntry& entry, uint64_t keep) STRATA_REQUIRES(mutex_);
  absl::Status Change(const StoredRecord& change) STRATA_REQUIRES(mutex_);

  Mutex mutex_;
  const std::unique_ptr<SqliteDatabase> database_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_ADMIN_STORE_H_
