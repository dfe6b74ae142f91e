// A DeploymentHost that records what it is asked for: two nodes without a network.
#ifndef STRATA_TESTS_COORDINATOR_DEPLOYMENT_FAKE_DEPLOYMENT_HOST_H_
#define STRATA_TESTS_COORDINATOR_DEPLOYMENT_FAKE_DEPLOYMENT_HOST_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/deployment/deployment.h"

namespace strata {

class FakeDeploymentHost : public DeploymentHost {
 public:
  struct Dialled {
    StepLinkRequest request;
    std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened;
    std::function<void(const absl::Status& status)> on_broken;
  };

  bool SendToNode(const std::string& node, uint64_t incarnation,
                  v1::CoordinatorMessage message) override {
    if (unreachable == node) {
      return false;
    }
    messages.push_back({node, std::move(message)});
    return true;
  }
  TimePoint Now() const override { return now; }
  void OpenLink(StepLinkRequest request,
                std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                std::function<void(const absl::Status& status)> on_broken) override {
    dialled.push_back({std::move(request), std::move(on_opened), std::move(on_broken)});
  }
  std::string AddressOf(const std::string& node) const override { return node + ":1"; }
  bool LinksAhead(const std::string&) const override { return links_ahead; }
  uint64_t coordinator_incarnation() const override { return 99; }
  void RecordLater(uint64_t) override { ++records_asked; }
  void OnPlacement(uint64_t, const v1::Plan&, bool placed, bool ready) override {
    placements.push_back({placed, ready});
  }
  void OnPrepared(uint64_t, const v1::Plan* plan) override { prepares = plan != nullptr; }
  SequenceNumbers* sequence_numbers() override { return &counter; }

  // The link dialled last opens; its frames go to `frames`.
  void OpenLast() {
    auto link = std::make_unique<Link>(this);
    dialled.back().on_opened(std::move(link));
  }
  // Messages to a node since the last call, of the kind that `get` picks.
  template <typename Get>
  auto Take(const std::string& node, const Get& get)
      -> std::vector<std::decay_t<decltype(get(v1::CoordinatorMessage()))>> {
    std::vector<std::decay_t<decltype(get(v1::CoordinatorMessage()))>> taken;
    for (auto it = messages.begin(); it != messages.end();) {
      if (it->first == node && it->second.kind_case() == get.kKind) {
        taken.push_back(get(it->second));
        it = messages.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }
  std::vector<v1::Load> TakeLoads(const std::string& node) { return Take(node, LoadOf()); }
  std::vector<v1::Fence> TakeFences(const std::string& node) { return Take(node, FenceOf()); }
  std::vector<v1::Unload> TakeUnloads(const std::string& node) { return Take(node, UnloadOf()); }

  std::deque<std::pair<std::string, v1::CoordinatorMessage>> messages;
  std::vector<Dialled> dialled;
  std::vector<StepMessage> frames;
  int links_open = 0;
  std::vector<std::pair<bool, bool>> placements;  // Placed, ready.
  bool prepares = false;
  bool links_ahead = false;
  int records_asked = 0;
  std::string unreachable;
  TimePoint now = std::chrono::seconds(1000);
  SequenceNumbers counter{1};

 private:
  struct LoadOf {
    static constexpr auto kKind = v1::CoordinatorMessage::kLoad;
    v1::Load operator()(const v1::CoordinatorMessage& message) const { return message.load(); }
  };
  struct FenceOf {
    static constexpr auto kKind = v1::CoordinatorMessage::kFence;
    v1::Fence operator()(const v1::CoordinatorMessage& message) const { return message.fence(); }
  };
  struct UnloadOf {
    static constexpr auto kKind = v1::CoordinatorMessage::kUnload;
    v1::Unload operator()(const v1::CoordinatorMessage& message) const { return message.unload(); }
  };
  class Link : public StepLink {
   public:
    explicit Link(FakeDeploymentHost* host) : host_(host) { ++host_->links_open; }
    ~Link() override { --host_->links_open; }
    void Send(StepMessage step) override { host_->frames.push_back(std::move(step)); }

   private:
    FakeDeploymentHost* const host_;
  };
};

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_DEPLOYMENT_FAKE_DEPLOYMENT_HOST_H_
