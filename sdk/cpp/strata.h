// The Strata client library.
//
//   auto client = strata::sdk::Client::Connect({.coordinator = "127.0.0.1:7070"});
//   strata::sdk::GenerateRequest request;
//   request.model = "recall";
//   request.prompt = std::vector<strata::sdk::ChatMessage>{{"user", "Hello"}};
//   auto answer = (*client)->Generate(request);
//   if (!answer.ok()) { std::cerr << strata::sdk::Describe(answer.status()); }
//
// Every failure is an absl::Status that carries a strata.v1.ErrorDetail: Describe() gives one line
// for people, Reason() the stable word that programs switch on. A completion whose connection is
// lost goes on by itself: the request is sent again with the same id and seed, and what was
// already delivered is checked and dropped (GenerateStream).
//
// The calls for operators (nodes, models, sessions) take and give the messages of
// strata/v1/admin.proto; include "strata/v1/admin.pb.h" to use them.
#ifndef STRATA_SDK_CPP_STRATA_H_
#define STRATA_SDK_CPP_STRATA_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::v1 {
class AddModelRequest;
class AuthorityState;
class ChangeAuthorityRequest;
class CheckModelProgress;
class CheckModelRequest;
class CreateKeyRequest;
class CreateKeyResponse;
class ListAuditRequest;
class ListAuditResponse;
class CreateTokenRequest;
class CreateTokenResponse;
class DiagnoseProgress;
class DiagnoseRequest;
class GetStatusResponse;
class ListKeysResponse;
class ListModelsResponse;
class ListNodesResponse;
class ListSessionsResponse;
class LoadModelProgress;
class LoadModelRequest;
class MoveModelRequest;
class LoadOptions;
class Model;
class ModelCheck;
class ModelProgress;
class Node;
class Plan;
class PlanMachinesRequest;
class PlanMachinesResponse;
class PullModelRequest;
class RemoveNodeResponse;
class RevokeCertificatesRequest;
class RevokeCertificatesResponse;
class RevokeKeyResponse;
}  // namespace strata::v1

namespace strata::sdk {

// One line for people: what failed, which limit was met, what to do.
std::string Describe(const absl::Status& status);
// A stable UPPER_SNAKE_CASE word, for example KV_NEVER_FITS. The library's own:
//   COORDINATOR_UNREACHABLE  nothing answers at the address
//   CONNECTION_LOST          the connection broke and could not be had again
//   REPLAY_DIVERGED          a replayed answer is not the one that was delivered
// "" if the status carries none.
std::string Reason(const absl::Status& status);

// Cancels calls from another thread. Copies share one state; any thread.
class Cancellation {
 public:
  Cancellation();
  // Ends every call that was given this handle with CANCELLED, and every later one at once.
  void Cancel() const;
  bool cancelled() const;

