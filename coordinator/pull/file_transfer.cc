#include "coordinator/pull/file_transfer.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "common/status.h"
#include "common/units.h"
#include "coordinator/pull/file_selection.h"

namespace strata {
namespace {

constexpr uint64_t kReportBytes = 1 << 20;
constexpr int kMaxAttemptsOfAFile = 1000;
constexpr int64_t kMaxRetryAfterMs = 120'000;

bool ParseNumber(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// "bytes 5-9/10" (the total may be *, then 0).
bool ParseContentRange(std::string_view text, uint64_t* first, uint64_t* last, uint64_t* total) {
  if (text.substr(0, 6) != "bytes ") {
    return false;
  }
  text.remove_prefix(6);
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == text.npos || slash == text.npos || dash > slash) {
    return false;
  }
  *total = 0;
  const std::string_view total_text = text.substr(slash + 1);
  return ParseNumber(text.substr(0, dash), first) &&
         ParseNumber(text.substr(dash + 1, slash - dash - 1), last) && *last >= *first &&
         (total_text == "*" || ParseNumber(total_text, total));
}

// The text of an ETag, without W/ and quotes.
std::string Unquoted(std::string_view etag) {
  if (etag.substr(0, 2) == "W/") {
    etag.remove_prefix(2);
  }
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

bool IsStrong(std::string_view etag) { return etag.size() > 2 && etag.front() == '"'; }

bool IsSha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

absl::Status SizeError(const std::string& file, uint64_t wanted, uint64_t got) {
  return Error(
      absl::StatusCode::kDataLoss, "SIZE_MISMATCH",
      file + " should have " + std::to_string(wanted) + " bytes and has " + std::to_string(got));
}

}  // namespace

absl::Status HttpError(const HttpResponse& response, bool own, const PullOptions& options) {
  const int status = response.status;
  const std::string what = "the server answered " + std::to_string(status) + " for " +
                           options.repository + " at revision " + options.revision;
  const bool expired = !own && (status == 401 || status == 403);  // Of a signed URL.
  if (expired || status == 408 || status == 429 || status >= 500) {
    return Error(absl::StatusCode::kUnavailable, "SERVER_BUSY", what);
  }
  switch (status) {
    case 401:
      return Error(absl::StatusCode::kUnauthenticated, "TOKEN_NEEDED", what)
          .Hint(options.token.empty()
                    ? "it is private, gated, or does not exist: set HF_TOKEN to a token that may "
                      "read it"
                    : "the token in HF_TOKEN is not accepted, or the repository does not exist");
    case 403:
      return Error(absl::StatusCode::kPermissionDenied, "ACCESS_DENIED", what)
          .Hint("accept the model's terms at " + options.endpoint + "/" + options.repository +
                ", and set HF_TOKEN to a token of that account");
    case 404:
    case 410:
      return Error(absl::StatusCode::kNotFound, "REPOSITORY_NOT_FOUND", what)
          .Hint("check ORG/NAME and --revision; a private repository needs HF_TOKEN");
    default:
      return Error(absl::StatusCode::kFailedPrecondition, "UNEXPECTED_ANSWER", what);
  }
}

bool Backoff::Again(bool advanced, int64_t at_least_ms) {
  failures_ = advanced ? 1 : failures_ + 1;
  if (failures_ >= options_.max_attempts || ++total_ >= kMaxAttemptsOfAFile) {
    return false;
  }
  const int64_t doubled = static_cast<int64_t>(options_.first_backoff_ms)
                          << std::min(failures_ - 1, 16);
  const int64_t wait_ms =
      std::max(std::min<int64_t>(doubled, options_.max_backoff_ms), at_least_ms);
  observer_.Wait(std::chrono::milliseconds(wait_ms));
  return !observer_.Cancelled();
}

FileTransfer::FileTransfer(const PullOptions& options, const RedirectFollower& follower,
                           PullObserver& observer, PartialFolder& folder, std::string file,
                           std::function<void(uint64_t, uint64_t)> on_bytes)
    : options_(options),
      follower_(follower),
      observer_(observer),
      folder_(folder),
      file_(std::move(file)),
      on_bytes_(std::move(on_bytes)),
      record_(folder.Record(file_)) {}

FileTransfer::~FileTransfer() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

absl::Status FileTransfer::Run(const std::vector<std::string>& urls) {
  RETURN_IF_ERROR(OpenPart());
  absl::Status status;
  for (const std::string& url : urls) {
    status = Attempts(url);
    if (status.code() != absl::StatusCode::kNotFound) {
      break;
    }
  }
  if (!status.ok()) {
    return Annotate(status, file_);
  }
  if (::fsync(fd_) != 0) {
    return SystemError("cannot write", folder_.PartPath(file_), errno);
  }
  record_.total_bytes = offset_;
  record_.done = true;
  on_bytes_(offset_, offset_);
  return folder_.Finish(file_);
}

// Takes over what an earlier pull has of the file.
absl::Status FileTransfer::OpenPart() {
  const std::string path = folder_.PartPath(file_);
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) {
    return SystemError("cannot open", path, errno);
  }
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  // Without an ETag, nothing tells whether the rest would be of the same file.
  const bool usable =
      size > 0 && (!record_.etag.empty() || !record_.linked_etag.empty()) &&
      (record_.total_bytes == 0 || static_cast<uint64_t>(size) <= record_.total_bytes) &&
      CheckLimit(std::max<uint64_t>(record_.total_bytes, static_cast<uint64_t>(size))).ok();
  if (!usable) {
    return size > 0 ? Restart() : absl::OkStatus();
  }
  std::vector<char> buffer(1 << 20);
  while (offset_ < static_cast<uint64_t>(size)) {
    const ssize_t read = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (read <= 0) {
      return SystemError("cannot read", path, read < 0 ? errno : EIO);
    }
    digest_.Update(buffer.data(), static_cast<size_t>(read));
    offset_ += static_cast<uint64_t>(read);
    if (observer_.Cancelled()) {
      return CancelledTransfer();
    }
  }
  return absl::OkStatus();
}

absl::Status FileTransfer::Restart() {
  if (::ftruncate(fd_, 0) != 0) {
    return SystemError("cannot write", folder_.PartPath(file_), errno);
  }
  digest_.Finish();
  offset_ = 0;
  reported_ = 0;
  record_ = FileRecord();
  return absl::OkStatus();
}

absl::Status FileTransfer::Attempts(const std::string& url) {
  Backoff backoff(options_, observer_);
  bool wrong_before = false;
  while (true) {
    const uint64_t before = offset_;
    retry_after_ms_ = 0;
    linked_bytes_ = 0;
    absl::Status status = Attempt(url);
    if (status.ok()) {
      status = Verify();
    }
    if (status.code() == absl::StatusCode::kDataLoss && !wrong_before) {
      wrong_before = true;  // A part of two versions, or damaged on the way: once more, afresh.
      RETURN_IF_ERROR(Restart());
      continue;
    }
    if (status.code() == absl::StatusCode::kDataLoss) {
      RETURN_IF_ERROR(Restart());
      return status;
    }
    const bool may_mend =
        status.code() == absl::StatusCode::kUnavailable && ReasonOf(status) != "FILE_SYSTEM";
    if (!may_mend || !backoff.Again(offset_ > before, retry_after_ms_)) {
      return observer_.Cancelled() && !status.ok() ? CancelledTransfer() : status;
    }
  }
}

absl::Status FileTransfer::Attempt(const std::string& url) {
  if (record_.total_bytes > 0 && offset_ == record_.total_bytes) {
    return absl::OkStatus();  // Only the verification was missing.
  }
  if (offset_ > 0 && record_.etag.empty() && record_.linked_etag.empty()) {
    RETURN_IF_ERROR(Restart());  // Nothing would tell whether the rest is of the same file.
  }
  RETURN_IF_ERROR(follower_.Get(url, *this));
  if (record_.total_bytes > 0 && offset_ < record_.total_bytes) {
    return Error(absl::StatusCode::kUnavailable, "TRANSFER_BROKE",
                 file_ + " ended after " + std::to_string(offset_) + " of " +
                     std::to_string(record_.total_bytes) + " bytes");
  }
  return absl::OkStatus();
}

HttpHeaders FileTransfer::RequestHeaders() {
  if (offset_ == 0) {
    return {};
  }
  HttpHeaders headers = {{"Range", "bytes=" + std::to_string(offset_) + "-"}};
  if (IsStrong(record_.etag)) {
    headers.emplace_back("If-Range", record_.etag);
  }
  return headers;
}

void FileTransfer::OnRedirect(const HttpResponse& response, bool own) {
  const std::string linked = Unquoted(response.Header("x-linked-etag"));
  if (!own || linked.empty()) {
    return;
  }
  if (offset_ > 0 && !record_.linked_etag.empty() && linked != record_.linked_etag) {
    static_cast<void>(Restart());  // A failure shows at the next write.
  }
  record_.linked_etag = linked;
  if (ParseNumber(response.Header("x-linked-size"), &linked_bytes_) && record_.total_bytes == 0) {
    record_.total_bytes = linked_bytes_;
  }
}

absl::Status FileTransfer::OnResponse(const HttpResponse& response, bool own) {
  uint64_t seconds = 0;
  if (ParseNumber(response.Header("retry-after"), &seconds)) {
    retry_after_ms_ =
        static_cast<int64_t>(std::min<uint64_t>(seconds, kMaxRetryAfterMs / 1000) * 1000);
  }
  if (own && !response.Header("x-linked-etag").empty() && response.status / 100 == 2) {
    OnRedirect(response, own);
  }
  switch (response.status) {
    case 200:
      return OnWhole(response);
    case 206:
      return OnRange(response);
    case 416:
      RETURN_IF_ERROR(Restart());
      return Error(absl::StatusCode::kUnavailable, "TRANSFER_BROKE",
                   file_ + " is shorter than what has arrived of it");
    default:
      return HttpError(response, own, options_);
  }
}

absl::Status FileTransfer::OnWhole(const HttpResponse& response) {
  if (offset_ > 0) {  // Ranges are not served, or the file is another one.
    const std::string linked = record_.linked_etag;
    RETURN_IF_ERROR(Restart());
    record_.linked_etag = linked;
    record_.total_bytes = linked_bytes_;
  }
  record_.etag = response.Header("etag");
  uint64_t length = 0;
  if (ParseNumber(response.Header("content-length"), &length)) {
    RETURN_IF_ERROR(SetTotal(length));
  }
  return CheckSpace();
}

absl::Status FileTransfer::OnRange(const HttpResponse& response) {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t total = 0;
  const std::string_view etag = response.Header("etag");
  const bool same = etag.empty() || record_.etag.empty() || etag == record_.etag;
  if (!ParseContentRange(response.Header("content-range"), &first, &last, &total) ||
      first != offset_ || !same) {
    RETURN_IF_ERROR(Restart());
    return Error(absl::StatusCode::kUnavailable, "TRANSFER_BROKE",
                 same ? file_ + ": the server sends another range than asked for"
                      : file_ + " has changed at the server");
  }
  if (total > 0) {
    RETURN_IF_ERROR(SetTotal(total));
  }
  return CheckSpace();
}

absl::Status FileTransfer::SetTotal(uint64_t total) {
  if (record_.total_bytes > 0 && record_.total_bytes != total) {
    return SizeError(file_, record_.total_bytes, total);
  }
  record_.total_bytes = total;
  return absl::OkStatus();
}

absl::Status FileTransfer::CheckLimit(uint64_t bytes) const {
  const uint64_t most = MaxBytesOf(file_);
  if (bytes <= most) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kFailedPrecondition, "FILE_TOO_LARGE",
               file_ + " has " + FormatSize(bytes) + " or more, and a file of this name may have " +
                   FormatSize(most) + " at most")
      .Limit("file_bytes=" + std::to_string(most))
      .Hint("the repository is damaged, or no model that can be read; look at it at its server");
}

