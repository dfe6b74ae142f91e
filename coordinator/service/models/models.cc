#include "coordinator/service/models/models.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "common/app/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf_model.h"
#include "common/names.h"
#include "common/status.h"
#include "coordinator/registry/digest_checkpoint.h"
#include "coordinator/registry/model_changed.h"

namespace strata {
namespace {

// How folders that are being deleted begin; no model's name begins like this.
constexpr char kAside[] = ".removed-";

bool IsNameCharacter(unsigned char c) {
  return std::isalnum(c) || c == '-' || c == '_' || c == '.';
}

// The folder's name, or the .gguf file's without that, with '-' for what a model's name may not
// have.
std::string DefaultModelName(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) {
    folder = folder.parent_path();
  }
  std::string name = GgufModelName(folder.filename().string());
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !IsNameCharacter(c); }, '-');
  return name;
}

}  // namespace

Models::Models(StateStore* store, BlobStore* blobs) : store_(store), blobs_(blobs) {
  blobs_->trust()->OnSame(
      [this](const std::string& path, const FileIdentity& identity, const std::string& sha256) {
        RememberFile(path, {"", identity, sha256});
      });
}

ModelManifest Models::Recognize(const StoredModel& stored, ModelManifest manifest) {
  manifest.model = stored.name;
  manifest.ours = stored.origin != "path";
  const ManifestFile* gguf = ManifestGguf(manifest);
  if (gguf == nullptr) {
    return manifest;
  }
  const auto file = FileReader::Open(manifest.path + "/" + gguf->name);
  if (!file.ok() || SameFile(file->identity(), gguf->identity) ||
      !blobs_->trust()->Holds(*file, *gguf).value_or(false)) {
    return manifest;
  }
  manifest.files[static_cast<size_t>(gguf - manifest.files.data())].identity = file->identity();
  StoredModel renewed = stored;
  renewed.manifest = ManifestToJson(manifest);
  if (absl::Status saved = store_->SaveModel(renewed); !saved.ok()) {
    LogWarn({{"model", stored.name}}, strata::Describe(saved));  // It is read again next time.
  }
  return manifest;
}

void Models::RememberFile(const std::string& path, const ManifestFile& now) {
  LogInfo({{"path", path}}, "a model's file was read again: its time changed, its bytes did not");
  MutexLock changing(&changes_);
  std::vector<std::shared_ptr<const ModelRuntime>> all;
  std::map<std::string, ManifestFile> renewed;
  {
    MutexLock lock(&mutex_);
    renewed_[path] = now;
    renewed = renewed_;
    for (const auto& [name, runtime] : models_) all.push_back(runtime);
  }
  for (const auto& runtime : all) {
    ModelManifest manifest = *runtime->manifest;
    bool has_it = false;
    for (ManifestFile& file : manifest.files) {
      const auto it = renewed.find(manifest.path + "/" + file.name);
      if (it != renewed.end() && it->second.sha256 == file.sha256) {
        has_it |= it->first == path;
        file.identity = it->second.identity;
      }
    }
    auto stored = has_it ? store_->GetModel(runtime->name)
                         : absl::StatusOr<StoredModel>(absl::NotFoundError("another's"));
    if (!stored.ok()) {
      continue;
    }
    stored->manifest = ManifestToJson(manifest);
    if (absl::Status saved = store_->SaveModel(*stored); !saved.ok()) {
      LogWarn({{"model", runtime->name}}, strata::Describe(saved));  // It is read again next time.
    }
  }
}

