#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "common/status.h"
#include "sdk/cpp/strata.h"
#include "strata/v1/admin.pb.h"
#include "tests/eventually.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::sdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using strata::testing::FakeCoordinator;
using strata::testing::FakeLogit;
using strata::testing::FakeLogprob;
using strata::testing::FakeText;
using strata::testing::FakeToken;
using strata::testing::Mishap;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 5;

std::unique_ptr<Client> ConnectTo(const std::string& address, ClientOptions options = {}) {
  options.coordinator = address;
  auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << Describe(client.status());
  return *std::move(client);
}

GenerateRequest Request(uint32_t max_tokens = 20) {
  GenerateRequest request;
  request.model = "recall";
  request.prompt = std::vector<uint32_t>{1, 2, 3};
  request.max_tokens = max_tokens;
  request.sampling.seed = kSeed;
  return request;
}

std::vector<uint32_t> ExpectedIds(uint64_t seed, uint32_t count) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(FakeToken(seed, i));
  return ids;
}

std::string ExpectedText(uint64_t seed, uint32_t count) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) text += FakeText(seed, i);
  return text;
}

TEST(Sdk, AnAnswerCarriesAllThatWasAskedFor) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address(), {.api_key = "secret"});
  GenerateRequest request = Request(4);
  request.request_id = "mine";
  request.logprobs = 2;
  request.prompt_logprobs = 0;
  request.return_logits = true;
  const auto answer = client->Generate(request);
  ASSERT_TRUE(answer.ok()) << Describe(answer.status());
  EXPECT_EQ(answer->request_id, "mine");
  EXPECT_EQ(answer->token_ids, ExpectedIds(kSeed, 4));
  EXPECT_EQ(answer->text, ExpectedText(kSeed, 4));
  EXPECT_EQ(answer->finish_reason, "length");
  EXPECT_EQ(answer->seed, kSeed);
  EXPECT_EQ(answer->numerics_class, strata::testing::kFakeClass);
  EXPECT_EQ(answer->plan_epoch, 3u);
  EXPECT_EQ(answer->prompt_tokens, 3u);
  EXPECT_EQ(answer->max_tokens, 4u);
  ASSERT_EQ(answer->logprobs.size(), 4u);
  EXPECT_EQ(answer->logprobs[3].logprob, FakeLogprob(kSeed, 3));
  ASSERT_EQ(answer->logprobs[3].top.size(), 2u);
  EXPECT_EQ(answer->logprobs[3].top[1].second, -1.1f);
  EXPECT_EQ(answer->prompt_logprobs.size(), 2u);
  ASSERT_EQ(answer->logits_columns, strata::testing::kFakeVocab);
  ASSERT_EQ(answer->logits.size(), (3u + 4 - 1) * strata::testing::kFakeVocab);
  EXPECT_EQ(answer->logits.back(), FakeLogit(5, strata::testing::kFakeVocab - 1));
  EXPECT_EQ(answer->replays, 0);
  EXPECT_EQ(coordinator.last_authorization(), "Bearer secret");
}

