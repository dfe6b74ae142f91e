#include "coordinator/engine/session_queue.h"

#include <algorithm>
#include <vector>

namespace strata {

LiveSession& SessionQueue::Add(SessionRequest request, std::shared_ptr<SessionSink> sink,
                               uint32_t max_tokens, TimePoint now) {
  const uint64_t id = next_id_++;
  LiveSession& session = sessions_[id];
  session.id = id;
  embedding_bytes_ += BytesOf(request.embeddings);
  session.tokens = std::move(request.prompt);
  session.request = std::move(request);
  session.prompt_tokens = session.known();
  session.request.params.set_prompt_length(session.prompt_tokens);
  session.sink = std::move(sink);
  session.max_tokens = max_tokens;
  session.arrived = now;
  session.tenant = shares_.Enter(session.request.cache_salt);
  session.prefill_tenant = prefill_shares_.Enter(session.request.cache_salt);
  by_key_[session.request.key] = id;
  queued_.emplace(session.rank(), &session);
  if (session.request.deadline.has_value()) {
    deadlines_.emplace(*session.request.deadline, id);
  }
  return session;
}

void SessionQueue::Erase(const LiveSession& session) {
  if (session.request.deadline.has_value()) {
    deadlines_.erase({*session.request.deadline, session.id});
  }
  Leave(session);
  shares_.Leave(session.tenant);
  prefill_shares_.Leave(session.prefill_tenant);
  embedding_bytes_ -= BytesOf(session.request.embeddings);
  by_key_.erase(session.request.key);
  sessions_.erase(session.id);
}

LiveSession* SessionQueue::Find(uint64_t id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

LiveSession* SessionQueue::FindKey(std::string_view key) {
  const auto it = by_key_.find(std::string(key));
  return it == by_key_.end() ? nullptr : &sessions_.at(it->second);
}

void SessionQueue::Leave(const LiveSession& session) {
  queued_.erase(session.rank());
  running_.erase(session.rank());
  parked_.erase(session.rank());
}

void SessionQueue::Run(LiveSession& session) {
  Leave(session);
  running_.emplace(session.rank(), &session);
}

void SessionQueue::Queue(LiveSession& session) {
  Leave(session);
  queued_.emplace(session.rank(), &session);
}

void SessionQueue::Park(LiveSession& session) {
  Leave(session);
  parked_.emplace(session.rank(), &session);
}

uint64_t SessionQueue::Growing() const {
  return static_cast<uint64_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const auto& entry) { return !entry.second->request.guaranteed; }));
}

LiveSession& SessionQueue::Next() {
  LiveSession* next = queued_.begin()->second;
  if (shares_.present() == 1) {
    return *next;
  }
  std::vector<uint32_t> waiting;
  for (const auto& [rank, session] : queued_) {
    waiting.push_back(session->tenant);
  }
  shares_.SetWaiting(waiting);
  const std::vector<uint64_t>& served = shares_.served();
  const int64_t highest = next->rank().first;
  for (const auto& [rank, session] : queued_) {
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

void SessionQueue::Charge(LiveSession& session) {
  if (session.known() > session.charged) {
    shares_.Serve(session.tenant, session.known() - session.charged);
    session.charged = session.known();
  }
}

void SessionQueue::ServePrefill(const LiveSession& session, uint32_t rows) {
  prefill_shares_.Serve(session.prefill_tenant, rows);
}

void SessionQueue::ShareRows(SchedulerSnapshot* view) {
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

bool SessionQueue::MayPark(const LiveSession& session, TimePoint now) {
  return !session.request.guaranteed && session.waits_for_reader() &&
         now - session.paused_since >= kReaderPatience;
}

LiveSession* SessionQueue::LongestUnread(TimePoint now) const {
  LiveSession* longest = nullptr;
  for (const auto& [rank, session] : running_) {
    if (MayPark(*session, now) &&
        (longest == nullptr || session->paused_since < longest->paused_since)) {
      longest = session;
    }
  }
  return longest;
}

std::optional<TimePoint> SessionQueue::NextUnread(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const auto& [rank, session] : running_) {
    const TimePoint gives_way = session->paused_since + kReaderPatience;
    if (session->waits_for_reader() && gives_way > now) {
      next = std::min(next.value_or(gives_way), gives_way);
    }
  }
  return next;
}

LiveSession& SessionQueue::Victim(LiveSession& needy, TimePoint now) {
  if (LiveSession* unread = LongestUnread(now); unread != nullptr) {
    return *unread;
  }
  for (auto it = running_.rbegin(); it->second != &needy; ++it) {
    if (!it->second->request.guaranteed) {
      return *it->second;
    }
  }
  return needy;
}

LiveSession& SessionQueue::LongestParked() const {
  LiveSession* longest = parked_.begin()->second;
  for (const auto& [rank, parked] : parked_) {
    if (parked->paused_since < longest->paused_since) {
      longest = parked;
    }
  }
  return *longest;
}

LiveSession* SessionQueue::Expired(TimePoint now) {
  if (deadlines_.empty() || deadlines_.begin()->first > now) {
    return nullptr;
  }
  return &sessions_.at(deadlines_.begin()->second);
}

std::optional<TimePoint> SessionQueue::NextDeadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

}  // namespace strata
