// A GGUF file: 8 bytes for how many zeros follow (big-endian, so that small files are easy to
// write), then its beginning. It is opened as a checkpoint, its tokenizer and chat template read.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/check.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/block_formats.h"
#include "common/status.h"
#include "coordinator/registry/gguf_text.h"
#include "tests/fuzz/input.h"
#include "text/tokenizer/gguf_tokenizer.h"

namespace strata {
namespace {

constexpr uint64_t kMaxZeros = uint64_t{1} << 20;

// A file of this process, removed at its end.
class OneFile {
 public:
  OneFile() {
    std::string folder = std::filesystem::temp_directory_path() / "gguf-fuzz-XXXXXX";
    STRATA_CHECK(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
  }
  ~OneFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/m.gguf"; }

  void Write(const std::string& head, uint64_t zeros) const {
    const int file = open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    STRATA_CHECK(file >= 0 && write(file, head.data(), head.size()) == ssize_t(head.size()));
    STRATA_CHECK(ftruncate(file, static_cast<off_t>(head.size() + zeros)) == 0);
    close(file);
  }

 private:
  std::string folder_;
};

void CheckStatus(const absl::Status& status) {
  STRATA_CHECK(status.ok() || (!ReasonOf(status).empty() && status.message().size() < 65536));
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  static const OneFile file;
  fuzz::Input input(data, size);
  const uint64_t zeros = std::min(input.Uint64(), kMaxZeros);
  const std::string head = input.Bytes(size);
  file.Write(head, zeros);
  const auto checkpoint = OpenCheckpoint(file.path());
  CheckStatus(checkpoint.status());
  if (checkpoint.ok()) {
    for (const TensorEntry& tensor : checkpoint->tensors) {
      STRATA_CHECK(TensorBytes(tensor.dtype, tensor.shape) == tensor.bytes);
      STRATA_CHECK(tensor.offset <= head.size() + zeros &&
                   tensor.bytes <= head.size() + zeros - tensor.offset);
    }
  }
  const auto tokenizer = ReadGgufTokenizer(file.path());
  CheckStatus(tokenizer.status());
  STRATA_CHECK(!tokenizer.ok() || GgufHasTokenizer(file.path()));
  if (tokenizer.ok()) {
    CheckStatus((*tokenizer)->Encode("It's a\n  text <s>1234", true).status());
  }
  CheckStatus(ReadGgufChatTemplate(file.path()).status());
  return 0;
}
