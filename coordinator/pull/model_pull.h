// Fetches a model from a server with Hugging Face's HTTP layout into a local folder.
#ifndef STRATA_COORDINATOR_PULL_MODEL_PULL_H_
#define STRATA_COORDINATOR_PULL_MODEL_PULL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/pull/http_transport.h"

namespace strata {

struct PullOptions {
  std::string repository;  // ORG/NAME
  std::string revision = "main";
  std::string endpoint = "https://huggingface.co";
  std::string token;       // Sent to the endpoint's own origin only; may be empty.
  std::string models_dir;  // The model becomes models_dir/name, on the way models_dir/name.partial.
  std::string name;        // Empty: NAME.
  int max_redirects = 8;
  int max_attempts = 6;        // In a row without a byte more of a file.
  int first_backoff_ms = 500;  // Doubles with each of those.
  int max_backoff_ms = 20'000;
  uint64_t max_listing_bytes = 16 << 20;
  uint64_t max_files = 10'000;
};

struct PullProgress {
  std::string file;
  uint64_t file_done_bytes = 0;
  uint64_t file_total_bytes = 0;  // 0: not known.
  uint64_t done_bytes = 0;        // Of all files.
  uint64_t files_done = 0;
  uint64_t files_total = 0;
};

// Called on the thread that pulls.
class PullObserver {
 public:
  virtual ~PullObserver() = default;
  // At the begin and end of each file and at least once a MiB.
  virtual void OnProgress(const PullProgress& progress) = 0;
  // Asked several times a second; true ends the pull with CANCELLED. What has arrived is kept.
  virtual bool Cancelled() = 0;
  // Before another attempt. By default sleeps, and asks Cancelled meanwhile.
  virtual void Wait(std::chrono::milliseconds time);
};

struct PulledFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;     // Hex.
  bool verified = false;  // The server named this digest.
};

struct PulledModel {
  std::string path;
  std::string commit;  // "" if the server names none.
  std::vector<PulledFile> files;
};

// Takes safetensors, json, jinja and tokenizer files of the repository's top folder; nothing else
// is asked for. What a broken or cancelled pull left in name.partial is continued if the commit is
// the same. Errors: INVALID_ARGUMENT (names), ALREADY_EXISTS (models_dir/name), UNAUTHENTICATED,
// PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED (DISK_FULL), DATA_LOSS (digest or size),
// UNAVAILABLE (the network, after all attempts), CANCELLED. Any thread; pulls of the same name
// exclude each other (FAILED_PRECONDITION, PULL_IN_PROGRESS).
absl::StatusOr<PulledModel> PullModel(const PullOptions& options, HttpTransport& transport,
                                      PullObserver& observer);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_MODEL_PULL_H_
