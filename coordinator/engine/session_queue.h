// The engine's sessions: which of them are queued, running or parked, and whose turn it is where
// there is not room for all. Tenants of one priority share admission by the tokens that are known
// of their requests, and the rows of prompts by rows; a tenant is who has the same cache_salt.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_QUEUE_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_QUEUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/clock.h"
#include "coordinator/engine/fair_shares.h"
#include "coordinator/engine/live_session.h"
#include "coordinator/engine/scheduler.h"

namespace strata {

// A reader that was behind for less keeps its memory while others wait for some: most read on.
inline constexpr nanoseconds kReaderPatience = milliseconds(500);

// One thread.
class SessionQueue {
 public:
  using ByRank = std::map<LiveSession::Rank, LiveSession*>;

  // A session comes, and is queued once it is Opened by the book. Its request's prompt begins its
  // tokens.
  LiveSession& Add(SessionRequest request, std::shared_ptr<SessionSink> sink, uint32_t max_tokens,
                   TimePoint now);
  // It is gone, and its key is free.
  void Erase(const LiveSession& session);

  LiveSession* Find(uint64_t id);
  LiveSession& At(uint64_t id) { return sessions_.at(id); }
  LiveSession* FindKey(std::string_view key);
  bool HasKey(std::string_view key) const { return by_key_.contains(std::string(key)); }
  // All, by id. Each is in one of the three after it.
  const std::map<uint64_t, LiveSession>& all() const { return sessions_; }
  std::map<uint64_t, LiveSession>& all() { return sessions_; }
  const ByRank& queued() const { return queued_; }
  const ByRank& running() const { return running_; }
  // They gave way, and their readers do not read yet.
  const ByRank& parked() const { return parked_; }
  // Of the input embeddings of all.
  uint64_t embedding_bytes() const { return embedding_bytes_; }

  // From wherever it is.
  void Run(LiveSession& session);
  void Queue(LiveSession& session);
  void Park(LiveSession& session);
  bool IsParked(const LiveSession& session) const { return parked_.contains(session.rank()); }
  // Running ones that may come to need more memory.
  uint64_t Growing() const;

  // Who starts next: of the highest priority that waits, who was preempted, the oldest first, else
  // the oldest one of the tenant that was served least. The queue is not empty.
  LiveSession& Next();
  // The queue is empty.
  void NobodyWaits() { shares_.SetWaiting({}); }
  // The session's tenant was served what is known of it; those tokens that are computed again cost
  // nothing.
  void Charge(LiveSession& session);
  // Rows of its prompt are sent.
  void ServePrefill(const LiveSession& session, uint32_t rows);
  // Tells the scheduler's view who has prompts to compute, so that their tenants share fairly.
  void ShareRows(SchedulerSnapshot* view);

  // Who gives pages to `needy`: the running session that has waited longest for its reader,
  // whatever its rank; else the least important one; itself if there is none.
  LiveSession& Victim(LiveSession& needy, TimePoint now);
  // The same for those that wait for a start; null: everyone reads.
  LiveSession* LongestUnread(TimePoint now) const;
  // The next time after `now` that one of the running ones may be asked to give way; none: never.
  std::optional<TimePoint> NextUnread(TimePoint now) const;
  // Parked: whose reader has not read for the longest time. There is one.
  LiveSession& LongestParked() const;

  // Whose deadline has passed, the earliest first; null: nobody's.
  LiveSession* Expired(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

 private:
  static bool MayPark(const LiveSession& session, TimePoint now);
  void Leave(const LiveSession& session);

  std::map<uint64_t, LiveSession> sessions_;
  std::unordered_map<std::string, uint64_t> by_key_;
  ByRank queued_;
  ByRank running_;
  ByRank parked_;
  FairShares shares_;  // Of admission, in tokens that are known.
  FairShares prefill_shares_;
  std::set<std::pair<TimePoint, uint64_t>> deadlines_;
  uint64_t next_id_ = 1;
  uint64_t embedding_bytes_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_QUEUE_H_
