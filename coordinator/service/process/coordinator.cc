#include "coordinator/service/process/coordinator.h"

#include <algorithm>
#include <ctime>
#include <random>
#include <thread>
#include <utility>

#include "common/plan.h"
#include "common/rpc/link.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"

namespace strata {
namespace {

constexpr milliseconds kMeasureTimeout{2000};

uint64_t RandomNonZero() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) {
    value = uint64_t{device()} << 32 | device();
  }
  return value;
}

// The loop turns more often than this, unless the process stands still.
constexpr nanoseconds kPause = std::chrono::seconds(1);

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, const Transport* transport,
                         const Clock* clock, StateStore* store, Models* models, uint64_t term,
                         const std::string& cluster_id)
    : log_requests_(options.log_requests),
      transport_(transport),
      clock_(clock),
      store_(store),
      models_(models),
      term_(term),
      sequence_numbers_(term),
      wait_board_(clock),
      keys_(store, [this](std::function<void()> task) { tasks_.Run(std::move(task)); }),
      cluster_(options.cluster),
      records_(store, &loop_, &tasks_, clock, &cluster_, &deployments_),
      links_(RandomNonZero(), transport, &loop_, &tasks_, &deployments_),
      measurer_(options.measure_again, &cluster_, &deployments_, &streams_,
                [this](const v1::NodeInfo& info) { MeasureFromHere(info); }),
      requests_(clock, &loop_, &deployments_, &keys_),
      draft_models_(clock, &loop_, &deployments_),
      loads_({.defaults = options.load, .deployment = options.deployment}, &loop_, models, store,
             &records_, &cluster_, &deployments_, this),
      moves_(options.deployment.step_timeout, &loop_, models, &cluster_, &deployments_),
      replacements_(options.deployment.step_timeout, &loop_, &tasks_, models, &cluster_,
                    &deployments_),
      standbys_(options.deployment.step_timeout, &loop_, &tasks_, models, &cluster_, &deployments_,
                this),
      checks_(options.check_timeout, clock, &loop_, models, &cluster_, &deployments_, &streams_,
              &requests_, &wait_board_),
      nodes_(clock, &loop_, store, &records_, &cluster_, &deployments_, &loads_),
      membership_(term, cluster_id, clock, &loop_,
                  {.cluster = &cluster_,
                   .streams = &streams_,
                   .deployments = &deployments_,
                   .measurer = &measurer_,
                   .checks = &checks_,
                   .standbys = &standbys_,
                   .records = &records_,
                   .step_links = &links_}),
      report_({.term = term,
               .outside_problems = options.outside_problems,
               .insecure_off_loopback = options.insecure_off_loopback},
              clock, &loop_,
              {.transport = transport,
               .models = models,
               .cluster = &cluster_,
               .deployments = &deployments_,
               .standbys = &standbys_,
               .membership = &membership_,
               .requests = &requests_,
               .wait_board = &wait_board_,
               .keys = &keys_}),
      constraints_(MakeAnswerConstraints(
          options.constraints,
          {.run_on_loop = [this](std::function<void()> task) { loop_.RunOrPost(std::move(task)); },
           .on_next = [this](const std::string& key) { requests_.OnConstraint(key); },
           .metrics = metrics_.constraints()})),
      loop_(
          clock, [this](TimePoint now) { return Tick(now); }, options.max_waiting_calls) {}

Coordinator::~Coordinator() { Shutdown(nanoseconds(0)); }

absl::Status Coordinator::Start() {
  // The loop does not run yet: nobody else is here.
  RETURN_IF_ERROR(keys_.Load(Now()));
  ASSIGN_OR_RETURN(const auto nodes, store_->ListNodes());
  for (const StoredNode& node : nodes) {
    cluster_.Restore(node.info, node.draining, Now());
  }
  RETURN_IF_ERROR(loads_.Restore(term_));
  loop_.Start();
  return absl::OkStatus();
}

