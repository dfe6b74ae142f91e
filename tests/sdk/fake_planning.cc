// What the fake coordinator plans and predicts.
#include <functional>
#include <memory>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/planning.grpc.pb.h"
#include "tests/sdk/fake_services.h"

namespace strata::testing {
namespace {

class FakePlanning : public IoService {
 public:
  explicit FakePlanning(FakeState* state) : state_(*state) {}

  grpc::Service* NewService() override {
    service_ = std::make_unique<Async>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&Async::RequestPlanMachines, std::bind_front(&FakePlanning::PlanMachines, this));
  }

 private:
  using Async = v1::PlanningService::AsyncService;

  grpc::Status PlanMachines(CallContext*, const v1::PlanMachinesRequest* request,
                            v1::PlanMachinesResponse* response) {
    if (request->model() == "missing") {
      return NoSuchModel(request->model());
    }
    if (request->machines().empty() && !state_.predicts) {
      return ToGrpc(
          Error(absl::StatusCode::kInvalidArgument, "BAD_MACHINES", "there are no machines"));
    }
    *response->mutable_plan() = state_.plan;
    response->mutable_plan()->set_epoch(0);
    response->mutable_plan()->set_goal(request->options().goal());
    for (const bool most : {false, true}) {
      v1::PredictedDrafts* drafts = response->add_drafts();
      drafts->set_right(most ? 0.85 : 0.5);
      drafts->set_tokens_per_s(most ? 135.75 : 67.9);
      drafts->set_times(most ? 3 : 1.5);
      drafts->set_drafts(most ? 7 : 1);
      drafts->set_steps(most ? 2 : 1);
    }
    return grpc::Status::OK;
  }

  FakeState& state_;
  std::unique_ptr<Async> service_;
  CallThreads threads_{{.threads = 2}};
};

}  // namespace

std::unique_ptr<IoService> MakeFakePlanning(FakeState* state) {
  return std::make_unique<FakePlanning>(state);
}

}  // namespace strata::testing