  class State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct CallOptions {
  // For the whole call, replays included; past it the call ends with DEADLINE_EXCEEDED and the
  // request is released on every worker. None: no limit.
  std::optional<std::chrono::nanoseconds> timeout{};
  std::optional<Cancellation> cancellation{};
};

// What an assistant called.
struct ToolCall {
  std::string id{};
  std::string name{};
  std::string arguments{};  // A JSON object, as text.
};

struct ChatMessage {
  std::string role{};  // "system", "user", "assistant", "tool".
  std::string content{};
  std::vector<ToolCall> tool_calls{};  // An assistant's.
  std::string tool_call_id{};          // A tool's: what its content is the result of.
  std::string thought{};               // An assistant's, before its content.
};

// Text, token ids, or a conversation that the model's chat template makes a prompt of.
using Prompt = std::variant<std::string, std::vector<uint32_t>, std::vector<ChatMessage>>;

// Unset: the model's generation_config, then temperature 1 and no filters.
struct Sampling {
  std::optional<float> temperature{};         // >= 0; 0 is greedy.
  std::optional<uint32_t> top_k{};            // 0 is off.
  std::optional<float> top_p{};               // [0, 1]
  std::optional<float> min_p{};               // [0, 1]
  std::optional<float> typical_p{};           // (0, 1]
  std::optional<float> repetition_penalty{};  // > 0
  std::optional<float> frequency_penalty{};   // [-2, 2]
  std::optional<float> presence_penalty{};    // [-2, 2]
  std::map<uint32_t, float> logit_bias{};     // By token id.
  std::optional<uint64_t> seed{};             // Drawn and reported when unset.
};

// Takes the place of a prompt token's embedding: what a model that hears or sees computes of that.
struct InputEmbedding {
  uint32_t position = 0;        // In the prompt, from 0.
  std::vector<float> values{};  // As many as the model's hidden size; finite.
};

// What an answer is held to: no token that leads out of it is drawn, and the answer ends where it
// is complete. Only max_tokens cuts it; stop strings end nothing. Of a conversation's answer,
// thoughts are no part.
struct JsonSchema {
  std::string schema{};  // Of draft 2020-12, as text.
  bool strict = false;   // Objects with `properties` have no others, unless it says so.
};
struct AnyJsonObject {};
struct Regex {
  std::string pattern{};  // ECMA-262; the whole text matches it.
};
struct Choices {
  std::vector<std::string> texts{};  // One of them.
};
struct Ebnf {
  std::string grammar{};  // A text of its rule `root`.
};
using Constraint = std::variant<std::monostate, JsonSchema, AnyJsonObject, Regex, Choices, Ebnf>;

struct GenerateRequest {
  std::string model{};
  Prompt prompt{};
  // By ascending position; at most 3.5 MiB in all. Sampling and penalties go by the prompt's ids.
  std::vector<InputEmbedding> input_embeddings{};
  // 1..128 printable ASCII characters; empty: the library makes one.
  std::string request_id{};
  uint32_t max_tokens = 0;  // 0: 512, capped by what is left of the context.
  // No end token and no stop string ends the answer before it has so many tokens.
  uint32_t min_tokens = 0;
  Sampling sampling{};
  std::vector<std::string> stop{};  // At most 16; not part of the answer.
  bool ignore_eos = false;
  Constraint constraint{};  // Not set: none.
  // Most probable alternatives reported for each token, 0..100; unset: no log-probabilities.
  std::optional<uint32_t> logprobs{};
  std::optional<uint32_t> prompt_logprobs{};
  // Raw logits of every position but the last generated one.
  bool return_logits = false;
  // Cancel a running request of the same id and take its place.
  bool replace = false;
  // Higher ones are admitted first, and take KV memory that they come to need from lower ones.
  int32_t priority = 0;
  // Start only when there is KV memory for prompt + max_tokens; never preempted.
  bool guaranteed = false;
  // What drafts tokens, which changes none: "auto", "off", "lookup"; "": as the model was loaded.
  std::string speculate{};
  // Of conversations: what the model may call, each a JSON object as OpenAI's API has it,
  // {"type": "function", "function": {"name", "description", "parameters"}}.
  std::vector<std::string> tools{};
  std::string tool_choice{};   // "auto" (also ""), "none", "required", "tool".
  std::string tool_name{};     // With "tool": which of `tools`.
  bool one_tool_call = false;  // The answer ends with its first call.
  // More variables for the chat template: a JSON object, as text; "": none.
  std::string template_arguments{};
  bool continue_final_message = false;  // The answer goes on with the last message.
  // Tokens of a thought behind which its end is forced; unset: no limit.
  std::optional<uint32_t> thought_budget_tokens{};
};

// Natural logarithms of the raw logits' softmax.
struct TokenLogprob {
  uint32_t token_id = 0;
  float logprob = 0;
  std::vector<std::pair<uint32_t, float>> top{};  // (token id, logprob), descending.
};

// A part of one call, in order.
struct ToolCallPiece {
  uint32_t index = 0;  // Of the call in the answer.
  std::string id{};    // In the first piece of a call, and so is the name.
  std::string name{};
  std::string arguments{};  // More of its JSON.
  bool done = false;        // The arguments are a whole JSON object.
};

// What arrives at a time.
struct Piece {
  std::vector<uint32_t> token_ids;
  std::string text;  // Never half a character, never a stop string. May lag behind token_ids.
  std::vector<TokenLogprob> logprobs;         // Of token_ids, when asked for.
  std::vector<TokenLogprob> prompt_logprobs;  // Of the prompt's tokens from the second on.
  std::vector<float> logits;                  // [rows, logits_columns], when asked for.
  uint32_t logits_columns = 0;
  // Of answers to conversations: what the model thinks, which is no part of text, and its calls.
  std::string thought;
  std::vector<ToolCallPiece> tool_calls;
};

struct NumericsChange {
  uint32_t token = 0;  // Of those made, from 0.
  std::string numerics_class;
  bool operator==(const NumericsChange&) const = default;
};

struct Generation {
  std::string request_id;
  std::string text;
  std::string thought;
  std::vector<ToolCall> tool_calls;
  std::vector<uint32_t> token_ids;
  // "stop", "tool_calls", "length" or "cancelled"; empty before the end.
  std::string finish_reason;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;     // Prompt tokens taken from the prefix cache.
  uint32_t reasoning_tokens = 0;  // Of those made, what was thought.
  uint32_t drafted_tokens = 0;    // That were drafted and computed,
  uint32_t accepted_tokens = 0;   // and those of them that the answer has.
  uint32_t max_tokens = 0;        // After defaults and caps.
  uint64_t seed = 0;              // The one used.
  std::string numerics_class;
  // Classes in which the answer went on, and the token with which each began: the model had moved
  // to nodes that compute otherwise.
  std::vector<NumericsChange> numerics_changes;
  uint64_t plan_epoch = 0;
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenLogprob> prompt_logprobs;  // Of the prompt's tokens from the second on.
  std::vector<float> logits;  // [rows, logits_columns]; filled by Client::Generate only.
  uint32_t logits_columns = 0;
  // As the coordinator measured them.
  double queue_ms = 0;
  double ttft_ms = 0;
  double total_ms = 0;
  int replays = 0;  // Times that the request was sent again after a lost connection.
};

struct TokenizedPrompt {
  std::vector<uint32_t> ids;
  std::string prompt;  // What the chat template made, for a conversation.
};

// One completion as it is made. Next() and result() by one thread; Cancel() by any.
class GenerateStream {
 public:
  ~GenerateStream();  // Cancels what is still running.
  GenerateStream(GenerateStream&&) noexcept;
  GenerateStream& operator=(GenerateStream&&) noexcept;

