#include "coordinator/service/calls/model_intake.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/shell_word.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/pull/curl_transport.h"
#include "coordinator/pull/file_selection.h"
#include "coordinator/pull/model_pull.h"

namespace strata {
namespace {

// How often a waiting client hears of progress.
constexpr std::chrono::milliseconds kTellEvery{100};

// Passes progress on, not more often than people can read.
class Throttle {
 public:
  bool Due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kTellEvery) return false;
    last_ = now;
    return true;
  }

 private:
  std::chrono::steady_clock::time_point last_{};
};

// " (38 %)", or nothing.
std::string Share(uint64_t done, uint64_t total) {
  return total == 0 ? "" : " (" + std::to_string(100 * std::min(done, total) / total) + " %)";
}

std::string LimitOf(const std::string& name, nanoseconds limit) {
  return name + "=" +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
}

// A file name without folders, as uploads may have.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// Whether this process may read the folder or file, and the files in it. A service's sandbox hides
// folders that its user's shell shows.
absl::Status CheckReadable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string unread = path;
  if (const fs::file_status status = fs::status(path, error); fs::is_directory(status)) {
    fs::directory_iterator entries(path, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::error_code gone;
      if (entries->is_regular_file(gone) && !std::ifstream(entries->path())) {
        unread = entries->path().string();
        error = std::make_error_code(std::errc::permission_denied);
        break;
      }
    }
  } else if (fs::is_regular_file(status) && !std::ifstream(path)) {
    error = std::make_error_code(std::errc::permission_denied);
  } else if (!fs::exists(status) && !error) {
    error = std::make_error_code(std::errc::no_such_file_or_directory);
  }
  if (!error) {
    return absl::OkStatus();
  }
  const bool denied = error == std::errc::permission_denied;
  return Error(denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kNotFound,
               "CANNOT_READ_PATH",
               "the coordinator, on its machine, cannot read " + unread + ": " + error.message())
      .Hint("`strata model add " + ShellWord(path) +
            " --upload` sends the files from here; or put them where its service reads, such as "
            "/var/lib/strata/models (not under /home)");
}

// Ends an upload whose client sends nothing for too long.
class UploadWatch {
 public:
  UploadWatch(nanoseconds timeout, std::function<void()> end)
      : timeout_(timeout), end_(std::move(end)), thread_([this] { Run(); }) {}
  ~UploadWatch() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  // Something came.
  void Moved() {
    MutexLock lock(&mutex_);
    last_ = std::chrono::steady_clock::now();
  }
  bool ended() const {
    MutexLock lock(&mutex_);
    return ended_;
  }

 private:
  void Run() {
    MutexLock lock(&mutex_);
    while (!stopping_ && !ended_) {
      const nanoseconds left = last_ + timeout_ - std::chrono::steady_clock::now();
      if (left <= nanoseconds(0)) {
        ended_ = true;
        end_();
      } else {
        changed_.WaitFor(&mutex_, left);
      }
    }
  }

