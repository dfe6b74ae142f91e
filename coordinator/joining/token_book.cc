#include "coordinator/joining/token_book.h"

#include <algorithm>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

// So long after its end a token is told that it has ended, and not that nobody knows it.
constexpr int64_t kRememberedS = 7 * 24 * 3600;

absl::Status Refused(const char* reason, const char* message) {
  return Error(absl::StatusCode::kPermissionDenied, reason, message)
      .Hint("have an operator run `strata node token`, and paste what it prints");
}

bool Good(const TokenTerms& terms, int64_t now_s) {
  return terms.uses > 0 && now_s < terms.expires_at_s;
}

}  // namespace

absl::Status TokenBook::Add(std::string_view secret, const TokenTerms& terms, int64_t now_s) {
  Forget(now_s);
  const auto good = static_cast<size_t>(std::count_if(
      tokens_.begin(), tokens_.end(), [&](const auto& one) { return Good(one.second, now_s); }));
  if (good >= most_) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_TOKENS",
                 "there are " + std::to_string(good) + " tokens that nobody has used yet")
        .Limit("join_tokens=" + std::to_string(most_))
        .Hint("use them, wait until they lapse, or raise --max-join-tokens of strata-coordinator");
  }
  tokens_[Sha256Hex(secret)] = terms;
  return absl::OkStatus();
}

absl::StatusOr<CertificateRole> TokenBook::RoleOf(std::string_view secret, int64_t now_s) const {
  const auto found = tokens_.find(Sha256Hex(secret));
  if (found == tokens_.end()) {
    return Refused("TOKEN_UNKNOWN",
                   "the coordinator does not know this token; it forgets all when it restarts");
  }
  if (found->second.uses == 0) {
    return Refused("TOKEN_USED", "this token has been used as often as it may be");
  }
  if (now_s >= found->second.expires_at_s) {
    return Refused("TOKEN_EXPIRED", "this token has lapsed");
  }
  return found->second.role;
}

void TokenBook::Use(std::string_view secret, int64_t now_s) {
  const auto found = tokens_.find(Sha256Hex(secret));
  STRATA_CHECK(found != tokens_.end() && Good(found->second, now_s));
  --found->second.uses;
}

void TokenBook::Forget(int64_t now_s) {
  const bool many = tokens_.size() >= 2 * most_;
  std::erase_if(tokens_, [&](const auto& one) {
    return now_s >= one.second.expires_at_s + kRememberedS || (many && !Good(one.second, now_s));
  });
}

}  // namespace strata
