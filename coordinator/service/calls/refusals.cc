#include "coordinator/service/calls/refusals.h"

#include <utility>

#include "common/status.h"

namespace strata {

void Refusals::Add(const std::string& node, const std::string& address, const absl::Status& why) {
  Refusal refusal{.facts = {}, .at = std::chrono::steady_clock::now()};
  refusal.facts.set_node(node);
  refusal.facts.set_address(address);
  *refusal.facts.mutable_error() = DetailOf(why);
  MutexLock lock(&mutex_);
  std::erase_if(refusals_, [&](const Refusal& before) {
    return before.facts.node() == node &&
           (!node.empty() || before.facts.error().message() == refusal.facts.error().message());
  });
  refusals_.push_back(std::move(refusal));
  if (refusals_.size() > kMost) refusals_.pop_front();
}

std::vector<v1::RefusedFacts> Refusals::Recent() {
  const auto now = std::chrono::steady_clock::now();
  MutexLock lock(&mutex_);
  std::erase_if(refusals_, [&](const Refusal& one) { return now - one.at > kKept; });
  std::vector<v1::RefusedFacts> recent;
  for (const Refusal& one : refusals_) {
    recent.push_back(one.facts);
    recent.back().set_age_s(std::chrono::duration<double>(now - one.at).count());
  }
  return recent;
}

}  // namespace strata
