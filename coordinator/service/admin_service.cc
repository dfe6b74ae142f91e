#include "coordinator/service/admin_service.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/rpc/status.h"
#include "common/shell_word.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/pull/curl_transport.h"
#include "coordinator/pull/file_selection.h"
#include "coordinator/pull/model_pull.h"
#include "coordinator/service/errors.h"

namespace strata {
namespace {

// Calls that run at once, of those that ask the event loop and read a file at most.
constexpr size_t kQuickThreads = 16;
// How often a waiting client hears of progress.
constexpr std::chrono::milliseconds kReportEvery{100};

template <typename T>
grpc::Status Answer(absl::StatusOr<T> result, T* response) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  *response = *std::move(result);
  return grpc::Status::OK;
}

template <typename T>
grpc::Status AnswerAll(absl::StatusOr<std::vector<T>> result,
                       google::protobuf::RepeatedPtrField<T>* out) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  for (T& item : *result) {
    *out->Add() = std::move(item);
  }
  return grpc::Status::OK;
}

// Passes progress on, not more often than people can read.
class Throttle {
 public:
  bool Due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kReportEvery) return false;
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

// A file name without folders, as uploads may have.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
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

CallThreadsOptions ThatWait(size_t threads, const AdminOptions& options) {
  return {.threads = threads,
          .waiting = options.max_waiting_calls,
          .name = "waiting_calls",
          .hint = "try again in a moment, or raise --max-waiting-calls of strata-coordinator"};
}

}  // namespace

AdminServiceImpl::AdminServiceImpl(Coordinator* coordinator, AdminOptions options)
    : coordinator_(coordinator),
      options_(std::move(options)),
      quick_(ThatWait(kQuickThreads, options_)),
      // The store takes one at a time; who only asks does not wait for it.
      changes_(ThatWait(1, options_)),
      long_({.threads = options_.max_long_calls,
             .waiting = 0,
             .name = "long_calls",
             .hint = "wait until one has ended, or raise --max-long-calls of strata-coordinator"}) {
}

grpc::Service* AdminServiceImpl::NewService() {
  service_ = std::make_unique<v1::AdminService::AsyncService>();
  return service_.get();
}

void AdminServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::AdminService::AsyncService;
  using This = AdminServiceImpl;
  const BlockingMethods quick(service_.get(), loop, &quick_);
  quick.Serve(&Async::RequestGetStatus, Guarded(&This::GetStatus));
  quick.Serve(&Async::RequestListNodes, Guarded(&This::ListNodes));
  quick.Serve(&Async::RequestGetNode, Guarded(&This::GetNode));
  quick.Serve(&Async::RequestListModels, Guarded(&This::ListModels, OperatorCall::kOwn));
  quick.Serve(&Async::RequestGetModel, Guarded(&This::GetModel, OperatorCall::kOwn));
  quick.Serve(&Async::RequestPlanModel, Guarded(&This::PlanModel));
  quick.Serve(&Async::RequestListSessions, std::bind_front(&This::ListSessions, this));
  quick.Serve(&Async::RequestCancelSession, std::bind_front(&This::CancelSession, this));
  quick.Serve(&Async::RequestListKeys, Guarded(&This::ListKeys));
  const BlockingMethods changes(service_.get(), loop, &changes_);
  changes.Serve(&Async::RequestDrainNode, Guarded(&This::DrainNode));
  changes.Serve(&Async::RequestResumeNode, Guarded(&This::ResumeNode));
  changes.Serve(&Async::RequestRemoveNode, Guarded(&This::RemoveNode));
  changes.Serve(&Async::RequestUnloadModel, Guarded(&This::UnloadModel));
  changes.Serve(&Async::RequestCreateKey, Guarded(&This::CreateKey));
  changes.Serve(&Async::RequestRevokeKey, Guarded(&This::RevokeKey));
  const BlockingMethods lengthy(service_.get(), loop, &long_);
  lengthy.Serve(&Async::RequestAddModel, Guarded(&This::AddModel));
  lengthy.Serve(&Async::RequestUploadModel, Guarded(&This::UploadModel));
  lengthy.Serve(&Async::RequestPullModel, Guarded(&This::PullModel));
  lengthy.Serve(&Async::RequestRemoveModel, Guarded(&This::RemoveModel));
  lengthy.Serve(&Async::RequestLoadModel, Guarded(&This::LoadModel));
  lengthy.Serve(&Async::RequestResizeModel, Guarded(&This::ResizeModel));
  lengthy.Serve(&Async::RequestCheckModel, Guarded(&This::CheckModel));
}