  // Waits for the next piece. nullopt: the answer is complete. An error ends the stream; what was
  // delivered before stays in result().
  //
  // When the connection is lost, the request is sent again (same id with `replace`, the seed and
  // max_tokens that were reported), for up to ClientOptions::resume_timeout since the last new
  // token. The pieces go on where they stopped. ABORTED, reason REPLAY_DIVERGED, if the new
  // answer does not begin with what was delivered, or has another numerics class.
  absl::StatusOr<std::optional<Piece>> Next();

  // Everything so far, without logits.
  const Generation& result() const;

  void Cancel();

 private:
  friend class Client;
  class Impl;
  explicit GenerateStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Client;

// Many completions at once on one thread, which none of them holds: for programs that keep
// hundreds going. Not resumed after a lost connection: each ends with what became of it. One
// thread.
class StreamSet {
 public:
  // What became of one of them.
  struct Event {
    uint64_t id = 0;  // As given to Start.
    Piece piece;      // What is new; empty at the end.
    bool ended = false;
    // At the end only. What the coordinator said beside the pieces: no tokens, text or logits.
    absl::Status status;
    Generation result;
  };

  explicit StreamSet(const Client& client);
  ~StreamSet();  // Cancels what is still running, and waits for it.
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  // Sends the request; whatever comes of it is an event under `id`, which no other one may have.
  void Start(uint64_t id, const GenerateRequest& request, const CallOptions& call = {});
  // Waits for the next event until `until`; nullopt when there was none. With nothing in flight
  // that is a sleep.
  std::optional<Event> Next(std::chrono::steady_clock::time_point until);
  // Those in flight end with CANCELLED, as events.
  void CancelAll();
  size_t in_flight() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct ClientOptions {
  std::string coordinator = "127.0.0.1:7070";  // HOST:PORT
  // Folder with ca.pem, cert.pem and key.pem; empty: plain text.
  std::string tls_dir{};
  std::string api_key{};  // Sent with every call when not empty.
  // A coordinator that cannot be reached for this long is an error.
  std::chrono::milliseconds connect_timeout{1500};
  // How long a completion tries to go on after a lost connection; 0: not at all.
  std::chrono::milliseconds resume_timeout{30000};
  // The files of tls_dir are taken anew when they change, for connections from then on. It takes
  // two threads, and three descriptors that are never given back: for few clients of a process.
  bool follow_tls_files = false;
};

// A connection to one coordinator, made at the first call and again when needed. Any thread.
class Client {
 public:
  // Checks the options and reads the TLS files; connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();

