// Registering a checkpoint: every file and every tensor by SHA-256.
#ifndef STRATA_COORDINATOR_REGISTRY_DIGEST_CHECKPOINT_H_
#define STRATA_COORDINATOR_REGISTRY_DIGEST_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/registry/manifest.h"

namespace strata {

// Called between chunks, on the digesting thread; false stops with CANCELLED.
using DigestProgressFn = std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

// Opens, validates and digests the folder or .gguf file `path`, reading each file once, in order.
// Of a folder's files the weights, *.json, *.jinja and tokenizer files count; symlinks are
// followed. The files stay where they are. Errors are OpenCheckpoint's, and ABORTED (MODEL_CHANGED)
// when a file changed meanwhile. Takes as long as reading and hashing does; hold no lock.
absl::StatusOr<ModelManifest> DigestCheckpoint(const std::string& path,
                                               const DigestProgressFn& progress);

// Likewise without reading weights: their files and tensors, and the whole, have no digests. For a
// look at a checkpoint, not for registering it.
absl::StatusOr<ModelManifest> LookAtCheckpoint(const std::string& path);

}  // namespace strata

#endif  // STRATA_COORDINATOR_REGISTRY_DIGEST_CHECKPOINT_H_
