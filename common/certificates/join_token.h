// The line that an operator pastes on another machine: where to join, whom to trust there, and the
// right to.
#ifndef STRATA_COMMON_CERTIFICATES_JOIN_TOKEN_H_
#define STRATA_COMMON_CERTIFICATES_JOIN_TOKEN_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "strata/v1/joining.pb.h"

namespace strata {

inline constexpr size_t kMaxJoinTokenBytes = 1024;
inline constexpr size_t kJoinSecretBytes = 16;

// "strata-join-1.…": letters, digits, '-', '_' and '.' alone.
std::string JoinTokenText(const v1::JoinToken& token);

// INVALID_ARGUMENT (BAD_TOKEN) for what is no token: cut off, changed, too long, of another
// version, or without one of its fields. What it says is checked by whoever it leads to.
absl::StatusOr<v1::JoinToken> ParseJoinToken(std::string_view text);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_JOIN_TOKEN_H_
