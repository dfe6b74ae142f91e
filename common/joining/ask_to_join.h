// How a machine or a person gets a certificate by a token.
#ifndef STRATA_COMMON_JOINING_ASK_TO_JOIN_H_
#define STRATA_COMMON_JOINING_ASK_TO_JOIN_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "strata/v1/joining.pb.h"

namespace strata {

// The key in a folder for --tls-dir, so that who joins again keeps it; a new one where there is
// none that can be used.
absl::StatusOr<std::string> KeyToJoinWith(const std::string& tls_dir);

// Asks the coordinator that `token` names, once it has shown a certificate of the token's
// authority, and checks what it answers. `request` has all but the secret. Waits for 15 seconds at
// most. What FetchAuthority and JoiningService say; INTERNAL (TLS_WRONG_CA) for an answer that is
// of another authority.
absl::StatusOr<v1::JoinResponse> AskToJoin(const v1::JoinToken& token, v1::JoinRequest request);

// The same at a coordinator that AskNetworkFor finds, which `say` is told of and whose errors it
// has: the first that is of the token's authority and can be reached, which `token` then names.
absl::StatusOr<v1::JoinResponse> AskToJoinDiscovered(
    v1::JoinToken* token, const v1::JoinRequest& request,
    const std::function<void(const std::string&)>& say);

}  // namespace strata

#endif  // STRATA_COMMON_JOINING_ASK_TO_JOIN_H_
