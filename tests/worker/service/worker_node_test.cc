#include "worker/service/worker_node.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "tests/worker/service/worker_node_fixture.h"

namespace strata {
namespace {

using testing::FakeCoordinator;
using ::testing::HasSubstr;

TEST_F(WorkerNodeTest, TwoWorkersLoadTheirOwnBytesAndGiveTheGoldenIds) {
  FakeCoordinator coordinator;
  std::vector<uint32_t> prompt;
  std::vector<uint32_t> greedy;
  GoldenCase(&prompt, &greedy);
  ASSERT_EQ(prompt.size(), 39u);
  ASSERT_EQ(greedy.size(), 24u);
  for (const bool warm : {false, true}) {
    Worker w0("w0", Dir("w0"), coordinator);
    Worker w1("w1", Dir("w1"), coordinator);
    ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == (warm ? 4 : 2); }));
    if (!warm) {
      coordinator.BreakTransferAfter(3);
    }
    uint64_t bytes[2] = {0, 0};
    for (uint32_t stage = 0; stage < 2; ++stage) {
      coordinator.Send("w" + std::to_string(stage),
                       LoadOf(&coordinator, stage, 2, 3, &bytes[stage]));
    }
    for (uint32_t stage = 0; stage < 2; ++stage) {
      const v1::LoadProgress loaded = WaitLoaded(&coordinator, "w" + std::to_string(stage));
      ASSERT_EQ(loaded.phase(), v1::LoadProgress::PHASE_READY) << loaded.DebugString();
      EXPECT_EQ(loaded.epoch(), 3u);
      const Worker& worker = stage == 0 ? w0 : w1;
      EXPECT_EQ(worker.fetched_bytes(), warm ? 0 : bytes[stage]);
      EXPECT_EQ(loaded.fetched_bytes(), worker.fetched_bytes());
    }
    // The first stage is fenced first: the second has not heard of the epoch yet.
    Fence(&coordinator, "w0", 3);
    std::this_thread::sleep_for(milliseconds(100));
    Fence(&coordinator, "w1", 3);
    for (const char* node : {"w0", "w1"}) {
      const v1::FenceAck ack = WaitFenced(&coordinator, node);
      ASSERT_FALSE(ack.has_error()) << ack.DebugString();
      EXPECT_EQ(ack.epoch(), 3u);
    }
    auto link = OpenFirst(&coordinator, 3);
    ASSERT_TRUE(link.ok()) << link.status();
    uint64_t step = 0;
    EXPECT_EQ(Generate(&coordinator, link->get(), 3, 1, prompt, 24, &step), greedy);
    v1::CoordinatorMessage unload;
    unload.mutable_unload()->set_deployment(kDeployment);
    coordinator.Send("w1", unload);
    coordinator.Take("w1", [](const v1::WorkerMessage& m) { return m.has_unload_done(); });
    // Its neighbour reports that the link broke.
    const v1::WorkerMessage fault =
        coordinator.Take("w0", [](const v1::WorkerMessage& m) { return m.has_link_fault(); });
    EXPECT_EQ(fault.link_fault().deployment(), kDeployment);
    EXPECT_THAT(fault.link_fault().error().message(), HasSubstr("w1"));
    EXPECT_TRUE(w0.Stop().ok());
    EXPECT_TRUE(w1.Stop().ok());
  }
}

TEST_F(WorkerNodeTest, HeartbeatsCarrySequencesAndBytes) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const v1::NodeInfo info = coordinator.Node("w0");
  EXPECT_EQ(info.backend(), "cpu");
  EXPECT_EQ(info.numerics(), "cpu-2");
  EXPECT_EQ(info.memory_bytes(), uint64_t{1} << 30);
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  Fence(&coordinator, "w0", 9);
  ASSERT_FALSE(WaitFenced(&coordinator, "w0").has_error());
  auto link = OpenFirst(&coordinator, 9);
  ASSERT_TRUE(link.ok()) << link.status();
  uint64_t step = 0;
  Generate(&coordinator, link->get(), 9, 1, {1, 2, 3}, 2, &step);
  EXPECT_TRUE(Eventually([&] { return coordinator.HeartbeatOf("w0").sequences() == 1; }));
  const v1::Heartbeat heartbeat = coordinator.HeartbeatOf("w0");
  EXPECT_EQ(heartbeat.sequences(), 1u);
  EXPECT_EQ(heartbeat.term(), 5u);
  EXPECT_GT(heartbeat.cache_bytes(), 0u);
  // Beside what was fetched, what was packed of it.
  EXPECT_GT(heartbeat.cache_bytes(), heartbeat.fetched_bytes());
  EXPECT_GT(heartbeat.used_bytes(), 0u);
}