  // --- Completions ---
  absl::StatusOr<GenerateStream> Stream(const GenerateRequest& request,
                                        const CallOptions& call = {});
  // The whole answer.
  absl::StatusOr<Generation> Generate(const GenerateRequest& request, const CallOptions& call = {});
  absl::StatusOr<TokenizedPrompt> Tokenize(std::string_view model, std::string_view text,
                                           bool add_special_tokens, const CallOptions& call = {});
  absl::StatusOr<TokenizedPrompt> TokenizeChat(std::string_view model,
                                               const std::vector<ChatMessage>& messages,
                                               const CallOptions& call = {});
  absl::StatusOr<std::string> Detokenize(std::string_view model, const std::vector<uint32_t>& ids,
                                         bool skip_special_tokens, const CallOptions& call = {});

  // --- The cluster ---
  absl::StatusOr<v1::GetStatusResponse> GetStatus(const CallOptions& call = {});

  absl::StatusOr<v1::ListNodesResponse> ListNodes(const CallOptions& call = {});
  absl::StatusOr<v1::Node> GetNode(std::string_view name, const CallOptions& call = {});
  absl::StatusOr<v1::Node> DrainNode(std::string_view name, const CallOptions& call = {});
  absl::StatusOr<v1::Node> ResumeNode(std::string_view name, const CallOptions& call = {});
  absl::Status RemoveNode(std::string_view name, bool force, const CallOptions& call = {});
  // All that left and that no model has layers on.
  absl::StatusOr<v1::RemoveNodeResponse> RemoveGoneNodes(const CallOptions& call = {});

  // Has the coordinator look at all members and the ways between them, for
  // strata/v1/diagnosis.proto; calls `progress` on the calling thread.
  using DiagnoseProgressFn = std::function<void(const v1::DiagnoseProgress&)>;
  absl::Status Diagnose(const v1::DiagnoseRequest& request, const DiagnoseProgressFn& progress,
                        const CallOptions& call = {});

  // --- Models ---
  using ModelProgressFn = std::function<void(const v1::ModelProgress&)>;
  using LoadProgressFn = std::function<void(const v1::LoadModelProgress&)>;

  // These three call `progress` (which may be empty) on the calling thread and return when the
  // model is registered. What Add and Pull began goes on at the coordinator if the call ends.
  absl::StatusOr<v1::Model> AddModel(const v1::AddModelRequest& request,
                                     const ModelProgressFn& progress, const CallOptions& call = {});
  absl::StatusOr<v1::Model> PullModel(const v1::PullModelRequest& request,
                                      const ModelProgressFn& progress,
                                      const CallOptions& call = {});
  // Sends the checkpoint folder (or .gguf file) at `path` of this machine. `name` empty: the
  // folder's name. `progress` may come from another thread while this call runs.
  absl::StatusOr<v1::Model> UploadModel(const std::string& path, std::string_view name,
                                        const ModelProgressFn& progress,
                                        const CallOptions& call = {});
  absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& call = {});
  absl::StatusOr<v1::Model> GetModel(std::string_view name, const CallOptions& call = {});
  absl::Status RemoveModel(std::string_view name, bool force, const CallOptions& call = {});

