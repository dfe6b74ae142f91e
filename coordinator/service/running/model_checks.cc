#include "coordinator/service/running/model_checks.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/model/numerics_class.h"
#include "common/model/row_digest.h"
#include "common/mutex.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/keys/caller.h"
#include "coordinator/service/loop/errors.h"
#include "coordinator/service/request/request_draws.h"
#include "coordinator/service/running/layer_check.h"

namespace strata {

namespace {

// For the stages: with the time that it waits for room in KV memory.
constexpr nanoseconds kStagesWithin = std::chrono::minutes(2);
constexpr milliseconds kCheckAgain{50};
// Of rows that travel from worker to worker: a message has 4 MiB.
constexpr uint64_t kHandedBytes = uint64_t{3} << 20;

absl::Status CheckEnded() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "the check was ended");
}

absl::Status NodeLostFor(const std::string& node) {
  return Error(absl::StatusCode::kUnavailable, "NODE_LOST",
               "node '" + node + "', which computed layer by layer, is lost")
      .Node(node)
      .Hint("run the check again; --node chooses another worker");
}

}  // namespace

// One check under way: the thread of its call waits for what the loop hears.
struct ModelChecks::UnderWay {
  struct Computer {
    std::string node;
    uint64_t incarnation = 0;
    std::string numerics;
  };

  // Set once.
  uint64_t id = 0;
  std::string request_key;
  // Who computes layer by layer, by numerics of the plan's layers.
  std::map<std::string, Computer> references;
  std::vector<std::string> numerics;  // By layer.
  // Who computes every layer in other numerics besides; no name: nobody.
  Computer across;
  uint64_t deployment = 0;
  std::string model;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  std::vector<uint32_t> tokens;
  v1::Plan plan;

  Mutex mutex;
  CondVar changed;
  LayerTable stages STRATA_GUARDED_BY(mutex);
  std::optional<absl::Status> stages_ended STRATA_GUARDED_BY(mutex);
  Computer asked STRATA_GUARDED_BY(mutex);  // Whose answer is waited for.
  std::optional<v1::LayersComputed> computed STRATA_GUARDED_BY(mutex);  // The newest answer.
  std::optional<std::string> lost STRATA_GUARDED_BY(mutex);  // A node that computes for it.

  std::vector<Computer> Computers() const {
    std::vector<Computer> all;
    for (const auto& [name, reference] : references) all.push_back(reference);
    if (!across.node.empty()) all.push_back(across);
    return all;
  }
  // Of rows that travel between workers, which messages hold.
  bool Hands() const { return references.size() > 1 || !across.node.empty(); }
};

// What a worker is asked of a layer.
struct ModelChecks::Asked {
  const UnderWay::Computer* computer = nullptr;
  uint32_t layer = 0;
  bool begins = false;      // It has not the rows that the layer before left.
  std::string rows = {};    // Then these, but for the first layer.
  bool returns = false;     // What it makes of them is wanted.
  std::string across = {};  // Numerics that are not the plan's; "": those of the plan.
};

// Gathers what the stages' layers made of the sequence.
class ModelChecks::StagesSink final : public SessionSink {
 public:
  explicit StagesSink(std::shared_ptr<UnderWay> check) : check_(std::move(check)) {}

  void OnStarted(const StartedInfo&) override {}
  void OnRows(const RowsInfo& rows) override {
    MutexLock lock(&check_->mutex);
    check_->stages.resize(rows.layer_digests.size());
    for (size_t layer = 0; layer < rows.layer_digests.size(); ++layer) {
      check_->stages[layer].insert(check_->stages[layer].end(), rows.layer_digests[layer].begin(),
                                   rows.layer_digests[layer].end());
    }
  }
  Verdict OnToken(const TokenInfo&) override { return Verdict::kContinue; }
  void OnDone(const FinishInfo& info) override {
    // Somebody else may have ended it.
    End(info.reason == "cancelled" ? CheckEnded() : absl::OkStatus());
  }
  void OnFailed(const absl::Status& status) override { End(status); }

 private:
  void End(const absl::Status& status) {
    MutexLock lock(&check_->mutex);
    check_->stages_ended = status;
    check_->changed.NotifyAll();
  }

  const std::shared_ptr<UnderWay> check_;
};

