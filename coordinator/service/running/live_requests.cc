#include "coordinator/service/running/live_requests.h"

#include <string_view>
#include <utility>

#include "common/status.h"
#include "coordinator/keys/caller.h"
#include "coordinator/service/loop/errors.h"

namespace strata {

Serving LiveRequests::ServingOf(const std::string& model) const {
  return strata::ServingOf(*deployments_, model);
}

absl::Status LiveRequests::WithEngine(const std::string& model,
                                      std::function<void(const Serving&)> use) {
  return loop_->Offer([this, model, use = std::move(use)] { use(ServingOf(model)); });
}

absl::StatusOr<PromptLimit> LiveRequests::LongestPrompt(const std::string& model) {
  return loop_->Ask([this, model]() -> absl::StatusOr<PromptLimit> {
    const Serving serving = ServingOf(model);
    RETURN_IF_ERROR(serving.problem);
    return serving.engine->LongestPrompt();
  });
}

absl::StatusOr<v1::LoadOptions> LiveRequests::LoadOptionsOf(const std::string& model) {
  return loop_->Ask([this, model]() -> absl::StatusOr<v1::LoadOptions> {
    const Serving serving = ServingOf(model);
    RETURN_IF_ERROR(serving.problem);
    return *serving.load_options;
  });
}

bool LiveRequests::Cancel(const std::string& key, const absl::Status& why) {
  Deployment* const deployment = deployments_->WithRequest(key);
  return deployment != nullptr && deployment->engine()->Cancel(key, why, clock_->Now());
}

void LiveRequests::Pause(const std::string& key, bool paused) {
  if (Deployment* const deployment = deployments_->WithRequest(key)) {
    deployment->engine()->SetPaused(key, paused, clock_->Now());
  }
}

void LiveRequests::OnConstraint(const std::string& key) {
  if (Deployment* const deployment = deployments_->WithRequest(key)) {
    deployment->engine()->OnConstraint(key, clock_->Now());
  }
}

absl::Status LiveRequests::ClaimId(const SessionRequest& request, bool replace) {
  if (replace) {
    Cancel(request.key, Error(absl::StatusCode::kAborted, "REPLACED",
                              "a newer request with this id took its place"));
    return absl::OkStatus();
  }
  if (const Deployment* const deployment = deployments_->WithRequest(request.key)) {
    return Error(absl::StatusCode::kAlreadyExists, "REQUEST_IN_FLIGHT",
                 "request \"" + request.request_id + "\" is in flight on model '" +
                     deployment->model()->name + "'")
        .Hint("wait for it, cancel it, or set replace (HTTP: X-Strata-Replace: true)");
  }
  return absl::OkStatus();
}

std::vector<v1::Session> LiveRequests::Describe(const OfKey& of) const {
  std::vector<v1::Session> out;
  for (const auto& [id, deployment] : deployments_->all()) {
    if (deployment->engine() == nullptr) continue;
    for (const SessionSnapshot& s : deployment->engine()->Snapshot(clock_->Now()).sessions) {
      const std::string key(KeyOfScopedId(s.key));
      if (of.has_value() && key != *of) continue;
      v1::Session& session = out.emplace_back();
      session.set_request_id(s.request_id);
      session.set_model(deployment->model()->name);
      session.set_state(s.state);
      session.set_prompt_tokens(s.prompt_tokens);
      session.set_generated_tokens(s.generated_tokens);
      session.set_max_tokens(s.max_tokens);
      session.set_age_ms(ToMs(s.age));
      session.set_steps(s.steps);
      session.set_compute_ms(ToMs(s.times.computed));
      session.set_wait_ms(ToMs(s.times.waited));
      session.set_hop_ms(ToMs(s.times.hops));
      session.set_drafted_tokens(s.drafted_tokens);
      session.set_accepted_tokens(s.accepted_tokens);
      session.set_key(key);
      if (!key.empty()) session.set_key_name(keys_->NameOf(key));
    }
  }
  return out;
}

absl::StatusOr<std::vector<v1::Session>> LiveRequests::List(const OfKey& key) {
  return loop_->Ask([&] { return Describe(key); });
}

std::vector<std::string> LiveRequests::Find(const std::string& request_id, const OfKey& of) const {
  std::vector<std::string> found;
  for (const auto& [id, deployment] : deployments_->all()) {
    if (deployment->engine() == nullptr) continue;
    for (const SessionSnapshot& s : deployment->engine()->Snapshot(clock_->Now()).sessions) {
      if ((request_id.empty() || s.request_id == request_id) &&
          (!of.has_value() || KeyOfScopedId(s.key) == *of)) {
        found.push_back(s.key);
      }
    }
  }
  return found;
}

absl::Status LiveRequests::CancelById(const std::string& request_id, const OfKey& key) {
  return loop_->Ask([&]() -> absl::Status {
    const std::vector<std::string> found = Find(request_id, key);
    if (request_id.empty() || found.empty()) {
      return Error(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
                   "there is no request '" + request_id + "' in flight")
          .Hint("see `strata session list`");
    }
    if (found.size() > 1) {
      return Error(absl::StatusCode::kFailedPrecondition, "SESSION_AMBIGUOUS",
                   "several API keys have a request '" + request_id + "' in flight")
          .Hint("say whose with --key; `strata session list` shows them");
    }
    Cancel(found.front(), absl::OkStatus());
    return absl::OkStatus();
  });
}

absl::StatusOr<uint64_t> LiveRequests::CancelAllOf(const std::string& key) {
  return loop_->Ask([&]() -> uint64_t {
    const std::vector<std::string> found = Find("", key);
    for (const std::string& session : found) {
      Cancel(session, absl::OkStatus());
    }
    return found.size();
  });
}

}  // namespace strata
