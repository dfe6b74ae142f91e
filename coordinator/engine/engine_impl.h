// The engine's inside; only its own sources include it. engine.cc holds sessions, engine_memory.cc
// admission and everything else about KV memory, engine_prefix.cc the use of cached prefixes,
// engine_shares.cc whose turn it is, engine_steps.cc what is sent and committed, engine_items.cc
// what a step consists of, engine_faults.cc faults, resynchronisation and time, engine_move.cc
// what happens when the stages are loaded anew. fence.h owns the pipeline's state, suspect_search.h
// the search for a session that breaks a stage.
#ifndef STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_
#define STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/fingerprint.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fair_shares.h"
#include "coordinator/engine/fence.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/engine/layer_waves.h"
#include "coordinator/engine/result_check.h"
#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/step_meter.h"
#include "coordinator/engine/step_timing.h"
#include "coordinator/engine/suspect_search.h"
#include "coordinator/prefix/prefix_cache.h"
#include "coordinator/prefix/prefix_chain.h"

namespace strata {

// A reader that was behind for less keeps its memory while others wait for some: most read on.
inline constexpr nanoseconds kReaderPatience = milliseconds(500);

// Of these stages' grants.
KvLedger NewLedger(const EngineConfig& config, const std::vector<EngineStage>& stages);

// Of each; empty where one is not known.
std::vector<uint32_t> LayersOf(const std::vector<EngineStage>& stages);

// "3 prompt tokens + 5 max_tokens".
std::string TokenSum(uint64_t prompt_tokens, uint64_t max_tokens);

// What a session begins on: published pages, and `more` tokens of the one after them, which the
// source has too.
struct PrefixHit {
  PrefixCache::Match match;
  uint32_t more = 0;
};

class Engine::Impl {
 public:
  Impl(EngineConfig config, SequenceNumbers* sequence_numbers, EngineHost* host);