grpc::Status AdminServiceImpl::GetStatus(CallContext*, const v1::GetStatusRequest*,
                                         v1::GetStatusResponse* response) {
  const grpc::Status status = Answer(coordinator_->GetStatus(), response);
  response->set_http_address(options_.http_address);
  return status;
}

grpc::Status AdminServiceImpl::ListNodes(CallContext*, const v1::ListNodesRequest*,
                                         v1::ListNodesResponse* response) {
  return AnswerAll(coordinator_->ListNodes(), response->mutable_nodes());
}

grpc::Status AdminServiceImpl::GetNode(CallContext*, const v1::GetNodeRequest* request,
                                       v1::Node* response) {
  return Answer(coordinator_->GetNode(request->name()), response);
}

grpc::Status AdminServiceImpl::DrainNode(CallContext*, const v1::DrainNodeRequest* request,
                                         v1::Node* response) {
  return Answer(coordinator_->SetDraining(request->name(), true), response);
}

grpc::Status AdminServiceImpl::ResumeNode(CallContext*, const v1::ResumeNodeRequest* request,
                                          v1::Node* response) {
  return Answer(coordinator_->SetDraining(request->name(), false), response);
}

grpc::Status AdminServiceImpl::RemoveNode(CallContext*, const v1::RemoveNodeRequest* request,
                                          v1::RemoveNodeResponse* response) {
  if (request->gone()) {
    const auto removed = coordinator_->RemoveGoneNodes();
    if (!removed.ok()) {
      return ToGrpc(removed.status());
    }
    response->mutable_removed()->Add(removed->begin(), removed->end());
    return grpc::Status::OK;
  }
  const absl::Status removed = coordinator_->RemoveNode(request->name(), request->force());
  if (removed.ok()) {
    response->add_removed(request->name());
  }
  return ToGrpc(removed);
}

absl::Status AdminServiceImpl::Register(const std::string& path, const std::string& name,
                                        const std::string& origin,
                                        const std::function<bool(const v1::ModelProgress&)>& send) {
  Throttle throttle;
  const std::string reading = "the files of " + path + " to be read";
  const auto wait = coordinator_->wait_board()->Begin({.what = reading,
                                                       .node = "",
                                                       .model = name,
                                                       .late = options_.late,
                                                       .hint = "see to the disk that it is on"});
  v1::ModelProgress progress;
  progress.set_phase("digesting");
  const auto model = coordinator_->models()->Add(
      path, name, origin, [&](uint64_t done_bytes, uint64_t total_bytes) {
        if (throttle.Due()) {
          wait->Progress(reading + Share(done_bytes, total_bytes));
          progress.set_done_bytes(done_bytes);
          progress.set_total_bytes(total_bytes);
          send(progress);
        }
        // A client that goes away detaches: the work
        // goes on.
        return !stopping_;
      });
  RETURN_IF_ERROR(model.status());
  progress.set_phase("done");
  progress.set_done_bytes(progress.total_bytes());
  ASSIGN_OR_RETURN(*progress.mutable_model(), coordinator_->GetModel((*model)->name));
  send(progress);
  LogInfo({{"model", (*model)->name}, {"path", path}}, "a model is registered");
  return absl::OkStatus();
}

grpc::Status AdminServiceImpl::AddModel(CallContext* context, const v1::AddModelRequest* request,
                                        CallWriter<v1::ModelProgress>* writer) {
  return ToGrpc(Register(request->path(), request->name(), "path",
                         [writer](const v1::ModelProgress& p) { return writer->Write(p); }));
}

