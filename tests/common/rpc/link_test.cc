#include "common/rpc/link.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/link_service.h"
#include "common/rpc/peer_dial.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/shard.grpc.pb.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

// Collects what comes in; can hold the reader back.
class Collector : public LinkSink {
 public:
  absl::Status OnStep(StepMessage message) override {
    MutexLock lock(&mutex_);
    while (held_ && !released_) {
      changed_.WaitFor(&mutex_, milliseconds(5));
    }
    if (message.header.step() == refuse_step) {
      return Error(absl::StatusCode::kFailedPrecondition, "STEP_GAP", "refused by the test");
    }
    steps_.push_back(std::move(message));
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::Status OnResult(ResultMessage message) override {
    MutexLock lock(&mutex_);
    results_.push_back(std::move(message));
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    ++closed_;
    status_ = status;
    changed_.NotifyAll();
  }

  bool WaitSteps(size_t count) {
    return Wait([&] { return steps_.size() >= count; });
  }
  bool WaitResults(size_t count) {
    return Wait([&] { return results_.size() >= count; });
  }
  bool WaitClosed() {
    return Wait([&] { return closed_ > 0; });
  }
  void Hold() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    released_ = true;
    changed_.NotifyAll();
  }
  std::vector<StepMessage> steps() {
    MutexLock lock(&mutex_);
    return steps_;
  }
  std::vector<ResultMessage> results() {
    MutexLock lock(&mutex_);
    return results_;
  }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }
  int closed() {
    MutexLock lock(&mutex_);
    return closed_;
  }
  uint64_t refuse_step = 0;

 private:
  bool Wait(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kGiveUpAfter;
    MutexLock lock(&mutex_);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      changed_.WaitFor(&mutex_, milliseconds(20));
    }
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  bool held_ = false;
  bool released_ = false;
  std::vector<StepMessage> steps_;
  std::vector<ResultMessage> results_;
  int closed_ = 0;
  absl::Status status_;
};

class Handler : public LinkHandler {
 public:
  Identity identity() const override { return {"beta", 7}; }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open, const std::string&,
                                                   std::shared_ptr<InboundLink> link) override {
    if (!refuse.ok()) {
      return refuse;
    }
    if (open_waits_for.valid()) {
      open_waits_for.wait();
    }
    inbound = link;
    return sink;
  }
  std::shared_ptr<Collector> sink = std::make_shared<Collector>();
  std::shared_ptr<InboundLink> inbound;
  absl::Status refuse;
  std::shared_future<void> open_waits_for;
};