  void Start(TimePoint now);
  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink, TimePoint now);
  PromptLimit LongestPrompt() const;
  bool Cancel(std::string_view key, const absl::Status& why, TimePoint now);
  bool SetPaused(std::string_view key, bool paused, TimePoint now);
  void OnResult(ResultMessage result, TimePoint now);
  void OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now);
  void OnFenced(uint64_t epoch, TimePoint now);
  void StopAdmitting(const absl::Status& why);
  void FailAll(const absl::Status& why, TimePoint now);
  void Stop(const absl::Status& why, TimePoint now);
  absl::Status CheckFits(const std::vector<EngineStage>& stages) const;
  void Suspend(std::vector<EngineStage> stages, TimePoint now);
  void LoseStages(const absl::Status& why, TimePoint now);
  void Resume(uint64_t epoch, TimePoint now);
  size_t live_sessions() const { return sessions_.size(); }
  bool IsLive(std::string_view key) const { return by_key_.contains(std::string(key)); }
  bool down() const { return fence_.down(); }
  uint64_t epoch() const { return fence_.epoch(); }
  std::optional<TimePoint> NextWake() const;
  void Tick(TimePoint now);
  EngineSnapshot Snapshot(TimePoint now) const;

 private:
  // Smaller is more important: by priority, then by age. It never changes, so sessions that take
  // memory from less important ones cannot do so in a circle.
  using Rank = std::pair<int64_t, uint64_t>;

  // A request's side: the token list is the truth.
  struct Session {
    uint64_t id = 0;         // In order of arrival.
    SessionRequest request;  // Without its prompt, which begins `tokens`.
    std::shared_ptr<SessionSink> sink;
    std::vector<uint32_t> tokens;  // The prompt, then what was generated and committed.
    uint32_t prompt_tokens = 0;
    uint32_t max_tokens = 0;
    // Its tenant's index among the shares of admission and of prefill, and the tokens that it was
    // charged for at admission and since.
    uint32_t tenant = 0;
    uint32_t prefill_tenant = 0;
    uint32_t charged = 0;
    TimePoint arrived{0};
    std::optional<TimePoint> started;  // Admitted.
    std::optional<TimePoint> first_token;
    // None while queued, and while a replay waits for its old sequence's Release. What is sent is
    // within it.
    std::optional<KvLedger::ClaimId> claim;
    uint64_t generation = 0;  // Of its sequence; 0: none yet.
    // Tokens whose KV was sent for, and committed; fingerprints of the tokens before them.
    uint32_t sent = 0;
    uint32_t committed = 0;
    Fingerprint sent_fingerprint = 0;
    Fingerprint committed_fingerprint = 0;
    uint32_t next_row = 0;   // First position whose rows the sink has not seen.
    uint64_t last_step = 0;  // Of its newest item, by the steps that were ever sent.
    uint32_t steps = 0;      // Committed, with rows of it; and where their time went.
    StepTimes times;
    uint32_t preemptions = 0;
    int replays = 0;
    bool replaying = false;  // Tokens it already had are computed again.
    bool paused = false;     // By SetPaused.
    TimePoint paused_since{0};
    // With a prefix cache: its name there from when it began to be computed, and the sequence that
    // its own is yet to be forked from (it has `sent` tokens then).
    uint64_t holder = 0;
    uint64_t fork_source = 0;
    // Who computes pages that it needs too, and how many it waits for.
    uint64_t awaited_holder = 0;
    uint32_t awaited_pages = 0;
    std::unique_ptr<PrefixChain> chain;
    std::optional<uint32_t> cached_tokens;  // Of its first beginning.
    bool counts_hit = false;                // That one is a hit, and not yet committed.

    uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
    uint32_t generated() const { return known() - prompt_tokens; }
    // What follows position `i` in fingerprints.
    uint64_t LinkAt(uint32_t i) const {
      const auto row = EmbeddingsWithin(request.embeddings, i, 1);
      return row.empty() ? tokens[i] : row.front().link;
    }
    bool decoding() const { return generated() > 0 && sent + 1 >= known(); }
    // Its next token is not to be computed yet. What it computes again others may wait for.
    bool waits_for_reader() const { return paused && decoding() && !replaying; }
    // The longest that its sequence can become.
    uint32_t most_tokens() const { return prompt_tokens + max_tokens; }
    // What it must have room for to start: all that is known, and one token of growth.
    uint32_t first_claim() const { return request.guaranteed ? most_tokens() : known() + 1; }
    Rank rank() const { return {-int64_t{request.priority}, id}; }
    // Nothing of it is on the stages any more.
    void ForgetSequence(Fingerprint root) {
      generation = 0;
      sent = committed = 0;
      sent_fingerprint = committed_fingerprint = root;
    }
  };

  // A name's side: KV on the stages, until the step with its Release is committed.
  struct Sequence {
    std::string request_id;
    uint64_t session = 0;    // The session it works for; 0: only its Release is left.
    uint32_t committed = 0;  // Tokens that every stage has.
    uint32_t sent = 0;       // Tokens that some stage may have.
    bool poisoned = false;   // An item (or cut) of it was rejected: what follows is not committed.
    bool release_wanted = false;
    // Once detached: what its Release frees, and the replaying session that takes it over.
    std::optional<KvLedger::ClaimId> claim;
    uint64_t successor = 0;
    // Its name in the prefix cache, if it is there. Kept: its session ended, and the first `keep`
    // of `tokens` stay, with the fingerprints in `chain`; what is beyond is to be cut off, and
    // waits for that in `tails` (claim, and the step with its Truncate; 0: not sent).
    uint64_t holder = 0;
    bool kept = false;
    bool cut_wanted = false;
    uint32_t keep = 0;
    std::vector<uint32_t> tokens;
    std::unique_ptr<PrefixChain> chain;
    std::vector<std::pair<KvLedger::ClaimId, uint64_t>> tails;
  };

  // engine.cc
  absl::Status Check(const SessionRequest& request, TimePoint now) const;
  absl::Status CheckEmbeddings(const SessionRequest& request) const;
  Session* Find(uint64_t id);
  // The fingerprint of no tokens of it.
  Fingerprint RootOf(const SessionRequest& request) const {
    return roots_[request.params.rotary_variant()];
  }
  void EndSession(Session& session);  // Destroys it.
  void FinishSession(Session& session, const char* reason, TimePoint now);
  void FailSession(Session& session, const absl::Status& why);
  void Pump(TimePoint now);

  // engine_memory.cc
  absl::StatusOr<uint32_t> MaxTokens(const SessionRequest& request) const;
  // `sum` says what `asked` tokens are made of.
  absl::Status ContextExceeded(const std::string& request_id, const std::string& sum,
                               uint64_t asked) const;
  absl::Status NeverFits(const std::string& request_id, const std::string& sum,
                         uint64_t asked) const;
  bool CanStartMore() const;
  // What a session that starts now leaves free.
  KvSpare Spare() const;
  void Admit(TimePoint now);
  // Cached pages give way to all that could run then, not to the first alone: each takes a step.
  void EvictForQueue(Session& first);
  // While nobody waits the cache leaves a part of the pool free, so that who comes next need not
  // wait for the step with a Release.
  void EvictAhead();
  // Claims grow to what is known of the running sessions, the most important first; pages that are
  // missing come from the least important ones. Whether nobody waits or had to give way.
  bool GrowClaims();
  void GrowClaim(Session& session);
  // Who gives pages to `needy`: the running session that has waited longest for its reader,
  // whatever its rank; else the least important one; itself if there is none.
  Session& Victim(Session& needy);
  // The same for those that wait for a start; null: everyone reads.
  Session* LongestUnread();
  bool MayPark(const Session& session) const;
  // Those who do not read give way to the first in the queue.
  void ParkFor(Session& first);
  // Back to the queue: keeps its tokens, and gives up what it has on the stages. One that waits for
  // its reader comes to the queue only once that reads again; of too many such the oldest fails.
  void Preempt(Session& session);
  // The session's sequence is given up; its claim goes on to `successor` (or nobody, 0) on Release.
  void Detach(Session& session, uint64_t successor);
  void Replay(Session& session);
  // The claim that waits for it until its old sequence is released is nobody's.
  void CancelHandover(const Session& session);
  // A released sequence's pages return to the ledger, and its claim goes to its successor.
  void GiveBack(uint64_t generation, Sequence* sequence);
  // No stage holds the sequence any more.
  void Released(uint64_t generation);

  // engine_shares.cc
  void EnterShares(Session& session);
  void LeaveShares(const Session& session);
  // Who starts next. The queue is not empty.
  Session& NextInQueue();
  // Its tenant was served what is known of it; those tokens that are computed again cost nothing.
  void Charge(Session& session);

  // engine_prefix.cc
  bool CachesPrefixes() const;
  bool CachesPrefixOf(const Session& session) const {
    return caches_prefixes_ && session.request.embeddings.empty();
  }
  std::unique_ptr<PrefixChain> NewChain(const SessionRequest& request) const;
  // Running sessions without a sequence are given a cached prefix, or begin at their first token;
  // those whose prefix somebody computes wait for it.
  void BeginSessions();
  bool WaitsForPrefix(const Session& session) const;
  void BeginSession(Session& session);
  // Not for a less important one that computes the prefix: those in between would hold up both.
  bool MayWaitFor(uint64_t holder, const Session& session) const;
  // The prefix it may begin on, or wait for.
  PrefixCache::Match FindPrefix(Session& session);
  // What of that it need not be charged for.
  KvPrefix SharedBy(const Session& session, const PrefixCache::Match& match) const;
  // The same with what is cached of the page after it, when it is to begin now.
  PrefixHit HitOf(Session& session);
  void Begin(Session& session, const PrefixHit& hit);
  // Back to where it was before BeginSession; it has no sequence.
  void Unbegin(Session& session);
  void NewSequence(Session& session);
  // Its first `tokens` tokens are on every stage.
  void Publish(Session& session, uint32_t tokens);
  // Its sequence stays after its end, if it can; else false.
  bool KeepSequence(Session& session);
  void CutTo(Sequence* sequence, uint32_t pages);
  void Apply(const std::vector<PrefixCache::Cut>& cuts);
  // The sequence is out of the cache; a kept one is to be released.
  void DropFromCache(uint64_t generation, Sequence* sequence);
  // Pages that sessions are to begin on, by their names in the prefix cache.
  using WantedPrefixes = std::unordered_map<uint64_t, uint32_t>;
  // Cached pages become free, as many as there are of those that are asked, but not the wanted
  // ones.
  void EvictPrefixes(uint64_t pages, const WantedPrefixes& wanted = {});
  void AddForks(v1::StepFrame* frame, SentStep* sent);
  void AddCuts(v1::StepFrame* frame, SentStep* sent);
  static void AddTruncate(uint64_t generation, const Sequence& sequence, uint32_t length,
                          Fingerprint fingerprint, v1::StepFrame* frame, SentStep* sent);
  void CommitFork(const SentCommand& fork, const v1::CommandResult& result);
  void CommitCut(const SentCommand& cut, const v1::CommandResult& result, uint64_t step);
  // Those that `step` cut off; 0: all of them.
  void FreeTails(Sequence* sequence, uint64_t step);

  // engine_steps.cc
  bool SendNextStep(TimePoint now);
  SchedulerSnapshot SchedulerView() const;
  // Says who has prompts to compute, so that their tenants share fairly.
  void ShareRows(SchedulerSnapshot* view);
  v1::StepFrame* BeginFrame(StepMessage* message, SentStep* sent);
  void Dispatch(StepMessage message, SentStep sent, TimePoint now);
  void Commit(const SentStep& sent, const ResultMessage& result, TimePoint now);
  absl::Status CommitCommands(const SentStep& sent, const v1::StepResult& header);
  void CommitItem(const SentItem& sent, uint64_t step, const v1::ItemResult& item,
                  std::span<const float> logits, TimePoint now);
  // The stages freed behind windows what this step's commit lets them.
  void RetainWindows(uint64_t committed_step);
  void CommitTokens(Session& session, const SentItem& sent, const v1::ItemResult& item,
                    std::span<const float> logits, TimePoint now);
  void OnItemError(const SentItem& sent, const v1::ItemResult& item);
  void DeliverRows(Session& session, const SentItem& sent, const v1::ItemResult& item,
                   std::span<const float> logits);
  void DeliverToken(Session& session, const v1::TokenLogprob& token, TimePoint now);
  absl::Status ItemStatus(const std::string& request_id, uint32_t stage,
                          const v1::ErrorDetail& error) const;

  // engine_items.cc
  // Of a model's layers [from, end); end 0: to the last one, and what is wanted of the rows.
  struct LayerRange {
    uint32_t from = 0;
    uint32_t end = 0;
  };
  // What the plan says, and the rows of all. How many items decode.
  uint32_t AddItems(const ScheduledStep& plan, v1::StepFrame* frame, SentStep* sent);
  // The session's next `rows` tokens are sent from now on.
  WaveItem BeginTokens(Session& session, uint32_t rows);
  void AddSlice(const WaveSlice& slice, v1::StepFrame* frame, SentStep* sent);
  void AddItem(const Session& session, const WaveItem& tokens, const LayerRange& layers,
               v1::StepFrame* frame, SentStep* sent);
  static void BeginOnStages(const Session& session, v1::StepItem* item);
  // What the last layer's rows are for.
  static void SetWanted(const Session& session, v1::StepItem* item, SentItem* sent);

  // engine_move.cc
  absl::Status KvInUse(const Session& session, const KvLedger& ledger,
                       const std::vector<EngineStage>& stages) const;
  void ForgetSequences();

  // engine_faults.cc
  void Fault(const absl::Status& status, TimePoint now);
  void AbandonStepsInFlight();
  // The steps in flight are lost: those they carried are the suspects now.
  void NoteSuspects();
  // Fails the session that was found to break a stage, if there is one. `cause`: its last fault.
  void FailOffenders(const absl::Status& cause);
  // Of the epoch that has just begun.
  void SendFence();
  void GoDown(const absl::Status& why);
  void SendResync(TimePoint now);
  void CommitResync(const SentStep& sent, const v1::StepResult& header);
  void ExpireDeadlines(TimePoint now);
  absl::Status DownStatus() const;
  // The last sign of life.
  TimePoint LastSign(TimePoint now) const { return in_flight_.empty() ? now : last_activity_; }
  // Names, by stage.
  std::vector<std::string> Nodes() const;

  EngineConfig config_;  // Only Suspend changes it: the stages' grants.
  SequenceNumbers* const sequence_numbers_;
  EngineHost* const host_;
  const std::array<Fingerprint, 2> roots_;  // By rotary variant.
  const bool caches_prefixes_;
  const bool has_windows_;
  KvLedger ledger_;
  // With window groups: how long steps left sequences, until the stages know them to be committed
  // and free what is behind the windows; in the order of the steps.
  struct LengthAfter {
    uint64_t step = 0;
    uint64_t generation = 0;
    uint32_t length = 0;
  };
  std::deque<LengthAfter> lengths_;
  PrefixCache prefix_;
  std::unordered_map<uint64_t, uint64_t> holders_;  // Names in prefix_: their sequences.
  uint64_t next_holder_ = 1;
  LayerWaves waves_;
  StepTiming timing_;
  StepMeter meter_;
  StepTimes step_times_;  // Of the step that is being committed.

  Fence fence_;
  SuspectSearch suspects_;
  absl::Status not_admitting_;  // Ok: admitting.

  // Sessions by id. Each is queued, running or parked.
  std::map<uint64_t, Session> sessions_;
  std::unordered_map<std::string, uint64_t> by_key_;
  std::map<Rank, Session*> queue_;
  std::map<Rank, Session*> running_;
  std::map<Rank, Session*> parked_;  // They gave way, and their readers do not read yet.
  TimePoint now_{0};                 // Pump's.
  bool has_room_ = true;             // GrowClaims' last answer.
  KvPages awaited_;                  // What running sessions wait for since then.
  FairShares shares_;                // Of admission, in tokens that are known.
  FairShares prefill_shares_;
  std::set<std::pair<TimePoint, uint64_t>> deadlines_;
  uint64_t next_session_ = 1;
  uint64_t embedding_bytes_ = 0;            // Of all sessions.
  std::map<uint64_t, Sequence> sequences_;  // By generation.

  uint64_t next_step_ = 1;
  uint64_t committed_step_ = 0;
  uint64_t last_decode_step_ = 0;  // The newest with decode items, and with parts of prompts.
  uint64_t last_prefill_step_ = 0;
  bool together_ = false;  // The newest with decode items had all there were.
  std::deque<SentStep> in_flight_;
  TimePoint last_activity_{0};               // Last result, or dispatch into an idle pipeline.
  std::optional<EngineProblem> quarantine_;  // The newest ledger mismatch.
  EngineCounters counters_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_ENGINE_IMPL_H_
