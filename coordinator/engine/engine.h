// The coordinator's core for one deployment (and its one pipeline): sessions, KV ledger, scheduler
// and the coordinator's side of the step protocol. A state machine: it knows no thread, socket or
// clock. Everything that happens is a call with the time; everything it wants done goes to an
// EngineHost. docs/ARCHITECTURE.md, "Life of a request" and "The step protocol".
#ifndef STRATA_COORDINATOR_ENGINE_ENGINE_H_
#define STRATA_COORDINATOR_ENGINE_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/frame.h"
#include "common/model/model_spec.h"
#include "coordinator/engine/draft_model.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/kv_ledger.h"
#include "coordinator/engine/sequence_numbers.h"
#include "coordinator/engine/session.h"
#include "coordinator/engine/step_meter.h"

namespace strata {

struct EngineStage {
  std::string node;                // Named in errors.
  std::vector<uint64_t> kv_pages;  // By KV group; 0 where no layer of the stage uses the group.
  double predicted_ms = 0;         // One token through this stage, by the plan; 0: not known.
  uint32_t layers = 0;             // 0: not known; then prompts are not spread over steps.
};

struct EngineConfig {
  uint64_t deployment = 0;
  uint64_t epoch = 1;  // Of the first fence.
  std::vector<EngineStage> stages;
  std::vector<KvGroupSpec> kv_groups;
  uint32_t layers = 0;  // For sessions that want digests of them.
  uint32_t vocab = 0;
  uint32_t context = 0;        // Tokens of the longest session, prompt and answer.
  uint32_t model_context = 0;  // That the model may be loaded with; 0: not known.
  // Sessions that may come to have more tokens than this take rotary variant 1; 0: there is none.
  uint32_t long_rotary_above = 0;
  std::string weights_digest;
  std::string numerics_class;

