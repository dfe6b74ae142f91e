// A client's request made complete: prompt tokenized, defaults taken, limits checked. Pure.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/engine/session.h"
#include "coordinator/keys/caller.h"
#include "coordinator/service/request/chat_answer.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/inference.pb.h"

namespace strata {

using PromptIds = std::shared_ptr<const std::vector<uint32_t>>;

// A prompt that several requests share: it is rendered and tokenized once, for the first that is
// resolved. One thread at a time.
class SharedPrompt {
 public:
  // Takes the prompt out of `request`.
  explicit SharedPrompt(v1::GenerateRequest* request);

  // INVALID_ARGUMENT and FAILED_PRECONDITION as ResolveRequest. `now`: for chat templates.
  absl::StatusOr<PromptIds> Ids(const ModelRuntime& model, int64_t now,
                                const ModelRuntime::LimitFn& limit = nullptr);
  // What the answer to a chat is read for, once it has ids; nullopt of other prompts.
  const std::optional<ChatAnswer>& chat() const { return chat_; }

 private:
  v1::GenerateRequest prompt_;  // Until it is tokenized.
  std::optional<ChatAnswer> chat_;
  std::optional<absl::StatusOr<PromptIds>> ids_;
};

struct ResolvedRequest {
  SessionRequest session;  // But for its prompt.
  PromptIds prompt;
  std::optional<ChatAnswer> chat;  // The prompt is one.
  std::vector<std::string> stops;
  std::optional<v1::Constraint> constraint;
  bool replace = false;
};

// What must be handed in, since it is not in the request.
struct RequestContext {
  uint64_t drawn_seed = 0;       // Used when the request has none.
  std::string drawn_request_id;  // Likewise.
  int64_t unix_seconds = 0;      // For chat templates.
  uint32_t default_max_tokens = 512;
  SharedPrompt* prompt = nullptr;         // Instead of the request's own.
  ModelRuntime::LimitFn limit = nullptr;  // EncodePrompt's.
};

// INVALID_ARGUMENT names the field and its limit; FAILED_PRECONDITION says what the model lacks.
absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request,
                                               const ModelRuntime& model,
                                               const RequestContext& context);

// Before anything is computed for a request, its prompt's tokens included: DEADLINE_EXCEEDED where
// the deadline passed already, PERMISSION_DENIED as Caller::CheckClaims says it, RESOURCE_EXHAUSTED
// as KeyUse::Check does. `use` may be null.
absl::Status CheckMayRun(const v1::GenerateRequest& request,
                         const std::optional<TimePoint>& deadline, KeyUse* use, TimePoint now);

// 1..128 printable ASCII characters.
absl::Status CheckRequestId(const std::string& id);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_H_
