#include "tests/sim/sim_step_links.h"

#include <optional>

#include "common/status.h"
#include "tests/sim/sim_worker.h"

namespace strata::sim {

class SimStepLinks::FirstLink : public StepLink {
 public:
  FirstLink(Cluster* cluster, Meddler* meddler, v1::LinkOpen open)
      : cluster_(cluster), meddler_(meddler), open_(std::move(open)) {}

  void Send(StepMessage step) override {
    meddler_->OnSend(&step);
    const Machine machine = MachineOf(open_.to_node());
    SimWorker* worker = cluster_->worker(machine);
    auto frame = std::make_shared<const StepMessage>(std::move(step));
    Network::Frame sent;
    sent.channel = ChannelOf(open_.deployment(), open_.epoch());
    sent.to = machine;
    cluster_->world->Tell([&] {
      sent.what = Show(frame->header);
      return "the coordinator sends " + sent.what + " to " + worker->name();
    });
    sent.arrives = [worker, to = open_.to_incarnation(), frame] { worker->OnFrame(to, frame); };
    sent.garbled = [worker, open = open_] {
      worker->OnGarbledFrame(open.to_incarnation(), open.deployment(), open.epoch());
    };
    cluster_->network->SendFrame(sent);
  }

 private:
  Cluster* const cluster_;
  Meddler* const meddler_;
  const v1::LinkOpen open_;
};

void SimStepLinks::Open(
    StepLinkRequest request,
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened) {
  const Machine machine = MachineOf(request.address);
  SimWorker* worker = cluster_->worker(machine);
  auto answered = std::make_shared<bool>(false);
  const auto tell = [this, on_loop = on_loop_, answered, open = request.open,
                     on_opened = std::move(on_opened)](const absl::Status& status) {
    on_loop([&] {
      if (std::exchange(*answered, true)) {
        return;
      }
      if (status.ok()) {
        on_opened(std::make_unique<FirstLink>(cluster_, &MeddlerOf(open.deployment()), open));
      } else {
        on_opened(status);
      }
    });
  };
  world().After(request.open_timeout, [tell, node = request.open.to_node()] {
    tell(Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED",
               "the link to the first stage could not be opened in time")
             .Node(node));
  });
  const auto answer = [tell, network = cluster_->network, machine,
                       node = request.open.to_node()](bool accepted) {
    network->SendControl(machine, kCoordinatorMachine, [tell, node, accepted] {
      tell(accepted ? absl::OkStatus()
                    : absl::Status(Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_EXPECTED",
                                         "the first stage expects no such link")
                                       .Node(node)));
    });
  };
  cluster_->network->SendControl(
      kCoordinatorMachine, machine,
      [worker, open = std::move(request.open), answer] { worker->OnLinkOpen(open, answer); });
}

Meddler& SimStepLinks::MeddlerOf(uint64_t deployment) {
  const Fingerprint root = FingerprintRoot(deployment, kWeightsDigest, kNumericsClass,
                                           /*adapter_digest=*/"", /*rotary_variant=*/0);
  return meddlers_.try_emplace(deployment, cluster_->world, root).first->second;
}

bool SimStepLinks::Accept(const v1::LinkOpen& open) {
  Deployment* deployment = deployments_->Find(open.deployment());
  const std::optional<uint64_t> link =
      deployment != nullptr ? deployment->pipeline()->AcceptResults(open) : std::nullopt;
  if (link.has_value()) {
    results_[{open.deployment(), open.epoch()}] = *link;
  }
  return link.has_value();
}

uint64_t SimStepLinks::ResultsLink(uint64_t deployment, uint64_t epoch) const {
  const auto it = results_.find({deployment, epoch});
  return it == results_.end() ? 0 : it->second;
}

void SimStepLinks::OnResult(const ResultMessage& result) {
  const uint64_t id = result.header.deployment();
  if (Deployment* deployment = deployments_->Find(id)) {
    ResultMessage restored = result;
    MeddlerOf(id).OnResult(&restored);
    deployment->pipeline()->OnResult(ResultsLink(id, result.header.epoch()), std::move(restored));
  }
}

void SimStepLinks::OnGarbledResult(uint64_t deployment, uint64_t epoch) {
  world().Count(Rule::kBadChecksum);
  if (Deployment* of = deployments_->Find(deployment)) {
    of->pipeline()->OnResultsClosed(
        ResultsLink(deployment, epoch),
        Error(absl::StatusCode::kDataLoss, "FRAME_CRC", "a result's checksum does not match"));
  }
}

}  // namespace strata::sim