  const nanoseconds timeout_;
  const std::function<void()> end_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point last_ STRATA_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace

absl::Status ModelIntake::Add(const std::string& path, const std::string& name,
                              const std::string& origin, const SendFn& send) {
  const std::string reading = "the files of " + path + " to be read";
  const auto wait = wait_board_->Begin({.what = reading,
                                        .node = "",
                                        .model = name,
                                        .limit = options_.add_timeout,
                                        .hint = "see to the disk that it is on"});
  Throttle throttle;
  v1::ModelProgress progress;
  progress.set_phase("digesting");
  // The task's too, which may outlive this.
  const auto model = std::make_shared<std::shared_ptr<const ModelRuntime>>();
  RETURN_IF_ERROR(reading_.Run(
      options_.add_timeout,
      [this, path, name, origin, model](const WatchedTasks::Report& report) -> absl::Status {
        if (origin == "path") {
          RETURN_IF_ERROR(CheckReadable(path));
        }
        // A client that goes away detaches: the work goes on.
        ASSIGN_OR_RETURN(*model,
                         models_->Add(path, name, origin, [&](uint64_t done, uint64_t total) {
                           return report(done, total) && !stopping_;
                         }));
        return absl::OkStatus();
      },
      [&](uint64_t done_bytes, uint64_t total_bytes) {
        if (throttle.Due()) {
          wait->Progress(reading + Share(done_bytes, total_bytes));
          progress.set_done_bytes(done_bytes);
          progress.set_total_bytes(total_bytes);
          send(progress);
        }
      },
      Error(absl::StatusCode::kUnavailable, "DISK_HANGS",
            path + " gave nothing to read for " + FormatDuration(options_.add_timeout))
          .Limit(LimitOf("add_timeout_ms", options_.add_timeout))
          .Hint("see to the disk that it is on and add it again, or raise --add-timeout of "
                "strata-coordinator")));
  progress.set_phase("done");
  progress.set_done_bytes(progress.total_bytes());
  ASSIGN_OR_RETURN(*progress.mutable_model(), report_->GetModel((*model)->name));
  send(progress);
  LogInfo({{"model", (*model)->name}, {"path", path}}, "a model is registered");
  return absl::OkStatus();
}

absl::Status ModelIntake::Upload(const UploadStream& stream, const SendFn& send) {
  v1::UploadModelRequest message;
  if (!stream.read(&message) || !message.has_begin()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_UPLOAD",
                 "an upload begins with its name");
  }
  const std::string name = message.begin().name();
  if (absl::Status status = CheckModelName(name); !status.ok()) {
    return status;
  }
  {
    MutexLock lock(&mutex_);
    if (!uploading_.insert(name).second) {
      return Error(absl::StatusCode::kFailedPrecondition, "UPLOAD_IN_PROGRESS",
                   "a model '" + name + "' is being uploaded already")
          .Hint("wait for it, or choose another --name");
    }
  }
  absl::Status status = TakeUpload(name, stream, send);
  MutexLock lock(&mutex_);
  uploading_.erase(name);
  return status;
}

absl::Status ModelIntake::TakeUpload(const std::string& name, const UploadStream& stream,
                                     const SendFn& send) {
  v1::UploadModelRequest message;
  namespace fs = std::filesystem;
  const fs::path final_path = fs::path(options_.models_dir) / name;
  const fs::path partial = fs::path(options_.models_dir) / (name + ".uploading");
  std::error_code error;
  if (fs::exists(final_path) && !models_->Get(name).ok()) {
    return Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS",
                 "there is a folder " + final_path.string() +
                     " already, which no model is registered from")
        .Hint("`strata model add " + ShellWord(final_path.string()) + " --name " + name +
              "` registers it; or delete it, or choose another --name");
  }
  if (fs::exists(final_path)) {
    return Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS",
                 "there is a model '" + name + "' already")
        .Hint("remove it with `strata model remove " + name + "`, or choose another --name");
  }
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  auto fail = [&](const absl::Status& status) {
    fs::remove_all(partial, error);
    return status;
  };
  std::ofstream out;
  uint64_t left = 0;
  uint64_t total = 0;
  bool done = false;
  const absl::Status silent =
      Error(absl::StatusCode::kAborted, "UPLOAD_BROKEN",
            "the upload of model '" + name + "' sent nothing for " +
                FormatDuration(options_.upload_timeout) + " and was ended")
          .Limit(LimitOf("upload_timeout_ms", options_.upload_timeout))
          .Hint("start it again, or raise --upload-timeout of strata-coordinator");
  UploadWatch watch(options_.upload_timeout, [&] { stream.end(silent); });
  const std::string uploading = "the client that uploads model " + name;
  auto wait = wait_board_->Begin(
      {.what = uploading,
       .node = "",
       .model = name,
       .limit = options_.upload_timeout,
       .hint = "see what became of that client: an upload begins anew when it is started again"});
  Throttle throttle;
  while (!done && stream.read(&message)) {
    watch.Moved();
    if (throttle.Due()) {
      wait->Progress(uploading);
    }
    switch (message.kind_case()) {
      case v1::UploadModelRequest::kFile:
        if (!IsPlainFileName(message.file().path()) || left != 0) {
          return fail(Error(absl::StatusCode::kInvalidArgument, "BAD_FILE",
                            "'" + message.file().path() + "' is no plain file name"));
        }
        left = message.file().bytes();
        total += left;
        if (total > options_.max_upload_bytes) {
          return fail(
              Error(absl::StatusCode::kResourceExhausted, "TOO_LARGE",
                    "the upload is larger than the limit")
                  .Limit("upload_bytes=" + std::to_string(options_.max_upload_bytes))
                  .Hint("raise --max-upload of strata-coordinator, or copy the folder there "
                        "and add it by its path"));
        }
        if (left > MaxBytesOf(message.file().path())) {
          return fail(Error(absl::StatusCode::kFailedPrecondition, "FILE_TOO_LARGE",
                            message.file().path() + " has " + FormatSize(left) +
                                ", and a file of this name may have " +
                                FormatSize(MaxBytesOf(message.file().path())) + " at most")
                          .Hint("nobody would read it; is it what its name says?"));
        }
        out.close();
        out.open(partial / message.file().path(), std::ios::binary);
        break;
      case v1::UploadModelRequest::kData:
        if (message.data().size() > left) {
          return fail(Error(absl::StatusCode::kInvalidArgument, "BAD_FILE",
                            "more bytes than were announced"));
        }
        left -= message.data().size();
        out.write(message.data().data(), static_cast<std::streamsize>(message.data().size()));
        if (!out) {
          return fail(Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                            "cannot write to " + partial.string())
                          .Hint("free some disk space on the coordinator"));
        }
        break;
      case v1::UploadModelRequest::kDone:
        done = true;
        break;
      default:
        return fail(Error(absl::StatusCode::kInvalidArgument, "BAD_UPLOAD", "an empty message"));
    }
  }
  if (out.is_open()) {
    out.close();
  }
  if (out.fail()) {
    return fail(Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                      "cannot write to " + partial.string())
                    .Hint("free some disk space on the coordinator"));
  }
  wait = nullptr;
  if (watch.ended()) {
    LogWarn({{"model", name}}, Describe(silent));
  }
  if (!done || left != 0) {
    return fail(Error(absl::StatusCode::kAborted, "UPLOAD_BROKEN", "the upload broke off")
                    .Hint("start it again"));
  }
  fs::rename(partial, final_path, error);
  if (error) {
    return fail(Error(absl::StatusCode::kInternal, "UPLOAD_BROKEN",
                      "cannot rename " + partial.string() + ": " + error.message()));
  }
  const absl::Status registered = Add(final_path.string(), name, "upload", send);
  if (!registered.ok()) {
    fs::remove_all(final_path, error);
  }
  return registered;
}