absl::StatusOr<v1::ModelCheck> ModelChecks::Check(const v1::CheckModelRequest& request,
                                                  const ProgressFn& progress,
                                                  const std::function<bool()>& gone) {
  if (request.tokens() > kMaxCheckTokens) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKENS",
                 "a check has 1 to " + std::to_string(kMaxCheckTokens) + " tokens, not " +
                     std::to_string(request.tokens()))
        .Limit("check_tokens=" + std::to_string(kMaxCheckTokens));
  }
  ASSIGN_OR_RETURN(const auto model, models_->Get(request.name()));
  // What takes longer than the loop should stand.
  ASSIGN_OR_RETURN(const v1::LoadOptions options,
                   loop_->Ask([&]() -> absl::StatusOr<v1::LoadOptions> {
                     const Serving serving = requests_->ServingOf(request.name());
                     RETURN_IF_ERROR(serving.problem);
                     return deployments_->Find(serving.deployment)->load_options();
                   }));
  auto check = std::make_shared<UnderWay>();
  const uint32_t most = std::min(kDefaultCheckTokens, std::max(options.context(), 2u) - 1);
  check->tokens = CheckTokens(*model, request.tokens() != 0 ? request.tokens() : most);
  check->layers = static_cast<uint32_t>(model->spec().layers.size());
  check->hidden = model->spec().hidden;
  const uint64_t bytes = LargestLayerBytes(*model, options);
  RETURN_IF_ERROR(loop_->Ask([&] { return Begin(request, bytes, check); }));
  v1::CheckModelProgress said;
  said.set_phase("stages");
  said.set_layers_total(check->layers + 1);
  progress(said);
  absl::StatusOr<v1::ModelCheck> result = Run(check, &said, progress, gone);
  const std::string key = check->request_key;
  loop_->Call([&] {
    requests_->Cancel(key, CheckEnded());
    EndOn(*check);
    checks_.erase(check->id);
    return true;
  });
  return result;
}

void ModelChecks::EndOn(const UnderWay& check) {
  for (const UnderWay::Computer& computer : check.Computers()) {
    v1::CoordinatorMessage end;
    end.mutable_compute_layers()->set_check(check.id);
    streams_->Send(computer.node, computer.incarnation, std::move(end));
  }
}

absl::Status ModelChecks::Begin(const v1::CheckModelRequest& request, uint64_t bytes,
                                const std::shared_ptr<UnderWay>& check) {
  const Serving serving = requests_->ServingOf(request.name());
  RETURN_IF_ERROR(serving.problem);
  check->deployment = serving.deployment;
  check->model = request.name();
  check->plan = deployments_->Find(serving.deployment)->plan();
  check->numerics = NumericsByLayer(check->plan, check->layers);
  RETURN_IF_ERROR(ChooseNodes(request.node(), bytes, check.get()));
  RETURN_IF_ERROR(FitTokens(request, check.get()));
  SessionRequest session;
  session.request_id = "check-" + DrawRequestId();
  session.key = check->request_key = ScopedId(nullptr, session.request_id);
  session.cache_salt = session.key;
  session.prompt = check->tokens;
  session.max_tokens = 1;
  session.ignore_eos = true;
  session.digest_layers = true;
  *session.params.mutable_sampling() = PlainSampling(0, 0);
  session.deadline = clock_->Now() + kStagesWithin;
  RETURN_IF_ERROR(serving.engine->Submit(std::move(session), std::make_shared<StagesSink>(check),
                                         clock_->Now()));
  check->id = ++newest_;
  checks_[check->id] = check;
  return absl::OkStatus();
}

absl::Status ModelChecks::ChooseNodes(const std::string& name, uint64_t bytes,
                                      UnderWay* check) const {
  if (!name.empty()) {
    RETURN_IF_ERROR(TakeNamed(name, check));
  }
  const PlannerCluster cluster = cluster_->Snapshot(0);
  for (const std::string& numerics : check->numerics) {
    if (check->references.contains(numerics)) {
      continue;
    }
    const PlannerNode* node = ChooseReference(cluster.nodes, check->plan, numerics, bytes);
    if (node == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition, "NO_NODES",
                   "there is no ready worker that could compute layer by layer in numerics class " +
                       ClassAsIn(check->plan.numerics_class().name(), numerics))
          .Hint("name one with --node, or start one: see `strata node list`");
    }
    check->references[numerics] = {node->name, node->incarnation, numerics};
  }
  return absl::OkStatus();
}

absl::Status ModelChecks::FitTokens(const v1::CheckModelRequest& request, UnderWay* check) {
  const uint64_t most = kHandedBytes / (sizeof(float) * std::max(1u, check->hidden));
  if (!check->Hands() || check->tokens.size() <= most) {
    return absl::OkStatus();
  }
  if (request.tokens() == 0 && most > 0) {
    check->tokens.resize(most);
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKENS",
               "a check between workers of several kinds has at most " + std::to_string(most) +
                   " tokens of this model, since their rows travel")
      .Limit("check_tokens=" + std::to_string(most))
      .Hint("lower --tokens");
}