TEST(Sdk, EveryParameterTravels) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  GenerateRequest request;
  request.model = "recall";
  request.prompt = std::vector<ChatMessage>{{"system", "be brief"}, {"user", "hello"}};
  request.sampling = {.temperature = 0.5f,
                      .top_k = 3,
                      .top_p = 0.9f,
                      .min_p = 0.1f,
                      .typical_p = 0.8f,
                      .repetition_penalty = 1.1f,
                      .frequency_penalty = 0.2f,
                      .presence_penalty = -0.3f,
                      .logit_bias = {{7, -100.0f}},
                      .seed = 9};
  request.stop = {"a", "b"};
  request.ignore_eos = true;
  request.replace = true;
  request.priority = 7;
  request.guaranteed = true;
  request.min_tokens = 3;
  request.constraint = JsonSchema{.schema = "{}", .strict = true};
  request.thought_budget_tokens = 5;
  request.input_embeddings = {{.position = 2, .values = {0.5f, -1.0f}}};
  ASSERT_TRUE(client->Generate(request).ok());
  const v1::GenerateRequest wire = coordinator.generate_requests().at(0);
  EXPECT_EQ(wire.chat().messages_size(), 2);
  EXPECT_EQ(wire.chat().messages(0).role(), "system");
  EXPECT_EQ(wire.chat().messages(1).content(), "hello");
  const v1::SamplingParams& sampling = wire.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_k(), 3u);
  EXPECT_EQ(sampling.top_p(), 0.9f);
  EXPECT_EQ(sampling.min_p(), 0.1f);
  EXPECT_EQ(sampling.typical_p(), 0.8f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.1f);
  EXPECT_EQ(sampling.frequency_penalty(), 0.2f);
  EXPECT_EQ(sampling.presence_penalty(), -0.3f);
  EXPECT_EQ(sampling.logit_bias().at(7), -100.0f);
  EXPECT_EQ(sampling.seed(), 9u);
  EXPECT_EQ(wire.stop_size(), 2);
  EXPECT_TRUE(wire.ignore_eos());
  EXPECT_TRUE(wire.replace());
  EXPECT_EQ(wire.priority(), 7);
  EXPECT_TRUE(wire.guaranteed());
  EXPECT_EQ(wire.min_tokens(), 3u);
  EXPECT_EQ(wire.constraint().json_schema(), "{}");
  EXPECT_TRUE(wire.constraint().strict());
  EXPECT_EQ(wire.chat().thought_budget_tokens(), 5u);
  ASSERT_EQ(wire.input_embeddings_size(), 1);
  EXPECT_EQ(wire.input_embeddings(0).position(), 2u);
  EXPECT_EQ(wire.input_embeddings(0).values(), std::string("\0\0\0\x3f\0\0\x80\xbf", 8));
  EXPECT_FALSE(wire.has_logprobs());
  EXPECT_FALSE(wire.request_id().empty()) << "the library names requests, to replay them";
}

TEST(Sdk, UnsetParametersStayUnset) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  GenerateRequest request;
  request.model = "recall";
  request.prompt = "hello";
  ASSERT_TRUE(client->Generate(request).ok());
  const v1::GenerateRequest wire = coordinator.generate_requests().at(0);
  EXPECT_EQ(wire.text(), "hello");
  EXPECT_EQ(wire.sampling().ByteSizeLong(), 0u);
  EXPECT_EQ(wire.max_tokens(), 0u);
}

TEST(Sdk, ALostConnectionIsResumedWithoutATrace) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  GenerateRequest request = Request(12);
  request.sampling.seed.reset();
  request.logprobs = 1;
  request.prompt_logprobs = 0;
  request.return_logits = true;
  const auto whole = client->Generate(request);
  ASSERT_TRUE(whole.ok());

  coordinator.Plan({{Mishap::kBreak, 5}, {Mishap::kBreak, 2}, {Mishap::kBreak, 9}});
  const auto resumed = client->Generate(request);
  ASSERT_TRUE(resumed.ok()) << Describe(resumed.status());
  EXPECT_EQ(resumed->replays, 3);
  EXPECT_EQ(resumed->token_ids, whole->token_ids);
  EXPECT_EQ(resumed->text, whole->text);
  EXPECT_EQ(resumed->logits, whole->logits);
  EXPECT_EQ(resumed->logprobs.size(), 12u);
  EXPECT_EQ(resumed->prompt_logprobs.size(), 2u);
  const auto requests = coordinator.generate_requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_FALSE(requests[1].replace());
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_TRUE(requests[i].replace());
    EXPECT_EQ(requests[i].request_id(), requests[1].request_id());
    EXPECT_EQ(requests[i].sampling().seed(), whole->seed) << "the seed that was reported";
    EXPECT_EQ(requests[i].max_tokens(), 12u);
  }
}

TEST(Sdk, ARestartedCoordinatorIsFoundAgain) {
  FakeCoordinator coordinator;
  coordinator.Plan({{Mishap::kHang, 5}});
  const auto client = ConnectTo(coordinator.address(), {.resume_timeout = kGiveUpAfter});
  auto stream = client->Stream(Request(30));
  ASSERT_TRUE(stream.ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(stream->Next()->has_value());
  }
  coordinator.Stop();
  coordinator.Plan({{Mishap::kNotYet, 0}, {Mishap::kNotYet, 0}});
  std::thread restart([&] {
    std::this_thread::sleep_for(milliseconds(400));
    coordinator.Start();
  });
  while (true) {
    const auto piece = stream->Next();
    ASSERT_TRUE(piece.ok()) << Describe(piece.status());
    if (!piece->has_value()) break;
  }
  restart.join();
  EXPECT_EQ(stream->result().token_ids, ExpectedIds(kSeed, 30));
  EXPECT_EQ(stream->result().text, ExpectedText(kSeed, 30));
  EXPECT_GE(stream->result().replays, 3);
}

