#include "coordinator/engine/admission.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

// Of the pool: a start's watermark by default, and as much for the session itself.
constexpr double kReadyShare = 0.1;

void AddPages(const KvPages& pages, KvPages* sum) {
  for (size_t i = 0; i < pages.size(); ++i) {
    (*sum)[i] += pages[i];
  }
}

void SubtractPages(const KvPages& pages, KvPages* sum) {
  for (size_t i = 0; i < pages.size(); ++i) {
    (*sum)[i] -= pages[i];
  }
}

bool IsZero(const KvPages& pages) {
  return std::all_of(pages.begin(), pages.end(), [](uint64_t count) { return count == 0; });
}

// The most that is missing in any component.
uint64_t Excess(const KvPages& pages, const KvPages& bounds) {
  uint64_t most = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    most = std::max(most, pages[i] - std::min(pages[i], bounds[i]));
  }
  return most;
}

bool Within(const KvPages& pages, const KvPages& bounds) {
  return std::equal(pages.begin(), pages.end(), bounds.begin(), std::less_equal<>());
}

}  // namespace

Admission::Admission(const EngineConfig& config, const Fence& fence, SessionQueue* sessions,
                     SequenceBook* book, SessionEnds* ends, EngineCounters* counters)
    : config_(config),
      fence_(fence),
      sessions_(sessions),
      book_(book),
      ends_(ends),
      counters_(counters) {}

void Admission::Run(TimePoint now) {
  now_ = now;
  has_room_ = GrowClaims();
  // Nobody new while somebody waits for pages, or has just given way.
  if (has_room_ || sessions_->running().empty()) {
    Start(now);
  } else if (!sessions_->queued().empty() && CanStartMore() && book_->ledger().cached_pages() > 0) {
    EvictForQueue(sessions_->Next());  // Or they would wait for that too, once nobody else does.
  }
  for (const auto& [rank, session] : sessions_->running()) {
    book_->prefixes().BeginIfReady(*session);
  }
}

bool Admission::StartsAtOnce(uint32_t first_claim) const {
  return sessions_->queued().empty() && CanStartMore() && has_room_ &&
         book_->ledger().FitsWithoutCached(first_claim, Spare());
}

bool Admission::CanStartMore() const {
  return fence_.running() && sessions_->running().size() < config_.max_sessions;
}

KvSpare Admission::Spare() const {
  if (book_->ledger().claims() == 0) {
    return {};  // Else what fits the empty pool alone could wait for ever.
  }
  return {sessions_->Growing(), config_.kv_watermark};
}

void Admission::Start(TimePoint now) {
  while (!sessions_->queued().empty()) {
    if (!CanStartMore()) {
      LiveSession* unread = fence_.running() ? sessions_->LongestUnread(now_) : nullptr;
      if (unread == nullptr) {
        break;
      }
      Preempt(*unread);
    }
    LiveSession& session = sessions_->Next();
    const PrefixHit hit = book_->prefixes().HitOf(session);
    const KvPrefix shared = book_->prefixes().SharedBy(session, hit.match);
    if (!book_->Reserve(session, Spare(), shared)) {
      EvictForQueue(session);
      ParkFor(session);
      return;  // What comes after it waits too.
    }
    sessions_->Run(session);
    sessions_->Charge(session);
    if (shared.pages > 0) {
      book_->prefixes().Begin(session, hit);  // At once, as long as what it shares is there.
    }
    if (session.started.has_value()) {
      continue;  // It was preempted.
    }
    session.started = now;
    session.sink->OnStarted({.prompt_tokens = session.prompt_tokens,
                             .max_tokens = session.max_tokens,
                             .queued = now - session.arrived});
  }
  if (sessions_->queued().empty()) {
    sessions_->NobodyWaits();
    EvictAhead();
  }
}

void Admission::EvictAhead() {
  if (book_->ledger().cached_pages() > 0) {
    const KvSpare ready{std::numeric_limits<uint64_t>::max(), kReadyShare};
    book_->prefixes().Evict(Excess(book_->ledger().Asked(0, ready), book_->ledger().FreeSoon()));
  }
}

KvPages Admission::AskedWith(const LiveSession& first, const KvPrefix& shared) const {
  KvPages asked = book_->ledger().Asked(first.first_claim(), Spare(), shared);
  AddPages(awaited_, &asked);
  return asked;
}

