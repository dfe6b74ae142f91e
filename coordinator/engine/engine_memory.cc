// KV memory: who may start, what running sessions may grow to, and what comes back when. The ledger
// counts; this decides.
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"

namespace strata {
namespace {

// Of the pool: a start's watermark by default, and as much for the session itself.
constexpr double kReadyShare = 0.1;

void Add(const KvPages& pages, KvPages* sum) {
  for (size_t i = 0; i < pages.size(); ++i) {
    (*sum)[i] += pages[i];
  }
}

void Subtract(const KvPages& pages, KvPages* sum) {
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

// What to do about a request that is too long.
std::string ContextHint(const EngineConfig& config) {
  if (config.model_context != 0 && config.model_context <= config.context) {
    return "shorten the prompt or ask for fewer tokens: the model has no longer context";
  }
  std::string hint =
      "shorten the prompt, ask for fewer tokens, or load the model with a larger --context";
  if (config.model_context != 0) {
    hint += " (at most " + std::to_string(config.model_context) + ")";
  }
  return hint;
}

}  // namespace

std::string TokenSum(uint64_t prompt_tokens, uint64_t max_tokens) {
  return std::to_string(prompt_tokens) + " prompt tokens + " + std::to_string(max_tokens) +
         " max_tokens";
}

// The tokens to generate, or why the request can never be served.
absl::StatusOr<uint32_t> Engine::Impl::MaxTokens(const SessionRequest& request) const {
  const uint64_t prompt = request.prompt.size();
  const uint32_t least = request.params.min_tokens();
  const uint64_t asked = prompt + std::max<uint64_t>({1, request.max_tokens, least});
  const uint64_t pool = ledger_.capacity_tokens();
  const std::string sum =
      request.max_tokens > 0 ? TokenSum(prompt, request.max_tokens)
      : least > 0
          ? std::to_string(prompt) + " prompt tokens + " + std::to_string(least) + " min_tokens"
          : std::to_string(prompt) + " prompt tokens and one to generate";
  if (asked > config_.context) {
    return ContextExceeded(request.request_id, sum, asked);
  }
  if (asked > pool) {
    return NeverFits(request.request_id, sum, asked);
  }
  if (request.max_tokens > 0) {
    return request.max_tokens;
  }
  uint64_t room = std::min<uint64_t>(config_.context, pool) - prompt;
  if (asked <= config_.long_rotary_above) {
    // Nothing says that it is to be longer than the short factors serve.
    room = std::min<uint64_t>(room, config_.long_rotary_above - prompt);
  }
  return static_cast<uint32_t>(
      std::min<uint64_t>(room, std::max<uint32_t>({1, request.default_max_tokens, least})));
}

PromptLimit Engine::Impl::LongestPrompt() const {
  const uint64_t longest = std::min<uint64_t>(config_.context, ledger_.capacity_tokens());
  const uint64_t prompt = longest - std::min<uint64_t>(longest, 1);
  const std::string sum =
      "more than " + std::to_string(prompt) + " prompt tokens and one to generate";
  return {prompt, longest < config_.context ? NeverFits("", sum, longest + 1)
                                            : ContextExceeded("", sum, longest + 1)};
}

absl::Status Engine::Impl::ContextExceeded(const std::string& request_id, const std::string& sum,
                                           uint64_t asked) const {
  return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
               sum + " exceed the context of " + std::to_string(config_.context) + " tokens")
      .RequestId(request_id)
      .Limit("context_tokens=" + std::to_string(config_.context))
      .Hint(ContextHint(config_))
      .Fact("asked_tokens", asked)
      .Fact("limit_tokens", config_.context);
}

absl::Status Engine::Impl::NeverFits(const std::string& request_id, const std::string& sum,
                                     uint64_t asked) const {
  const uint64_t pool = ledger_.capacity_tokens();
  const std::string& node = config_.stages[ledger_.limiting_stage()].node;
  return Error(absl::StatusCode::kInvalidArgument, "KV_NEVER_FITS",
               sum + " can never fit: the KV pool holds " + std::to_string(pool) +
                   " tokens, limited by node \"" + node + "\"")
      .RequestId(request_id)
      .Node(node)
      .Limit("kv_tokens=" + std::to_string(pool))
      .Hint("shorten the prompt, ask for fewer tokens, or give the model more --kv-tokens")
      .Fact("asked_tokens", asked)
      .Fact("limit_tokens", pool);
}

bool Engine::Impl::CanStartMore() const {
  return fence_.running() && running_.size() < config_.max_sessions;
}

KvSpare Engine::Impl::Spare() const {
  if (ledger_.claims() == 0) {
    return {};  // Else what fits the empty pool alone could wait for ever.
  }
  const auto growing = std::count_if(running_.begin(), running_.end(), [](const auto& entry) {
    return !entry.second->request.guaranteed;
  });
  return {static_cast<uint64_t>(growing), config_.kv_watermark};
}

void Engine::Impl::Admit(TimePoint now) {
  while (!queue_.empty()) {
    if (!CanStartMore()) {
      Session* unread = fence_.running() ? LongestUnread() : nullptr;
      if (unread == nullptr) {
        break;
      }
      Preempt(*unread);
    }
    Session& session = NextInQueue();
    const PrefixHit hit = HitOf(session);
    const KvPrefix shared = SharedBy(session, hit.match);
    session.claim = ledger_.Reserve(session.first_claim(), Spare(), shared);
    if (!session.claim.has_value()) {
      EvictForQueue(session);
      ParkFor(session);
      return;  // What comes after it waits too.
    }
    queue_.erase(session.rank());
    running_.emplace(session.rank(), &session);
    Charge(session);
    if (shared.pages > 0) {
      Begin(session, hit);  // At once, as long as what it shares is there.
    }
    if (session.started.has_value()) {
      continue;  // It was preempted.
    }
    session.started = now;
    session.sink->OnStarted({.prompt_tokens = session.prompt_tokens,
                             .max_tokens = session.max_tokens,
                             .queued = now - session.arrived});
  }
  if (queue_.empty()) {
    shares_.SetWaiting({});
    EvictAhead();
  }
}

void Engine::Impl::EvictAhead() {
  if (ledger_.cached_pages() > 0) {
    const KvSpare ready{std::numeric_limits<uint64_t>::max(), kReadyShare};
    EvictPrefixes(Excess(ledger_.Asked(0, ready), ledger_.FreeSoon()), {});
  }
}

void Engine::Impl::EvictForQueue(Session& first) {
  // The first one's need before all: nobody overtakes it.
  const PrefixCache::Match hit = FindPrefix(first);
  const KvPrefix shared = SharedBy(first, hit);
  WantedPrefixes wanted;
  if (shared.pages > 0) {
    wanted[hit.source] = shared.pages;
  }
  KvPages asked = ledger_.Asked(first.first_claim(), Spare(), shared);
  Add(awaited_, &asked);
  EvictPrefixes(Excess(asked, ledger_.FreeSoon()), wanted);

  const KvPages soon = ledger_.FreeSoon();
  const uint64_t cached = ledger_.cached_pages();
  uint64_t pages = Excess(asked, soon);
  size_t places = config_.max_sessions - running_.size();  // The first one's too.
  for (const auto& [rank, waiting] : queue_) {
    Session& next = *waiting;
    if (&next == &first) {
      continue;
    }
    if (--places == 0) {
      break;
    }
    const PrefixCache::Match match = FindPrefix(next);
    const KvPrefix prefix = SharedBy(next, match);
    Add(ledger_.Asked(next.first_claim(), {}, prefix), &asked);
    const uint64_t more = Excess(asked, soon);
    if (more > cached) {
      break;
    }
    pages = more;
    if (prefix.pages > 0) {
      wanted[match.source] = std::max(wanted[match.source], prefix.pages);
    }
  }
  EvictPrefixes(pages, wanted);
}

bool Engine::Impl::MayPark(const Session& session) const {
  return !session.request.guaranteed && session.waits_for_reader() &&
         now_ - session.paused_since >= kReaderPatience;
}

Engine::Impl::Session* Engine::Impl::LongestUnread() {
  Session* longest = nullptr;
  for (const auto& [rank, session] : running_) {
    if (MayPark(*session) &&
        (longest == nullptr || session->paused_since < longest->paused_since)) {
      longest = session;
    }
  }
  return longest;
}

void Engine::Impl::ParkFor(Session& first) {
  const KvPrefix shared = SharedBy(first, FindPrefix(first));
  for (;;) {
    KvPages asked = ledger_.Asked(first.first_claim(), Spare(), shared);
    Add(awaited_, &asked);
    Session* unread = Within(asked, ledger_.FreeSoon()) ? nullptr : LongestUnread();
    if (unread == nullptr) {
      return;
    }
    Preempt(*unread);
  }
}

bool Engine::Impl::GrowClaims() {
  const uint64_t preemptions = counters_.preemptions;
  awaited_.assign(ledger_.Free().size(), 0);
  for (auto it = running_.begin(); it != running_.end();) {
    const Rank rank = it->first;
    Session& session = *it->second;
    if (session.claim.has_value() && ledger_.Covers(*session.claim) < session.known() &&
        !session.waits_for_reader()) {
      GrowClaim(session);
    }
    it = running_.upper_bound(rank);  // It and those after it may have been preempted.
  }
  return IsZero(awaited_) && counters_.preemptions == preemptions;
}

void Engine::Impl::GrowClaim(Session& session) {
  const KvPages growth = ledger_.Growth(*session.claim, session.known());
  // Free pages are not for it while more important sessions wait for some.
  if ((IsZero(awaited_) || IsZero(growth)) && ledger_.Grow(*session.claim, session.known())) {
    return;
  }
  Add(growth, &awaited_);
  EvictPrefixes(Excess(awaited_, ledger_.FreeSoon()));
  while (!Within(awaited_, ledger_.FreeSoon())) {
    Session& victim = Victim(session);
    Preempt(victim);
    if (&victim == &session) {
      Subtract(growth, &awaited_);
      return;
    }
  }
  // A victim of which nothing was sent gives its pages back at once.
  if (awaited_ == growth && ledger_.Grow(*session.claim, session.known())) {
    Subtract(growth, &awaited_);
  }
}

Engine::Impl::Session& Engine::Impl::Victim(Session& needy) {
  if (Session* unread = LongestUnread(); unread != nullptr) {
    return *unread;
  }
  for (auto it = running_.rbegin(); it->second != &needy; ++it) {
    if (!it->second->request.guaranteed) {
      return *it->second;
    }
  }
  return needy;
}

void Engine::Impl::Preempt(Session& session) {
  ++counters_.preemptions;
  ++session.preemptions;
  const bool parks = session.waits_for_reader();
  session.replaying = session.replaying || session.committed > 0;
  if (session.generation != 0) {
    Detach(session, 0);
  } else if (session.claim.has_value()) {
    Unbegin(session);
    ledger_.Free(*session.claim);  // Nothing was sent under it.
    session.claim.reset();
  } else {
    CancelHandover(session);
  }
  session.ForgetSequence(RootOf(session.request));
  running_.erase(session.rank());
  (parks ? parked_ : queue_).emplace(session.rank(), &session);
  if (parked_.size() <= config_.max_queued_requests) {
    return;
  }
  Session* oldest = parked_.begin()->second;
  for (const auto& [rank, parked] : parked_) {
    if (parked->paused_since < oldest->paused_since) oldest = parked;
  }
  FailSession(*oldest,
              Error(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                    "the answer waits for a client that does not read it, and so do " +
                        std::to_string(config_.max_queued_requests) + " others")
                  .Limit("max_queued_requests=" + std::to_string(config_.max_queued_requests))
                  .Hint("read the answer as it comes"));
}

void Engine::Impl::Detach(Session& session, uint64_t successor) {
  Sequence& sequence = sequences_.at(session.generation);
  DropFromCache(session.generation, &sequence);
  sequence.session = 0;
  sequence.release_wanted = true;
  sequence.claim = session.claim;
  sequence.successor = successor;
  if (successor == 0) {
    ledger_.Fence(*session.claim);
  }
  session.claim.reset();
  session.generation = 0;
}

void Engine::Impl::CancelHandover(const Session& session) {
  for (auto& [generation, sequence] : sequences_) {
    if (sequence.successor == session.id) {
      sequence.successor = 0;
      if (sequence.claim.has_value()) {
        ledger_.Fence(*sequence.claim);
      }
    }
  }
}

void Engine::Impl::Replay(Session& session) {
  Detach(session, session.id);
  session.ForgetSequence(RootOf(session.request));
  session.replaying = true;
}

void Engine::Impl::GiveBack(uint64_t generation, Sequence* sequence) {
  ledger_.DropHeld(generation);
  FreeTails(sequence, 0);
  const std::optional<KvLedger::ClaimId> claim = std::exchange(sequence->claim, std::nullopt);
  Session* successor = Find(sequence->successor);
  if (claim.has_value() && successor != nullptr) {
    ledger_.Unshare(*claim);  // It begins anew, and may have to compute all of it.
    successor->claim = claim;
  } else if (claim.has_value()) {
    ledger_.Free(*claim);
  }
}

void Engine::Impl::Released(uint64_t generation) {
  const auto it = sequences_.find(generation);
  STRATA_CHECK(it != sequences_.end() && it->second.session == 0);
  GiveBack(generation, &it->second);
  sequences_.erase(it);
}

}  // namespace strata
