// How models come in: from a folder, by an upload, or pulled from a hub. Each is digested and
// registered, and its client told how far it is.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_MODEL_INTAKE_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_MODEL_INTAKE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/service/calls/watched_tasks.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/process/status_report.h"
#include "strata/v1/admin.pb.h"

namespace strata {

struct ModelIntakeOptions {
  std::string models_dir;    // Where uploaded and pulled models go.
  std::string hub_endpoint;  // For pulls without one of their own.
  std::string hub_token;
  uint64_t max_upload_bytes = uint64_t{1} << 42;
  // An upload that sends nothing for so long is ended.
  nanoseconds upload_timeout = std::chrono::minutes(2);
  // What is added, uploaded or pulled and gives nothing to digest for so long is refused.
  nanoseconds add_timeout = std::chrono::minutes(2);
  // Pulling that gets no further for so long is a problem for `status`.
  nanoseconds late = std::chrono::minutes(2);
};

// Any thread but the event loop's; all calls wait until the model is registered, or cannot be. A
// client that goes away detaches: the work goes on, but for an upload.
class ModelIntake {
 public:
  // Nothing is owned; all outlive the intake.
  ModelIntake(ModelIntakeOptions options, Models* models, StatusReport* report,
              WaitBoard* wait_board)
      : options_(std::move(options)), models_(models), report_(report), wait_board_(wait_board) {}

  // Tells the client; false once nobody listens.
  using SendFn = std::function<bool(const v1::ModelProgress& progress)>;

  // The folder `path`; Models::Add says what name, origin and errors are.
  absl::Status Add(const std::string& path, const std::string& name, const std::string& origin,
                   const SendFn& send);
  // What a client sends. `end` tells it why there is no more, and has a waiting `read` return
  // false; any thread, until Upload returns. Then nothing that Upload returns is told to it.
  struct UploadStream {
    std::function<bool(v1::UploadModelRequest* message)> read;
    std::function<void(const absl::Status& why)> end;
  };
  absl::Status Upload(const UploadStream& stream, const SendFn& send);
  absl::Status Pull(const v1::PullModelRequest& request, const SendFn& send);

  // Has calls end soon, and begin no work.
  void Stop() { stopping_ = true; }

 private:
  absl::Status TakeUpload(const std::string& name, const UploadStream& stream, const SendFn& send);

  const ModelIntakeOptions options_;
  Models* const models_;
  StatusReport* const report_;
  WaitBoard* const wait_board_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::set<std::string> uploading_ STRATA_GUARDED_BY(mutex_);  // Names.
  WatchedTasks reading_;  // Of files that are digested. Last: they use the others.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_MODEL_INTAKE_H_