absl::Status Models::Restore() {
  ASSIGN_OR_RETURN(const auto stored, store_->ListModels());
  for (const StoredModel& model : stored) {
    auto manifest = ManifestFromJson(model.manifest);
    if (!manifest.ok()) {
      LogError({{"model", model.name}}, strata::Describe(manifest.status()));
      continue;
    }
    auto runtime = MakeModelRuntime(
        model.name, std::make_shared<const ModelManifest>(Recognize(model, *std::move(manifest))));
    if (!runtime.ok()) {
      LogError({{"model", model.name}}, strata::Describe(runtime.status()));
      continue;
    }
    blobs_->AddManifest(model.name, (*runtime)->manifest);
    MutexLock lock(&mutex_);
    models_[model.name] = *std::move(runtime);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> Models::Add(
    const std::string& path, const std::string& wanted_name, const std::string& origin,
    const std::function<bool(uint64_t, uint64_t)>& progress) {
  const std::string name = wanted_name.empty() ? DefaultModelName(path) : wanted_name;
  RETURN_IF_ERROR(CheckModelName(name));
  ASSIGN_OR_RETURN(ModelManifest manifest, DigestCheckpoint(path, progress));
  manifest.model = name;
  manifest.ours = origin != "path";
  ASSIGN_OR_RETURN(
      auto runtime,
      MakeModelRuntime(name, std::make_shared<const ModelManifest>(std::move(manifest))));
  // Whoever waited for the files may have given up: then nothing is registered.
  uint64_t bytes = 0;
  for (const ManifestFile& file : runtime->manifest->files) bytes += file.identity.bytes;
  if (progress != nullptr && !progress(bytes, bytes)) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED", "nobody waits for it any more");
  }
  MutexLock changing(&changes_);
  if (const auto old = Get(name);
      old.ok() && (*old)->manifest->weights_digest != runtime->manifest->weights_digest) {
    return Error(absl::StatusCode::kAlreadyExists, "MODEL_EXISTS",
                 "there is another model '" + name + "', from " + (*old)->manifest->path)
        .Hint("choose another --name, or `strata model remove " + name + "` first");
  }
  StoredModel stored;
  stored.name = name;
  stored.path = runtime->manifest->path;
  stored.manifest = ManifestToJson(*runtime->manifest);
  stored.digest = runtime->manifest->weights_digest;
  stored.origin = origin;
  RETURN_IF_ERROR(store_->SaveModel(stored));
  MutexLock lock(&mutex_);
  blobs_->AddManifest(name, runtime->manifest);
  models_[name] = runtime;
  return runtime;
}

absl::StatusOr<std::string> Models::Forget(const std::string& name) {
  namespace fs = std::filesystem;
  MutexLock changing(&changes_);
  RETURN_IF_ERROR(Get(name).status());
  ASSIGN_OR_RETURN(const StoredModel stored, store_->GetModel(name));
  // Moved first, so that the name is free for another upload while the files are being deleted,
  // and an end of the process in between leaves nothing in its way.
  std::string aside;
  if (stored.origin != "path") {
    const std::string parent = fs::path(stored.path).parent_path().string();
    for (int i = 0; aside.empty() || fs::exists(aside); ++i) {
      aside = parent + "/" + kAside + name + "-" + std::to_string(i);
    }
    std::error_code error;
    fs::rename(stored.path, aside, error);
    if (error) {
      LogWarn({{"model", name}, {"path", stored.path}}, "cannot delete: " + error.message());
      aside.clear();
    }
  }
  if (absl::Status removed = store_->RemoveModel(name); !removed.ok()) {
    std::error_code error;
    if (!aside.empty()) fs::rename(aside, stored.path, error);
    return removed;
  }
  MutexLock lock(&mutex_);
  blobs_->RemoveManifest(name);
  models_.erase(name);
  return aside;
}

void Models::DeleteFolder(const std::string& folder) {
  if (folder.empty()) {
    return;
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) {
    LogWarn({{"path", folder}}, "cannot delete: " + error.message());
  }
}

void Models::DeleteLeftovers(const std::string& models_dir) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(models_dir, error)) {
    if (entry.path().filename().string().starts_with(kAside)) {
      leftovers.push_back(entry.path().string());
    }
  }
  for (const std::string& folder : leftovers) {
    DeleteFolder(folder);
  }
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> Models::Get(const std::string& name) const {
  MutexLock lock(&mutex_);
  const auto it = models_.find(name);
  if (it != models_.end()) {
    return it->second;
  }
  std::string known;
  for (const auto& [other, runtime] : models_) {
    known += (known.empty() ? "" : ", ") + other;
  }
  return Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
               "there is no model '" + name + "'" + (known.empty() ? "" : "; there are: " + known))
      .Hint("register one with `strata model add PATH`");
}

std::vector<std::shared_ptr<const ModelRuntime>> Models::List() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<const ModelRuntime>> all;
  for (const auto& [name, runtime] : models_) {
    all.push_back(runtime);
  }
  return all;
}

absl::StatusOr<RotaryBlob> Models::Rotary(const ModelRuntime& model, uint32_t context) {
  const std::vector<float> tables = MakeRotaryTables(model.spec(), context);
  const size_t bytes = tables.size() * sizeof(float);
  MemoryBlob blob =
      blobs_->AddMemory(std::string(reinterpret_cast<const char*>(tables.data()), bytes));
  return RotaryBlob{std::move(blob.sha256), bytes, std::move(blob.data)};
}

}  // namespace strata