void Admission::EvictForQueue(LiveSession& first) {
  // The first one's need before all: nobody overtakes it.
  const KvLedger& ledger = book_->ledger();
  const PrefixCache::Match hit = book_->prefixes().Find(first);
  const KvPrefix shared = book_->prefixes().SharedBy(first, hit);
  PrefixSharing::WantedPrefixes wanted;
  if (shared.pages > 0) {
    wanted[hit.source] = shared.pages;
  }
  KvPages asked = AskedWith(first, shared);
  book_->prefixes().Evict(Excess(asked, ledger.FreeSoon()), wanted);

  const KvPages soon = ledger.FreeSoon();
  const uint64_t cached = ledger.cached_pages();
  uint64_t pages = Excess(asked, soon);
  size_t places = config_.max_sessions - sessions_->running().size();  // The first one's too.
  for (const auto& [rank, waiting] : sessions_->queued()) {
    LiveSession& next = *waiting;
    if (&next == &first) {
      continue;
    }
    if (--places == 0) {
      break;
    }
    const PrefixCache::Match match = book_->prefixes().Find(next);
    const KvPrefix prefix = book_->prefixes().SharedBy(next, match);
    AddPages(ledger.Asked(next.first_claim(), {}, prefix), &asked);
    const uint64_t more = Excess(asked, soon);
    if (more > cached) {
      break;
    }
    pages = more;
    if (prefix.pages > 0) {
      wanted[match.source] = std::max(wanted[match.source], prefix.pages);
    }
  }
  book_->prefixes().Evict(pages, wanted);
}

void Admission::ParkFor(LiveSession& first) {
  const KvPrefix shared = book_->prefixes().SharedBy(first, book_->prefixes().Find(first));
  for (;;) {
    const KvPages asked = AskedWith(first, shared);
    LiveSession* unread =
        Within(asked, book_->ledger().FreeSoon()) ? nullptr : sessions_->LongestUnread(now_);
    if (unread == nullptr) {
      return;
    }
    Preempt(*unread);
  }
}

bool Admission::GrowClaims() {
  const uint64_t preemptions = counters_->preemptions;
  awaited_.assign(book_->ledger().Free().size(), 0);
  const SessionQueue::ByRank& running = sessions_->running();
  // A guaranteed one lacks only what it shared and lost: before others take that.
  for (const bool guaranteed : {true, false}) {
    for (auto it = running.begin(); it != running.end();) {
      const LiveSession::Rank rank = it->first;
      LiveSession& session = *it->second;
      if (session.request.guaranteed == guaranteed && session.kv.claim().has_value() &&
          book_->ledger().Covers(*session.kv.claim()) < session.wanted_claim() &&
          (guaranteed || !session.waits_for_reader())) {
        GrowClaim(session);
      }
      it = running.upper_bound(rank);  // It and those after it may have been preempted.
    }
  }
  return IsZero(awaited_) && counters_->preemptions == preemptions;
}

void Admission::GrowClaim(LiveSession& session) {
  const KvLedger& ledger = book_->ledger();
  const KvPages growth = ledger.Growth(*session.kv.claim(), session.wanted_claim());
  // Free pages are not for it while more important sessions wait for some.
  if ((IsZero(awaited_) || IsZero(growth)) && book_->Grow(session)) {
    return;
  }
  AddPages(growth, &awaited_);
  book_->prefixes().Evict(Excess(awaited_, ledger.FreeSoon()));
  while (!Within(awaited_, ledger.FreeSoon())) {
    LiveSession& victim = sessions_->Victim(session, now_);
    if (&victim == &session && session.request.guaranteed) {
      return;  // Those that it shared pages with give them up too, with their next result.
    }
    Preempt(victim);
    if (&victim == &session) {
      SubtractPages(growth, &awaited_);
      return;
    }
  }
  // A victim of which nothing was sent gives its pages back at once.
  if (awaited_ == growth && book_->Grow(session)) {
    SubtractPages(growth, &awaited_);
  }
}

void Admission::Preempt(LiveSession& session) {
  ++counters_->preemptions;
  ++session.preemptions;
  const bool parks = session.waits_for_reader();
  book_->GiveUp(session);
  if (!parks) {
    sessions_->Queue(session);
    return;
  }
  sessions_->Park(session);
  if (sessions_->parked().size() > config_.max_queued_requests) {
    ends_->Fail(sessions_->LongestParked(),
                Error(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                      "the answer waits for a client that does not read it, and so do " +
                          std::to_string(config_.max_queued_requests) + " others")
                    .Limit("max_queued_requests=" + std::to_string(config_.max_queued_requests))
                    .Hint("read the answer as it comes"));
  }
}

void Admission::ReserveAnew() {
  std::vector<LiveSession*> ran;
  for (const auto& [rank, session] : sessions_->running()) {
    ran.push_back(session);
  }
  for (LiveSession* session : ran) {
    sessions_->Queue(*session);
  }
  bool all_fit = true;                           // Nobody overtakes one that has to wait,
  for (const bool guaranteed : {true, false}) {  // but those that are never preempted.
    for (LiveSession* session : ran) {
      if (session->request.guaranteed != guaranteed) {
        continue;
      }
      all_fit = all_fit && book_->Reserve(*session, Spare());
      if (all_fit) {
        sessions_->Run(*session);
      } else {
        ++counters_->preemptions;
        ++session->preemptions;
      }
    }
  }
}

std::optional<TimePoint> Admission::NextWake() const {
  if (fence_.running() && (!sessions_->queued().empty() || !has_room_)) {
    return sessions_->NextUnread(now_);
  }
  return std::nullopt;
}

}  // namespace strata
