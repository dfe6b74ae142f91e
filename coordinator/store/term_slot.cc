#include "coordinator/store/term_slot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kSlotBytes = 4096;  // A block.
constexpr size_t kTextBytes = 64;    // Within a sector, which is written as one.

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

uint64_t TermSlot::Read() const {
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  char text[kTextBytes + 1] = {};
  if (file.get() < 0 || pread(file.get(), text, kTextBytes, 0) < 0) {
    return 0;
  }
  uint64_t term = 0;
  uint64_t again = 0;
  return std::sscanf(text, "term %" SCNu64 " %" SCNu64, &term, &again) == 2 && term == again ? term
                                                                                             : 0;
}

absl::Status TermSlot::Write(uint64_t term) const {
  const auto failed = [this] {
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                 full ? "STORE_FULL" : "STORE_IO",
                 absl::StrCat("cannot write ", path_, ": ", std::strerror(errno)))
        .Hint("make room on the disk of --data-dir, and see that it can be written to");
  };
  const Descriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct stat info {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return failed();
  }
  const bool fresh = static_cast<size_t>(info.st_size) < kSlotBytes;
  std::string text = absl::StrCat("term ", term, " ", term, "\n");
  text.resize(fresh ? kSlotBytes : kTextBytes, '\0');
  const ssize_t written = pwrite(file.get(), text.data(), text.size(), 0);
  if (written >= 0 && static_cast<size_t>(written) < text.size()) {
    errno = ENOSPC;
  }
  if (written != static_cast<ssize_t>(text.size()) || fsync(file.get()) != 0) {
    return failed();
  }
  return absl::OkStatus();
}

}  // namespace strata
