// The certificate that a process shows, and whom it trusts: taken anew from the files of --tls-dir
// while it runs, for connections from then on.
#ifndef STRATA_COMMON_RPC_LIVE_TLS_H_
#define STRATA_COMMON_RPC_LIVE_TLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/revocations.h"
#include "common/mutex.h"
#include "common/platform/memory_file.h"
#include "common/rpc/tls_files.h"

namespace strata {

struct LiveTlsOptions {
  std::string dir{};
  // Where renewed files are kept, which a process may write though it may not write `dir`. They are
  // used where they are of the holder that `dir` names, and were issued later. Empty: nowhere.
  std::string renewed_dir{};
  // Told of new files, and of new ones that are not used, while those before are; the latter once
  // for each sentence. On the thread that looks.
  std::function<void(const TlsFiles& taken)> on_taken{};
  std::function<void(const absl::Status& why)> on_refused{};
};

// Any thread.
class LiveTls {
 public:
  // What ReadTlsFiles says of the files at `now_s`. Nothing is taken anew before Follow.
  static absl::StatusOr<std::shared_ptr<LiveTls>> Open(LiveTlsOptions options, int64_t now_s);
  ~LiveTls();
  LiveTls(const LiveTls&) = delete;
  LiveTls& operator=(const LiveTls&) = delete;

  // Those in use.
  std::shared_ptr<const TlsFiles> files() const;
  const LiveTlsOptions& options() const { return options_; }

  // Looks every second from now on. UNIMPLEMENTED where the system has no files in memory.
  absl::Status Follow();
  bool following() const { return pair_file_ != nullptr; }
  // Looks once: files that have changed are taken if they are good (ReadTlsFiles), name the holder
  // that was named before (TLS_OTHER_HOLDER), and can serve as those before could. What is bad
  // twice in a row is told, so that nobody hears of files that are just being written.
  void Look(int64_t now_s);

  // Files without `host`, by which others dial this process, are not taken from here on.
  void KeepHost(const std::string& host);

  // What gRPC reads from; null before Follow. Key and certificate; ca.pem; and key and certificate
  // with what is in ca.pem behind it.
  const MemoryFile* pair_file() const { return pair_file_.get(); }
  const MemoryFile* ca_file() const { return ca_file_.get(); }
  const MemoryFile* shown_file() const { return shown_file_.get(); }

  // From now on these are refused.
  void SetRevocations(Revocations revocations);
  Revocations revocations() const;
  // Whether a peer's certificate is accepted in a handshake: CheckPeerCertificate, and TLS_REVOKED.
  absl::Status CheckPeer(std::string_view cert, std::string_view chain,
                         const std::string& whose) const;
  // Whether a certificate that was accepted still is, at `now_s`: TLS_REVOKED, TLS_EXPIRED.
  absl::Status CheckStillGood(std::string_view cert, int64_t now_s) const;
  absl::Status CheckNotRevoked(std::string_view cert) const;

 private:
  explicit LiveTls(LiveTlsOptions options) : options_(std::move(options)) {}

  absl::StatusOr<TlsFiles> Read(int64_t now_s) const;
  absl::Status CheckTaking(const TlsFiles& before, const TlsFiles& found) const
      STRATA_EXCLUDES(mutex_);
  absl::Status Take(std::shared_ptr<const TlsFiles> found) STRATA_EXCLUDES(mutex_);
  void LookLoop();

  const LiveTlsOptions options_;
  std::unique_ptr<MemoryFile> pair_file_, ca_file_, shown_file_;

  Mutex looking_;                                       // Taken before `mutex_`.
  std::string last_looks_ STRATA_GUARDED_BY(looking_);  // The files as they were then.
  std::string last_told_ STRATA_GUARDED_BY(looking_);   // A sentence.
  bool bad_before_ STRATA_GUARDED_BY(looking_) = false;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const TlsFiles> files_ STRATA_GUARDED_BY(mutex_);
  std::string host_ STRATA_GUARDED_BY(mutex_);
  Revocations revocations_ STRATA_GUARDED_BY(mutex_);
  std::thread looker_;  // Last: it uses the others.
};

// Which of the two folders of LiveTlsOptions a process uses that starts at `now_s`; `dir` where
// neither is of use.
std::string TlsFolderInUse(const std::string& dir, const std::string& renewed_dir, int64_t now_s);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_LIVE_TLS_H_