  absl::StatusOr<v1::Plan> PlanModel(std::string_view model, const v1::LoadOptions& options,
                                     const CallOptions& call = {});
  // A plan for machines that need not exist.
  absl::StatusOr<v1::Plan> PlanMachines(const v1::PlanMachinesRequest& request,
                                        const CallOptions& call = {});
  // The same, or for the cluster's nodes where the request has no machines, and what is predicted
  // beside it.
  absl::StatusOr<v1::PlanMachinesResponse> PredictPlan(const v1::PlanMachinesRequest& request,
                                                       const CallOptions& call = {});
  // Returns when the model is ready (or, with `detach`, planned). Ending the call early does not
  // stop the load.
  absl::Status LoadModel(const v1::LoadModelRequest& request, const LoadProgressFn& progress,
                         const CallOptions& call = {});
  // Has a loaded model go to other nodes. Returns when it is ready there (or, with `detach`, on its
  // way; with `plan_only`, planned). Ending the call early does not stop the move.
  absl::Status MoveModel(const v1::MoveModelRequest& request, const LoadProgressFn& progress,
                         const CallOptions& call = {});
  absl::Status UnloadModel(std::string_view model, bool force, const CallOptions& call = {});
  absl::StatusOr<v1::Plan> ResizeModel(std::string_view model, uint64_t kv_tokens,
                                       const CallOptions& call = {});
  // Whether the loaded model's stages compute what its layers do one by one on one worker, and
  // which layer differs first. Ending the call ends the check.
  using CheckProgressFn = std::function<void(const v1::CheckModelProgress&)>;
  absl::StatusOr<v1::ModelCheck> CheckModel(const v1::CheckModelRequest& request,
                                            const CheckProgressFn& progress,
                                            const CallOptions& call = {});

  // --- Joining ---
  // A token by which machines or people join. It is told only here.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request,
                                                      const CallOptions& call = {});

  // --- Certificates ---
  // Those that somebody was issued until now are refused from here on, and what is open of them
  // ends.
  absl::StatusOr<v1::RevokeCertificatesResponse> RevokeCertificates(
      const v1::RevokeCertificatesRequest& request, const CallOptions& call = {});
  // Where a change of the cluster's authority stands, after the step that is asked for.
  absl::StatusOr<v1::AuthorityState> ChangeAuthority(const v1::ChangeAuthorityRequest& request,
                                                     const CallOptions& call = {});

  // --- API keys ---
  // The response holds the secret, which is told only here.
  absl::StatusOr<v1::CreateKeyResponse> CreateKey(const v1::CreateKeyRequest& request,
                                                  const CallOptions& call = {});
  absl::StatusOr<v1::ListKeysResponse> ListKeys(const CallOptions& call = {});
  // `cancel`: its requests in flight end too.
  absl::StatusOr<v1::RevokeKeyResponse> RevokeKey(std::string_view id, bool cancel,
                                                  const CallOptions& call = {});

  // --- The audit ---
  // Who administrated what, newest first; at most 1000 entries at a time.
  absl::StatusOr<v1::ListAuditResponse> ListAudit(const v1::ListAuditRequest& request,
                                                  const CallOptions& call = {});

  // --- Requests in flight ---
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const CallOptions& call = {});
  absl::Status CancelSession(std::string_view request_id, const CallOptions& call = {});
  // That of the API key `key` (its id; "": sent without a key), where several have one of this id.
  absl::Status CancelSessionOf(std::string_view key, std::string_view request_id,
                               const CallOptions& call = {});

  const ClientOptions& options() const;

 private:
  friend class GenerateStream;
  friend class StreamSet;
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // Streams hold it too: they may outlive the client.
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_CPP_STRATA_H_