TEST_F(WorkerNodeTest, WhatCannotBeLoadedFailsTyped) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator, /*memory_bytes=*/uint64_t{64} << 20);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const auto failure = [&](const std::function<void(v1::Load*)>& change) {
    v1::CoordinatorMessage message = LoadOf(&coordinator, 0, 1, 9);
    change(message.mutable_load());
    coordinator.Send("w0", message);
    const v1::LoadProgress progress = WaitLoaded(&coordinator, "w0");
    EXPECT_EQ(progress.phase(), v1::LoadProgress::PHASE_FAILED);
    EXPECT_EQ(progress.error().node(), "w0");
    return progress.error();
  };
  EXPECT_EQ(failure([](v1::Load* load) {
              load->set_numerics_class("cpu-3/w=bf16,head=bf16,act=f32/kv=f32");
            }).reason(),
            "NUMERICS_CLASS");
  EXPECT_EQ(failure([](v1::Load* load) {
              load->set_numerics_class("cpu-2/w=f16,head=f16,act=f32/kv=f32");
            }).reason(),
            "NUMERICS_CLASS");
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_dtype(v1::KV_DTYPE_F16); }).reason(),
            "NUMERICS_CLASS");
  // Formats that are not those of the deployment's class.
  for (const v1::ErrorDetail& error :
       {failure([](v1::Load* load) { load->set_quantize(v1::QUANTIZE_INT4); }),
        failure([](v1::Load* load) { load->set_activations(v1::ACTIVATIONS_INT8); })}) {
    EXPECT_EQ(error.reason(), "NUMERICS_CLASS");
  }
  EXPECT_THAT(failure([](v1::Load* load) { load->set_kv_dtype(v1::KV_DTYPE_BF16); }).message(),
              HasSubstr("bf16"));
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_pages(0, 1'000'000); }).reason(),
            "MEMORY_LIMIT");
  EXPECT_EQ(failure([](v1::Load* load) { load->set_kv_pages(0, uint64_t{1} << 60); }).reason(),
            "BAD_LOAD");
  EXPECT_THAT(failure([](v1::Load* load) { load->mutable_tensors()->RemoveLast(); }).message(),
              HasSubstr("is missing"));
  EXPECT_THAT(failure([](v1::Load* load) { load->set_rotary_bytes(4); }).message(),
              HasSubstr("rotary"));
  EXPECT_EQ(failure([](v1::Load* load) { load->set_last_layer(1000); }).reason(), "BAD_LOAD");
  EXPECT_EQ(failure([](v1::Load* load) { load->mutable_tensors(0)->set_bytes(3); }).reason(),
            "BAD_TENSOR");
  EXPECT_EQ(failure([](v1::Load* load) {
              load->mutable_tensors(0)->set_sha256(std::string(64, 'a'));
            }).reason(),
            "NO_BLOB");
  EXPECT_NE(failure([](v1::Load* load) { load->set_config_json("{"); }).message(), "");
  // Nothing of this is in the way of a good one.
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 10));
  EXPECT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
}

// A device with memory of its own that computes as the CPU does, until it fails.
class DeviceBackend : public WatchedBackend {
 public:
  explicit DeviceBackend(const std::atomic<bool>* failed)
      : WatchedBackend(*MakeCpuBackend({.threads = 1}), [](uint64_t, uint64_t) {}),
        failed_(failed) {}
  std::string name() const override { return "cuda"; }
  absl::Status Health() const override {
    return *failed_ ? Error(absl::StatusCode::kUnavailable, kDeviceFailed, "off the bus")
                    : absl::OkStatus();
  }

 private:
  const std::atomic<bool>* const failed_;
};