grpc::Status AdminServiceImpl::UploadModel(
    CallContext* context, CallStream<v1::ModelProgress, v1::UploadModelRequest>* stream) {
  v1::UploadModelRequest message;
  if (!stream->Read(&message) || !message.has_begin()) {
    return ToGrpc(
        Error(absl::StatusCode::kInvalidArgument, "BAD_UPLOAD", "an upload begins with its name"));
  }
  const std::string name = message.begin().name();
  if (absl::Status status = CheckModelName(name); !status.ok()) {
    return ToGrpc(status);
  }
  {
    MutexLock lock(&mutex_);
    if (!uploading_.insert(name).second) {
      return ToGrpc(Error(absl::StatusCode::kFailedPrecondition, "UPLOAD_IN_PROGRESS",
                          "a model '" + name + "' is being uploaded already")
                        .Hint("wait for it, or choose another --name"));
    }
  }
  grpc::Status status = TakeUpload(context, name, stream);
  MutexLock lock(&mutex_);
  uploading_.erase(name);
  return status;
}

grpc::Status AdminServiceImpl::TakeUpload(
    CallContext* context, const std::string& name,
    CallStream<v1::ModelProgress, v1::UploadModelRequest>* stream) {
  v1::UploadModelRequest message;
  namespace fs = std::filesystem;
  const fs::path final_path = fs::path(options_.models_dir) / name;
  const fs::path partial = fs::path(options_.models_dir) / (name + ".uploading");
  std::error_code error;
  if (fs::exists(final_path) && !coordinator_->models()->Get(name).ok()) {
    return ToGrpc(Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS",
                        "there is a folder " + final_path.string() +
                            " already, which no model is registered from")
                      .Hint("`strata model add " + ShellWord(final_path.string()) + " --name " +
                            name + "` registers it; or delete it, or choose another --name"));
  }
  if (fs::exists(final_path)) {
    return ToGrpc(
        Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS",
              "there is a model '" + name + "' already")
            .Hint("remove it with `strata model remove " + name + "`, or choose another --name"));
  }
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  auto fail = [&](const absl::Status& status) {
    fs::remove_all(partial, error);
    return ToGrpc(status);
  };
  std::ofstream out;
  uint64_t left = 0;
  uint64_t total = 0;
  bool done = false;
  UploadWatch watch(options_.upload_timeout, [context] { context->Cancel(); });
  const std::string uploading = "the client that uploads model " + name;
  auto wait = coordinator_->wait_board()->Begin(
      {.what = uploading,
       .node = "",
       .model = name,
       .limit = options_.upload_timeout,
       .hint = "see what became of that client: an upload begins anew when it is started again"});
  Throttle throttle;
  while (!done && stream->Read(&message)) {
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
    LogWarn({{"model", name}}, "an upload sent nothing for " +
                                   FormatDuration(options_.upload_timeout) + " and was ended");
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
  const absl::Status registered =
      Register(final_path.string(), name, "upload",
               [stream](const v1::ModelProgress& p) { return stream->Write(p); });
  if (!registered.ok()) {
    fs::remove_all(final_path, error);
  }
  return ToGrpc(registered);
}