absl::Status ModelChecks::TakeNamed(const std::string& name, UnderWay* check) const {
  const NodeRecord* node = cluster_->Find(name);
  if (node == nullptr) {
    return Error(absl::StatusCode::kNotFound, "NODE_NOT_FOUND", "there is no node '" + name + "'")
        .Hint("see `strata node list`");
  }
  if (!node->alive || node->unfit() || node->leaving()) {
    const char* const what = !node->alive ? "lost" : node->unfit() ? "unfit" : "being stopped";
    return Error(absl::StatusCode::kFailedPrecondition, "NODE_NOT_READY",
                 "node '" + name + "' is " + what)
        .Node(name)
        .Hint("start its strata-worker again, or choose another --node");
  }
  const UnderWay::Computer named{name, node->info.incarnation(), node->info.numerics()};
  const auto& all = check->numerics;
  if (std::find(all.begin(), all.end(), named.numerics) != all.end()) {
    check->references[named.numerics] = named;
  } else {
    check->across = named;
  }
  return absl::OkStatus();
}

absl::Status ModelChecks::AwaitStages(UnderWay& check, const std::function<bool()>& gone) {
  std::optional<absl::Status> ended;
  while (!ended.has_value()) {
    if (gone()) {
      return CheckEnded();
    }
    MutexLock lock(&check.mutex);
    if (!check.stages_ended.has_value()) {
      check.changed.WaitFor(&check.mutex, kCheckAgain);
    }
    ended = check.stages_ended;
  }
  return ended->ok() || absl::IsCancelled(*ended)
             ? *ended
             : Annotate(*ended, "the stages did not compute the check");
}

absl::StatusOr<v1::ModelCheck> ModelChecks::Run(const std::shared_ptr<UnderWay>& check,
                                                v1::CheckModelProgress* said,
                                                const ProgressFn& progress,
                                                const std::function<bool()>& gone) {
  RETURN_IF_ERROR(AwaitStages(*check, gone));
  const std::string& model = check->model;
  said->set_phase("layers");
  progress(*said);
  LayerTable reference;
  const auto tokens = static_cast<uint32_t>(check->tokens.size());
  const bool across = !check->across.node.empty();
  std::vector<RowDifference> differences;
  std::string rows;
  for (uint32_t layer = 0; layer < check->layers; ++layer) {
    const auto changes = [&](uint32_t at) {
      return at > 0 && at < check->layers && check->numerics[at] != check->numerics[at - 1];
    };
    const std::string before = std::exchange(rows, {});
    const Asked own{.computer = &check->references.at(check->numerics[layer]),
                    .layer = layer,
                    .begins = layer == 0 || changes(layer),
                    .rows = changes(layer) ? before : "",
                    .returns = across || changes(layer + 1)};
    ASSIGN_OR_RETURN(v1::LayersComputed computed, ComputeLayer(*check, own, gone));
    RETURN_IF_ERROR(AddComputed(computed, layer, check->layers, tokens, &reference));
    rows = std::move(*computed.mutable_rows());
    if (across) {
      const Asked other{.computer = &check->across,
                        .layer = layer,
                        .begins = true,
                        .rows = before,
                        .returns = true,
                        .across = check->across.numerics};
      ASSIGN_OR_RETURN(const v1::LayersComputed again, ComputeLayer(*check, other, gone));
      differences.push_back(DifferenceOf(rows, again.rows(), tokens));
    }
    said->set_layers_done(static_cast<uint32_t>(reference.size()));
    progress(*said);
  }
  v1::ModelCheck result;
  result.set_numerics_class(check->plan.numerics_class().name());
  result.set_plan_epoch(check->plan.epoch());
  std::string newest;
  for (const std::string& numerics : check->numerics) {
    if (std::exchange(newest, numerics) != numerics && check->references.size() > 1) {
      result.add_reference_nodes(check->references.at(numerics).node);
    }
  }
  {
    MutexLock lock(&check->mutex);
    CompareLayers(
        model, check->plan, check->stages, reference,
        [&](uint32_t layer) { return check->references.at(check->numerics[layer]).node; }, &result);
  }
  if (across) {
    result.set_across_node(check->across.node);
    result.set_tolerance(ToleranceOf(check->plan));
    for (uint32_t layer = 0; layer < differences.size(); ++layer) {
      NoteAcross(model, check->plan, layer, differences[layer], &result);
    }
  }
  if (result.equal()) {
    LogInfo(
        {{"model", model}, {"node", result.reference_node()}, {"deployment", check->deployment}},
        "the model's stages compute what its layers do alone");
  } else {
    LogError({{"model", model},
              {"node", result.node()},
              {"deployment", check->deployment},
              {"stage", result.stage()}},
             "layer " + std::to_string(result.layer()) + " differs from what node '" +
                 result.reference_node() + "' makes of it: " + result.hint());
  }
  return result;
}

