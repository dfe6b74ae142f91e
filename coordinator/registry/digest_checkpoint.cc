#include "coordinator/registry/digest_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/generation_config.h"
#include "common/digest.h"
#include "common/file_limits.h"
#include "common/status.h"
#include "coordinator/registry/chat_template_source.h"
#include "coordinator/registry/gguf_text.h"
#include "coordinator/registry/model_changed.h"
#include "coordinator/registry/tokenizer_file.h"

namespace strata {
namespace {

constexpr size_t kChunkBytes = size_t{4} << 20;

absl::Status ChangedMeanwhile(const std::string& path) {
  return Error(absl::StatusCode::kAborted, "MODEL_CHANGED",
               path + " changed while it was being digested")
      .Hint("wait until nothing writes to the folder, and add it again");
}

// Digests the ranges of a file's tensors as its bytes pass by. Tensors do not overlap.
class TensorDigests {
 public:
  explicit TensorDigests(std::vector<ManifestTensor*> tensors) : tensors_(std::move(tensors)) {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const ManifestTensor* a, const ManifestTensor* b) {
                return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
              });
  }

  // Bytes [position, position + bytes) of the file, the ones after those of the call before.
  void Update(uint64_t position, const char* data, size_t bytes) {
    const uint64_t end = position + bytes;
    while (next_ < tensors_.size() && tensors_[next_]->offset < end) {
      const ManifestTensor& tensor = *tensors_[next_];
      const uint64_t from = std::max(position, tensor.offset);
      const uint64_t to = std::min(end, tensor.offset + tensor.bytes);
      if (from < to) {
        sha_.Update(data + (from - position), to - from);
      }
      if (tensor.offset + tensor.bytes > end) {
        return;
      }
      FinishOne();
    }
  }
  // After the last byte: tensors without any may be left.
  void Finish() {
    while (next_ < tensors_.size()) {
      FinishOne();
    }
  }

 private:
  void FinishOne() { tensors_[next_++]->sha256 = ToHex(sha_.Finish()); }

  std::vector<ManifestTensor*> tensors_;
  size_t next_ = 0;
  Sha256 sha_;
};

class Digester {
 public:
  Digester(const std::string& folder, const DigestProgressFn& progress)
      : folder_(folder), progress_(progress) {}

  absl::Status Open(const std::string& name) {
    ASSIGN_OR_RETURN(FileReader file, FileReader::Open(folder_ + "/" + name));
    total_ += file.size();
    files_.emplace_back(name, std::move(file));
    return absl::OkStatus();
  }

