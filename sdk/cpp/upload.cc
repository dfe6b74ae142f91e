// Client::UploadModel: a checkpoint of this machine, file by file, over one stream.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "common/limits.h"
#include "sdk/cpp/client_impl.h"
#include "sdk/cpp/strata.h"

namespace strata::sdk {
namespace {

namespace fs = std::filesystem;

struct UploadFile {
  fs::path path;
  std::string name;
  uint64_t bytes = 0;
};

bool BelongsToCheckpoint(const fs::path& path) {
  static constexpr std::string_view kKinds[] = {".safetensors", ".json", ".jinja",
                                                ".model",       ".txt",  ".gguf"};
  const std::string kind = path.extension().string();
  return path.filename().string().front() != '.' &&
         std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

absl::StatusOr<std::vector<UploadFile>> ListFiles(const fs::path& path) {
  std::error_code error;
  std::vector<UploadFile> files;
  if (fs::is_regular_file(path, error)) {
    files.push_back({path, path.filename().string(), fs::file_size(path, error)});
  } else if (fs::is_directory(path, error)) {
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      if (BelongsToCheckpoint(it->path()) && fs::is_regular_file(it->path(), error)) {
        files.push_back({it->path(), it->path().filename().string(), it->file_size(error)});
      }
    }
  } else if (!error || error == std::errc::no_such_file_or_directory) {
    return Error(absl::StatusCode::kNotFound, "NO_SUCH_CHECKPOINT",
                 path.string() + " is no folder and no file of this machine")
        .Hint("give a checkpoint folder, or a .gguf file");
  }
  if (error) {
    return Error(absl::StatusCode::kPermissionDenied, "CANNOT_READ",
                 "cannot read " + path.string() + ": " + error.message());
  }
  if (files.empty()) {
    return Error(absl::StatusCode::kNotFound, "NO_SUCH_CHECKPOINT",
                 path.string() + " holds no file of a checkpoint")
        .Hint("give the folder with config.json and *.safetensors");
  }
  std::sort(files.begin(), files.end(),
            [](const UploadFile& a, const UploadFile& b) { return a.name < b.name; });
  return files;
}

using Stream = grpc::ClientReaderWriter<v1::UploadModelRequest, v1::ModelProgress>;

// Sends the whole of `file`; ok also when the other end has stopped listening (*open is then
// false, and the call's status says why).
absl::Status SendFile(const UploadFile& file, Stream* stream, bool* open,
                      const std::function<void(uint64_t)>& sent) {
  v1::UploadModelRequest message;
  message.mutable_file()->set_path(file.name);
  message.mutable_file()->set_bytes(file.bytes);
  *open = stream->Write(message);
  std::ifstream in(file.path, std::ios::binary);
  std::string chunk;
  uint64_t left = file.bytes;
  while (*open && left > 0) {
    chunk.resize(std::min<uint64_t>(left, kBlobChunkBytes));
    if (!in.read(chunk.data(), static_cast<std::streamsize>(chunk.size()))) {
      return Error(absl::StatusCode::kDataLoss, "CANNOT_READ",
                   file.path.string() + " cannot be read to its end")
          .Hint("see whether it changes or the disk fails");
    }
    left -= chunk.size();
    message.set_data(chunk);
    *open = stream->Write(message);
    sent(chunk.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Model> Client::UploadModel(const std::string& path, std::string_view name,
                                              const ModelProgressFn& progress,
                                              const CallOptions& call) {
  ASSIGN_OR_RETURN(const std::vector<UploadFile> files, ListFiles(path));
  uint64_t total = 0;
  for (const UploadFile& file : files) {
    total += file.bytes;
  }
  grpc::ClientContext context;
  const CancelScope scope(call.cancellation, [&context] { context.TryCancel(); });
  RETURN_IF_ERROR(impl_->Begin(call, std::nullopt, &context));
  const auto stream = impl_->admin().UploadModel(&context);

  std::mutex mutex;  // Progress comes from both directions.
  const auto report = [&](const v1::ModelProgress& message) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (progress) progress(message);
  };
  std::optional<v1::Model> model;
  std::thread reader([&] {
    v1::ModelProgress message;
    while (stream->Read(&message)) {
      if (message.has_model()) model = message.model();
      if (message.phase() != "uploading") report(message);
    }
  });

  v1::UploadModelRequest begin;
  fs::path full = fs::path(path).lexically_normal();
  if (full.filename().empty()) {
    full = full.parent_path();  // PATH/
  }
  std::error_code ignored;
  if (full.filename() == "." || full.filename() == "..") {
    full = fs::weakly_canonical(full, ignored);
  }
  const fs::path own = full.extension() == ".gguf" ? full.stem() : full.filename();
  begin.mutable_begin()->set_name(name.empty() ? own.string() : std::string(name));
  bool open = stream->Write(begin);
  uint64_t sent = 0;
  absl::Status local;
  for (size_t i = 0; i < files.size() && open && local.ok(); ++i) {
    local = SendFile(files[i], stream.get(), &open, [&](uint64_t bytes) {
      sent += bytes;
      v1::ModelProgress message;
      message.set_phase("uploading");
      message.set_file(files[i].name);
      message.set_done_bytes(sent);
      message.set_total_bytes(total);
      report(message);
    });
  }
  if (!local.ok()) {
    context.TryCancel();
  } else if (open) {
    v1::UploadModelRequest done;
    done.set_done(true);
    stream->Write(done);
    stream->WritesDone();
  }
  reader.join();
  const absl::Status status = impl_->ToStatus(stream->Finish());
  RETURN_IF_ERROR(local);
  RETURN_IF_ERROR(status);
  if (!model.has_value()) {
    return Error(absl::StatusCode::kInternal, "ANSWER_INCOMPLETE",
                 "the coordinator ended the upload without registering the model")
        .Hint("see `strata model list`");
  }
  return *std::move(model);
}

}  // namespace strata::sdk