grpc::Status AdminServiceImpl::PullModel(CallContext* context, const v1::PullModelRequest* request,
                                         CallWriter<v1::ModelProgress>* writer) {
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
  const std::string pulling = request->repository() + " to be pulled";
  auto wait = coordinator_->wait_board()->Begin(
      {.what = pulling,
       .node = "",
       .model = request->name(),
       .late = options_.late,
       .hint = "see to the network and to the disk of --data-dir"});
  Observer observer([&](const v1::ModelProgress* progress) {
    if (progress != nullptr && throttle.Due()) {
      wait->Progress(pulling + ": " + progress->file() +
                     Share(progress->done_bytes(), progress->total_bytes()));
      writer->Write(*progress);
    }
    return !stopping_.load();  // A client that goes away detaches.
  });
  PullOptions options;
  options.repository = request->repository();
  options.models_dir = options_.models_dir;
  options.name = request->name();
  if (!request->revision().empty()) options.revision = request->revision();
  const std::string& endpoint =
      request->endpoint().empty() ? options_.hub_endpoint : request->endpoint();
  if (!endpoint.empty()) options.endpoint = endpoint;
  // Our own token goes to our own endpoint only.
  options.token = request->token().empty() && request->endpoint().empty() ? options_.hub_token
                                                                          : request->token();
  const auto transport = MakeCurlTransport();
  const auto pulled = strata::PullModel(options, *transport, observer);
  wait = nullptr;
  if (!pulled.ok()) {
    return ToGrpc(pulled.status());
  }
  return ToGrpc(Register(pulled->path, request->name(), "pull",
                         [writer](const v1::ModelProgress& p) { return writer->Write(p); }));
}

grpc::Status AdminServiceImpl::ListModels(CallContext*, const v1::ListModelsRequest*,
                                          v1::ListModelsResponse* response) {
  return AnswerAll(coordinator_->ListModels(), response->mutable_models());
}

grpc::Status AdminServiceImpl::GetModel(CallContext*, const v1::GetModelRequest* request,
                                        v1::Model* response) {
  return Answer(coordinator_->GetModel(request->name()), response);
}

grpc::Status AdminServiceImpl::RemoveModel(CallContext*, const v1::RemoveModelRequest* request,
                                           v1::RemoveModelResponse*) {
  return ToGrpc(coordinator_->RemoveModel(request->name(), request->force()));
}

grpc::Status AdminServiceImpl::PlanModel(CallContext*, const v1::PlanModelRequest* request,
                                         v1::PlanModelResponse* response) {
  return Answer(coordinator_->PlanModel(request->model(), request->options()),
                response->mutable_plan());
}

grpc::Status AdminServiceImpl::LoadModel(CallContext* context, const v1::LoadModelRequest* request,
                                         CallWriter<v1::LoadModelProgress>* writer) {
  const auto plan = coordinator_->LoadModel(request->model(), request->options());
  if (!plan.ok()) {
    return ToGrpc(plan.status());
  }
  v1::LoadModelProgress first;
  *first.mutable_plan() = *plan;
  writer->Write(first);
  while (!request->detach() && !stopping_ && !context->IsCancelled()) {
    const auto progress = coordinator_->LoadStatus(request->model());
    if (!progress.ok()) {
      return ToGrpc(progress.status());
    }
    if (!writer->Write(*progress) || progress->ready()) {
      break;
    }
    std::this_thread::sleep_for(kReportEvery);
  }
  return grpc::Status::OK;
}

grpc::Status AdminServiceImpl::UnloadModel(CallContext*, const v1::UnloadModelRequest* request,
                                           v1::UnloadModelResponse*) {
  return ToGrpc(coordinator_->UnloadModel(request->model(), request->force()));
}

grpc::Status AdminServiceImpl::ResizeModel(CallContext* context,
                                           const v1::ResizeModelRequest* request,
                                           v1::ResizeModelResponse* response) {
  const auto gone = [&] { return stopping_ || context->IsCancelled(); };
  return Answer(coordinator_->ResizeModel(request->model(), request->kv_tokens(), gone),
                response->mutable_plan());
}

grpc::Status AdminServiceImpl::CheckModel(CallContext* context,
                                          const v1::CheckModelRequest* request,
                                          CallWriter<v1::CheckModelProgress>* writer) {
  v1::CheckModelProgress last;
  const auto report = [&](const v1::CheckModelProgress& progress) {
    last = progress;
    writer->Write(progress);
  };
  const auto gone = [&] { return stopping_ || context->IsCancelled(); };
  auto check = coordinator_->CheckModel(*request, report, gone);
  if (!check.ok()) {
    return ToGrpc(stopping_ ? Stopping() : check.status());
  }
  last.set_phase("done");
  *last.mutable_check() = *std::move(check);
  writer->Write(last);
  return grpc::Status::OK;
}

}  // namespace strata
