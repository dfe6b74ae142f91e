// What a session asks of the engine, and what it is told.
#ifndef STRATA_COORDINATOR_ENGINE_SESSION_H_
#define STRATA_COORDINATOR_ENGINE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/input_embeddings.h"
#include "coordinator/engine/step_meter.h"
#include "coordinator/engine/token_constraint.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// One request, complete: every default is resolved by the caller.
struct SessionRequest {
  // Scope and request id: unique among the live sessions of an engine. Never leaves the engine.
  std::string key;
  std::string request_id;  // 1..128 printable ASCII characters; names the sequence on workers.
  std::vector<uint32_t> prompt;  // At least one id, each below the vocabulary's size.
  // By ascending position, each within the prompt. A request with some neither begins on a cached
  // prefix nor leaves one.
  std::vector<InputEmbedding> embeddings;
  // Most tokens to generate. 0: not explicit, min(default_max_tokens, min(context, pool) - prompt),
  // but at least params.min_tokens.
  uint32_t max_tokens = 0;
  uint32_t default_max_tokens = 512;
  // Sampling complete, seed included; min_tokens, and the ids that it bars. The engine sets
  // prompt_length.
  v1::SequenceParams params;
  std::vector<uint32_t> stop_ids;  // A token of these ends the answer, and belongs to it.
  bool ignore_eos = false;         // stop_ids end nothing.
  // Rows of logits for every position that is computed: prompt + generated - 1 of them.
  bool return_logits = false;
  // A digest of what every layer made of every position, and of its logits (LayerDigest). All of it
  // is computed, in parts of several sizes, the last positions one by one; others share none of it.
  bool digest_layers = false;
  // Logprobs of the prompt's tokens; params.prompt_top_logprobs says how many top entries.
  bool prompt_logprobs = false;
  std::optional<TimePoint> deadline;
  // Requests share cached prefixes only with those of the same salt: one a tenant.
  std::string cache_salt;
  // What the answer is held to; null: nothing. The session's own. Where it says that the answer is
  // complete, the session ends with reason "stop".
  std::shared_ptr<TokenConstraint> constraint;
  // Of the model that tokens and constraint are of: another one's engine refuses them. Empty: any.
  std::string weights_digest;
  // Higher ones are admitted first, and take memory that they come to need from lower ones.
  int32_t priority = 0;
  // KV memory for prompt + max_tokens is reserved at the start: it is never preempted.
  bool guaranteed = false;
  // What drafts tokens of the answer; none: what the engine's config says.
  std::optional<Speculate> speculate;
};

// The longest prompt that an engine can ever serve, and what a longer one is refused with.
struct PromptLimit {
  uint64_t tokens = 0;
  absl::Status refusal;
};

enum class Verdict {
  kContinue,
  kStop,  // The text so far has a stop string: the session ends with reason "stop".
};

struct StartedInfo {
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;  // After defaults and caps.
  nanoseconds queued{0};    // From Submit until there was KV memory for it.
};

// Rows of computed positions, in order and each exactly once, whatever was replayed.
struct RowsInfo {
  uint32_t first_position = 0;
  // For prompt_logprobs: entry i is the logprob of prompt token first_position + i + 1.
  std::span<const v1::TokenLogprob* const> prompt_logprobs;
  // For return_logits: float32 [rows, vocab]; row i is what follows position first_position + i.
  std::span<const float> logits;
  // For digest_layers: of each layer, and last of the logits, one a row.
  std::vector<std::span<const uint64_t>> layer_digests;
};

struct TokenInfo {
  const v1::TokenLogprob& token;  // logprob and top only when params asked for them.
  uint32_t index = 0;             // Of the generated token, from 0.
  bool is_stop_id = false;        // One of stop_ids, and not ignored: the last token.
};

struct FinishInfo {
  std::string reason;  // "stop", "length" or "cancelled".
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  nanoseconds queued{0};
  nanoseconds first_token{0};  // Submit to first token; 0 without one.
  nanoseconds total{0};        // Submit to the end.
  uint32_t steps = 0;          // With rows of it, and where their time went.
  StepTimes times;
  uint32_t preemptions = 0;
  uint32_t drafted_tokens = 0;   // That were computed,
  uint32_t accepted_tokens = 0;  // and those of them that the answer has.
};

// Told by the engine, on the engine's thread, from inside any of its calls. Must not call the
// engine back and must not block. Exactly one of OnDone and OnFailed is called, last.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  // There is KV memory for it: the session runs. Once, before everything below but an early end.
  virtual void OnStarted(const StartedInfo& info) = 0;
  // Only with prompt_logprobs, return_logits or digest_layers; before the token that follows the
  // rows.
  virtual void OnRows(const RowsInfo& rows) = 0;
  // What follows is computed in another numerics class than what came.
  virtual void OnNumericsClass(const std::string& /*name*/) {}
  // A token was committed.
  virtual Verdict OnToken(const TokenInfo& token) = 0;
  virtual void OnDone(const FinishInfo& info) = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SESSION_H_