TEST(Sdk, AReplayThatDiffersIsAnErrorNotAnAnswer) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kBreak, 5}, {Mishap::kOtherToken, 3}});
  const auto other_token = client->Generate(Request());
  EXPECT_EQ(Reason(other_token.status()), "REPLAY_DIVERGED");
  EXPECT_THAT(Describe(other_token.status()), HasSubstr("token 3"));
  coordinator.Plan({{Mishap::kBreak, 5}, {Mishap::kOtherClass, 0}});
  const auto other_class = client->Generate(Request());
  EXPECT_EQ(Reason(other_class.status()), "REPLAY_DIVERGED");
  coordinator.Plan({{Mishap::kBreak, 5}, {Mishap::kCancelled, 4}});
  EXPECT_EQ(Reason(client->Generate(Request()).status()), "REPLAY_DIVERGED") << "shorter";
}

TEST(Sdk, AnAnswerSaysWithWhichTokenAnotherNumericsClassBegan) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kNewClass, 3}});
  const auto answer = client->Generate(Request());
  ASSERT_TRUE(answer.ok()) << Describe(answer.status());
  EXPECT_EQ(answer->numerics_class, strata::testing::kFakeClass);
  ASSERT_EQ(answer->numerics_changes.size(), 1u);
  EXPECT_EQ(answer->numerics_changes[0], (NumericsChange{3, "other-1"}));
  const auto plain = client->Generate(Request());
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->numerics_changes.empty());
}

TEST(Sdk, NoReplayAfterAnAnswerOfTheCoordinator) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kNotYet, 2}});
  EXPECT_EQ(Reason(client->Generate(Request()).status()), "MODEL_NOT_READY");
  coordinator.Plan({{Mishap::kNoFinish, 2}});
  EXPECT_EQ(Reason(client->Generate(Request()).status()), "ANSWER_INCOMPLETE");
  EXPECT_EQ(coordinator.generate_requests().size(), 2u);
}

TEST(Sdk, ResumingGivesUpAfterItsTimeout) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address(), {.resume_timeout = milliseconds(600)});
  coordinator.Plan({{Mishap::kHang, 3}});
  auto stream = client->Stream(Request());
  ASSERT_TRUE(stream.ok());
  while (stream->result().token_ids.size() < 3) {
    ASSERT_TRUE(stream->Next().ok());
  }
  coordinator.Stop();
  absl::Status status;
  while (true) {
    const auto piece = stream->Next();
    status = piece.status();
    if (!piece.ok() || !piece->has_value()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << Describe(status);
  EXPECT_EQ(stream->result().token_ids, ExpectedIds(kSeed, 3)) << "what was delivered stays";
  EXPECT_FALSE(stream->Next().ok()) << "an ended stream stays ended";
}

TEST(Sdk, ZeroResumeTimeoutMeansNoReplay) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address(), {.resume_timeout = milliseconds(0)});
  coordinator.Plan({{Mishap::kBreak, 5}});
  EXPECT_EQ(Reason(client->Generate(Request()).status()), "CONNECTION_LOST");
  EXPECT_EQ(coordinator.generate_requests().size(), 1u);
}

TEST(Sdk, ErrorsKeepReasonNodeLimitAndHint) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kFail, 0}});
  const absl::Status status = client->Generate(Request()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const v1::ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason(), "KV_NEVER_FITS");
  EXPECT_EQ(detail.node(), "a");
  EXPECT_EQ(detail.limit(), "kv_tokens=8192");
  EXPECT_EQ(detail.hint(), "lower --max-tokens");
}

TEST(Sdk, CancellingEndsTheCallHereAndThere) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kHang, 2}});
  const Cancellation cancellation;
  std::thread canceller([&] {
    Eventually([&] { return !coordinator.generate_requests().empty(); });
    cancellation.Cancel();
  });
  const auto answer = client->Generate(Request(), {.cancellation = cancellation});
  canceller.join();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return coordinator.cancelled_calls() == 1; }));
  EXPECT_EQ(client->ListNodes({.cancellation = cancellation}).status().code(),
            absl::StatusCode::kCancelled)
      << "later calls with the handle end at once";
}

TEST(Sdk, AStreamThatIsDroppedCancelsTheRequest) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kHang, 2}});
  {
    auto stream = client->Stream(Request());
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(stream->Next().ok());
  }
  EXPECT_TRUE(Eventually([&] { return coordinator.cancelled_calls() == 1; }));
}

