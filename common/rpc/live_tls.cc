#include "common/rpc/live_tls.h"

#include <sys/stat.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "common/certificates/renewal.h"
#include "common/platform/platform.h"
#include "common/printable.h"
#include "common/rpc/openssl_text.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr char kNames[][10] = {"/ca.pem", "/cert.pem", "/key.pem"};

// What changes when the files of a folder do.
std::string LooksOf(const std::string& dir) {
  std::string looks;
  for (const char* name : kNames) {
    struct stat info {};
    if (stat((dir + name).c_str(), &info) == 0) {
      looks += std::to_string(info.st_dev) + "," + std::to_string(info.st_ino) + "," +
               std::to_string(info.st_size) + "," + std::to_string(info.st_mtim.tv_sec) + "." +
               std::to_string(info.st_mtim.tv_nsec) + "," + std::to_string(info.st_ctim.tv_sec) +
               "." + std::to_string(info.st_ctim.tv_nsec);
    }
    looks += ";";
  }
  return looks;
}

std::string CertIn(const std::string& dir) {
  std::ifstream in(dir + "/cert.pem", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// gRPC reads from a path for as long as any connection of it is left, which nobody tells: what is
// under it must not become another file.
void KeepForGood(std::unique_ptr<MemoryFile> file) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<MemoryFile>>();
  MutexLock lock(&mutex);
  if (file != nullptr) {
    kept->push_back(std::move(file));
  }
}

std::string Pair(const TlsFiles& files) { return files.key + "\n" + files.cert + "\n"; }
std::string Shown(const TlsFiles& files) { return Pair(files) + files.ca + "\n"; }

}  // namespace

absl::StatusOr<std::shared_ptr<LiveTls>> LiveTls::Open(LiveTlsOptions options, int64_t now_s) {
  auto live = std::shared_ptr<LiveTls>(new LiveTls(std::move(options)));
  MutexLock looking(&live->looking_);
  live->last_looks_ = LooksOf(live->options_.dir) + LooksOf(live->options_.renewed_dir);
  ASSIGN_OR_RETURN(TlsFiles files, live->Read(now_s));
  MutexLock lock(&live->mutex_);
  live->files_ = std::make_shared<const TlsFiles>(std::move(files));
  return live;
}

LiveTls::~LiveTls() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (looker_.joinable()) {
    looker_.join();
  }
  KeepForGood(std::move(pair_file_));
  KeepForGood(std::move(ca_file_));
  KeepForGood(std::move(shown_file_));
}

std::shared_ptr<const TlsFiles> LiveTls::files() const {
  MutexLock lock(&mutex_);
  return files_;
}

absl::StatusOr<TlsFiles> LiveTls::Read(int64_t now_s) const {
  absl::StatusOr<TlsFiles> given = ReadTlsFiles(options_.dir, now_s);
  if (options_.renewed_dir.empty()) {
    return given;
  }
  absl::StatusOr<TlsFiles> renewed = ReadTlsFiles(options_.renewed_dir, now_s);
  if (!renewed.ok() || !renewed->holder.has_value()) {
    return given;
  }
  // One that has lapsed says whose it was all the same.
  const std::string cert = given.ok() ? given->cert : CertIn(options_.dir);
  const auto holder = HolderOf(cert);
  const auto term = TermOf(cert);
  const bool newer = holder.ok() && term.ok() && *holder == *renewed->holder &&
                     IssuedAtS(renewed->term) > IssuedAtS(*term);
  return newer ? std::move(renewed) : std::move(given);
}

absl::Status LiveTls::Follow() {
  const std::shared_ptr<const TlsFiles> now = files();
  ASSIGN_OR_RETURN(pair_file_, MemoryFile::Make(Pair(*now)));
  ASSIGN_OR_RETURN(ca_file_, MemoryFile::Make(now->ca));
  ASSIGN_OR_RETURN(shown_file_, MemoryFile::Make(Shown(*now)));
  looker_ = std::thread([this] { LookLoop(); });
  return absl::OkStatus();
}

void LiveTls::LookLoop() {
  NameThread("strata-tls");
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) {
        changed_.WaitFor(&mutex_, kLookEvery);
      }
      if (stopping_) {
        return;
      }
    }
    Look(std::time(nullptr));
  }
}

