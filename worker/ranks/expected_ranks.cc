#include "worker/ranks/expected_ranks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace strata {
namespace {

// Takes as long wherever they differ.
bool SameSecret(const RankSecret& a, const RankSecret& b) {
  volatile uint8_t differs = 0;
  for (size_t i = 0; i < kRankSecretBytes; ++i) {
    differs = static_cast<uint8_t>(differs | (a[i] ^ b[i]));
  }
  return differs == 0;
}

absl::Status NotExpected(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, kRankHelloRefused, what);
}

}  // namespace

ExpectedRanks::ExpectedRanks(const RankSecret& secret, uint64_t epoch, uint32_t own, uint32_t ranks)
    : secret_(secret), own_(own) {
  STRATA_CHECK(own > 0 && own < ranks);
  channels_.epoch = epoch;
  channels_.gathers.resize(ranks);
  channels_.calls.resize(1);
}

std::unique_ptr<RankChannel>* ExpectedRanks::SlotOf(uint32_t rank, RankConnection use) {
  if (use == RankConnection::kCalls) {
    return rank == 0 ? &channels_.calls[0] : nullptr;
  }
  const bool connects = rank == 0 || (rank > own_ && rank < channels_.gathers.size());
  return connects ? &channels_.gathers[rank] : nullptr;
}

absl::Status ExpectedRanks::Take(const RankHello& hello, std::unique_ptr<RankChannel> channel) {
  if (!SameSecret(hello.secret, secret_)) {
    return Error(absl::StatusCode::kUnauthenticated, kRankHelloRefused,
                 "a connection to a rank has another secret than the epoch's");
  }
  if (hello.epoch != channels_.epoch || hello.to != own_) {
    return NotExpected(absl::StrCat("a connection is to rank ", hello.to, " of epoch ", hello.epoch,
                                    ", and this is rank ", own_, " of epoch ", channels_.epoch));
  }
  std::unique_ptr<RankChannel>* const slot = SlotOf(hello.from, hello.use);
  if (slot == nullptr || *slot != nullptr) {
    return NotExpected(absl::StrCat("rank ", hello.from,
                                    slot == nullptr ? " does not connect to this rank so"
                                                    : " is connected to this rank already"));
  }
  *slot = std::move(channel);
  return absl::OkStatus();
}

RankHello ExpectedRanks::HelloTo(uint32_t rank) const {
  return {.secret = secret_,
          .epoch = channels_.epoch,
          .from = own_,
          .to = rank,
          .use = RankConnection::kGathers};
}

void ExpectedRanks::Dialled(uint32_t rank, std::unique_ptr<RankChannel> channel) {
  STRATA_CHECK(rank > 0 && rank < own_);
  channels_.gathers[rank] = std::move(channel);
}

std::string ExpectedRanks::Missing() const {
  std::string missing;
  const auto add = [&](const std::string& what) {
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", what);
  };
  if (channels_.calls[0] == nullptr) {
    add("rank 0 (calls)");
  }
  for (size_t rank = 0; rank < channels_.gathers.size(); ++rank) {
    if (rank != own_ && channels_.gathers[rank] == nullptr) {
      add(absl::StrCat("rank ", rank));
    }
  }
  return missing;
}

bool ExpectedRanks::complete() const { return Missing().empty(); }

}  // namespace strata