TEST_F(WorkerNodeTest, AFailedDeviceIsToldAtOnceAndAgainWhenTheWorkerJoinsAnew) {
  std::atomic<bool> failed = false;
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator, uint64_t{1} << 30, nullptr,
            std::make_unique<DeviceBackend>(&failed));
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  EXPECT_FALSE(coordinator.Node("w0").has_unfit());
  failed = true;
  // No heartbeat is due for as long as the test runs.
  EXPECT_TRUE(Eventually([&] { return coordinator.HeartbeatOf("w0").has_unfit(); }));
  EXPECT_EQ(coordinator.HeartbeatOf("w0").unfit().reason(), "DEVICE_FAILED");
  EXPECT_EQ(coordinator.HeartbeatOf("w0").term(), 5u);
  coordinator.LetLapse("w0");
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
  coordinator.SetRenews(true);
  EXPECT_EQ(coordinator.Node("w0").unfit().message(), "off the bus");
}

TEST_F(WorkerNodeTest, ALoadThatTheHostHasNoMemoryForIsRefusedWithTheNumbers) {
  const std::atomic<bool> failed = false;
  FakeCoordinator coordinator;
  constexpr uint64_t kHostBytes = uint64_t{8} << 20;  // What a stage's process state takes alone.
  Worker small("small", Dir("small"), coordinator, uint64_t{1} << 30, nullptr,
               std::make_unique<DeviceBackend>(&failed), kHostBytes);
  Worker large("large", Dir("large"), coordinator, uint64_t{1} << 30, nullptr,
               std::make_unique<DeviceBackend>(&failed), 64 * kHostBytes);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 2; }));
  coordinator.Send("small", LoadOf(&coordinator, 0, 1, 3));
  const v1::LoadProgress refused = WaitLoaded(&coordinator, "small");
  EXPECT_EQ(refused.phase(), v1::LoadProgress::PHASE_FAILED);
  EXPECT_EQ(refused.error().reason(), "HOST_MEMORY_LIMIT") << refused.DebugString();
  EXPECT_THAT(refused.error().message(), HasSubstr("8.0 MiB of --host-memory are free"));
  EXPECT_EQ(refused.error().limit(), "host_memory_bytes=" + std::to_string(kHostBytes));
  EXPECT_EQ(refused.fetched_bytes(), 0u) << "before anything is fetched";
  coordinator.Send("large", LoadOf(&coordinator, 0, 1, 3));
  EXPECT_EQ(WaitLoaded(&coordinator, "large").phase(), v1::LoadProgress::PHASE_READY);
}

TEST_F(WorkerNodeTest, TellsHowFarPackingIs) {
  FakeCoordinator coordinator;
  uint64_t tensors = 0;
  std::vector<v1::LoadProgress> told;
  std::promise<void> told_enough;
  // Packing goes on once the coordinator was told of it.
  const auto watch = [&](uint64_t done, uint64_t total) {
    if (told.size() < 4 && (told.empty() || done > told.back().done_bytes())) {
      told.push_back(coordinator
                         .Take("w0",
                               [&](const v1::WorkerMessage& m) {
                                 return m.load_progress().phase() ==
                                            v1::LoadProgress::PHASE_PACKING &&
                                        m.load_progress().done_bytes() == done;
                               })
                         .load_progress());
      if (told.size() == 4) {
        told_enough.set_value();
      }
    }
  };
  Worker w0("w0", Dir("w0"), coordinator, uint64_t{1} << 30, watch);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const v1::CoordinatorMessage message = LoadOf(&coordinator, 0, 1, 9);
  for (const v1::TensorBlob& tensor : message.load().tensors()) {
    tensors += tensor.bytes();
  }
  coordinator.Send("w0", message);
  ASSERT_EQ(told_enough.get_future().wait_for(kGiveUpAfter), std::future_status::ready);
  const v1::LoadProgress ready = WaitLoaded(&coordinator, "w0");
  ASSERT_EQ(ready.phase(), v1::LoadProgress::PHASE_READY) << ready.DebugString();
  told.push_back(ready);
  uint64_t before = 0;
  for (const v1::LoadProgress& progress : told) {
    EXPECT_EQ(progress.deployment(), kDeployment);
    EXPECT_EQ(progress.epoch(), 9u);
    EXPECT_GE(progress.done_bytes(), before);
    EXPECT_EQ(progress.total_bytes(), tensors);
    EXPECT_GT(progress.fetched_bytes(), 0u);
    before = progress.done_bytes();
  }
  EXPECT_LT(told.front().done_bytes(), told[3].done_bytes());
  EXPECT_EQ(ready.done_bytes(), tensors);
}