// Says early that the disk is too small, and keeps what is needed to go on later.
absl::Status FileTransfer::CheckSpace() {
  RETURN_IF_ERROR(CheckLimit(record_.total_bytes));
  struct statvfs disk {};
  const std::string path = folder_.PartPath(file_);
  if (record_.total_bytes > offset_ && ::fstatvfs(fd_, &disk) == 0) {
    const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    if (free_bytes < record_.total_bytes - offset_) {
      return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                   file_ + " needs " + std::to_string(record_.total_bytes - offset_) +
                       " bytes more than there are: " + path)
          .Limit("free_bytes=" + std::to_string(free_bytes))
          .Hint("free some space, then pull again: what has arrived is kept");
    }
  }
  on_bytes_(offset_, record_.total_bytes);
  return folder_.Save();
}

absl::Status FileTransfer::OnBody(std::string_view bytes) {
  if (record_.total_bytes > 0 && bytes.size() > record_.total_bytes - offset_) {
    return SizeError(file_, record_.total_bytes, offset_ + bytes.size());
  }
  RETURN_IF_ERROR(CheckLimit(offset_ + bytes.size()));  // Announced is not sent.
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return SystemError("cannot write", folder_.PartPath(file_), errno);
    }
    digest_.Update(bytes.data(), static_cast<size_t>(written));
    offset_ += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (offset_ - reported_ >= kReportBytes) {
    reported_ = offset_;
    on_bytes_(offset_, record_.total_bytes);
  }
  return absl::OkStatus();
}

// What the endpoint says goes before what a storage server behind it calls its copy.
std::string FileTransfer::ExpectedDigest() const {
  if (!record_.linked_etag.empty()) {
    return IsSha256(record_.linked_etag) ? record_.linked_etag : "";
  }
  const std::string etag = Unquoted(record_.etag);
  return IsSha256(etag) ? etag : "";
}

absl::Status FileTransfer::Verify() {
  if (record_.total_bytes > 0 && offset_ != record_.total_bytes) {
    return SizeError(file_, record_.total_bytes, offset_);
  }
  record_.sha256 = ToHex(digest_.Finish());
  const std::string expected = ExpectedDigest();
  record_.verified = !expected.empty();
  if (record_.verified && expected != record_.sha256) {
    return Error(absl::StatusCode::kDataLoss, "DIGEST_MISMATCH",
                 file_ + " does not have the SHA-256 that the server names")
        .Fact("expected", expected)
        .Fact("got", record_.sha256)
        .Hint("pull again; if it stays so, the server or something on the way damages the file");
  }
  return absl::OkStatus();
}

}  // namespace strata
