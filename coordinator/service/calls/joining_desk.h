// What the services about certificates share: who may join and where, what is signed, who is
// trusted, and whose certificates are revoked.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_JOINING_DESK_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_JOINING_DESK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/revocations.h"
#include "common/mutex.h"
#include "common/rpc/live_tls.h"
#include "coordinator/joining/joining.h"
#include "coordinator/store/state_store.h"
#include "strata/v1/certificates.pb.h"
#include "strata/v1/joining.pb.h"

namespace strata {

struct JoiningDeskOptions {
  // Absent: no authority. Calls that want one are refused with what to do.
  std::optional<Joining> joining{};
  std::string authority_dir{};
  std::shared_ptr<LiveTls> live{};  // Null in plain text.
  StateStore* store = nullptr;      // Outlives the desk.
};

// Any thread.
class JoiningDesk {
 public:
  explicit JoiningDesk(JoiningDeskOptions options);

  // What was revoked before, from the store.
  absl::Status Restore() STRATA_EXCLUDES(mutex_);

  // Where both ports are, as bound. Until then no token is made (UNAVAILABLE).
  void SetAddresses(const std::string& address, const std::string& join_address)
      STRATA_EXCLUDES(mutex_);
  // Ends the open calls of those whose certificates are revoked, and says how many.
  void SetEndCalls(std::function<size_t()> end_calls) STRATA_EXCLUDES(mutex_);

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request)
      STRATA_EXCLUDES(mutex_);
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        const std::function<bool(const std::string&)>& is_member)
      STRATA_EXCLUDES(mutex_);

  // For whoever came with `cert` (PEM).
  absl::StatusOr<v1::RenewCertificateResponse> Renew(const std::string& cert,
                                                     const v1::RenewCertificateRequest& request)
      STRATA_EXCLUDES(mutex_);
  // `with_revoked`: for members.
  v1::Trust Trust(bool with_revoked) STRATA_EXCLUDES(mutex_);
  // A node's worker has said whom it trusts, by `cert`.
  void NoteFollower(const v1::GetTrustRequest& request, const std::string& cert)
      STRATA_EXCLUDES(mutex_);

  // Errors as in CertificateService; the number of calls that ended.
  absl::StatusOr<size_t> Revoke(const std::string& role, const std::string& name)
      STRATA_EXCLUDES(mutex_);
  // Whether the node's worker came with a certificate that Revoke takes away.
  bool IsRevocable(const std::string& node) STRATA_EXCLUDES(mutex_);
  // Whether the cluster has certificates that can be revoked.
  bool HasRoles() const;

  // A step of a change of the authority, or none. `nodes`: those that the cluster knows, and
  // whether each is alive. Errors as in CertificateService.
  absl::StatusOr<v1::AuthorityState> ChangeAuthority(v1::AuthorityStep step,
                                                     const std::map<std::string, bool>& nodes)
      STRATA_EXCLUDES(mutex_);

 private:
  // What a worker said, and came with.
  struct Follower {
    std::string cert;
    std::vector<std::string> trusted;
  };

  // The host in a token: `asked`, or one that others can dial.
  absl::StatusOr<std::string> HostFor(const std::string& asked) const STRATA_REQUIRES(mutex_);
  // Whether somebody with `cert` who trusts `trusted` has what the next step needs.
  bool Followed(const std::string& cert, const std::vector<std::string>& trusted) const
      STRATA_REQUIRES(mutex_);
  v1::AuthorityState State(const std::map<std::string, bool>& nodes) const STRATA_REQUIRES(mutex_);
  absl::Status Step(v1::AuthorityStep step) STRATA_REQUIRES(mutex_);

  const std::string authority_dir_;
  const std::shared_ptr<LiveTls> live_;
  StateStore* const store_;
  mutable Mutex mutex_;
  std::optional<Joining> joining_ STRATA_GUARDED_BY(mutex_);
  std::string address_ STRATA_GUARDED_BY(mutex_);
  std::string join_address_ STRATA_GUARDED_BY(mutex_);
  Revocations revocations_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, Follower> followers_ STRATA_GUARDED_BY(mutex_);  // By node.
  std::function<size_t()> end_calls_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_JOINING_DESK_H_