TEST_F(WorkerNodeTest, ARefusedNumericsClassNamesWhatDiffers) {
  FakeCoordinator coordinator;
  const auto refusal = [&](const std::string& name, v1::Quantize quantize, uint32_t stages) {
    v1::CoordinatorMessage message = LoadOf(&coordinator, 0, stages, 9);
    message.mutable_load()->set_numerics_class(name);
    message.mutable_load()->set_quantize(quantize);
    const absl::Status status =
        CheckLoad(message.load(), **MakeCpuBackend({.threads = 1})).status();
    EXPECT_EQ(ReasonOf(status), status.ok() ? "" : "NUMERICS_CLASS");
    return std::string(status.message());
  };
  const std::string end = ",act=f32/kv=f32";
  const v1::Quantize none = v1::QUANTIZE_NONE;
  EXPECT_EQ(refusal("cpu-2/w=bf16,head=bf16" + end, none, 1), "");
  EXPECT_THAT(refusal("cpu-3/w=bf16,head=bf16" + end, none, 1),
              HasSubstr("this worker's backend and numerics version would be cpu-2"));
  EXPECT_THAT(refusal("cpu-2/w=f16,head=bf16" + end, none, 1), HasSubstr("weights would be bf16"));
  EXPECT_THAT(refusal("cpu-2/w=bf16,head=f16" + end, none, 1), HasSubstr("head would be bf16"));
  EXPECT_THAT(refusal("cpu-2/w=bf16" + end, none, 1), HasSubstr("head would be bf16"));
  EXPECT_THAT(refusal("cpu-2/w=bf16,head=bf16,act=int8/kv=f32", none, 1),
              HasSubstr("activations would be f32"));
  EXPECT_THAT(refusal("cpu-2/w=bf16,head=bf16,act=f32/kv=f16", none, 1),
              HasSubstr("KV dtype would be f32"));
  // The head is never below int8.
  EXPECT_EQ(refusal("cpu-2/w=int4,head=int8" + end, v1::QUANTIZE_INT4, 1), "");
  EXPECT_THAT(refusal("cpu-2/w=int4,head=int4" + end, v1::QUANTIZE_INT4, 1),
              HasSubstr("head would be int8"));
  EXPECT_THAT(refusal("cpu-2/w=int8,head=bf16" + end, v1::QUANTIZE_INT8, 1),
              HasSubstr("head would be int8"));
  // A stage without a head says nothing about its format.
  EXPECT_EQ(refusal("cpu-2/w=bf16,head=f16" + end, none, 2), "");
}

TEST_F(WorkerNodeTest, UnknownDeploymentsAndStrangersAreRefused) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  Fence(&coordinator, "w0", 4);
  EXPECT_EQ(WaitFenced(&coordinator, "w0").error().reason(), "NO_DEPLOYMENT");
  EXPECT_EQ(ReasonOf(OpenFirst(&coordinator, 4).status()), "NO_DEPLOYMENT");
  const v1::NodeInfo info = coordinator.Node("w0");
  v1::CoordinatorMessage measure;
  measure.mutable_measure_peer()->set_node("w0");
  measure.mutable_measure_peer()->set_incarnation(info.incarnation());
  measure.mutable_measure_peer()->set_address(info.address());
  coordinator.Send("w0", measure);
  const auto is_measured = [](const v1::WorkerMessage& m) { return m.has_peer_measured(); };
  v1::PeerMeasured measured = coordinator.Take("w0", is_measured).peer_measured();
  EXPECT_FALSE(measured.has_error()) << measured.DebugString();
  EXPECT_GT(measured.bytes_per_s(), 0);
  measure.mutable_measure_peer()->set_incarnation(info.incarnation() + 1);
  coordinator.Send("w0", measure);
  measured = coordinator.Take("w0", is_measured).peer_measured();
  EXPECT_EQ(measured.error().reason(), "WRONG_NODE");
  EXPECT_EQ(measured.node(), "w0");
}

TEST_F(WorkerNodeTest, ALapsedLeaseDropsEverythingAndBeginsANewLife) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const uint64_t first = coordinator.Node("w0").incarnation();
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  coordinator.LetLapse("w0");
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
  coordinator.SetRenews(true);
  EXPECT_NE(coordinator.Node("w0").incarnation(), first);
  // The stage of the life before is gone.
  Fence(&coordinator, "w0", 10);
  EXPECT_EQ(WaitFenced(&coordinator, "w0").error().reason(), "NO_DEPLOYMENT");
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 11));
  EXPECT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
}

