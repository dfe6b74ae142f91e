// What the admin calls ask: the part of Coordinator that answers about nodes, models and sessions.
#include <algorithm>
#include <ctime>
#include <utility>

#include "common/app/flags.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/errors.h"
#include "coordinator/service/model_facts.h"

namespace strata {
namespace {

absl::Status NodeAlive(const NodeRecord& node) {
  const std::string& name = node.info.name();
  return Error(absl::StatusCode::kFailedPrecondition, "NODE_ALIVE",
               "node '" + name + "' at " + node.info.address() + " is alive and would join again")
      .Node(name)
      .Hint("stop its strata-worker first, or `strata node drain " + name +
            "` to place nothing new on it");
}

}  // namespace

absl::StatusOr<std::vector<v1::Node>> Coordinator::ListNodes() {
  return loop_.Ask([this] { return cluster_.Describe(clock_->Now()); });
}

absl::StatusOr<v1::Node> Coordinator::GetNode(const std::string& name) {
  return loop_.Ask([&]() -> absl::StatusOr<v1::Node> {
    const NodeRecord* node = cluster_.Find(name);
    if (node == nullptr) {
      return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND", "there is no node '" + name + "'")
          .Hint("see `strata node list`");
    }
    return cluster_.Describe(*node, clock_->Now());
  });
}

absl::StatusOr<v1::Node> Coordinator::SetDraining(const std::string& name, bool draining) {
  {
    MutexLock lock(&changes_);
    ASSIGN_OR_RETURN(const auto info, loop_.Ask([&]() -> std::optional<v1::NodeInfo> {
      const NodeRecord* node = cluster_.Find(name);
      return node != nullptr ? std::optional(node->info) : std::nullopt;
    }));
    if (info.has_value()) {
      RETURN_IF_ERROR(store_->SaveNode(name, *info, draining));
    }
    const auto done = loop_.Call([&] { return cluster_.SetDraining(name, draining); });
    RETURN_IF_ERROR(done.value_or(Stopping()));
  }
  return GetNode(name);
}

absl::StatusOr<std::vector<uint64_t>> Coordinator::CheckRemoveNode(const std::string& name,
                                                                   bool force) {
  std::vector<uint64_t> users;
  for (auto& [id, deployment] : deployments_) {
    if (deployment->Uses(name)) users.push_back(id);
  }
  if (!users.empty() && !force) {
    const std::string& model = FindDeployment(users.front())->model()->name;
    return Error(absl::StatusCode::kFailedPrecondition, "NODE_IN_USE",
                 "model '" + model + "' has layers on node '" + name + "'")
        .Node(name)
        .Hint("`strata model unload " + model + "` first, or use --force");
  }
  if (const NodeRecord* node = cluster_.Find(name); node != nullptr && node->alive) {
    return NodeAlive(*node);
  }
  return users;
}

absl::StatusOr<std::vector<std::string>> Coordinator::RemoveGoneNodes() {
  MutexLock lock(&changes_);
  ASSIGN_OR_RETURN(const auto gone, loop_.Ask([&] {
    std::vector<std::string> names = cluster_.Gone();
    std::erase_if(names, [&](const std::string& name) { return !ModelOn(name).empty(); });
    return names;
  }));
  RETURN_IF_ERROR(store_->RemoveNodes(gone));
  return loop_.Ask([&] {
    std::vector<std::string> removed;
    for (const std::string& name : gone) {
      const NodeRecord* node = cluster_.Find(name);
      if (node != nullptr && node->alive) {  // It has joined again meanwhile.
        unsaved_nodes_.insert(name);
        SaveLater();
      } else if (node == nullptr || cluster_.Remove(name).ok()) {
        removed.push_back(name);
      }
    }
    return removed;
  });
}

absl::Status Coordinator::RemoveNode(const std::string& name, bool force) {
  MutexLock lock(&changes_);
  ASSIGN_OR_RETURN(const std::vector<uint64_t> users,
                   loop_.Ask([&] { return CheckRemoveNode(name, force); }));
  for (const uint64_t user : users) {
    RETURN_IF_ERROR(Erase(user, Error(absl::StatusCode::kUnavailable, "NODE_REMOVED",
                                      "node '" + name + "' was removed")
                                    .Node(name)));
  }
  // One that has not been recorded since it joined, or never was a node, is not there.
  if (absl::Status removed = store_->RemoveNode(name);
      !removed.ok() && !absl::IsNotFound(removed)) {
    return removed;
  }
  const auto done = loop_.Call([&]() -> absl::Status {
    const NodeRecord* node = cluster_.Find(name);
    if (node != nullptr && node->alive) {  // It has joined again meanwhile.
      unsaved_nodes_.insert(name);
      SaveLater();
      return NodeAlive(*node);
    }
    return cluster_.Remove(name);
  });
  return done.value_or(Stopping());
}

std::vector<v1::Model> Coordinator::DescribeModels() const {
  const auto models = models_->List();
  std::vector<v1::Model> out;
  out.reserve(models.size());
  for (const auto& model : models) {
    out.push_back(Describe(*model));
  }
  return out;
}

absl::StatusOr<std::vector<v1::Model>> Coordinator::ListModels() {
  return loop_.Ask([this] { return DescribeModels(); });
}

absl::StatusOr<v1::Model> Coordinator::GetModel(const std::string& name) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(v1::Model out, loop_.Ask([&] { return Describe(*model); }));
  *out.mutable_facts() = FactsOf(*model);  // Takes a while: not on the loop.
  return out;
}

