// A deployment, and what its workers and requests say and hear. For the tests of a Deployment.
#ifndef STRATA_TESTS_COORDINATOR_DEPLOYMENT_DEPLOYMENT_FIXTURE_H_
#define STRATA_TESTS_COORDINATOR_DEPLOYMENT_DEPLOYMENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/fake_deployment_host.h"

namespace strata {

// A deployment of four layers on nodes "a" and "b", which a test plays.
class DeploymentTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kId = 5;
  static inline const nanoseconds kLoadTimeout = DeploymentOptions().load_timeout;

  struct TestModel : DeployedModel {
    TestModel() {
      name = "m";
      model_spec.vocab = 97;
      model_spec.kv_groups = {KvGroupSpec{}};
      model_spec.layers.resize(4);
    }
    const ModelSpec& spec() const override { return model_spec; }
    const std::string& config_json() const override { return config; }
    const std::string& weights_digest() const override { return digest; }
    std::vector<v1::TensorBlob> StageTensors(uint32_t, uint32_t, bool, bool) const override {
      return {};
    }

    ModelSpec model_spec;
    std::string config = "{}";
    std::string digest = "digest";
  };

  static v1::Plan MakePlan(uint64_t pages) {
    v1::Plan plan;
    plan.mutable_numerics_class()->set_name("test-1");
    uint32_t layer = 0;
    for (const char* node : {"a", "b"}) {
      v1::PlanStage* stage =
          (plan.pipelines_size() == 0 ? plan.add_pipelines() : plan.mutable_pipelines(0))
              ->add_stages();
      stage->add_ranks()->set_node(node);
      stage->set_first_layer(layer);
      stage->set_last_layer(layer + 1);
      stage->add_kv_pages(pages);
      layer += 2;
    }
    return plan;
  }

  static v1::LoadOptions MakeOptions(uint64_t kv_tokens) {
    v1::LoadOptions options;
    options.set_context(2048);
    options.set_max_batch_tokens(64);
    options.set_kv_tokens(kv_tokens);
    return options;
  }

  // Keeps what a request is told.
  struct Sink : SessionSink {
    void OnStarted(const StartedInfo&) override { started = true; }
    void OnRows(const RowsInfo&) override {}
    Verdict OnToken(const TokenInfo&) override { return Verdict::kContinue; }
    void OnDone(const FinishInfo&) override { done = true; }
    void OnFailed(const absl::Status& status) override { failed = status; }
    void OnNumericsClass(const std::string& name) override { numerics = name; }
    bool started = false;
    std::string numerics;  // Of what follows, once it is another.
    bool done = false;
    absl::Status failed;
  };

  DeploymentTest() : DeploymentTest(MakePlan(32)) {}
  explicit DeploymentTest(const v1::Plan& plan)
      : deployment_(kId, std::make_shared<TestModel>(), plan, MakeOptions(512), {}, {}, &host_) {}

  void Record() { deployment_.OnRecorded(deployment_.Record().plan.epoch(), absl::OkStatus()); }
  void Load() {
    Record();
    deployment_.Load({{"a", 11}, {"b", 12}});
  }

  void Progress(const std::string& node, v1::LoadProgress::Phase phase, uint64_t epoch,
                uint64_t done_bytes = 0) {
    v1::LoadProgress progress;
    progress.set_done_bytes(done_bytes);
    progress.set_deployment(kId);
    progress.set_epoch(epoch);
    progress.set_phase(phase);
    if (phase == v1::LoadProgress::PHASE_FAILED) {
      *progress.mutable_error() =
          Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "no room").Detail();
    }
    deployment_.OnLoadProgress(node, progress);
  }
  void BothReady() {
    const uint64_t epoch = deployment_.plan().epoch();
    Progress("a", v1::LoadProgress::PHASE_READY, epoch);
    Progress("b", v1::LoadProgress::PHASE_READY, epoch);
  }
  void Ack(const std::string& node, uint64_t epoch) {
    v1::FenceAck ack;
    ack.set_deployment(kId);
    ack.set_epoch(epoch);
    deployment_.pipeline()->OnFenceAck(node, ack);
  }
  void BothAckAndLink() {
    const uint64_t epoch = deployment_.plan().epoch();
    Ack("a", epoch);
    Ack("b", epoch);
    host_.OpenLast();
  }
  // The result of the frame sent last, as both stages would give it.
  void Commit(uint64_t link, uint64_t pages) {
    const v1::StepFrame& frame = host_.frames.back().header;
    ResultMessage result;
    result.header.set_deployment(kId);
    result.header.set_epoch(frame.epoch());
    result.header.set_step(frame.step());
    for (uint32_t s = 0; s < 2; ++s) {
      v1::StageKv* stage = result.header.add_stages();
      stage->set_stage(s);
      stage->add_total_pages(pages);
      stage->add_free_pages(pages);
    }
    deployment_.pipeline()->OnResult(link, std::move(result));
  }
  uint64_t OpenResults(uint64_t incarnation = 12) {
    v1::LinkOpen open;
    open.set_from_node("b");
    open.set_from_incarnation(incarnation);
    open.set_epoch(deployment_.plan().epoch());
    open.set_to_stage(2);
    return deployment_.pipeline()->AcceptResults(open).value_or(0);
  }
  void MakeReady() {
    Load();
    BothReady();
    BothAckAndLink();
    host_.TakeLoads("a");
    host_.TakeLoads("b");
    host_.TakeFences("a");
    host_.TakeFences("b");
    Commit(OpenResults(), 32);
  }
  std::shared_ptr<Sink> Submit(const std::string& id, uint32_t prompt, uint32_t max_tokens) {
    auto sink = std::make_shared<Sink>();
    SessionRequest request;
    request.key = request.request_id = id;
    request.prompt.assign(prompt, 1);
    request.max_tokens = max_tokens;
    const absl::Status status = deployment_.engine()->Submit(std::move(request), sink, host_.Now());
    EXPECT_TRUE(status.ok()) << status;
    return sink;
  }

  FakeDeploymentHost host_;
  Deployment deployment_;
};

}  // namespace strata

#endif  // STRATA_TESTS_COORDINATOR_DEPLOYMENT_DEPLOYMENT_FIXTURE_H_
