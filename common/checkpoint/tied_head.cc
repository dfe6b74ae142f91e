#include "common/checkpoint/tied_head.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/checkpoint/json_reader.h"
#include "common/checkpoint/unsupported_model.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint64_t kComparedBytes = uint64_t{1} << 20;

absl::StatusOr<bool> SameBytes(const Checkpoint& checkpoint, const TensorEntry& a,
                               const TensorEntry& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.bytes != b.bytes) {
    return false;
  }
  ASSIGN_OR_RETURN(const FileReader file_a, FileReader::Open(checkpoint.path + "/" + a.file));
  ASSIGN_OR_RETURN(const FileReader file_b, FileReader::Open(checkpoint.path + "/" + b.file));
  std::string chunk_a;
  std::string chunk_b;
  for (uint64_t at = 0; at < a.bytes; at += kComparedBytes) {
    const uint64_t size = std::min(kComparedBytes, a.bytes - at);
    chunk_a.resize(size);
    chunk_b.resize(size);
    RETURN_IF_ERROR(file_a.ReadAt(a.offset + at, chunk_a.data(), size));
    RETURN_IF_ERROR(file_b.ReadAt(b.offset + at, chunk_b.data(), size));
    if (chunk_a != chunk_b) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckTiedHead(const Checkpoint& checkpoint) {
  const ModelSpec& spec = checkpoint.spec;
  if (!spec.tied_head) {
    return absl::OkStatus();
  }
  const std::string start = spec.tensor_prefix + "lm_head.";
  const TensorEntry* embedding = checkpoint.Find(spec.tensor_prefix + "model.embed_tokens.weight");
  for (const TensorEntry& tensor : checkpoint.tensors) {
    if (!tensor.name.starts_with(start)) {
      continue;
    }
    bool same = false;
    if (embedding != nullptr && tensor.name == start + "weight") {
      ASSIGN_OR_RETURN(same, SameBytes(checkpoint, tensor, *embedding));
    }
    if (!same) {
      return UnsupportedModel(absl::StrCat("tie_word_embeddings true beside a tensor ",
                                           Quoted(tensor.name),
                                           " that is no copy of the embedding"));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata
