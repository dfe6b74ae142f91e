// How a machine or a person gets a certificate by a token.
#ifndef STRATA_COMMON_JOINING_ASK_TO_JOIN_H_
#define STRATA_COMMON_JOINING_ASK_TO_JOIN_H_

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

}  // namespace strata

#endif  // STRATA_COMMON_JOINING_ASK_TO_JOIN_H_