v1::Model Coordinator::Describe(const ModelRuntime& model) const {
  v1::Model out = DescribeModel(model);
  out.set_state("registered");
  if (const Deployment* deployment = DeploymentOf(model.name)) {
    out.set_state(DeploymentStateName(deployment->state()));
    *out.mutable_plan() = deployment->plan();
    *out.mutable_options() = deployment->load_options();
    if (const Engine* engine = deployment->engine()) {
      const EngineSnapshot snapshot = engine->Snapshot(clock_->Now());
      out.set_hop_ms(snapshot.hop_ms);
      out.set_preemptions(snapshot.counters.preemptions);
      v1::Scheduling* scheduling = out.mutable_scheduling();
      scheduling->set_step_tokens(snapshot.token_budget);
      scheduling->set_max_batch_tokens(snapshot.max_batch_tokens);
      scheduling->set_max_sessions(snapshot.max_sessions);
      scheduling->set_micro_batches(snapshot.micro_batches);
      scheduling->set_prefill_step_ms(snapshot.prefill_step_ms);
      scheduling->set_inter_token_target_ms(snapshot.inter_token_target_ms);
    }
    if (!deployment->problem().ok()) {
      out.set_problem(strata::Describe(deployment->problem()));
    }
    if (const LoadRetry& retry = deployment->retry(); retry.due().has_value()) {
      out.mutable_retry()->set_in_s(ToMs(std::max(nanoseconds(0), *retry.due() - clock_->Now())) /
                                    1e3);
      out.mutable_retry()->set_failed(retry.failed());
    }
  }
  return out;
}

absl::Status Coordinator::RemoveModel(const std::string& name, bool force) {
  std::string folder;
  {
    // A load is placed either before and refuses this, or after and fails.
    MutexLock lock(&changes_);
    ASSIGN_OR_RETURN(const uint64_t loaded, loop_.Ask([&]() -> absl::StatusOr<uint64_t> {
      RETURN_IF_ERROR(models_->Get(name).status());
      Deployment* deployment = DeploymentOf(name);
      if (deployment == nullptr) {
        return 0;
      }
      if (!force) {
        return Error(absl::StatusCode::kFailedPrecondition, "MODEL_IN_USE",
                     "model '" + name + "' is loaded")
            .Hint("unload it first with `strata model unload " + name + "`, or use --force");
      }
      deployment->Hold(true);
      return deployment->id();
    }));
    RETURN_IF_ERROR(Erase(
        loaded, Error(absl::StatusCode::kAborted, "UNLOADED", "model '" + name + "' was removed")));
    ASSIGN_OR_RETURN(folder, models_->Forget(name));
  }
  Models::DeleteFolder(folder);
  return absl::OkStatus();
}

std::vector<v1::Session> Coordinator::DescribeSessions(const OfKey& of) {
  std::vector<v1::Session> out;
  for (const auto& [id, deployment] : deployments_) {
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
      session.set_key(key);
      if (!key.empty()) session.set_key_name(keys_.NameOf(key));
    }
  }
  return out;
}

absl::StatusOr<std::vector<v1::Session>> Coordinator::ListSessions(const OfKey& key) {
  return loop_.Ask([&] { return DescribeSessions(key); });
}