class LinkTest : public testing::Test {
 protected:
  void Serve(LinkServiceOptions options = {.open_timeout = kGiveUpAfter}) {
    transport_ = *Transport::Make({});
    service_ = std::make_unique<LinkService>(&handler_, options);
    auto server = RpcServer::Start(transport_, "127.0.0.1:0", {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void TearDown() override {
    if (service_ != nullptr) {
      service_->Shutdown();
      server_->Shutdown(milliseconds(5000));
      server_.reset();
      service_.reset();
    }
  }

  LinkOptions Options() {
    LinkOptions options;
    options.address = server_->address();
    options.open.set_from_node("alpha");
    options.open.set_from_incarnation(3);
    options.open.set_to_node("beta");
    options.open.set_to_incarnation(7);
    options.open.set_epoch(1);
    options.open_timeout = kGiveUpAfter;
    return options;
  }

  absl::StatusOr<std::unique_ptr<LinkSender>> Open(LinkOptions options) {
    return LinkSender::Open(&loop_, transport_, std::move(options),
                            [this](const absl::Status& status) {
                              broken_calls_++;
                              broken_.set_value(status);
                            });
  }

  absl::Status WaitBroken() {
    auto future = broken_.get_future();
    if (future.wait_for(kGiveUpAfter) != std::future_status::ready) {
      return absl::DeadlineExceededError("the link did not break");
    }
    return future.get();
  }

  static StepMessage Step(uint64_t step, size_t floats) {
    StepMessage message;
    message.header.set_epoch(1);
    message.header.set_step(step);
    message.payload.resize(floats);
    for (size_t i = 0; i < floats; ++i) {
      message.payload[i] = static_cast<float>(i + step);
    }
    return message;
  }

  IoLoop loop_;
  Transport transport_;
  Handler handler_;
  std::unique_ptr<LinkService> service_;
  std::unique_ptr<RpcServer> server_;
  std::promise<absl::Status> broken_;
  std::atomic<int> broken_calls_{0};
};

TEST_F(LinkTest, FramesOfAllSizesArriveWholeAndInOrder) {
  Serve();
  LinkOptions options = Options();
  options.max_queued_frames = 64;
  auto link = Open(options);
  ASSERT_TRUE(link.ok()) << link.status();
  const std::vector<size_t> sizes = {0, 1, 65535, 65536, 65537, 3'000'000, 5, 700'000};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE((*link)->Send(Step(i + 1, sizes[i])).ok());
  }
  ASSERT_TRUE(handler_.sink->WaitSteps(sizes.size()));
  const auto steps = handler_.sink->steps();
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(steps[i].header.step(), i + 1);
    EXPECT_EQ(steps[i].payload, Step(i + 1, sizes[i]).payload);
  }
  (*link)->Close();
  ASSERT_TRUE(handler_.sink->WaitClosed());
  EXPECT_EQ(broken_calls_, 0);
}

TEST_F(LinkTest, ResultsTravelOnLinksOfResults) {
  Serve({.results = true});
  auto link = Open(Options());
  ASSERT_TRUE(link.ok()) << link.status();
  ResultMessage result;
  result.header.set_epoch(1);
  result.header.set_step(9);
  result.payload = {1.5f, -2.5f};
  ASSERT_TRUE((*link)->Send(result).ok());
  ASSERT_TRUE(handler_.sink->WaitResults(1));
  EXPECT_EQ(handler_.sink->results()[0].payload, result.payload);
  EXPECT_EQ(handler_.sink->results()[0].header.step(), 9u);
}

TEST_F(LinkTest, AWrongNodeOrIncarnationIsRefusedByBothNames) {
  Serve();
  LinkOptions options = Options();
  options.open.set_to_incarnation(8);
  auto link = Open(options);
  EXPECT_EQ(ReasonOf(link.status()), "WRONG_NODE") << link.status();
  EXPECT_NE(link.status().message().find("alpha"), absl::string_view::npos);
  EXPECT_NE(link.status().message().find("incarnation 7"), absl::string_view::npos);
  options = Options();
  options.open.set_to_node("gamma");
  link = Open(options);
  EXPECT_EQ(ReasonOf(link.status()), "WRONG_NODE") << link.status();
  EXPECT_EQ(broken_calls_, 0);
}

TEST_F(LinkTest, TheReceiversRefusalComesBackTyped) {
  Serve();
  handler_.refuse = Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "unknown deployment")
                        .Hint("load it first");
  auto link = Open(Options());
  EXPECT_EQ(ReasonOf(link.status()), "NO_DEPLOYMENT");
  EXPECT_EQ(link.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(DetailOf(link.status()).hint(), "load it first");
}

TEST_F(LinkTest, NobodyThereIsSaidAfterTheTimeout) {
  Serve();
  LinkOptions options = Options();
  {
    auto other = RpcServer::Start(transport_, "127.0.0.1:0", {});
    ASSERT_TRUE(other.ok());
    options.address = (*other)->address();
  }
  options.open_timeout = milliseconds(300);
  auto link = Open(options);
  EXPECT_EQ(ReasonOf(link.status()), "LINK_NOT_OPENED") << link.status();
  EXPECT_NE(link.status().message().find("300 ms"), absl::string_view::npos) << link.status();
  EXPECT_NE(link.status().message().find(options.address), absl::string_view::npos);
}

TEST_F(LinkTest, AReceiverThatNeverAcceptsIsGivenUp) {
  Serve();
  std::promise<void> go_on;
  handler_.open_waits_for = go_on.get_future().share();
  LinkOptions options = Options();
  options.open_timeout = milliseconds(200);
  auto link = Open(options);
  go_on.set_value();
  EXPECT_EQ(ReasonOf(link.status()), "LINK_NOT_OPENED") << link.status();
  EXPECT_EQ(broken_calls_, 0);
}

TEST_F(LinkTest, AStepThatIsRefusedBreaksTheLinkWithTheReason) {
  Serve();
  handler_.sink->refuse_step = 2;
  auto link = Open(Options());
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE((*link)->Send(Step(1, 10)).ok());
  ASSERT_TRUE((*link)->Send(Step(2, 10)).ok());
  const absl::Status status = WaitBroken();
  EXPECT_EQ(ReasonOf(status), "STEP_GAP") << status;
  EXPECT_NE(status.message().find("from alpha to beta"), absl::string_view::npos);
  EXPECT_EQ((*link)->Send(Step(3, 10)), status);
  ASSERT_TRUE(handler_.sink->WaitClosed());
  EXPECT_EQ(ReasonOf(handler_.sink->status()), "STEP_GAP");
  EXPECT_EQ(handler_.sink->closed(), 1);
  EXPECT_EQ(broken_calls_, 1);
}

TEST_F(LinkTest, ASlowReceiverHoldsTheSenderBackUntilItsQueueIsFull) {
  Serve();
  handler_.sink->Hold();
  LinkOptions options = Options();
  options.max_queued_frames = 3;
  auto link = Open(options);
  ASSERT_TRUE(link.ok()) << link.status();
  // 4 MB a frame: transport windows hold a few at most.
  absl::Status status;
  int sent = 0;
  for (; sent < 60 && status.ok(); ++sent) {
    status = (*link)->Send(Step(sent + 1, 1'000'000));
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(ReasonOf(status), "LINK_QUEUE_FULL");
  EXPECT_LT(sent, 30);
  EXPECT_EQ(ReasonOf(WaitBroken()), "LINK_QUEUE_FULL");
  handler_.sink->Release();
}

TEST_F(LinkTest, TheReceiverCanEndALink) {
  Serve();
  auto link = Open(Options());
  ASSERT_TRUE(link.ok()) << link.status();
  handler_.inbound->Break(Error(absl::StatusCode::kAborted, "FENCED", "a new epoch"));
  const absl::Status status = WaitBroken();
  EXPECT_EQ(ReasonOf(status), "LINK_BROKEN") << status;
  ASSERT_TRUE(handler_.sink->WaitClosed());
  EXPECT_EQ(ReasonOf(handler_.sink->status()), "FENCED");
}

TEST_F(LinkTest, AServerThatGoesAwayBreaksAnIdleLink) {
  Serve();
  auto link = Open(Options());
  ASSERT_TRUE(link.ok()) << link.status();
  std::thread stop([this] {
    service_->Shutdown();
    server_->Shutdown(milliseconds(0));
  });
  const absl::Status status = WaitBroken();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  stop.join();
  LinkOptions options = Options();
  options.open_timeout = milliseconds(200);
  EXPECT_EQ(ReasonOf(Open(options).status()), "LINK_NOT_OPENED");
}

TEST_F(LinkTest, GarbageEndsTheLinkBeforeItReachesTheSink) {
  Serve();
  auto stub = v1::ShardService::NewStub(transport_.MakeChannel(server_->address()));
  enum Kind { kBadCrc, kNoOpen, kTwoOpens, kHugeFrame };
  for (Kind kind : {kBadCrc, kNoOpen, kTwoOpens, kHugeFrame}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
    auto stream = stub->Link(&context);
    v1::LinkPart open;
    *open.mutable_open() = Options().open;
    v1::LinkPart part;
    *part.mutable_frame() = ToParts(Step(1, 100))[0];
    if (kind == kBadCrc) {
      part.mutable_frame()->set_crc32c(part.frame().crc32c() ^ 1);
    } else if (kind == kHugeFrame) {
      part.mutable_frame()->set_total_bytes(uint64_t{1} << 50);
    } else if (kind == kTwoOpens) {
      part = open;
    }
    if (kind != kNoOpen) {
      stream->Write(open);
    }
    stream->Write(part);
    v1::LinkReply reply;
    while (stream->Read(&reply)) {
    }
    const absl::Status status = FromGrpc(stream->Finish());
    EXPECT_EQ(status.code(),
              kind == kBadCrc ? absl::StatusCode::kDataLoss : absl::StatusCode::kInvalidArgument)
        << kind << " " << status;
  }
  EXPECT_TRUE(handler_.sink->steps().empty());
}

TEST_F(LinkTest, OneLinkTooManyIsRefusedUntilAnotherHasEnded) {
  Serve({.max_links = 1, .open_timeout = kGiveUpAfter});
  auto stub = v1::ShardService::NewStub(transport_.MakeChannel(server_->address()));
  grpc::ClientContext context;
  auto stream = stub->Link(&context);
  EXPECT_TRUE(Eventually([this] { return service_->links() == 1; }));
  EXPECT_EQ(ReasonOf(Open(Options()).status()), "TOO_MANY_LINKS");
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([this] { return service_->links() == 0; }));
  EXPECT_TRUE(Open(Options()).ok());
}

TEST_F(LinkTest, AStreamThatNeverOpensIsToldTheLimitAndMakesRoom) {
  Serve({.open_timeout = milliseconds(200)});
  auto stub = v1::ShardService::NewStub(transport_.MakeChannel(server_->address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kGiveUpAfter);
  auto stream = stub->Link(&context);
  v1::LinkReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  const absl::Status status = FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(ReasonOf(status), "LINK_NOT_OPENED");
  EXPECT_EQ(DetailOf(status).limit(), "open_timeout_ms=200");
  EXPECT_TRUE(Eventually([this] { return service_->links() == 0; }));
}

TEST_F(LinkTest, ClosingInTheMiddleOfFramesNeverHangsAndLeaksNoLink) {
  Serve();
  for (int round = 0; round < 40; ++round) {
    LinkOptions options = Options();
    options.max_queued_frames = 100;
    auto link = LinkSender::Open(&loop_, transport_, options, [](const absl::Status&) {});
    ASSERT_TRUE(link.ok()) << link.status();
    std::thread sender([&] {
      for (int i = 0; i < 20; ++i) {
        if (!(*link)->Send(Step(i + 1, 50'000)).ok()) {
          return;
        }
      }
    });
    std::thread breaker([&] {
      if (round % 3 == 0) {
        handler_.inbound->Break(absl::AbortedError("round"));
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 10)));
    (*link)->Close();
    sender.join();
    breaker.join();
    (*link)->Close();
  }
  EXPECT_TRUE(Eventually([this] { return service_->links() == 0; }));
}

TEST_F(LinkTest, ManyLinksUnderLoadKeepTheirOwnOrder) {
  Serve();
  constexpr int kLinks = 6;
  constexpr int kSteps = 150;
  std::vector<std::unique_ptr<LinkSender>> links;
  for (int i = 0; i < kLinks; ++i) {
    LinkOptions options = Options();
    options.open.set_epoch(i + 1);
    options.max_queued_frames = kSteps;
    auto link = LinkSender::Open(&loop_, transport_, options, [](const absl::Status&) {});
    ASSERT_TRUE(link.ok()) << link.status();
    links.push_back(*std::move(link));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kLinks; ++i) {
    threads.emplace_back([&, i] {
      for (int s = 1; s <= kSteps; ++s) {
        StepMessage message = Step(s, 20'000);
        message.header.set_epoch(i + 1);
        EXPECT_TRUE(links[i]->Send(std::move(message)).ok());
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(handler_.sink->WaitSteps(kLinks * kSteps));
  std::vector<uint64_t> last(kLinks + 1, 0);
  for (const StepMessage& message : handler_.sink->steps()) {
    EXPECT_EQ(message.header.step(), last[message.header.epoch()] + 1);
    last[message.header.epoch()] = message.header.step();
  }
}

TEST_F(LinkTest, MeasuringGivesLatencyAndRateAndChecksWhoAnswers) {
  Serve();
  auto speed = MeasureLink(transport_, server_->address(), "beta", 7, kGiveUpAfter);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(speed->latency_ms, 0.0);
  EXPECT_LT(speed->latency_ms, 1e3 * kGiveUpAfter.count());
  EXPECT_GT(speed->bytes_per_s, 0.0);
  EXPECT_EQ(ReasonOf(MeasureLink(transport_, server_->address(), "beta", 8, kGiveUpAfter).status()),
            "WRONG_NODE");
  const absl::Status nobody =
      MeasureLink(transport_, "127.0.0.1:1", "beta", 7, milliseconds(300)).status();
  EXPECT_EQ(ReasonOf(nobody), "PEER_UNREACHABLE");
  EXPECT_NE(Describe(nobody).find("--advertise"), std::string::npos);
}

TEST_F(LinkTest, DialingAPeerSaysWhoAnswersAndHowTheWayIs) {
  Serve();
  const PeerToDial beta = {.node = "beta", .incarnation = 7, .address = server_->address()};
  const v1::LinkFacts facts = DialPeer(transport_, "alpha", beta, kGiveUpAfter);
  EXPECT_FALSE(facts.has_error()) << facts.error().message();
  EXPECT_EQ(facts.from(), "alpha");
  EXPECT_EQ(facts.to(), "beta");
  EXPECT_GT(facts.round_trip_ms(), 0.0);
  EXPECT_GT(facts.bytes_per_s(), 0.0);
  EXPECT_EQ(facts.segments_again(), 0u);
  const PeerToDial other = {.node = "gamma", .incarnation = 0, .address = server_->address()};
  EXPECT_EQ(DialPeer(transport_, "alpha", other, kGiveUpAfter).error().reason(), "WRONG_NODE");
  // The coordinator has no name.
  const PeerToDial unnamed = {.node = "", .incarnation = 0, .address = server_->address()};
  EXPECT_EQ(DialPeer(transport_, "alpha", unnamed, kGiveUpAfter).error().reason(), "WRONG_NODE");
  const PeerToDial nobody = {.node = "beta", .incarnation = 7, .address = "127.0.0.1:1"};
  EXPECT_EQ(DialPeer(transport_, "alpha", nobody, kGiveUpAfter).error().reason(),
            "CONNECTION_REFUSED");
}

}  // namespace
}  // namespace strata
