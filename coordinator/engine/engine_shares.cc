// Whose turn it is where there is not room for all: tenants of one priority share admission by the
// tokens that are known of their requests, and the rows of prompts by rows. A tenant is who has the
// same cache_salt.
#include <vector>

#include "coordinator/engine/engine_impl.h"

namespace strata {

void Engine::Impl::EnterShares(Session& session) {
  session.tenant = shares_.Enter(session.request.cache_salt);
  session.prefill_tenant = prefill_shares_.Enter(session.request.cache_salt);
}

void Engine::Impl::LeaveShares(const Session& session) {
  shares_.Leave(session.tenant);
  prefill_shares_.Leave(session.prefill_tenant);
}

// Of the highest priority that waits: who was preempted, the oldest first, else the oldest one of
// the tenant that was served least.
Engine::Impl::Session& Engine::Impl::NextInQueue() {
  Session* next = queue_.begin()->second;
  if (shares_.present() == 1) {
    return *next;
  }
  std::vector<uint32_t> waiting;
  for (const auto& [rank, session] : queue_) {
    waiting.push_back(session->tenant);
  }
  shares_.SetWaiting(waiting);
  const std::vector<uint64_t>& served = shares_.served();
  const int64_t highest = next->rank().first;
  for (const auto& [rank, session] : queue_) {
    if (rank.first != highest) {
      break;
    }
    if (session->started.has_value()) {
      return *session;
    }
    if (served[session->tenant] < served[next->tenant]) {
      next = session;
    }
  }
  return *next;
}

void Engine::Impl::Charge(Session& session) {
  if (session.known() > session.charged) {
    shares_.Serve(session.tenant, session.known() - session.charged);
    session.charged = session.known();
  }
}

void Engine::Impl::ShareRows(SchedulerSnapshot* view) {
  if (prefill_shares_.present() > 1) {
    std::vector<uint32_t> waiting;
    for (const ReadySession& session : view->ready) {
      if (!session.decoding) {
        waiting.push_back(session.tenant);
      }
    }
    prefill_shares_.SetWaiting(waiting);
  }
  view->served = prefill_shares_.served();
}

}  // namespace strata