absl::StatusOr<std::vector<ModelSnapshot>> Coordinator::SnapshotModels() {
  // Not Ask: monitoring is not to be refused when the coordinator is overloaded.
  auto snapshots = loop_.Call([this] {
    std::vector<ModelSnapshot> out;
    for (const auto& [id, deployment] : deployments_) {
      const std::string& model = deployment->model()->name;
      // One that is held gives way to a newer one of its model: series are one a model.
      if (deployment->engine() == nullptr || DeploymentOf(model) != deployment.get()) continue;
      ModelSnapshot& snapshot = out.emplace_back();
      snapshot.model = model;
      for (const KvGroupSpec& group : deployment->model()->spec().kv_groups) {
        snapshot.kv_groups.push_back(KvGroupName(group));
      }
      snapshot.engine = deployment->engine()->Snapshot(clock_->Now());
    }
    return out;
  });
  if (!snapshots.has_value()) {
    return Stopping();
  }
  return *std::move(snapshots);
}

std::vector<std::string> Coordinator::FindSessions(const std::string& request_id,
                                                   const OfKey& of) const {
  std::vector<std::string> found;
  for (const auto& [id, deployment] : deployments_) {
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

absl::Status Coordinator::CancelSession(const std::string& request_id, const OfKey& key) {
  return loop_.Ask([&]() -> absl::Status {
    const std::vector<std::string> found = FindSessions(request_id, key);
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
    CancelRequest(found.front(), absl::OkStatus());
    return absl::OkStatus();
  });
}

absl::StatusOr<uint64_t> Coordinator::CancelSessionsOf(const std::string& key) {
  return loop_.Ask([&]() -> uint64_t {
    const std::vector<std::string> found = FindSessions("", key);
    for (const std::string& session : found) {
      CancelRequest(session, absl::OkStatus());
    }
    return found.size();
  });
}

std::vector<Waiting> Coordinator::Waits() const {
  std::vector<Waiting> waits;
  for (const auto& [id, deployment] : deployments_) {
    for (Waiting& wait : deployment->Waits()) waits.push_back(std::move(wait));
  }
  for (const auto& [name, node] : cluster_.nodes()) {
    if (const auto owed = cluster_.OwedMeasures(node)) {
      waits.push_back({.what = "node " + name + " to measure its links to " + SomeOf(owed->peers),
                       .node = name,
                       .model = "",
                       .since = owed->since,
                       .late = options_.cluster.measure_timeout,
                       .hint = "see the log of strata-worker on " + name + " and start it again"});
    }
  }
  for (const FileBeingRead& file : models_->blobs()->trust()->BeingRead()) {
    const uint64_t share = 100 * file.done_bytes / std::max<uint64_t>(file.total_bytes, 1);
    waits.push_back({.what = file.path + " to be read again, since its time has changed (" +
                             std::to_string(share) + " %)",
                     .node = "",
                     .model = "",
                     .since = clock_->Now(),
                     .hint = ""});
  }
  for (Waiting& wait : wait_board_.List()) waits.push_back(std::move(wait));
  return waits;
}

void Coordinator::AddDeploymentProblems(ProblemList* problems) {
  const TimePoint now = clock_->Now();
  std::string loaded;  // A model that is.
  for (const auto& [id, deployment] : deployments_) {
    const std::string& name = deployment->model()->name;
    const LoadRetry& retry = deployment->retry();
    const std::string tries =
        std::to_string(retry.failed()) + (retry.failed() == 1 ? " try so far" : " tries so far");
    if (!deployment->problem().ok()) {
      const v1::ErrorDetail detail = DetailOf(deployment->problem());
      std::string what = "model " + name + " is " + DeploymentStateName(deployment->state()) +
                         ": " + detail.message();
      if (retry.due().has_value()) {
        what += "; it is loaded again by itself in " +
                FormatDuration(std::max(nanoseconds(0), *retry.due() - now)) + " (" + tries + ")";
      }
      problems->Add(what, detail.hint().empty() ? "strata model load " + name : detail.hint());
    } else if (retry.failed() > 0) {
      const v1::ErrorDetail detail = DetailOf(retry.cause());
      problems->Add("model " + name + " is " + DeploymentStateName(deployment->state()) +
                        " again after it failed (" + tries + "): " + detail.message(),
                    detail.hint().empty() ? "strata model show " + name : detail.hint());
    }
    if (deployment->engine() != nullptr) {
      for (const EngineProblem& p : deployment->engine()->Snapshot(now).problems) {
        problems->Add("model " + name + ": " + p.what, p.hint);
      }
      loaded = name;
    }
  }
  for (const auto& [name, lost] : not_restored_) {
    problems->Add(
        "model " + name + " was loaded before the coordinator started, and is not now: " +
            DetailOf(lost.why).message(),
        DetailOf(lost.why).hint() + ", or forget it with `strata model unload " + name + "`");
  }
  for (const auto& [name, node] : cluster_.nodes()) {
    if (!loaded.empty() && node.alive && !node.draining && node.placements.empty()) {
      problems->AddOne({"nodes joined and hold no layers yet", "strata model load " + loaded}, name,
                       "node " + name + " joined and holds no layers yet",
                       "strata model load " + loaded);
    }
  }
}

std::vector<v1::Problem> Coordinator::Problems() {
  ProblemList problems;
  cluster_.AddProblems([this](const std::string& node) { return ModelOn(node); }, &problems);
  AddDeploymentProblems(&problems);
  for (const Waiting& wait : Waits()) {
    if (const auto late = ProblemOf(wait, clock_->Now())) {
      problems.Add(late->what(), late->do_());
    }
  }
  const int64_t now_s = std::time(nullptr);
  if (const TlsFiles* own = transport_->tls(); own != nullptr) {
    if (const std::string ends = EndsSoon(own->ends_first, now_s); !ends.empty()) {
      problems.Add("the coordinator's " + own->ends_first_file + " " + ends,
                   "make a new one in " + own->dir + " (README, TLS) and restart the coordinator");
    }
  }
  for (const auto& [name, node] : cluster_.nodes()) {
    const auto certificate = certificates_.find(name);
    if (!node.alive || certificate == certificates_.end()) {
      continue;
    }
    if (const std::string ends = EndsSoon(certificate->second, now_s); !ends.empty()) {
      problems.Add("the certificate of node " + name + " " + ends,
                   "make a new one for it (README, TLS) and restart its worker");
    }
  }
  if (options_.insecure_off_loopback) {
    problems.Add("traffic is neither encrypted nor authenticated (--insecure)",
                 "start coordinator and workers with --tls-dir");
    if (!keys_.empty() && !keys_.HasAdmin()) {
      problems.Add(
          "requests need an API key, but whoever can connect may administrate, and make keys",
          "strata key create --admin");
    }
  }
  return problems.Take();
}

absl::StatusOr<v1::GetStatusResponse> Coordinator::GetStatus() {
  std::vector<v1::Problem> outside;
  if (options_.outside_problems) outside = options_.outside_problems();
  return loop_.Ask([this, &outside] {
    v1::GetStatusResponse out;
    for (v1::Model& model : DescribeModels()) *out.add_models() = std::move(model);
    for (v1::Session& session : DescribeSessions(std::nullopt)) {
      *out.add_sessions() = std::move(session);
    }
    for (v1::Node& node : cluster_.Describe(clock_->Now())) *out.add_nodes() = std::move(node);
    for (v1::Problem& problem : outside) *out.add_problems() = std::move(problem);
    for (v1::Problem& problem : Problems()) *out.add_problems() = std::move(problem);
    for (const Waiting& wait : Waits()) *out.add_waits() = strata::Describe(wait, clock_->Now());
    for (const auto& [id, deployment] : deployments_) {
      if (deployment->engine() == nullptr) continue;
      const EngineSnapshot snapshot = deployment->engine()->Snapshot(clock_->Now());
      for (const KvSnapshot& kv : snapshot.kv) {
        v1::KvUse* use = out.add_kv();
        use->set_model(deployment->model()->name);
        use->set_stage(kv.stage);
        use->set_group(KvGroupName(deployment->model()->spec().kv_groups[kv.group]));
        use->set_total(kv.total);
        use->set_free(kv.free);
        use->set_live(kv.live);
        use->set_cached(kv.cached);
        use->set_fenced(kv.fenced);
      }
      for (size_t i = 0; i < snapshot.pipeline.stages.size(); ++i) {
        const StageCounters& counters = snapshot.pipeline.stages[i];
        v1::StageUse* use = out.add_stages();
        use->set_model(deployment->model()->name);
        use->set_stage(static_cast<uint32_t>(i));
        use->set_node(snapshot.nodes[i]);
        use->set_compute_s(ToMs(counters.computed) / 1e3);
        use->set_bubble_s(ToMs(counters.bubble) / 1e3);
        use->set_steps(counters.steps);
        use->set_rows(counters.rows);
      }
    }
    out.set_version(kVersion);
    out.set_term(term_);
    out.set_uptime_s(ToMs(clock_->Now() - started_) / 1e3);
    return out;
  });
}

}  // namespace strata
