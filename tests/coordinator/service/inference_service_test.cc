#include "coordinator/service/calls/inference_service.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "coordinator/service/calls/admin_service.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "strata/v1/inference.grpc.pb.h"
#include "tests/coordinator/service/coordinator_testing.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
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

  static void AddKey(grpc::ClientContext* context, const std::string& key) {
    if (!key.empty()) context->AddMetadata("authorization", "Bearer " + key);
  }

  // A client's end of Generate.
  struct Client {
    Client(v1::InferenceService::Stub* stub, const v1::GenerateRequest& request,
           milliseconds timeout = kGiveUpAfter, const std::string& key = "") {
      context.set_deadline(std::chrono::system_clock::now() + timeout);
      AddKey(&context, key);
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
                                   milliseconds timeout = kGiveUpAfter) {
    return std::make_unique<Client>(stub_.get(), request, timeout);
  }

  std::unique_ptr<Client> GenerateAs(const std::string& key, const v1::GenerateRequest& request) {
    return std::make_unique<Client>(stub_.get(), request, kGiveUpAfter, key);
  }
  // A unary call with a key; the reason of its failure, or "".
  template <typename Request, typename Response>
  std::string CallAs(const std::string& key, const Request& request, Response* response,
                     grpc::Status (v1::AdminService::Stub::*call)(grpc::ClientContext*,
                                                                  const Request&, Response*)) {
    grpc::ClientContext context;
    AddKey(&context, key);
    return ReasonOf(FromGrpc((admin_stub_.get()->*call)(&context, request, response)));
  }
  NewKey MakeKey(const KeySpec& spec) {
    return *coordinator_->keys()->Create(spec, 1, clock_.Now());
  }
  // "key/id" of the requests that a caller is shown.
  std::set<std::string> SessionsSeenBy(const std::string& key) {
    v1::ListSessionsResponse sessions;
    EXPECT_EQ(
        CallAs(key, v1::ListSessionsRequest(), &sessions, &v1::AdminService::Stub::ListSessions),
        "");
    std::set<std::string> seen;
    for (const v1::Session& session : sessions.sessions()) {
      seen.insert(session.key() + "/" + session.request_id());
    }
    return seen;
  }
  std::string CancelAs(const std::string& key, const std::string& id) {
    v1::CancelSessionRequest request;
    request.set_request_id(id);
    v1::CancelSessionResponse response;
    return CallAs(key, request, &response, &v1::AdminService::Stub::CancelSession);
  }

  // Ids of the requests in flight.
  std::vector<std::string> InFlight() {
    std::vector<std::string> ids;
    const auto sessions = coordinator_->requests()->List();
    EXPECT_TRUE(sessions.ok()) << sessions.status();
    for (const v1::Session& session : *sessions) ids.push_back(session.request_id());
    return ids;
  }
  bool RunsAlone(const std::string& id) {
    return Eventually([&] { return InFlight() == std::vector<std::string>{id}; });
  }

  // Until the server has heard, on the connection of all calls, what was said before this: it
  // answers without the event loop.
  void WaitUntilHeard() {
    const auto health = grpc::health::v1::Health::NewStub(channel_);
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, {}, &response).ok());
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
  // One that is out of time on its way does not run: then one with more.
  bool ran = false;
  for (milliseconds timeout(500); !ran; timeout *= 2) {
    ASSERT_LT(timeout, kGiveUpAfter);
    const auto end = std::chrono::steady_clock::now() + timeout;
    const auto late = Generate(Request("late"), timeout);
    while (!ran && std::chrono::steady_clock::now() < end) {
      ran = InFlight() == std::vector<std::string>{"late"};
    }
    EXPECT_EQ(late->End().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(Eventually([&] { return InFlight().empty(); }));
  }
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
    WaitUntilHeard();
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
    WaitUntilHeard();
    first->context.TryCancel();
    WaitUntilHeard();
  }
  Tick();
  EXPECT_TRUE(RunsAlone("x"));
  coordinator_->requests()->CancelById("x").IgnoreError();
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
  admin_->Shutdown();
  server_->Shutdown(std::chrono::hours(24));  // It would wait as long for one that is not woken.
}

