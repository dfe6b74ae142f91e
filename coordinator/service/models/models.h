// The registered models: manifest, runtime and blobs of each, kept in the state store.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_MODELS_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_MODELS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/names.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/registry/blob_store.h"
#include "coordinator/service/request/model_runtime.h"
#include "coordinator/store/state_store.h"

namespace strata {

// Any thread.
class Models {
 public:
  // Neither is owned; both outlive this.
  Models(StateStore* store, BlobStore* blobs);

  // Takes up what the store knows. A model whose files changed or are gone stays known; its blobs
  // are refused when they are read. Waits while a GGUF file whose time has changed is read.
  absl::Status Restore();

  // Digests the folder and registers it as `name` ("" : the folder's name). Progress and
  // cancellation through `progress`, which returns false to stop. ALREADY_EXISTS when another
  // model has the name; the same content again is fine. `origin` is "path" (the user's own files),
  // "upload" or "pull": the latter go with the model.
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> Add(
      const std::string& path, const std::string& name, const std::string& origin,
      const std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>& progress);
  // Ends the registration at once; quick. Files that are ours are moved aside: returns the folder
  // to hand to DeleteFolder, or "". NOT_FOUND, or an error of the store that changed nothing.
  absl::StatusOr<std::string> Forget(const std::string& name);
  // Deletes what Forget returned; may take long.
  static void DeleteFolder(const std::string& folder);
  // Deletes what Forget had moved aside in `models_dir` when the process ended. At start.
  static void DeleteLeftovers(const std::string& models_dir);

  // NOT_FOUND says which there are.
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> Get(const std::string& name) const;
  std::vector<std::shared_ptr<const ModelRuntime>> List() const;

  // The model's rotary tables for a context, among the blobs for as long as the result lives.
  absl::StatusOr<RotaryBlob> Rotary(const ModelRuntime& model, uint32_t context);

  const BlobStore* blobs() const { return blobs_; }

 private:
  // `manifest` as it was stored; its file whose tokenizer is used, read again if its time changed,
  // is as it is now.
  ModelManifest Recognize(const StoredModel& stored, ModelManifest manifest);
  // A file of one or more models holds what it held, under another time: from now on it is trusted
  // as it is, also after a restart.
  void RememberFile(const std::string& path, const ManifestFile& now);
  StateStore* const store_;
  BlobStore* const blobs_;
  Mutex changes_;  // Held while the store is told of one; before mutex_.
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const ModelRuntime>> models_ STRATA_GUARDED_BY(mutex_);
  // Of files that were read again, by path: what they are like since.
  std::map<std::string, ManifestFile> renewed_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_MODELS_H_