absl::Status ModelIntake::Pull(const v1::PullModelRequest& request, const SendFn& send) {
  // Passes progress on, and stops when nobody listens any more.
  class Observer : public PullObserver {
   public:
    explicit Observer(std::function<bool(const v1::ModelProgress*)> report)
        : report_(std::move(report)) {}
    void OnProgress(const PullProgress& progress) override {
      v1::ModelProgress out;
      out.set_phase("downloading");
      out.set_file(progress.file);
      out.set_done_bytes(progress.file_done_bytes);
      out.set_total_bytes(progress.file_total_bytes);
      report_(&out);
    }
    bool Cancelled() override { return !report_(nullptr); }

   private:
    const std::function<bool(const v1::ModelProgress*)> report_;
  };
  Throttle throttle;
  const std::string pulling = request.repository() + " to be pulled";
  auto wait = wait_board_->Begin({.what = pulling,
                                  .node = "",
                                  .model = request.name(),
                                  .late = options_.late,
                                  .hint = "see to the network and to the disk of --data-dir"});
  Observer observer([&](const v1::ModelProgress* progress) {
    if (progress != nullptr && throttle.Due()) {
      wait->Progress(pulling + ": " + progress->file() +
                     Share(progress->done_bytes(), progress->total_bytes()));
      send(*progress);
    }
    return !stopping_.load();  // A client that goes away detaches.
  });
  PullOptions options;
  options.repository = request.repository();
  options.models_dir = options_.models_dir;
  options.name = request.name();
  if (!request.revision().empty()) options.revision = request.revision();
  const std::string& endpoint =
      request.endpoint().empty() ? options_.hub_endpoint : request.endpoint();
  if (!endpoint.empty()) options.endpoint = endpoint;
  // Our own token goes to our own endpoint only.
  options.token =
      request.token().empty() && request.endpoint().empty() ? options_.hub_token : request.token();
  const auto transport = MakeCurlTransport();
  const auto pulled = strata::PullModel(options, *transport, observer);
  wait = nullptr;
  if (!pulled.ok()) {
    return pulled.status();
  }
  return Add(pulled->path, request.name(), "pull", send);
}

}  // namespace strata
