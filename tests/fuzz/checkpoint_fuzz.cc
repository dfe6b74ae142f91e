// A checkpoint folder: config.json, model.safetensors.index.json, tokenizer_config.json and the
// headers of two safetensors files, with a line of "----" between them. Files are as long as their
// header says, up to a limit, and sparse.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/status.h"
#include "coordinator/registry/chat_template_source.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

constexpr uint64_t kMaxData = uint64_t{1} << 24;

// A folder of this process, removed at its end.
class Folder {
 public:
  Folder() {
    std::string path = std::filesystem::temp_directory_path() / "checkpoint-fuzz-XXXXXX";
    STRATA_CHECK(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  // `bytes`: the file's size, at least that of the text. Nothing is there for an empty text.
  void Put(const std::string& name, std::string_view text, uint64_t bytes = 0) const {
    const std::string path = path_ + "/" + name;
    unlink(path.c_str());
    if (text.empty()) {
      return;
    }
    const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    STRATA_CHECK(file >= 0 && write(file, text.data(), text.size()) == ssize_t(text.size()));
    STRATA_CHECK(bytes <= text.size() || ftruncate(file, static_cast<off_t>(bytes)) == 0);
    close(file);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "LENGTH DATA_BYTES JSON", the numbers in decimal, as a file's bytes.
void PutWeights(const Folder& folder, const std::string& name, std::string_view text) {
  if (text.empty()) {
    return folder.Put(name, "");
  }
  const std::string copy(text);
  char* end = nullptr;
  const uint64_t length = std::strtoull(copy.c_str(), &end, 10);
  const uint64_t data_bytes = std::strtoull(end, &end, 10);
  const std::string json = copy.substr(static_cast<size_t>(end - copy.c_str()));
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += json;
  folder.Put(name, file, file.size() + std::min(data_bytes, kMaxData));
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  static const Folder folder;
  const auto texts = fuzz::Sections(data, size, 5);
  folder.Put("config.json", texts[0]);
  folder.Put("model.safetensors.index.json", texts[1]);
  folder.Put("tokenizer_config.json", texts[2]);
  PutWeights(folder, texts[1].empty() ? "model.safetensors" : "a.safetensors", texts[3]);
  PutWeights(folder, "b.safetensors", texts[4]);
  const auto checkpoint = OpenCheckpoint(folder.path());
  if (checkpoint.ok()) {
    for (const TensorEntry& tensor : checkpoint->tensors) {
      const uint64_t bytes = std::filesystem::file_size(folder.path() + "/" + tensor.file);
      STRATA_CHECK(tensor.offset <= bytes && tensor.bytes <= bytes - tensor.offset);
    }
  } else {
    STRATA_CHECK(!ReasonOf(checkpoint.status()).empty());
  }
  const auto source = ReadFolderChatTemplate(folder.path());
  STRATA_CHECK(source.ok() || !ReasonOf(source.status()).empty());
  return 0;
}
