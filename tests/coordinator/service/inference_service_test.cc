#include "coordinator/service/inference_service.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "coordinator/service/admin_service.h"
#include "strata/v1/inference.grpc.pb.h"
#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoordinatorTest;
using testing::Eventually;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TestWorker;

// The coordinator's services for clients, with a worker that never answers a step: what is
// generated stays in flight until somebody ends it.
class InferenceServiceTest : public CoordinatorTest {
 protected:
  ~InferenceServiceTest() override {
    if (server_ != nullptr) {
      coordinator_->Shutdown(nanoseconds(0));
      admin_->Shutdown();
      server_->Shutdown(milliseconds(1000));
      server_.reset();
    }
  }

  void Serve(AdminOptions admin_options = {}) {
    Start();
    AddModel("m");
    inference_ = std::make_unique<InferenceServiceImpl>(coordinator_.get(), InferenceOptions());
    admin_ = std::make_unique<AdminServiceImpl>(coordinator_.get(), std::move(admin_options));
    server_ = *RpcServer::Start(transport_, "127.0.0.1:0", {inference_.get(), admin_.get()});
    channel_ = transport_.MakeChannel(server_->address());
    stub_ = v1::InferenceService::NewStub(channel_);
    admin_stub_ = v1::AdminService::NewStub(channel_);
  }
  void ServeWithWorker(AdminOptions admin_options = {}) {
    Serve(std::move(admin_options));
    worker_ = std::make_unique<TestWorker>(coordinator_.get(), "a", 1);
    ASSERT_TRUE(worker_->Join().ok());
    LoadOn(worker_.get(), "m");
  }

  static v1::GenerateRequest Request(const std::string& id, bool replace = false) {
    v1::GenerateRequest request;
    request.set_model("m");
    request.set_request_id(id);
    for (uint32_t token : {1, 2, 3}) request.mutable_tokens()->add_ids(token);
    request.set_replace(replace);
    return request;
  }

  // A client's end of Generate.
  struct Client {
    Client(v1::InferenceService::Stub* stub, const v1::GenerateRequest& request,
           seconds timeout = seconds(60)) {
      context.set_deadline(std::chrono::system_clock::now() + timeout);
      reader = stub->Generate(&context, request);
    }
    ~Client() {
      context.TryCancel();
      if (!ended) (void)End();
    }
    absl::Status End() {
      ended = true;
      v1::GenerateResponse response;
      while (reader->Read(&response)) {
      }
      return FromGrpc(reader->Finish());
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
    bool ended = false;
  };
  std::unique_ptr<Client> Generate(const v1::GenerateRequest& request,
                                   seconds timeout = seconds(60)) {
    return std::make_unique<Client>(stub_.get(), request, timeout);
  }

  // Ids of the requests in flight.
  std::vector<std::string> InFlight() {
    std::vector<std::string> ids;
    const auto sessions = coordinator_->ListSessions();
    EXPECT_TRUE(sessions.ok()) << sessions.status();
    for (const v1::Session& session : *sessions) ids.push_back(session.request_id());
    return ids;
  }
  bool RunsAlone(const std::string& id) {
    return Eventually([&] { return InFlight() == std::vector<std::string>{id}; });
  }

  // Keeps the event loop busy until the result is destroyed.
  std::shared_ptr<void> HoldLoop() {
    auto gate = std::make_shared<std::promise<void>>();
    std::promise<void> held;
    coordinator_->PostToLoop([&held, opened = gate->get_future().share()] {
      held.set_value();
      opened.wait();
    });
    held.get_future().wait();
    return {gate.get(), [gate](void*) { gate->set_value(); }};
  }