// ---- API keys.

TEST_F(InferenceServiceTest, FromTheFirstKeyOnEveryCallOfClientsAsksForOne) {
  ServeWithWorker();
  v1::DetokenizeRequest detokenize;
  detokenize.set_model("m");
  v1::TokenizeRequest tokenize;
  tokenize.set_model("m");
  const auto reasons = [&](const std::string& key) {
    std::vector<std::string> out = {ReasonOf(GenerateAs(key, Request("\n"))->End())};
    v1::TokenizeResponse ids;
    v1::DetokenizeResponse text;
    grpc::ClientContext first;
    AddKey(&first, key);
    out.push_back(ReasonOf(FromGrpc(stub_->Tokenize(&first, tokenize, &ids))));
    grpc::ClientContext second;
    AddKey(&second, key);
    out.push_back(ReasonOf(FromGrpc(stub_->Detokenize(&second, detokenize, &text))));
    return out;
  };
  const std::vector<std::string> open = {"BAD_REQUEST_ID", "NO_TOKENIZER", "NO_TOKENIZER"};
  EXPECT_EQ(reasons(""), open);
  EXPECT_EQ(reasons("whatever"), open);

  const NewKey alice = MakeKey({.name = "alice", .limits = {}});
  EXPECT_EQ(reasons(""), std::vector<std::string>(3, "KEY_MISSING"));
  EXPECT_EQ(reasons("whatever"), std::vector<std::string>(3, "KEY_UNKNOWN"));
  EXPECT_EQ(reasons(alice.secret), open);
  EXPECT_EQ(Generate(Request("x"))->End().code(), absl::StatusCode::kUnauthenticated);

  ASSERT_TRUE(coordinator_->keys()->Revoke(alice.key.id, 2).ok());
  EXPECT_EQ(reasons(alice.secret), std::vector<std::string>(3, "KEY_REVOKED"));
}

TEST_F(InferenceServiceTest, TheSameIdOfTwoKeysIsTwoRequests) {
  ServeWithWorker();
  const NewKey a = MakeKey({.name = "alice", .limits = {}});
  const NewKey b = MakeKey({.name = "bob", .limits = {}});
  const std::string of_a = a.key.id + "/x";
  const std::string of_b = b.key.id + "/x";
  const std::set<std::string> both = {of_a, of_b};
  const auto first = GenerateAs(a.secret, Request("x"));
  const auto other = GenerateAs(b.secret, Request("x"));
  ASSERT_TRUE(Eventually([&] { return SessionsSeenBy("") == both; }));
  EXPECT_EQ(coordinator_->requests()->List(a.key.id)->at(0).key_name(), "alice");
  EXPECT_THAT(SessionsSeenBy(a.secret), ::testing::ElementsAre(of_a));
  EXPECT_THAT(SessionsSeenBy(b.secret), ::testing::ElementsAre(of_b));

  // Within a key it is one.
  const absl::Status in_flight = GenerateAs(a.secret, Request("x"))->End();
  EXPECT_EQ(ReasonOf(in_flight), "REQUEST_IN_FLIGHT");
  EXPECT_THAT(std::string(in_flight.message()), ::testing::HasSubstr("request \"x\""));
  const auto second = GenerateAs(a.secret, Request("x", /*replace=*/true));
  EXPECT_EQ(ReasonOf(first->End()), "REPLACED");
  ASSERT_TRUE(Eventually([&] { return SessionsSeenBy("") == both; }));

  // An operator says whose; a key ends its own.
  EXPECT_EQ(CancelAs("", "x"), "SESSION_AMBIGUOUS");
  EXPECT_EQ(CancelAs(b.secret, "y"), "SESSION_NOT_FOUND");
  EXPECT_EQ(CancelAs(b.secret, "x"), "");
  EXPECT_TRUE(other->End().ok());
  EXPECT_EQ(CancelAs(b.secret, "x"), "SESSION_NOT_FOUND") << "not alice's";
  EXPECT_THAT(SessionsSeenBy(""), ::testing::ElementsAre(of_a));
  const auto again = GenerateAs(b.secret, Request("x"));
  ASSERT_TRUE(Eventually([&] { return SessionsSeenBy("") == both; }));
  EXPECT_TRUE(coordinator_->requests()->CancelById("x", a.key.id).ok());
  EXPECT_TRUE(second->End().ok());
  EXPECT_THAT(SessionsSeenBy(""), ::testing::ElementsAre(of_b));
}