  uint32_t max_batch_tokens = 512;  // Rows of one step.
  uint32_t max_batch_items = 256;   // Sequences of one step.
  uint32_t max_sessions = 1024;     // Running at once.
  uint32_t max_queued_requests = 256;
  // Of the embeddings that sessions which have not ended brought with them.
  uint64_t max_input_embedding_bytes = uint64_t{256} << 20;
  // Admitting a session leaves a page free for each running one to grow, up to this share of the
  // pool.
  double kv_watermark = 0.05;
  // Whether sequences stay after their session's end, for others that begin alike.
  bool prefix_cache = true;
  // What drafts tokens of answers, unless their requests say otherwise; and by whom.
  Speculate speculate = Speculate::kOff;
  MakeDrafter make_drafter = NewDrafter;
  // Whether EngineHost::AskDraftModel asks one, for sessions with Speculate::kAuto.
  bool draft_model = false;
  // Of recent answers, which drafters look into; each tenant's are its own. 0: none are kept.
  uint64_t speculate_memory = uint64_t{16} << 20;
  // Without a result for this long the steps in flight are given up,
  nanoseconds step_timeout = std::chrono::seconds(10);
  // or sooner, where the steps are known to take less: after several times what is expected of
  // them, and this at the least (stall_watch.h). 0: never sooner.
  nanoseconds stall_timeout = std::chrono::seconds(2);
  // Parts of prompts beside answers are kept so small that the answers' tokens come as often as
  // this, as far as they do without prompts (kMostSlowdown); 0: as large as the step timeout
  // allows.
  nanoseconds inter_token_target = milliseconds(20);
  // When no step could be sent again until this long after the step timeout, counted from the last
  // sign of life, the sessions fail.
  nanoseconds recovery_timeout = milliseconds(800);
};

// What the engine wants done. Called from inside its calls; must not call it back.
class EngineHost {
 public:
  virtual ~EngineHost() = default;
  // Sends a frame to stage 0. Never blocks: at most stages + 1 frames are without result.
  virtual void SendStep(StepMessage step) = 0;
  // Sends Fence(deployment, epoch) to every stage, after recording `epoch` where it survives a
  // restart. When all have acknowledged and the links of `epoch` are open: Engine::OnFenced. A
  // fence replaces the one before it. Control streams that come back get the newest one again.
  virtual void SendFence(uint64_t epoch) = 0;
  // Nodes whose acknowledgement of the newest fence is missing, in the order of stages.
  virtual std::vector<std::string> UnfencedNodes() const = 0;
  // Faults go on, or the pipeline was not mended in time, or it stalled again on new links, because
  // of `why`: whether its stages are to be placed elsewhere. Then no session fails, and
  // Engine::LoseStages comes soon.
  virtual bool PlacesElsewhere(const absl::Status& /*why*/) { return false; }
  // A draft model is to go on with a session's tokens. False where there is none that answers now;
  // else Engine::OnGuesses comes, once.
  virtual bool AskDraftModel(GuessRequest /*request*/) { return false; }
};

enum class PipelineState {
  kNew,      // Start() was not called.
  kFencing,  // Waits for OnFenced.
  kResync,   // The epoch's first frame is on its way.
  kRunning,
  kBackoff,    // Faults follow one another: waits before the next fence.
  kDown,       // A fence was not acknowledged in time, or faults went on: sessions were failed and
               // new ones are refused until a fence succeeds.
  kSuspended,  // Between Suspend() and Resume(): sessions wait.
  kStopped,    // Stop() was called.
};
std::string_view PipelineStateName(PipelineState state);

struct SessionSnapshot {
  std::string key;
  std::string request_id;
  // "queued", "prefill", "decode", "replaying", "paused" (SetPaused), or "preempted": queued again.
  std::string state;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  uint32_t max_tokens = 0;
  bool guaranteed = false;
  nanoseconds age{0};
  uint32_t steps = 0;            // Committed, with rows of it.
  StepTimes times;               // Of those.
  uint32_t drafted_tokens = 0;   // That were computed,
  uint32_t accepted_tokens = 0;  // and those of them that the answer has.
  uint32_t drafts_held = 0;      // That stages may have now beside what is known.
};

struct EngineCounters {
  uint64_t submitted = 0;  // Accepted by Submit.
  uint64_t refused = 0;
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t steps_sent = 0;
  uint64_t steps_committed = 0;
  uint64_t rows_committed = 0;
  uint64_t slices_sent = 0;  // Of waves (layer_waves.h).
  uint64_t tokens_generated = 0;
  uint64_t tokens_drafted = 0;                        // That were computed,
  uint64_t drafts_accepted = 0;                       // and those of them that answers have.
  std::map<DraftSource, uint64_t> drafted_by_source;  // The same, where there are any.
  std::map<DraftSource, uint64_t> accepted_by_source;
  uint64_t steps_ahead = 0;  // Of one session, sent on the guess that those before are right,
  uint64_t steps_void = 0;   // and those of them that came to nothing.
  uint64_t item_errors = 0;
  uint64_t replays = 0;      // After an item's NOT_FOUND or FAILED_PRECONDITION.
  uint64_t rebuilds = 0;     // After a fence, of sequences that a stage had lost.
  uint64_t preemptions = 0;  // Sessions that gave up their KV memory for more important ones.
  // Sessions that looked for a cached prefix, and that began on one; their prompts' tokens, and
  // those of them that were not computed.
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_evictions = 0;     // Cached sequences cut or released for their pages.
  uint64_t prefix_forks_failed = 0;  // A stage's record of the source was not what it must be.
  uint64_t faults = 0;
  uint64_t offenders = 0;          // Sessions that failed because they broke a stage.
  uint64_t fences_failed = 0;      // Not acknowledged in time.
  uint64_t results_discarded = 0;  // Seen before, or of an old epoch.
  uint64_t ledger_mismatches = 0;
};

struct EngineProblem {
  std::string what;
  std::string hint;  // What mends it.
};

struct EngineSnapshot {
  PipelineState state = PipelineState::kNew;
  uint64_t epoch = 0;
  uint32_t steps_in_flight = 0;
  uint64_t kv_tokens = 0;         // The pool's capacity for one session, in tokens.
  std::string limiting_node;      // Whose stage limits kv_tokens.
  uint32_t cached_sequences = 0;  // Kept on the stages for their prefix.
  uint32_t token_budget = 0;      // Most rows of a step at present.
  uint32_t max_batch_tokens = 0;  // What that may become.
  uint32_t max_sessions = 0;
  uint32_t micro_batches = 0;  // That the sessions that decode are spread over.
  // What a step with parts of prompts may take on the slowest stage, milliseconds: by the
  // inter-token target while anybody decodes, and by the step timeout.
  double prefill_step_ms = 0;
  double inter_token_target_ms = 0;
  double hop_ms = 0;                      // StepTiming::HopMs().
  std::vector<SessionSnapshot> sessions;  // In order of arrival.
  std::vector<KvSnapshot> kv;             // By stage, then group.
  std::vector<EngineProblem> problems;    // What is wrong now, or was at the last fault.
  EngineCounters counters;
  std::vector<std::string> nodes;  // By stage.
  PipelineCounters pipeline;
};

// One thread at a time. Sinks and host are called from inside the calls below.
class Engine {
 public:
  // `sequence_numbers` and `host` outlive the engine.
  Engine(EngineConfig config, SequenceNumbers* sequence_numbers, EngineHost* host);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Every stage is loaded: sends the first fence, of config.epoch.
  void Start(TimePoint now);

  // Queues or starts a session; `sink` is told the rest. Refused at once, without a word to
  // `sink`, with
  //   INVALID_ARGUMENT  BAD_PROMPT, BAD_TOKEN_ID, BAD_REQUEST_ID
  //   INVALID_ARGUMENT  CONTEXT_EXCEEDED: prompt + max_tokens, and the context
  //   INVALID_ARGUMENT  KV_NEVER_FITS: prompt + max_tokens, the pool's tokens, the limiting node
  //   ALREADY_EXISTS    REQUEST_IN_FLIGHT: a live session has this key
  //   INVALID_ARGUMENT  INPUT_EMBEDDINGS: a position beyond the prompt, or not ascending
  //   RESOURCE_EXHAUSTED QUEUE_FULL, INPUT_EMBEDDINGS_FULL
  //   DEADLINE_EXCEEDED DEADLINE_EXCEEDED
  //   UNAVAILABLE       PIPELINE_DOWN, or what StopAdmitting or Stop were given.
  // A session may start, but not end, before Submit returns.
  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink, TimePoint now);