  absl::Status Run(ModelManifest* manifest) {
    std::map<std::string, std::vector<ManifestTensor*>> tensors;
    for (ManifestTensor& tensor : manifest->tensors) {
      tensors[tensor.file].push_back(&tensor);
    }
    RETURN_IF_ERROR(Report());
    for (const auto& [name, file] : files_) {
      ASSIGN_OR_RETURN(const std::string sha256, DigestOne(file, tensors[name]));
      manifest->files.push_back({name, file.identity(), sha256});
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Report() const {
    if (progress_ != nullptr && !progress_(done_, total_)) {
      return Error(absl::StatusCode::kCancelled, "CANCELLED", "digesting was cancelled");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> DigestOne(const FileReader& file,
                                        std::vector<ManifestTensor*> tensors) {
    Sha256 sha;
    TensorDigests digests(std::move(tensors));
    for (uint64_t position = 0; position < file.size();) {
      const auto bytes =
          static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file.size() - position));
      const absl::Status read = file.ReadAt(position, buffer_.data(), bytes);
      if (read.code() == absl::StatusCode::kOutOfRange) {
        return ChangedMeanwhile(file.path());
      }
      RETURN_IF_ERROR(read);
      sha.Update(buffer_.data(), bytes);
      digests.Update(position, buffer_.data(), bytes);
      position += bytes;
      done_ += bytes;
      RETURN_IF_ERROR(Report());
    }
    digests.Finish();
    ASSIGN_OR_RETURN(const FileIdentity after, file.CurrentIdentity());
    if (!(after == file.identity())) {
      return ChangedMeanwhile(file.path());
    }
    return ToHex(sha.Finish());
  }

  const std::string folder_;
  const DigestProgressFn& progress_;
  std::vector<std::pair<std::string, FileReader>> files_;
  std::string buffer_ = std::string(kChunkBytes, '\0');
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

bool IsSideFile(const std::string& name) {
  return absl::EndsWith(name, ".json") || absl::EndsWith(name, ".jinja") ||
         name == "tokenizer.model" || name == "merges.txt" || name == "vocab.txt" ||
         IsTiktokenFile(name);
}

// Names of the files that count, ascending.
absl::StatusOr<std::vector<std::string>> FilesOf(const Checkpoint& checkpoint) {
  const std::string& folder = checkpoint.path;
  std::vector<std::string> names = checkpoint.weight_files;
  if (!checkpoint.whole_folder) {
    return names;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (IsSideFile(name) && it->is_regular_file(ignored)) {
      names.push_back(name);
    }
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, "FILE_ERROR",
                 absl::StrCat("cannot list ", folder, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool SameTensors(const std::vector<TensorEntry>& a, const std::vector<TensorEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TensorEntry& x, const TensorEntry& y) {
                      return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
                             x.file == y.file && x.offset == y.offset && x.bytes == y.bytes;
                    });
}

// What was read before the digests has to be what was digested.
absl::Status CheckAgain(const std::string& path, const Checkpoint& checkpoint) {
  const auto again = OpenCheckpoint(path);
  if (!again.ok() || again->config_json != checkpoint.config_json ||
      again->generation_config_json != checkpoint.generation_config_json ||
      !SameTensors(again->tensors, checkpoint.tensors)) {
    return ChangedMeanwhile(path);
  }
  return absl::OkStatus();
}

ModelManifest ManifestOf(const Checkpoint& checkpoint) {
  ModelManifest manifest;
  manifest.path = checkpoint.path;
  manifest.config_json = checkpoint.config_json;
  manifest.generation_config_json = checkpoint.generation_config_json;
  manifest.spec = checkpoint.spec;
  manifest.notes = checkpoint.notes;
  for (const TensorEntry& entry : checkpoint.tensors) {
    manifest.tensors.push_back(
        {entry.name, entry.dtype, entry.shape, entry.file, entry.offset, entry.bytes, ""});
  }
  return manifest;
}

// Of the folder, where that is the checkpoint, else what a GGUF file has.
absl::StatusOr<ChatTemplateSource> TemplateOf(const Checkpoint& checkpoint) {
  ChatTemplateSource source;
  if (checkpoint.whole_folder) {
    ASSIGN_OR_RETURN(source, ReadFolderChatTemplate(checkpoint.path));
  }
  const std::string& first = checkpoint.weight_files.front();
  if (absl::EndsWith(first, ".gguf") && source.source.empty()) {
    ASSIGN_OR_RETURN(source, ReadGgufChatTemplate(checkpoint.path + "/" + first));
  }
  return source;
}

// Whether its own file has one, of whatever kind.
bool HasGgufTokenizer(const Checkpoint& checkpoint) {
  const std::string path = checkpoint.path + "/" + checkpoint.weight_files.front();
  return absl::EndsWith(path, ".gguf") && GgufHasTokenizer(path);
}

absl::Status AddTemplate(const Checkpoint& checkpoint, ModelManifest* manifest) {
  ASSIGN_OR_RETURN(const ChatTemplateSource source, TemplateOf(checkpoint));
  manifest->chat_template = source.source;
  if (!source.source.empty()) {
    manifest->chat_template_file = std::filesystem::path(source.origin).filename().string();
  }
  manifest->bos_token = source.bos_token;
  manifest->eos_token = source.eos_token;
  manifest->special_tokens = source.tokens;
  for (const auto& [name, unused] : source.others) {
    manifest->notes.push_back("chat template \"" + name + "\" is there besides the default");
  }
  return absl::OkStatus();
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (!absolute.has_filename()) {
    absolute = absolute.parent_path();  // Without the final slash.
  }
  return error ? path : absolute.string();
}

// All but files and digests.
absl::StatusOr<ModelManifest> BeginManifest(const Checkpoint& checkpoint,
                                            const std::vector<std::string>& names) {
  ModelManifest manifest = ManifestOf(checkpoint);
  RETURN_IF_ERROR(
      ParseGenerationDefaults(manifest.generation_config_json, &manifest.notes).status());
  manifest.has_tokenizer = !TokenizerFileOf(names).empty() || HasGgufTokenizer(checkpoint);
  RETURN_IF_ERROR(AddTemplate(checkpoint, &manifest));
  return manifest;
}

}  // namespace

absl::StatusOr<ModelManifest> LookAtCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(Absolute(path)));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesOf(checkpoint));
  ASSIGN_OR_RETURN(ModelManifest manifest, BeginManifest(checkpoint, names));
  const std::vector<std::string>& weights = checkpoint.weight_files;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(checkpoint.path + "/" + name));
    ManifestFile& entry = manifest.files.emplace_back();
    entry.name = name;
    entry.identity = file.identity();
    if (std::find(weights.begin(), weights.end(), name) == weights.end()) {
      ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(file.path(), kMaxSideFileBytes));
      entry.sha256 = Sha256Hex(content);
    }
  }
  return manifest;
}

absl::StatusOr<ModelManifest> DigestCheckpoint(const std::string& path,
                                               const DigestProgressFn& progress) {
  const std::string wanted = Absolute(path);
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(wanted));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesOf(checkpoint));
  ASSIGN_OR_RETURN(ModelManifest manifest, BeginManifest(checkpoint, names));
  Digester digester(checkpoint.path, progress);
  for (const std::string& name : names) {
    RETURN_IF_ERROR(digester.Open(name));
  }
  RETURN_IF_ERROR(digester.Run(&manifest));
  RETURN_IF_ERROR(CheckAgain(wanted, checkpoint));
  manifest.weights_digest = WeightsDigest(manifest.tensors);
  return manifest;
}

}  // namespace strata