TEST_F(WorkerNodeTest, ALapsedLeaseKeepsEverythingForACoordinatorThatStandsStill) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  coordinator.silent_ = true;
  coordinator.LetLapse("w0");
  const int before = coordinator.asked_;
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.asked_ >= before + 3; }));
  coordinator.SetRenews(true);
  coordinator.silent_ = false;
  // It comes back as the same: the stage is there, and the life goes on.
  Fence(&coordinator, "w0", 10);
  EXPECT_FALSE(WaitFenced(&coordinator, "w0").has_error());
  EXPECT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
}

TEST_F(WorkerNodeTest, ANewerCoordinatorThatAnswersEndsALapsedLease) {
  FakeCoordinator coordinator;
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  const uint64_t first = coordinator.Node("w0").incarnation();
  coordinator.Send("w0", LoadOf(&coordinator, 0, 1, 9));
  ASSERT_EQ(WaitLoaded(&coordinator, "w0").phase(), v1::LoadProgress::PHASE_READY);
  // As where the first one's machine died and told nobody: its stream stays as it is.
  coordinator.silent_ = true;
  coordinator.LetLapse("w0");
  const int before = coordinator.asked_;
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.asked_ >= before + 2; }));
  ++coordinator.incarnation_;
  coordinator.silent_ = false;
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
  EXPECT_NE(coordinator.Node("w0").incarnation(), first);
  coordinator.SetRenews(true);
  Fence(&coordinator, "w0", 10);
  EXPECT_EQ(WaitFenced(&coordinator, "w0").error().reason(), "NO_DEPLOYMENT");
}

TEST_F(WorkerNodeTest, ARestartedCoordinatorIsJoinedAgain) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const std::string address = coordinator->address();
  Worker w0("w0", Dir("w0"), *coordinator);
  ASSERT_TRUE(coordinator->Wait([&] { return coordinator->registrations_ == 1; }));
  const uint64_t first = coordinator->Node("w0").incarnation();
  coordinator = nullptr;
  coordinator = std::make_unique<FakeCoordinator>(address);
  ASSERT_TRUE(coordinator->Wait([&] { return coordinator->registrations_ == 1; }));
  EXPECT_NE(coordinator->Node("w0").incarnation(), first);
  EXPECT_TRUE(w0.Stop().ok());
}

TEST_F(WorkerNodeTest, HasJoinedFromTheAnswerToItsRegistrationToTheEndOfItsStream) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  coordinator->SetAnswers(false);
  Worker w0("w0", Dir("w0"), *coordinator);
  EXPECT_FALSE(w0.Report().joined);
  ASSERT_TRUE(coordinator->Wait([&] { return coordinator->registrations_ == 1; }));
  EXPECT_FALSE(w0.Report().joined) << "nobody has answered yet";
  coordinator->SetAnswers(true);
  EXPECT_TRUE(Eventually([&] { return w0.Report().joined; }));
  coordinator = nullptr;
  EXPECT_TRUE(Eventually([&] { return !w0.Report().joined; }));
}

TEST_F(WorkerNodeTest, ARefusalOfTheFirstRegistrationIsFinalALaterOneIsNot) {
  FakeCoordinator coordinator;
  const absl::Status taken =
      Error(absl::StatusCode::kAlreadyExists, "NAME_TAKEN", "a live node has the name w0")
          .Hint("give another name with --name");
  coordinator.SetRefusal(taken);
  {
    Worker w0("w0", Dir("w0"), coordinator);
    const absl::Status status = w0.Join();
    EXPECT_EQ(ReasonOf(status), "NAME_TAKEN");
    EXPECT_THAT(Describe(status), HasSubstr("--name"));
  }
  coordinator.SetRefusal(absl::OkStatus());
  Worker w0("w0", Dir("w0"), coordinator);
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ == 1; }));
  coordinator.SetRefusal(taken);
  coordinator.LetLapse("w0");
  // The lease lapses, and the name is refused: no reason to give up now.
  ASSERT_TRUE(coordinator.Wait([&] { return coordinator.refusals_ >= 3; }));
  coordinator.SetRenews(true);
  coordinator.SetRefusal(absl::OkStatus());
  EXPECT_TRUE(coordinator.Wait([&] { return coordinator.registrations_ >= 2; }));
}

}  // namespace
}  // namespace strata