  std::unique_ptr<InferenceServiceImpl> inference_;
  std::unique_ptr<AdminServiceImpl> admin_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  std::unique_ptr<v1::AdminService::Stub> admin_stub_;
  std::unique_ptr<TestWorker> worker_;
};

TEST_F(InferenceServiceTest, WhatCannotBeServedIsRefusedWithTheReason) {
  Serve();
  v1::GenerateRequest request = Request("x");
  const absl::Status not_loaded = Generate(request)->End();
  EXPECT_EQ(ReasonOf(not_loaded), "MODEL_NOT_LOADED") << not_loaded;
  request.set_model("nobody");
  EXPECT_EQ(ReasonOf(Generate(request)->End()), "MODEL_NOT_FOUND");
  request.set_model("m");
  request.set_request_id("\n");
  EXPECT_EQ(ReasonOf(Generate(request)->End()), "BAD_REQUEST_ID");
  request.clear_prompt();
  request.clear_request_id();
  EXPECT_EQ(ReasonOf(Generate(request)->End()), "NO_PROMPT");
  coordinator_->Shutdown(nanoseconds(0));
  EXPECT_EQ(ReasonOf(Generate(Request("x"))->End()), "STOPPING");
}

TEST_F(InferenceServiceTest, AClientThatGoesAndADeadlineEndTheRequest) {
  ServeWithWorker();
  const auto goes = Generate(Request("goes"));
  ASSERT_TRUE(RunsAlone("goes"));
  goes->context.TryCancel();
  EXPECT_TRUE(Eventually([&] { return InFlight().empty(); }));
  const auto late = Generate(Request("late"), seconds(1));
  EXPECT_TRUE(RunsAlone("late"));
  EXPECT_EQ(late->End().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually([&] { return InFlight().empty(); }));
}

TEST_F(InferenceServiceTest, ACallThatIsCancelledOnItsWayToTheEngineNeverRuns) {
  ServeWithWorker();
  {
    const auto held = HoldLoop();
    for (int i = 0; i < 20; ++i) {
      const auto client = Generate(Request("x"));
      // Somewhere between being accepted and being posted.
      std::this_thread::sleep_for(milliseconds(i));
      client->context.TryCancel();
      EXPECT_EQ(client->End().code(), absl::StatusCode::kCancelled);
    }
    std::this_thread::sleep_for(milliseconds(1000));  // The server hears of them.
  }
  Tick();
  EXPECT_THAT(InFlight(), IsEmpty());
  const auto next = Generate(Request("x"));
  EXPECT_TRUE(RunsAlone("x"));
}

TEST_F(InferenceServiceTest, ALateCancelDoesNotEndTheNextRequestOfTheSameId) {
  ServeWithWorker();
  const auto first = Generate(Request("x"));
  ASSERT_TRUE(RunsAlone("x"));
  std::unique_ptr<Client> second;
  {
    const auto held = HoldLoop();
    second = Generate(Request("x", /*replace=*/true));
    std::this_thread::sleep_for(milliseconds(100));
    first->context.TryCancel();
    std::this_thread::sleep_for(milliseconds(100));
  }
  Tick();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(RunsAlone("x"));
  coordinator_->CancelSession("x").IgnoreError();
  EXPECT_TRUE(second->End().ok());  // "cancelled" is how it finished, not an error.
}

TEST_F(InferenceServiceTest, ARequestThatIsReplacedIsToldSo) {
  ServeWithWorker();
  const auto first = Generate(Request("x"));
  ASSERT_TRUE(RunsAlone("x"));
  EXPECT_EQ(ReasonOf(Generate(Request("x"))->End()), "REQUEST_IN_FLIGHT");
  const auto second = Generate(Request("x", /*replace=*/true));
  const absl::Status replaced = first->End();
  EXPECT_EQ(ReasonOf(replaced), "REPLACED");
  EXPECT_EQ(DetailOf(replaced).request_id(), "x");
  EXPECT_TRUE(RunsAlone("x"));
}

TEST_F(InferenceServiceTest, RequestsInFlightEndWithTheCoordinator) {
  ServeWithWorker();
  const auto client = Generate(Request("x"));
  ASSERT_TRUE(RunsAlone("x"));
  coordinator_->Shutdown(nanoseconds(0));
  EXPECT_EQ(ReasonOf(client->End()), "STOPPING");
}

TEST_F(InferenceServiceTest, TextIsTokenizedAndBackAgain) {
  Serve();
  ASSERT_TRUE(models_
                  ->Add(testing::SourcePath("models/recall"), "r", "path",
                        [](uint64_t, uint64_t) { return true; })
                  .ok());
  const std::string text = "What is the capital of France?";
  v1::TokenizeRequest request;
  request.set_model("r");
  request.set_text(text);
  v1::TokenizeResponse tokens;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &tokens).ok());
    EXPECT_GT(tokens.ids_size(), 1);
  }
  v1::DetokenizeRequest back;
  back.set_model("r");
  *back.mutable_ids() = tokens.ids();
  v1::DetokenizeResponse answer;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Detokenize(&context, back, &answer).ok());
    EXPECT_EQ(answer.text(), text);
  }
  back.set_model("m");
  grpc::ClientContext context;
  EXPECT_EQ(ReasonOf(FromGrpc(stub_->Detokenize(&context, back, &answer))), "NO_TOKENIZER");
}

TEST_F(InferenceServiceTest, AdminCallsThatTakeLongHoldUpNeitherRequestsNorOtherCalls) {
  AdminOptions options;
  options.max_long_calls = 2;
  ServeWithWorker(options);
  AddModel("n");
  // Loads on a worker that does not say that it is done.
  v1::LoadModelRequest load;
  load.set_model("n");
  load.mutable_options()->set_context(256);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::LoadModelProgress>>> loads;
  v1::LoadModelProgress progress;
  const auto begin = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    loads.push_back(admin_stub_->LoadModel(contexts.back().get(), load));
    return loads.back()->Read(&progress);
  };
  ASSERT_TRUE(begin());
  ASSERT_TRUE(begin());
  EXPECT_FALSE(begin());
  const absl::Status refused = FromGrpc(loads.back()->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(refused).limit(), "long_calls=2");

  const auto client = Generate(Request("x"));
  EXPECT_TRUE(RunsAlone("x"));
  grpc::ClientContext context;
  v1::GetStatusResponse status;
  EXPECT_TRUE(admin_stub_->GetStatus(&context, {}, &status).ok());
  EXPECT_THAT(status.sessions(), SizeIs(1));

  // Who goes away makes room; the server's end wakes the rest.
  contexts[0]->TryCancel();
  EXPECT_TRUE(Eventually(begin));
  coordinator_->Shutdown(nanoseconds(0));
  const auto start = std::chrono::steady_clock::now();
  admin_->Shutdown();
  server_->Shutdown(seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

}  // namespace
}  // namespace strata