absl::Status ModelChecks::SendLayer(const UnderWay& check, const Asked& asked) {
  const auto sent = loop_->Call([&]() -> absl::Status {
    const Deployment* deployment = deployments_->Find(check.deployment);
    const std::string& name = check.plan.numerics_class().name();
    if (deployment == nullptr || deployment->plan().numerics_class().name() != name) {
      return Error(absl::StatusCode::kAborted, "UNLOADED",
                   "the model was unloaded, or placed anew, while it was checked");
    }
    v1::CoordinatorMessage message;
    v1::ComputeLayers* compute = message.mutable_compute_layers();
    compute->set_check(check.id);
    v1::Load* load = compute->mutable_load();
    *load = deployment->MakeLayerLoad(asked.layer, static_cast<uint32_t>(check.tokens.size()),
                                      kReferenceRows);
    if (!asked.across.empty()) {
      load->set_numerics_class(ClassAsIn(name, asked.across));
      if (!TakesInt8Activations(asked.across)) load->set_activations(v1::ACTIVATIONS_F32);
    }
    if (asked.begins) {
      compute->mutable_token_ids()->Add(check.tokens.begin(), check.tokens.end());
      compute->set_rows(asked.rows);
    }
    compute->set_returns_rows(asked.returns);
    const UnderWay::Computer& computer = *asked.computer;
    return streams_->Send(computer.node, computer.incarnation, std::move(message))
               ? absl::OkStatus()
               : NodeLostFor(computer.node);
  });
  return sent.value_or(Stopping());
}

absl::StatusOr<v1::LayersComputed> ModelChecks::ComputeLayer(UnderWay& check, const Asked& asked,
                                                             const std::function<bool()>& gone) {
  const std::string& node = asked.computer->node;
  {
    MutexLock lock(&check.mutex);
    check.asked = *asked.computer;
  }
  RETURN_IF_ERROR(SendLayer(check, asked));
  const Waiting wait{.what = "node " + node + " to compute layer " + std::to_string(asked.layer) +
                             " of the check of model " + check.model,
                     .node = node,
                     .model = check.model,
                     .limit = timeout_,
                     .hint = "see the log of strata-worker on " + node +
                             " and start it again, or check with another --node"};
  const auto shown = wait_board_->Begin(wait);
  const TimePoint began = clock_->Now();
  std::optional<v1::LayersComputed> computed;
  while (!computed.has_value()) {
    if (gone()) {
      return CheckEnded();
    }
    if (const nanoseconds waited = clock_->Now() - began; waited >= timeout_) {
      return Error(absl::StatusCode::kDeadlineExceeded, "CHECK_TIMEOUT",
                   "waited " + FormatDuration(waited) + " in vain for " + wait.what)
          .Node(node)
          .Limit("check_timeout=" + FormatDuration(timeout_))
          .Hint(wait.hint);
    }
    MutexLock lock(&check.mutex);
    if (check.lost.has_value()) {
      return NodeLostFor(*check.lost);
    }
    if (!check.computed.has_value()) {
      check.changed.WaitFor(&check.mutex, kCheckAgain);
    }
    computed = std::exchange(check.computed, std::nullopt);
  }
  if (computed->has_error()) {
    v1::ErrorDetail detail = computed->error();
    detail.set_node(node);
    return Annotate(StatusOf(detail), "node '" + node + "' cannot compute layer " +
                                          std::to_string(asked.layer) + " of the check");
  }
  return *std::move(computed);
}

void ModelChecks::OnLayersComputed(const std::string& node, uint64_t incarnation,
                                   const v1::LayersComputed& computed) {
  const auto it = checks_.find(computed.check());
  if (it == checks_.end()) {
    return;  // Of one that was ended.
  }
  MutexLock lock(&it->second->mutex);
  if (it->second->asked.node != node || it->second->asked.incarnation != incarnation) {
    return;
  }
  it->second->computed = computed;
  it->second->changed.NotifyAll();
}

void ModelChecks::OnNodeLost(const std::string& node) {
  for (const auto& [id, check] : checks_) {
    const std::vector<UnderWay::Computer> all = check->Computers();
    if (std::any_of(all.begin(), all.end(),
                    [&](const UnderWay::Computer& computer) { return computer.node == node; })) {
      MutexLock lock(&check->mutex);
      check->lost = node;
      check->changed.NotifyAll();
    }
  }
}

}  // namespace strata