void Coordinator::Shutdown(nanoseconds drain_timeout) {
  loop_.Call([this] {
    healthy_ = false;
    deployments_.StopAdmitting(Stopping());
    return true;
  });
  const TimePoint deadline = clock_->Now() + drain_timeout;
  while (clock_->Now() < deadline) {
    const auto live = loop_.Call([this] { return deployments_.live_requests(); });
    if (live.value_or(0) == 0) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::optional<RecordWriter::Records> unsaved;
  loop_.Call([&] {
    unsaved = records_.Take();
    deployments_.UnloadAll(Stopping());
    streams_.CloseAll();
    return true;
  });
  if (unsaved.has_value()) {
    (void)records_.Write(*unsaved);  // What failed has been logged; nothing comes after.
  }
  constraints_->Stop();
  keys_.Close();
  tasks_.Wait();
  loop_.Stop();
}

std::optional<TimePoint> Coordinator::Tick(TimePoint now) {
  if (now - std::exchange(last_tick_, now) > kPause) {
    deployments_.ExcusePause(now);
  }
  membership_.Tick(now);
  measurer_.Tick(now);
  std::optional<TimePoint> next = records_.Tick(now);
  // Weights are not sent while the file that they are in is read again.
  const bool reading = !models_->blobs()->trust()->BeingRead().empty();
  if (deployments_.Tick(now, reading)) {
    deployments_.LoadWhatWaits(cluster_);
  }
  replacements_.Tick(now);
  standbys_.Tick(now);
  if (const auto wake = deployments_.NextWake(); wake.has_value()) {
    next = std::min(next.value_or(*wake), *wake);
  }
  healthy_ = deployments_.AnyServes() && !deployments_.stopping();
  return next;
}

void Coordinator::MeasureFromHere(const v1::NodeInfo& info) {
  tasks_.Run([this, info] {
    const auto speed =
        MeasureLink(*transport_, info.address(), info.name(), info.incarnation(), kMeasureTimeout);
    const absl::StatusOr<LinkMeasure> measure =
        speed.ok() ? absl::StatusOr<LinkMeasure>({speed->latency_ms, speed->bytes_per_s, {}, 0})
                   : speed.status();
    loop_.Post(
        [this, info, measure] { measurer_.OnMeasuredFromHere(info, measure, clock_->Now()); });
  });
}

absl::StatusOr<std::shared_ptr<Caller>> Coordinator::Authenticate(std::string_view authorization) {
  return keys_.Authenticate(authorization, static_cast<uint64_t>(std::time(nullptr)));
}

// ---- DeploymentHost.

bool Coordinator::SendToNode(const std::string& node, uint64_t incarnation,
                             v1::CoordinatorMessage message) {
  return streams_.Send(node, incarnation, std::move(message));
}

void Coordinator::OpenLink(
    StepLinkRequest request,
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
    std::function<void(const absl::Status& status)> on_broken) {
  links_.Open(std::move(request), std::move(on_opened), std::move(on_broken));
}

std::string Coordinator::AddressOf(const std::string& node) const {
  const NodeRecord* record = cluster_.Find(node);
  return record == nullptr ? "" : record->info.address();
}

bool Coordinator::LinksAhead(const std::string& node) const {
  const NodeRecord* record = cluster_.Find(node);
  return record != nullptr && record->info.links_ahead();
}

namespace {

NodeRecord::Placement PlacementOf(const std::string& model, const v1::Plan& plan,
                                  const PlacedPart& part) {
  const v1::PlanStage& stage = OnlyPipeline(plan).stages(part.stage);
  NodeRecord::Placement placement;
  placement.bytes = part.bytes;
  placement.host_bytes = part.host_bytes;
  placement.what = model + " layers " + std::to_string(stage.first_layer()) + "-" +
                   std::to_string(stage.last_layer());
  if (stage.ranks_size() > 1) {
    placement.what += " with " + std::to_string(stage.ranks_size() - 1) + " more";
  }
  return placement;
}

}  // namespace

void Coordinator::OnPlacement(uint64_t deployment, const v1::Plan& plan, bool placed, bool ready) {
  cluster_.ClearPlacement(deployment);
  const Deployment* owner = deployments_.Find(deployment);
  if (!placed || owner == nullptr) {
    return;
  }
  for (const PlacedPart& part : PartsOf(owner->model()->spec(), owner->load_options(), plan)) {
    NodeRecord::Placement placement = PlacementOf(owner->model()->name, plan, part);
    placement.ready = ready;
    cluster_.SetPlacement(part.rank->node(), deployment, std::move(placement));
  }
}

void Coordinator::OnPrepared(uint64_t deployment, const v1::Plan* plan) {
  cluster_.ClearPrepared(deployment);
  const Deployment* owner = deployments_.Find(deployment);
  if (plan == nullptr || owner == nullptr) {
    return;
  }
  for (const PlacedPart& part : PartsOf(owner->model()->spec(), owner->load_options(), *plan)) {
    if (StageStays(owner->plan(), *plan, part.stage)) {
      continue;
    }
    NodeRecord::Placement placement = PlacementOf(owner->model()->name, *plan, part);
    placement.what += " (to be)";
    cluster_.SetPrepared(part.rank->node(), deployment, std::move(placement));
  }
}

}  // namespace strata
