// Who administrated what. No thread, no clock.
#ifndef STRATA_COORDINATOR_AUDIT_AUDIT_LOG_H_
#define STRATA_COORDINATOR_AUDIT_AUDIT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/store/admin_store.h"
#include "strata/v1/admin.pb.h"

namespace strata {

struct AuditOptions {
  uint64_t entries =
      10'000;  // The newest so many are kept; of refusals, by kind, a tenth of it besides.
};

// Whose calls refusals are of. What is refused of the one pushes nothing of the other out.
enum class RefusedOf {
  kOperators,  // Calls of operators, and joining.
  kOthers,     // Calls of clients and workers.
};

// What is known of a call before it is made.
struct AuditCall {
  std::string who = {};
  std::string address = {};
  std::string call = {};
  std::string object = {};
};

// Any thread. What cannot be written is in the process's log, and does not keep anybody from
// administrating: that may be what mends the disk.
class AuditLog {
 public:
  // `store` outlives the log.
  AuditLog(AdminStore* store, const AuditOptions& options) : store_(store), options_(options) {}

  // Records that the call begins, and returns what End wants of it. On the disk when this returns.
  AuditEntry Begin(const AuditCall& call, uint64_t now_ms) STRATA_EXCLUDES(mutex_);
  // How it ended: before its caller is told.
  void End(AuditEntry entry, const absl::Status& outcome) STRATA_EXCLUDES(mutex_);

  // A call that its caller might not make. Those that are alike within a minute, of others within
  // an hour, are one entry, whose number is written when it doubles; in that time kMostRefusals
  // that differ are written each, and the rest are one entry together. What comes while another one
  // is being written is left out.
  void Refuse(const AuditCall& call, const absl::Status& why, uint64_t now_ms,
              RefusedOf of = RefusedOf::kOperators) STRATA_EXCLUDES(mutex_, refusals_);

  // The newest so many that the query asks for. The store's errors.
  absl::StatusOr<std::vector<AuditEntry>> List(const AuditQuery& query) {
    return store_->ListEntries(query);
  }

  // What `strata status` says of it: that the newest entry could not be written, if it could not.
  std::vector<v1::Problem> Problems() const STRATA_EXCLUDES(mutex_);
  // Tries a small change then, which ends that once the store takes one. Waits for the disk.
  void Probe() STRATA_EXCLUDES(mutex_);

  static constexpr size_t kMostRefusals = 60;

 private:
  // What is counted together.
  struct Recent {
    uint64_t for_ms = 0;                        // So long,
    uint64_t since_ms = 0;                      // since then.
    std::map<std::string, AuditEntry> alike{};  // By what makes them alike.
  };

  // `alike`: what those have in common that are one entry.
  void Count(AuditEntry entry, std::string alike, uint64_t now_ms, Recent* recent)
      STRATA_REQUIRES(refusals_);
  void Note(const absl::Status& written, const AuditEntry& entry) STRATA_EXCLUDES(mutex_);
  AdminStore* const store_;
  const AuditOptions options_;
  mutable Mutex mutex_;
  absl::Status problem_ STRATA_GUARDED_BY(mutex_);
  Mutex refusals_;  // Held over a change of the store, which mutex_ is not.
  Recent of_operators_ STRATA_GUARDED_BY(refusals_){.for_ms = 60'000};
  Recent of_others_ STRATA_GUARDED_BY(refusals_){.for_ms = 3'600'000};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_AUDIT_AUDIT_LOG_H_
