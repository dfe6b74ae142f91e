#include "coordinator/service/process/status_report.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "common/app/flags.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/deployment/serving.h"
#include "coordinator/service/loop/errors.h"
#include "coordinator/service/request/model_facts.h"

namespace strata {

std::vector<v1::Model> StatusReport::DescribeModels() const {
  const auto models = of_.models->List();
  std::vector<v1::Model> out;
  out.reserve(models.size());
  for (const auto& model : models) {
    out.push_back(DescribeModel(*model));
  }
  return out;
}

absl::StatusOr<std::vector<v1::Model>> StatusReport::ListModels() {
  return loop_->Ask([this] { return DescribeModels(); });
}

absl::StatusOr<v1::Model> StatusReport::GetModel(const std::string& name) {
  ASSIGN_OR_RETURN(const auto model, of_.models->Get(name));
  ASSIGN_OR_RETURN(v1::Model out, loop_->Ask([&] { return DescribeModel(*model); }));
  *out.mutable_facts() = FactsOf(*model);  // Takes a while: not on the loop.
  return out;
}

v1::Model StatusReport::DescribeModel(const ModelRuntime& model) const {
  v1::Model out = strata::DescribeModel(model);
  out.set_state("registered");
  if (const Deployment* deployment = of_.deployments->OfModel(model.name)) {
    out.set_state(DeploymentStateName(deployment->state()));
    *out.mutable_plan() = deployment->plan();
    *out.mutable_options() = deployment->load_options();
    for (v1::StandbyLayers& layers : of_.standbys->Describe(deployment->id())) {
      *out.add_standby() = std::move(layers);
    }
    if (const Engine* engine = deployment->engine()) {
      const EngineSnapshot snapshot = engine->Snapshot(clock_->Now());
      out.set_hop_ms(snapshot.hop_ms);
      out.set_preemptions(snapshot.counters.preemptions);
      out.set_drafted_tokens(snapshot.counters.tokens_drafted);
      out.set_accepted_tokens(snapshot.counters.drafts_accepted);
      v1::Scheduling* scheduling = out.mutable_scheduling();
      scheduling->set_step_tokens(snapshot.token_budget);
      scheduling->set_max_batch_tokens(snapshot.max_batch_tokens);
      scheduling->set_max_sessions(snapshot.max_sessions);
      scheduling->set_micro_batches(snapshot.micro_batches);
      scheduling->set_prefill_step_ms(snapshot.prefill_step_ms);
      scheduling->set_inter_token_target_ms(snapshot.inter_token_target_ms);
    }
    if (!deployment->problem().ok()) {
      out.set_problem(Describe(deployment->problem()));
    }
    if (const v1::Plan* next = deployment->next()) {
      *out.mutable_moves_to() = *next;
    }
    if (!deployment->move_problem().ok()) {
      out.set_move_problem(Describe(deployment->move_problem()));
    }
    if (const LoadRetry& retry = deployment->retry(); retry.due().has_value()) {
      out.mutable_retry()->set_in_s(ToMs(std::max(nanoseconds(0), *retry.due() - clock_->Now())) /
                                    1e3);
      out.mutable_retry()->set_failed(retry.failed());
    }
  }
  return out;
}

absl::StatusOr<std::vector<ModelSnapshot>> StatusReport::SnapshotModels() {
  // Not Ask: monitoring is not to be refused when the coordinator is overloaded.
  auto snapshots = loop_->Call([this] {
    std::vector<ModelSnapshot> out;
    for (const auto& [id, deployment] : of_.deployments->all()) {
      const std::string& model = deployment->model()->name;
      // One that is held gives way to a newer one of its model: series are one a model.
      if (deployment->engine() == nullptr || of_.deployments->OfModel(model) != deployment.get())
        continue;
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

std::string StatusReport::Summary() const {
  if (of_.deployments->stopping()) {
    return "stopping; requests in flight: " + std::to_string(of_.deployments->live_requests());
  }
  size_t nodes = 0;
  for (const auto& [name, node] : of_.cluster->nodes()) nodes += node.alive ? 1 : 0;
  std::string models;
  for (const auto& [id, deployment] : of_.deployments->all()) {
    models += (models.empty() ? "" : ", ") + deployment->model()->name + " " +
              DeploymentStateName(deployment->state());
  }
  return (models.empty() ? "no model is loaded" : models) + "; nodes: " + std::to_string(nodes) +
         "; requests in flight: " + std::to_string(of_.deployments->live_requests());
}

std::vector<Waiting> StatusReport::Waits() const {
  std::vector<Waiting> waits;
  for (const auto& [id, deployment] : of_.deployments->all()) {
    for (Waiting& wait : deployment->Waits()) waits.push_back(std::move(wait));
  }
  for (const auto& [name, node] : of_.cluster->nodes()) {
    if (const auto owed = of_.cluster->OwedMeasures(node)) {
      waits.push_back({.what = "node " + name + " to measure its links to " + SomeOf(owed->peers),
                       .node = name,
                       .model = "",
                       .since = owed->since,
                       .late = of_.cluster->options().measure_timeout,
                       .hint = "see the log of strata-worker on " + name + " and start it again"});
    }
  }
  for (const FileBeingRead& file : of_.models->blobs()->trust()->BeingRead()) {
    const uint64_t share = 100 * file.done_bytes / std::max<uint64_t>(file.total_bytes, 1);
    waits.push_back({.what = file.path + " to be read again, since its time has changed (" +
                             std::to_string(share) + " %)",
                     .node = "",
                     .model = "",
                     .since = clock_->Now(),
                     .hint = ""});
  }
  for (Waiting& wait : of_.wait_board->List()) waits.push_back(std::move(wait));
  return waits;
}

void StatusReport::AddDeploymentProblems(ProblemList* problems) const {
  const TimePoint now = clock_->Now();
  for (const auto& [id, deployment] : of_.deployments->all()) {
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
    if (!deployment->move_problem().ok()) {
      const v1::ErrorDetail detail = DetailOf(deployment->move_problem());
      problems->Add("a move was given up: " + detail.message(),
                    detail.hint().empty() ? "strata model show " + name : detail.hint());
    }
    if (const std::string draft = deployment->DraftModel();
        !draft.empty() && ServingOf(*of_.deployments, draft).engine == nullptr) {
      problems->Add("model " + name + " has no drafts by model " + draft + ", which is not loaded",
                    "strata model load " + draft);
    }
    if (deployment->engine() != nullptr) {
      for (const EngineProblem& p : deployment->engine()->Snapshot(now).problems) {
        problems->Add("model " + name + ": " + p.what, p.hint);
      }
    }
  }
  for (const auto& [name, lost] : of_.deployments->not_restored()) {
    const v1::ErrorDetail detail = DetailOf(lost.why);
    problems->Add("model " + name + " was loaded before the coordinator started, and is not now: " +
                      detail.message(),
                  (detail.hint().empty() ? "" : detail.hint() + ", or ") +
                      "forget it with `strata model unload " + name + "`");
  }
}

void StatusReport::AddIdleNodes(ProblemList* problems) const {
  std::string loaded;  // A model that is.
  for (const auto& [id, deployment] : of_.deployments->all()) {
    if (deployment->engine() != nullptr) loaded = deployment->model()->name;
  }
  for (const auto& [name, node] : of_.cluster->nodes()) {
    if (!loaded.empty() && node.alive && !node.unfit() && !node.draining &&
        node.placements.empty() && node.prepared.empty() && node.standby_bytes == 0) {
      problems->AddOne({"nodes joined and hold no layers yet", "strata model load " + loaded}, name,
                       "node " + name + " joined and holds no layers yet",
                       "strata model load " + loaded);
    }
  }
}

void StatusReport::AddCertificates(ProblemList* problems) const {
  const int64_t now_s = std::time(nullptr);
  if (const auto own = of_.transport->tls(); own != nullptr) {
    if (const std::string ends = EndsSoon(own->ends_first, now_s); !ends.empty()) {
      problems->Add("the coordinator's " + own->ends_first_file + " " + ends,
                    "make a new one in " + of_.transport->live()->options().dir +
                        " (docs/OPERATIONS.md, TLS): the coordinator takes it within seconds");
    }
  }
  for (const auto& [name, node] : of_.cluster->nodes()) {
    const auto certificate = of_.membership->CertificateOf(name);
    if (!node.alive || !certificate.has_value()) {
      continue;
    }
    if (const std::string ends = EndsSoon(*certificate, now_s); !ends.empty()) {
      problems->Add("the certificate of node " + name + " " + ends,
                    "make a new one for it (docs/OPERATIONS.md, TLS): its worker takes it within "
                    "seconds");
    }
  }
}

std::vector<v1::Problem> StatusReport::Problems() const {
  ProblemList problems;
  of_.cluster->AddProblems(
      [this](const std::string& node) { return of_.deployments->ModelOn(node); }, &problems);
  AddDeploymentProblems(&problems);
  of_.standbys->AddProblems(&problems);
  AddIdleNodes(&problems);
  for (const Waiting& wait : Waits()) {
    if (const auto late = ProblemOf(wait, clock_->Now())) {
      problems.Add(late->what(), late->do_());
    }
  }
  AddCertificates(&problems);
  if (options_.insecure_off_loopback) {
    problems.Add("traffic is neither encrypted nor authenticated (--insecure)",
                 "start coordinator and workers with --tls-dir");
    if (!of_.keys->empty() && !of_.keys->HasAdmin()) {
      problems.Add(
          "requests need an API key, but whoever can connect may administrate, and make keys",
          "strata key create --admin");
    }
  }
  return problems.Take();
}

void StatusReport::AddUse(const Deployment& deployment, v1::GetStatusResponse* out) const {
  const EngineSnapshot snapshot = deployment.engine()->Snapshot(clock_->Now());
  for (const KvSnapshot& kv : snapshot.kv) {
    v1::KvUse* use = out->add_kv();
    use->set_model(deployment.model()->name);
    use->set_stage(kv.stage);
    use->set_group(KvGroupName(deployment.model()->spec().kv_groups[kv.group]));
    use->set_total(kv.total);
    use->set_free(kv.free);
    use->set_live(kv.live);
    use->set_cached(kv.cached);
    use->set_fenced(kv.fenced);
  }
  for (size_t i = 0; i < snapshot.pipeline.stages.size(); ++i) {
    const StageCounters& counters = snapshot.pipeline.stages[i];
    v1::StageUse* use = out->add_stages();
    use->set_model(deployment.model()->name);
    use->set_stage(static_cast<uint32_t>(i));
    use->set_node(snapshot.nodes[i]);
    use->set_compute_s(ToMs(counters.computed) / 1e3);
    use->set_bubble_s(ToMs(counters.bubble) / 1e3);
    use->set_steps(counters.steps);
    use->set_rows(counters.rows);
  }
}

absl::StatusOr<v1::GetStatusResponse> StatusReport::Status() {
  std::vector<v1::Problem> outside;
  if (options_.outside_problems) outside = options_.outside_problems();
  return loop_->Ask([this, &outside] {
    v1::GetStatusResponse out;
    for (v1::Model& model : DescribeModels()) *out.add_models() = std::move(model);
    for (v1::Session& session : of_.requests->Describe(std::nullopt)) {
      *out.add_sessions() = std::move(session);
    }
    for (v1::Node& node : of_.cluster->Describe(clock_->Now())) *out.add_nodes() = std::move(node);
    for (v1::Problem& problem : outside) *out.add_problems() = std::move(problem);
    for (v1::Problem& problem : Problems()) *out.add_problems() = std::move(problem);
    for (const Waiting& wait : Waits()) *out.add_waits() = Describe(wait, clock_->Now());
    for (const auto& [id, deployment] : of_.deployments->all()) {
      if (deployment->engine() == nullptr) continue;
      AddUse(*deployment, &out);
    }
    out.set_version(kVersion);
    out.set_term(options_.term);
    out.set_uptime_s(ToMs(clock_->Now() - started_) / 1e3);
    return out;
  });
}

}  // namespace strata