TEST(Sdk, CancellingStopsResuming) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address(), {.resume_timeout = std::chrono::hours(24)});
  coordinator.Plan({{Mishap::kHang, 2}});
  auto stream = client->Stream(Request());
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream->Next().ok());
  coordinator.Stop();
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(300));
    stream->Cancel();
  });
  absl::Status status;
  while (status.ok()) {
    status = stream->Next().status();
  }
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << Describe(status);
}

TEST(Sdk, ADeadlineHoldsForTheWholeCall) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  coordinator.Plan({{Mishap::kHang, 2}});
  const auto answer = client->Generate(Request(), {.timeout = milliseconds(200)});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually([&] {
    return coordinator.cancelled_calls() ==
           static_cast<int>(coordinator.generate_requests().size());
  }));
}

TEST(Sdk, ADeadlineHoldsWhileAnAnswerIsResumed) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address(), {.resume_timeout = std::chrono::hours(24)});
  // One that is out of time before it has begun: then one with more.
  bool begun = false;
  for (milliseconds timeout(500); !begun; timeout *= 2) {
    ASSERT_LT(timeout, kGiveUpAfter);
    coordinator.Plan({{Mishap::kHang, 2}});
    auto stream = client->Stream(Request(), {.timeout = timeout});
    absl::Status status = stream.ok() ? stream->Next().status() : stream.status();
    begun = status.ok();
    if (begun) coordinator.Stop();
    while (status.ok()) {
      status = stream->Next().status();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << Describe(status);
  }
}

TEST(Sdk, AnAbsentCoordinatorIsReportedAtOnce) {
  int port = 0;
  {
    FakeCoordinator coordinator;
    port = coordinator.port();
  }
  // However long it would wait for one that says nothing.
  const auto client =
      ConnectTo("127.0.0.1:" + std::to_string(port), {.connect_timeout = std::chrono::hours(24)});
  const absl::Status status = client->GetStatus().status();
  EXPECT_EQ(Reason(status), "COORDINATOR_UNREACHABLE");
  EXPECT_THAT(Describe(status), HasSubstr("127.0.0.1:" + std::to_string(port)));
  EXPECT_THAT(Describe(status), HasSubstr("start strata-coordinator"));
  EXPECT_EQ(Reason(client->Generate(Request()).status()), "COORDINATOR_UNREACHABLE");
}

TEST(Sdk, AListenerThatSaysNothingIsReportedAfterTheTimeout) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto client = ConnectTo("127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                                {.connect_timeout = milliseconds(500)});
  EXPECT_EQ(Reason(client->GetStatus().status()), "COORDINATOR_UNREACHABLE");
  close(listener);
}

TEST(Sdk, BadOptionsAreRefusedBeforeAnyCall) {
  EXPECT_EQ(Reason(Client::Connect({.coordinator = "nonsense"}).status()), "BAD_ADDRESS");
  EXPECT_EQ(Reason(Client::Connect({.tls_dir = "/nonexistent"}).status()), "TLS_FILE_MISSING");
}

TEST(Sdk, TokenizesBothWays) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  EXPECT_EQ(client->Tokenize("recall", "ab", true)->ids, (std::vector<uint32_t>{1000, 97, 98}));
  EXPECT_EQ(client->TokenizeChat("recall", {{"user", "x"}})->prompt, "user:x\n");
  EXPECT_EQ(*client->Detokenize("recall", {1000, 97, 98}, true), "ab");
  EXPECT_EQ(*client->Detokenize("recall", {1000, 97, 98}, false), "<1000>ab");
  EXPECT_EQ(Reason(client->Tokenize("missing", "ab", true).status()), "NO_SUCH_MODEL");
}

TEST(Sdk, LoadReportsProgressUntilReady) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  v1::LoadModelRequest request;
  request.set_model("recall");
  std::vector<bool> ready;
  ASSERT_TRUE(
      client
          ->LoadModel(request, [&](const v1::LoadModelProgress& p) { ready.push_back(p.ready()); })
          .ok());
  ASSERT_EQ(ready.size(), 6u);
  EXPECT_TRUE(ready.back());
  EXPECT_FALSE(ready.front());
}

TEST(Sdk, ClientsAreSharedByThreads) {
  FakeCoordinator coordinator;
  const auto client = ConnectTo(coordinator.address());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      for (int i = 0; i < 10; ++i) {
        GenerateRequest request = Request(10);
        request.sampling.seed = seed;
        const auto answer = client->Generate(request);
        right += answer.ok() && answer->token_ids == ExpectedIds(seed, 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace strata::sdk