  // With Submit's CONTEXT_EXCEEDED or KV_NEVER_FITS: so that a text need not become tokens to be
  // refused.
  PromptLimit LongestPrompt() const;

  // Ends the live session `key`: with OnDone, reason "cancelled", when `why` is ok, else with
  // OnFailed(why). False if there is none. Its key is free at once.
  bool Cancel(std::string_view key, const absl::Status& why, TimePoint now);

  // Whether the live session `key` is to wait with its answer, because its reader does: no further
  // token of it is computed, but those under way come, the first one, and one after each time that
  // it had to be computed again. It keeps its deadline, and its place. Its memory it keeps until
  // others wait for some, but for half a second: then it gives way before all who are read, but for
  // a guaranteed one, and is computed again when its reader reads on. RESOURCE_EXHAUSTED
  // (SLOW_READER) ends the oldest of more than max_queued_requests such. False if there is none.
  bool SetPaused(std::string_view key, bool paused, TimePoint now);

  // The constraint of the live session `key` has a next set of tokens, or a problem.
  void OnConstraint(std::string_view key, TimePoint now);

  // What the draft model says of the session `key`, which had `known` tokens when it was asked:
  // at most as many guesses as were asked for, or none where it has failed. Nothing in it is
  // trusted.
  void OnGuesses(std::string_view key, uint32_t known, std::vector<uint32_t> guesses,
                 TimePoint now);

  // A frame of results arrived on the link from the last stage. Nothing in it is trusted.
  void OnResult(ResultMessage result, TimePoint now);
  // A link of `epoch` broke, a LinkFault of it arrived, or links of its fence could not be opened.
  // Faults of older epochs are ignored, so every end of a broken link may report it; an ok
  // `status` is a link that was closed.
  void OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now);
  // All stages acknowledged SendFence(epoch) and the links of `epoch` are open.
  void OnFenced(uint64_t epoch, TimePoint now);

  // New sessions are refused with `why` from now on; those there go on.
  void StopAdmitting(const absl::Status& why);
  // Fails every session.
  void FailAll(const absl::Status& why, TimePoint now);
  // Fails every session and ends: the host is never called again (node lost, unloaded).
  void Stop(const absl::Status& why, TimePoint now);

  // Whether every session that has not ended could be served with these grants, and the guaranteed
  // ones that run all at once; else FAILED_PRECONDITION (KV_IN_USE) with the request, its tokens
  // and what the grants hold.
  absl::Status CheckFits(const std::vector<EngineStage>& stages) const;
  // The stages are about to be loaded anew, with other grants or elsewhere: any number of them, of
  // the same layers and KV groups in all. They lose all state by it. Steps in flight are given up;
  // sessions wait, to be computed again from their tokens (those that do not fit any more when
  // there is room again), and new ones queue. A session that `stages` can never hold fails
  // (KV_NEVER_FITS): see CheckFits. From every state but kStopped; again, to go back to what was.
  // `numerics_class`: in which they compute; sessions are told of another one. "": as before.
  void Suspend(std::vector<EngineStage> stages, TimePoint now,
               const std::string& numerics_class = "");
  // Whether no step is sent any more, until Suspend or Repoint, or until it is told otherwise:
  // those in flight come back, and drained() once all have.
  void Drain(bool drains, TimePoint now);
  bool drained() const;
  // The stages are about to be others, any number of them (as many where there are window groups),
  // whose least pages of each KV group are no fewer, and which have the KV of those before them:
  // what one has not is computed again, as after a fault. Steps in flight are given up, and
  // sessions wait for Resume. From every state but kStopped.
  void Repoint(std::vector<EngineStage> stages, TimePoint now);
  // Stages are gone with all they held (a worker died), and may come back, there or elsewhere: as
  // Suspend with the same stages. If neither Suspend nor Resume comes within `patience` after the
  // step timeout, counted from the last sign of life, the sessions fail with `why`, and down() says
  // so. From every state but kStopped.
  void LoseStages(const absl::Status& why, nanoseconds patience, TimePoint now);
  // The stages are loaded: sends the fence of `epoch`, newer than epoch(). Only when suspended.
  void Resume(uint64_t epoch, TimePoint now);

  // Sessions that have not ended.
  size_t live_sessions() const;
  // Whether one of them has this key.
  bool IsLive(std::string_view key) const;
  // Kept from working until a fence succeeds (PipelineState::kDown): Submit refuses.
  bool down() const;
  uint64_t epoch() const;

  // When Tick has something to do; no value: not until another call. Changes with every call.
  std::optional<TimePoint> NextWake() const;
  // This process stood still until now: results may have come that nobody has read yet, so that
  // steps in flight get all of their time again.
  void ExcusePause(TimePoint now);
  // Deadlines, step and fence timeouts.
  void Tick(TimePoint now);

  EngineSnapshot Snapshot(TimePoint now) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_ENGINE_H_
