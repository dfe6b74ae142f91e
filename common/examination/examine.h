// The facts of a process and its machine, for `strata doctor`.
#ifndef STRATA_COMMON_EXAMINATION_EXAMINE_H_
#define STRATA_COMMON_EXAMINATION_EXAMINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/app/flag_file.h"
#include "strata/v1/diagnosis.pb.h"

namespace strata {

struct ExamineOptions {
  std::string program;  // "strata-worker"
  std::string node;     // "": the coordinator.
  std::string address;  // That others dial; "": not known.
  bool address_is_given = false;
  std::string tls_dir;
  std::string data_dir;
  uint64_t promised_memory_bytes = 0;  // Of the machine's; 0: none is promised.
  uint64_t cache_limit_bytes = 0;      // 0: none.
  uint64_t cache_bytes = 0;
  FlagReport flags;
  v1::ProcessorFacts processor;
  bool running = true;  // Else the process is to be started with these flags.
  std::string root;     // Where proc, etc, run and usr lie; for tests.
};

// Reads files, and waits for their disks. Any thread.
v1::MachineFacts Examine(const ExamineOptions& options);

// The document that `strata-worker examine` and `strata-coordinator examine` print, and back.
std::string FactsDocument(const v1::MachineFacts& facts);
absl::StatusOr<v1::MachineFacts> ParseFacts(const std::string& document);

}  // namespace strata

#endif  // STRATA_COMMON_EXAMINATION_EXAMINE_H_
