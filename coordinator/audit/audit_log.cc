#include "coordinator/audit/audit_log.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMostTextBytes = 256;

AuditEntry EntryOf(const AuditCall& call, uint64_t now_ms) {
  return {.time_ms = now_ms,
          .who = Printable(call.who, kMostTextBytes),
          .address = Printable(call.address, kMostTextBytes),
          .call = Printable(call.call, kMostTextBytes),
          .object = Printable(call.object, kMostTextBytes)};
}

bool IsPowerOfTwo(uint64_t n) { return (n & (n - 1)) == 0; }

}  // namespace

AuditEntry AuditLog::Begin(const AuditCall& call, uint64_t now_ms) {
  AuditEntry entry = EntryOf(call, now_ms);
  const auto number = store_->AddEntry(entry, options_.entries);
  Note(number.status(), entry);
  entry.number = number.value_or(0);
  return entry;
}

void AuditLog::End(AuditEntry entry, const absl::Status& outcome) {
  entry.object = Printable(entry.object, kMostTextBytes);
  entry.outcome = outcome.ok() ? "OK" : ReasonOf(outcome);
  if (entry.number != 0) {
    Note(store_->ChangeEntry(entry), entry);
    return;
  }
  // It was not written when it began, but the disk may have room since.
  Note(store_->AddEntry(entry, options_.entries).status(), entry);
}

void AuditLog::Refuse(const AuditCall& call, const absl::Status& why, uint64_t now_ms,
                      RefusedOf of) {
  AuditEntry entry = EntryOf(call, now_ms);
  entry.refused = true;
  entry.of_others = of == RefusedOf::kOthers;
  entry.outcome = ReasonOf(why);
  // What was asked for is in the first of them; a flood may ask for anything.
  std::string alike = entry.who + '\n' + entry.address + '\n' + entry.call + '\n' + entry.outcome;
  // Where the disk hangs, one of those who are refused waits for it, and not every thread of calls.
  if (!refusals_.TryLock()) {
    return;
  }
  Count(std::move(entry), std::move(alike), now_ms,
        of == RefusedOf::kOthers ? &of_others_ : &of_operators_);
  refusals_.Unlock();
}

void AuditLog::Count(AuditEntry entry, std::string alike, uint64_t now_ms, Recent* recent) {
  if (now_ms >= recent->since_ms + recent->for_ms || now_ms < recent->since_ms) {
    recent->since_ms = now_ms;
    recent->alike.clear();
  }
  if (!recent->alike.contains(alike) && recent->alike.size() >= kMostRefusals) {
    alike.clear();
    entry.who = "many";
    entry.call = "more refusals";
    entry.address = entry.object = "";
  }
  const auto [found, is_new] = recent->alike.try_emplace(alike, entry);
  if (is_new) {
    const auto number = store_->AddEntry(entry, std::max<uint64_t>(1, options_.entries / 10));
    found->second.number = number.value_or(0);
    Note(number.status(), entry);
    return;
  }
  found->second.time_ms = now_ms;
  if (IsPowerOfTwo(++found->second.times) && found->second.number != 0) {
    Note(store_->ChangeEntry(found->second), found->second);
  }
}

std::vector<v1::Problem> AuditLog::Problems() const {
  std::vector<v1::Problem> problems;
  const auto add = [&problems](const std::string& what, const std::string& hint) {
    v1::Problem& problem = problems.emplace_back();
    problem.set_what(what);
    problem.set_do_(hint);
  };
  MutexLock lock(&mutex_);
  if (!problem_.ok()) {
    const v1::ErrorDetail detail = DetailOf(problem_);
    add("the audit cannot be written: " + detail.message() +
            "; calls of operators are in the log alone",
        detail.hint());
  }
  return problems;
}

void AuditLog::Probe() {
  {
    MutexLock lock(&mutex_);
    if (problem_.ok()) {
      return;
    }
  }
  const absl::Status written = store_->ChangeRecords({{"probe", "", ""}});
  MutexLock lock(&mutex_);
  problem_ = written;
}

void AuditLog::Note(const absl::Status& written, const AuditEntry& entry) {
  {
    MutexLock lock(&mutex_);
    problem_ = written;
  }
  if (!written.ok()) {
    LogWarn({{"who", entry.who},
             {"address", entry.address},
             {"call", entry.call},
             {"object", entry.object},
             {"outcome", entry.outcome}},
            "the audit could not be written: " + Describe(written));
  }
}

}  // namespace strata