void LiveTls::Look(int64_t now_s) {
  MutexLock looking(&looking_);
  std::string looks = LooksOf(options_.dir) + LooksOf(options_.renewed_dir);
  if (looks == last_looks_) {
    return;
  }
  const std::shared_ptr<const TlsFiles> before = files();
  absl::StatusOr<TlsFiles> found = Read(now_s);
  absl::Status status = found.ok() ? CheckTaking(*before, *found) : found.status();
  if (status.ok()) {
    const bool same =
        found->ca == before->ca && found->cert == before->cert && found->key == before->key;
    auto taken = std::make_shared<const TlsFiles>(*std::move(found));
    status = Take(taken);
    if (status.ok()) {
      last_looks_ = std::move(looks);
      last_told_.clear();
      bad_before_ = false;
      if (!same && options_.on_taken) {
        options_.on_taken(*taken);
      }
      return;
    }
  }
  // Looked at again: the clock or the rest of the files may make it good.
  const std::string said = Describe(status);
  if (std::exchange(bad_before_, true) && said != last_told_) {
    last_told_ = said;
    if (options_.on_refused) {
      options_.on_refused(status);
    }
  }
}

absl::Status LiveTls::CheckTaking(const TlsFiles& before, const TlsFiles& found) const {
  if (before.holder.has_value() && found.holder.has_value() && *before.holder != *found.holder) {
    const auto who = [](const CertificateHolder& one) {
      return std::string(CertificateRoleName(one.role)) + " " +
             Printable(one.name, kMaxCertificateNameBytes) + " of " +
             Printable(one.cluster, kMaxCertificateNameBytes);
    };
    return Error(absl::StatusCode::kInvalidArgument, "TLS_OTHER_HOLDER",
                 "the certificate in " + found.dir + "/cert.pem is of " + who(*found.holder) +
                     ", and this process is " + who(*before.holder))
        .Hint("put one of the same role and name there, or restart this process to be the other");
  }
  if (before.own_chain.ok()) {
    RETURN_IF_ERROR(found.own_chain);
  }
  std::string host;
  {
    MutexLock lock(&mutex_);
    host = host_;
  }
  return host.empty() ? absl::OkStatus()
                      : CheckCertificateName(found.cert, host,
                                             "the certificate in " + found.dir + "/cert.pem");
}

absl::Status LiveTls::Take(std::shared_ptr<const TlsFiles> found) {
  if (pair_file_ != nullptr) {
    RETURN_IF_ERROR(ca_file_->Replace(found->ca));
    RETURN_IF_ERROR(pair_file_->Replace(Pair(*found)));
    RETURN_IF_ERROR(shown_file_->Replace(Shown(*found)));
  }
  MutexLock lock(&mutex_);
  files_ = std::move(found);
  return absl::OkStatus();
}

void LiveTls::KeepHost(const std::string& host) {
  MutexLock lock(&mutex_);
  host_ = host;
}

void LiveTls::SetRevocations(Revocations revocations) {
  MutexLock lock(&mutex_);
  revocations_ = std::move(revocations);
}

Revocations LiveTls::revocations() const {
  MutexLock lock(&mutex_);
  return revocations_;
}

absl::Status LiveTls::CheckPeer(std::string_view cert, std::string_view chain,
                                const std::string& whose) const {
  RETURN_IF_ERROR(CheckPeerCertificate(files()->ca, cert, chain, whose));
  MutexLock lock(&mutex_);
  return revocations_.Check(cert, whose);
}

absl::Status LiveTls::CheckNotRevoked(std::string_view cert) const {
  MutexLock lock(&mutex_);
  return revocations_.Check(cert, "a client's certificate");
}

absl::Status LiveTls::CheckStillGood(std::string_view cert, int64_t now_s) const {
  ASSIGN_OR_RETURN(const CertificateTimes times, TimesOf(cert));
  if (now_s > times.not_after_s) {
    return Error(absl::StatusCode::kUnauthenticated, "TLS_EXPIRED",
                 "a client's certificate (" + times.subject + ") expired on " +
                     openssl::Date(times.not_after_s))
        .Hint("get a new one (docs/OPERATIONS.md, TLS)");
  }
  return CheckNotRevoked(cert);
}

std::string TlsFolderInUse(const std::string& dir, const std::string& renewed_dir, int64_t now_s) {
  LiveTlsOptions options;
  options.dir = dir;
  options.renewed_dir = renewed_dir;
  const auto live = dir.empty() ? absl::NotFoundError("") : LiveTls::Open(options, now_s);
  return live.ok() ? (*live)->files()->dir : dir;
}

}  // namespace strata