TEST_F(InferenceServiceTest, APlaceInFlightIsFreeWhenItsRequestIsToldTheEnd) {
  ServeWithWorker();
  const NewKey a = MakeKey({.name = "alice", .limits = {.requests_in_flight = 1}});
  const NewKey b = MakeKey({.name = "bob", .limits = {}});
  for (int i = 0; i < 5; ++i) {
    const auto client = GenerateAs(a.secret, Request("x"));
    ASSERT_TRUE(RunsAlone("x"));
    const absl::Status refused = GenerateAs(a.secret, Request("y"))->End();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(refused), "KEY_REQUESTS_IN_FLIGHT");
    EXPECT_EQ(DetailOf(refused).limit(), "requests_in_flight=1");
    EXPECT_GE(std::stoi(DetailOf(refused).facts().at("retry_after_ms")), 1000);
    {
      const auto others = GenerateAs(b.secret, Request("z"));
      EXPECT_TRUE(Eventually([&] { return InFlight().size() == 2; }));
      EXPECT_EQ(CancelAs(b.secret, "z"), "");
    }
    EXPECT_EQ(CancelAs(a.secret, "x"), "");
    EXPECT_TRUE(client->End().ok());
  }
  // Refused by the cluster, or before: neither takes a place.
  EXPECT_EQ(ReasonOf(GenerateAs(a.secret, Request("\n"))->End()), "BAD_REQUEST_ID");
  v1::GenerateRequest other = Request("y");
  AddModel("n");
  other.set_model("n");
  EXPECT_EQ(ReasonOf(GenerateAs(a.secret, other)->End()), "MODEL_NOT_LOADED");
  const auto last = GenerateAs(a.secret, Request("x"));
  EXPECT_TRUE(RunsAlone("x"));
}

TEST_F(InferenceServiceTest, WhatAKeyMayNotAskForIsRefusedBeforeItsTextIsTokenized) {
  ServeWithWorker();
  v1::GenerateRequest text = Request("text");
  text.set_text("a text, for a model that has no tokenizer");
  const auto refused = [&](const KeyLimits& limits, const v1::GenerateRequest& first) {
    const NewKey key = MakeKey({.name = "alice", .limits = limits});
    // Nothing is counted of what cannot be tokenized.
    EXPECT_EQ(ReasonOf(GenerateAs(key.secret, text)->End()), "NO_TOKENIZER");
    const auto running = GenerateAs(key.secret, first);
    EXPECT_TRUE(RunsAlone(first.request_id()));
    return ReasonOf(GenerateAs(key.secret, text)->End());
  };
  EXPECT_EQ(refused({.requests_per_minute = 1}, Request("x")), "KEY_REQUEST_RATE");
  EXPECT_EQ(refused({.requests_in_flight = 1}, Request("y")), "KEY_REQUESTS_IN_FLIGHT");
  EXPECT_EQ(refused({.tokens_per_minute = 3}, Request("z")), "KEY_TOKEN_RATE");
  text.set_priority(1);
  EXPECT_EQ(ReasonOf(GenerateAs(MakeKey({.name = "", .limits = {}}).secret, text)->End()),
            "KEY_PRIORITY");
}

