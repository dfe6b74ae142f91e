#include "coordinator/joining/token_book.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

// So long after its end a token is told that it has ended, and not that nobody knows it.
constexpr int64_t kRememberedS = 7 * 24 * 3600;

constexpr char kTokens[] = "token";  // The kind of their records.
constexpr size_t kNameDigits = 8;

absl::Status Refused(const char* reason, const char* message) {
  return Error(absl::StatusCode::kPermissionDenied, reason, message)
      .Hint("have an operator run `strata node token`, and paste what it prints");
}

bool Good(const TokenTerms& terms, int64_t now_s) {
  return terms.uses > 0 && now_s < terms.expires_at_s;
}

// A token's record is "ROLE USES EXPIRES_AT", under the digest of its secret.
StoredRecord RecordOf(const std::string& digest, const TokenTerms& terms) {
  return {kTokens, digest,
          absl::StrCat(std::string(CertificateRoleName(terms.role)), " ", terms.uses, " ",
                       terms.expires_at_s)};
}

std::optional<TokenTerms> TermsOf(const StoredRecord& record) {
  const std::vector<std::string> fields = absl::StrSplit(record.value.value_or(""), ' ');
  TokenTerms terms;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &terms.uses) ||
      !absl::SimpleAtoi(fields[2], &terms.expires_at_s)) {
    return std::nullopt;
  }
  for (const CertificateRole role : kCertificateRoles) {
    if (CertificateRoleName(role) == fields[0]) {
      terms.role = role;
      return terms;
    }
  }
  return std::nullopt;
}

}  // namespace

absl::Status TokenBook::Load() {
  if (store_ == nullptr) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<StoredRecord> records, store_->ListRecords(kTokens));
  for (const StoredRecord& record : records) {
    const std::optional<TokenTerms> terms = TermsOf(record);
    if (!terms.has_value()) {
      return Error(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                   "what the store has of the token " + record.name.substr(0, kNameDigits) +
                       " is unreadable")
          .Hint("restore a backup of --data-dir (docs/OPERATIONS.md)");
    }
    tokens_[record.name] = *terms;
  }
  return absl::OkStatus();
}

absl::Status TokenBook::Add(std::string_view secret, const TokenTerms& terms, int64_t now_s) {
  RETURN_IF_ERROR(Forget(now_s));
  const auto good = static_cast<size_t>(std::count_if(
      tokens_.begin(), tokens_.end(), [&](const auto& one) { return Good(one.second, now_s); }));
  if (good >= most_) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_TOKENS",
                 "there are " + std::to_string(good) + " tokens that nobody has used yet")
        .Limit("join_tokens=" + std::to_string(most_))
        .Hint("use them, wait until they lapse, or raise --max-join-tokens of strata-coordinator");
  }
  const std::string digest = Sha256Hex(secret);
  if (store_ != nullptr) RETURN_IF_ERROR(store_->ChangeRecords({RecordOf(digest, terms)}));
  tokens_[digest] = terms;
  return absl::OkStatus();
}

absl::StatusOr<CertificateRole> TokenBook::RoleOf(std::string_view secret, int64_t now_s) const {
  const auto found = tokens_.find(Sha256Hex(secret));
  if (found == tokens_.end()) {
    return Refused("TOKEN_UNKNOWN", "the coordinator does not know this token");
  }
  if (found->second.uses == 0) {
    return Refused("TOKEN_USED", "this token has been used as often as it may be");
  }
  if (now_s >= found->second.expires_at_s) {
    return Refused("TOKEN_EXPIRED", "this token has lapsed");
  }
  return found->second.role;
}

absl::Status TokenBook::Use(std::string_view secret, int64_t now_s, const StoredRecord* more) {
  const auto found = tokens_.find(Sha256Hex(secret));
  STRATA_CHECK(found != tokens_.end() && Good(found->second, now_s));
  TokenTerms used = found->second;
  --used.uses;
  if (store_ != nullptr) {
    std::vector<StoredRecord> changes = {RecordOf(found->first, used)};
    if (more != nullptr) changes.push_back(*more);
    RETURN_IF_ERROR(store_->ChangeRecords(changes));
  }
  found->second = used;
  return absl::OkStatus();
}

absl::Status TokenBook::Forget(int64_t now_s) {
  const bool many = tokens_.size() >= 2 * most_;
  const auto forgotten = [&](const auto& one) {
    return now_s >= one.second.expires_at_s + kRememberedS || (many && !Good(one.second, now_s));
  };
  std::vector<StoredRecord> removed;
  for (const auto& one : tokens_) {
    if (forgotten(one)) removed.push_back({kTokens, one.first});
  }
  if (store_ != nullptr && !removed.empty()) RETURN_IF_ERROR(store_->ChangeRecords(removed));
  std::erase_if(tokens_, forgotten);
  return absl::OkStatus();
}

std::string TokenName(std::string_view secret) {
  return "token " + Sha256Hex(secret).substr(0, kNameDigits);
}

}  // namespace strata
