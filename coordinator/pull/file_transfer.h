// The fetching of one file: attempts, continuation where one broke off, verification.
#ifndef STRATA_COORDINATOR_PULL_FILE_TRANSFER_H_
#define STRATA_COORDINATOR_PULL_FILE_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/digest.h"
#include "coordinator/pull/model_pull.h"
#include "coordinator/pull/partial_folder.h"
#include "coordinator/pull/redirects.h"

namespace strata {

// What a status other than 200, 206 or 416 means, with what to do about it. `repository` is for
// the message. Statuses that another attempt may mend are UNAVAILABLE.
absl::Status HttpError(const HttpResponse& response, bool own, const PullOptions& options);

// Waits between attempts; knows when to give up.
class Backoff {
 public:
  Backoff(const PullOptions& options, PullObserver& observer)
      : options_(options), observer_(observer) {}
  // After a failed attempt: whether there is another one, after a wait. `advanced`: it brought
  // bytes. `at_least_ms`: the server asked for it.
  bool Again(bool advanced, int64_t at_least_ms);

 private:
  const PullOptions& options_;
  PullObserver& observer_;
  int failures_ = 0;  // In a row, without a byte more.
  int total_ = 0;
};

class FileTransfer : private HopReceiver {
 public:
  // `on_bytes(done, total)` is called as the file grows.
  FileTransfer(const PullOptions& options, const RedirectFollower& follower, PullObserver& observer,
               PartialFolder& folder, std::string file,
               std::function<void(uint64_t, uint64_t)> on_bytes);
  ~FileTransfer() override;

  // `urls`: where the file may be, tried in order while they are NOT_FOUND.
  absl::Status Run(const std::vector<std::string>& urls);

 private:
  HttpHeaders RequestHeaders() override;
  void OnRedirect(const HttpResponse& response, bool own) override;
  absl::Status OnResponse(const HttpResponse& response, bool own) override;
  absl::Status OnBody(std::string_view bytes) override;
  bool Cancelled() override { return observer_.Cancelled(); }

  absl::Status OpenPart();
  absl::Status Attempts(const std::string& url);
  absl::Status Attempt(const std::string& url);
  absl::Status OnWhole(const HttpResponse& response);
  absl::Status OnRange(const HttpResponse& response);
  absl::Status SetTotal(uint64_t total);
  // Whether a file of this name may have so many bytes.
  absl::Status CheckLimit(uint64_t bytes) const;
  absl::Status CheckSpace();
  absl::Status Restart();
  absl::Status Verify();
  // The SHA-256 that the server named, or "".
  std::string ExpectedDigest() const;

  const PullOptions& options_;
  const RedirectFollower& follower_;
  PullObserver& observer_;
  PartialFolder& folder_;
  const std::string file_;
  const std::function<void(uint64_t, uint64_t)> on_bytes_;
  FileRecord& record_;
  int fd_ = -1;
  uint64_t offset_ = 0;  // Bytes in the part file.
  Sha256 digest_;        // Of those.
  uint64_t reported_ = 0;
  uint64_t linked_bytes_ = 0;  // X-Linked-Size of this attempt; 0: none.
  int64_t retry_after_ms_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_FILE_TRANSFER_H_