TEST_F(InferenceServiceTest, RequestsOfARevokedKeyGoOnUnlessTheyAreCancelled) {
  ServeWithWorker();
  const NewKey a = MakeKey({.name = "alice", .limits = {}});
  const NewKey b = MakeKey({.name = "bob", .limits = {}});
  const auto first = GenerateAs(a.secret, Request("x"));
  const auto second = GenerateAs(a.secret, Request("y"));
  const auto other = GenerateAs(b.secret, Request("x"));
  ASSERT_TRUE(Eventually([&] { return InFlight().size() == 3; }));
  v1::RevokeKeyRequest revoke;
  revoke.set_id(a.key.id);
  v1::RevokeKeyResponse revoked;
  EXPECT_EQ(CallAs("", revoke, &revoked, &v1::AdminService::Stub::RevokeKey), "");
  EXPECT_NE(revoked.key().revoked(), 0u);
  EXPECT_EQ(ReasonOf(GenerateAs(a.secret, Request("z"))->End()), "KEY_REVOKED");
  EXPECT_THAT(InFlight(), SizeIs(3));
  revoke.set_cancel(true);
  EXPECT_EQ(CallAs("", revoke, &revoked, &v1::AdminService::Stub::RevokeKey), "");
  EXPECT_EQ(revoked.cancelled(), 2u);
  EXPECT_TRUE(first->End().ok());
  EXPECT_TRUE(second->End().ok());
  EXPECT_THAT(SessionsSeenBy(""), ::testing::ElementsAre(b.key.id + "/x"));
}

TEST_F(InferenceServiceTest, OperatorsNeedAnAdminKeyOnceThereIsOne) {
  ServeWithWorker();
  const auto reasons = [&](const std::string& key) {
    v1::GetStatusResponse status;
    v1::ListModelsResponse models;
    v1::ListKeysResponse keys;
    v1::UnloadModelRequest unload;
    unload.set_model("nobody");
    v1::UnloadModelResponse unloaded;
    using Stub = v1::AdminService::Stub;
    std::vector<std::string> out = {
        CallAs(key, v1::GetStatusRequest(), &status, &Stub::GetStatus),
        CallAs(key, v1::ListModelsRequest(), &models, &Stub::ListModels),
        CallAs(key, v1::ListKeysRequest(), &keys, &Stub::ListKeys),
        CallAs(key, unload, &unloaded, &Stub::UnloadModel)};
    // A stream, too.
    grpc::ClientContext context;
    AddKey(&context, key);
    v1::LoadModelRequest load;
    load.set_model("nobody");
    const auto reader = admin_stub_->LoadModel(&context, load);
    v1::LoadModelProgress progress;
    EXPECT_FALSE(reader->Read(&progress));
    out.push_back(ReasonOf(FromGrpc(reader->Finish())));
    return out;
  };
  const std::vector<std::string> taken = reasons("");
  EXPECT_EQ(taken[0] + taken[1] + taken[2], "");
  const NewKey alice = MakeKey({.name = "alice", .limits = {}});
  EXPECT_EQ(reasons(""), taken);
  EXPECT_EQ(reasons(alice.secret), taken);
  const NewKey admin = MakeKey({.name = "me", .admin = true, .limits = {}});
  EXPECT_EQ(reasons(admin.secret), taken);
  EXPECT_EQ(reasons(""), std::vector<std::string>(5, "KEY_MISSING"));
  EXPECT_EQ(reasons("whatever"), std::vector<std::string>(5, "KEY_UNKNOWN"));
  EXPECT_EQ(reasons(alice.secret), (std::vector<std::string>{"KEY_NOT_ADMIN", "", "KEY_NOT_ADMIN",
                                                             "KEY_NOT_ADMIN", "KEY_NOT_ADMIN"}));
}

}  // namespace
}  // namespace strata
