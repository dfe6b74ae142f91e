#include "coordinator/engine/fair_shares.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace strata {
namespace {

constexpr size_t kMostAbsent = 1024;

}  // namespace

uint32_t FairShares::Enter(const std::string& tenant) {
  const auto known = by_tenant_.find(tenant);
  uint32_t index = 0;
  if (known != by_tenant_.end()) {
    index = known->second;
  } else {
    const auto free = std::find_if(accounts_.begin(), accounts_.end(),
                                   [](const Account& account) { return !account.used; });
    index = static_cast<uint32_t>(free - accounts_.begin());
    if (free == accounts_.end()) {
      accounts_.emplace_back();
      served_.push_back(0);
    }
    accounts_[index] = {.tenant = tenant, .used = true};
    served_[index] = 0;
    by_tenant_[tenant] = index;
  }
  present_ += accounts_[index].sessions == 0 ? 1 : 0;
  ++accounts_[index].sessions;
  return index;
}

void FairShares::Leave(uint32_t index) {
  STRATA_CHECK(index < accounts_.size() && accounts_[index].sessions > 0);
  if (--accounts_[index].sessions > 0) {
    return;
  }
  --present_;
  accounts_[index].waits = false;
  if (by_tenant_.size() - present_ > kMostAbsent) {
    Forget(index);
  }
}

void FairShares::Forget(uint32_t index) {
  by_tenant_.erase(accounts_[index].tenant);
  accounts_[index] = {};
  served_[index] = 0;
}

void FairShares::ForgetAbsent() {
  for (uint32_t i = 0; i < accounts_.size(); ++i) {
    if (accounts_[i].used && accounts_[i].sessions == 0) {
      Forget(i);
    }
  }
}

void FairShares::SetWaiting(const std::vector<uint32_t>& tenants) {
  if (tenants.empty() && !anybody_waits_) {
    return;
  }
  anybody_waits_ = !tenants.empty();
  std::vector<bool> waits(accounts_.size());
  for (const uint32_t index : tenants) {
    STRATA_CHECK(index < accounts_.size() && accounts_[index].sessions > 0);
    waits[index] = true;
  }
  uint64_t level = std::numeric_limits<uint64_t>::max();
  for (size_t i = 0; i < accounts_.size(); ++i) {
    if (accounts_[i].waits && waits[i]) {
      level = std::min(level, served_[i]);
    }
  }
  if (level == std::numeric_limits<uint64_t>::max()) {
    level = most_;  // Everybody begins anew.
    ForgetAbsent();
  }
  for (size_t i = 0; i < accounts_.size(); ++i) {
    if (waits[i] && !accounts_[i].waits) {
      served_[i] = std::max(served_[i], level);
    }
    accounts_[i].waits = waits[i];
  }
}

void FairShares::Serve(uint32_t index, uint64_t tokens) {
  served_[index] += tokens;
  most_ = std::max(most_, served_[index]);
}

}  // namespace strata
