// Requests and the engines that serve them: which engine a request goes to, and which requests are
// in flight on all of them.
#ifndef STRATA_COORDINATOR_SERVICE_RUNNING_LIVE_REQUESTS_H_
#define STRATA_COORDINATOR_SERVICE_RUNNING_LIVE_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/deployment/serving.h"
#include "coordinator/engine/engine.h"
#include "coordinator/keys/key_ring.h"
#include "coordinator/service/loop/event_loop.h"
#include "strata/v1/admin.pb.h"

namespace strata {

class LiveRequests {
 public:
  // One API key's id ("": without a key); nullopt: all.
  using OfKey = std::optional<std::string>;

  // Nothing is owned; all outlive this.
  LiveRequests(const Clock* clock, EventLoop* loop, const Deployments* deployments, KeyRing* keys)
      : clock_(clock), loop_(loop), deployments_(deployments), keys_(keys) {}

  // Any thread but the loop's, from here. All say UNAVAILABLE (STOPPING) once the coordinator ends,
  // and RESOURCE_EXHAUSTED (OVERLOADED) while too many calls wait.

  // Where requests go: runs `use` on the loop with the engine that serves `model` then, or with why
  // there is none. On an error of its own it does not run `use`. Waits for nothing.
  absl::Status WithEngine(const std::string& model, std::function<void(const Serving&)> use);
  // Of the engine that serves `model` now; or why there is none.
  absl::StatusOr<PromptLimit> LongestPrompt(const std::string& model);
  // How the model that serves now was loaded; or why none does.
  absl::StatusOr<v1::LoadOptions> LoadOptionsOf(const std::string& model);
  // Requests in flight.
  absl::StatusOr<std::vector<v1::Session>> List(const OfKey& key = std::nullopt);
  // Ends a request in flight. FAILED_PRECONDITION (SESSION_AMBIGUOUS) when `key` is not given, and
  // several keys have one of this id; NOT_FOUND (SESSION_NOT_FOUND).
  absl::Status CancelById(const std::string& request_id, const OfKey& key = std::nullopt);
  // Ends all that an API key has in flight; how many they were.
  absl::StatusOr<uint64_t> CancelAllOf(const std::string& key);

  // On the loop, from here.

  Serving ServingOf(const std::string& model) const;
  // Before Engine::Submit: no request of any model may have the key of `request` in flight.
  // ALREADY_EXISTS (REQUEST_IN_FLIGHT), or ends the one that has it when `replace`.
  absl::Status ClaimId(const SessionRequest& request, bool replace);
  // Engine::Cancel and Engine::SetPaused, whatever model the request runs on.
  bool Cancel(const std::string& key, const absl::Status& why);
  void Pause(const std::string& key, bool paused);
  // Engine::OnConstraint, likewise.
  void OnConstraint(const std::string& key);
  std::vector<v1::Session> Describe(const OfKey& of) const;

 private:
  // The session keys of those with this request id ("": any).
  std::vector<std::string> Find(const std::string& request_id, const OfKey& of) const;

  const Clock* const clock_;
  EventLoop* const loop_;
  const Deployments* const deployments_;
  KeyRing* const keys_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_RUNNING_LIVE_REQUESTS_H_
