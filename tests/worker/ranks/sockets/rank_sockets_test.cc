#include "worker/ranks/sockets/rank_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/eventually.h"
#include "tests/worker/collective/turned_clock.h"
#include "worker/collective/channel_collective.h"
#include "worker/collective/collective.h"

namespace strata {
namespace {

constexpr RankSecret kSecret = {7, 7, 1};
constexpr milliseconds kDial(kGiveUpAfter);
constexpr milliseconds kNoPatience(0);
const char* const kHost = "127.0.0.1";

std::unique_ptr<RankListener> Listen() {
  auto listener = RankListener::Open(kHost, 0, kNoPatience);
  EXPECT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE((*listener)->port(), 0);
  return *std::move(listener);
}

RankHello Hello(uint32_t from, uint32_t to, RankConnection use = RankConnection::kGathers) {
  return {.secret = kSecret, .epoch = 5, .from = from, .to = to, .use = use};
}

std::unique_ptr<RankChannel> Dial(uint16_t port, const RankHello& hello, RankWire wire) {
  auto channel = DialRank(kHost, port, hello, wire, kDial);
  EXPECT_TRUE(channel.ok()) << channel.status();
  return *std::move(channel);
}

// Whether the other end closes it.
bool Closes(RankChannel* channel) {
  uint8_t byte = 0;
  absl::StatusOr<size_t> got = size_t{0};
  while (got.ok() && *got == 0) {
    got = channel->Receive({&byte, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return !got.ok();
}

// A follower that waits on a thread of its own.
class Waiting {
 public:
  Waiting(uint32_t own, uint32_t ranks, RankWire wire, const Clock* clock)
      : listener_(Listen()), expected_(kSecret, 5, own, ranks), wire_(wire), clock_(clock) {}
  ~Waiting() {
    stopped_ = true;
    Join().IgnoreError();
  }

  uint16_t port() const { return listener_->port(); }
  ExpectedRanks* expected() { return &expected_; }
  void Start(milliseconds timeout) {
    thread_ = std::thread([this, deadline = clock_->Now() + timeout] {
      status_ = listener_->Await(
          &expected_, wire_, *clock_, deadline, [this] { return stopped_.load(); },
          [this](const absl::Status& why) {
            EXPECT_EQ(ReasonOf(why), kRankHelloRefused) << why;
            ++refused_;
          });
    });
  }
  void Stop() { stopped_ = true; }
  absl::Status Join() {
    if (thread_.joinable()) {
      thread_.join();
    }
    return status_;
  }
  int refused() const { return refused_; }

 private:
  const std::unique_ptr<RankListener> listener_;
  ExpectedRanks expected_;
  const RankWire wire_;
  const Clock* const clock_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> refused_{0};
  absl::Status status_;
  std::thread thread_;
};

class RankSocketsTest : public ::testing::TestWithParam<RankWire> {
 protected:
  static std::unique_ptr<RankChannel> Dial(uint16_t port, const RankHello& hello) {
    return strata::Dial(port, hello, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Wires, RankSocketsTest,
                         ::testing::Values(RankWire::kPlain, RankWire::kTls), [](const auto& info) {
                           return info.param == RankWire::kTls ? "Tls" : "Plain";
                         });

TEST_P(RankSocketsTest, RanksThatConnectedMeet) {
  const SystemClock clock;
  Waiting one(1, 3, GetParam(), &clock);
  Waiting two(2, 3, GetParam(), &clock);
  one.Start(kDial);
  two.expected()->Dialled(1, Dial(one.port(), two.expected()->HelloTo(1)));
  two.Start(kDial);
  std::vector<RankChannels> channels(3);
  channels[0].gathers.push_back(nullptr);
  std::vector<std::unique_ptr<RankChannel>> calls;
  for (Waiting* follower : {&one, &two}) {
    const uint32_t rank = follower == &one ? 1 : 2;
    channels[0].gathers.push_back(Dial(follower->port(), Hello(0, rank)));
    calls.push_back(Dial(follower->port(), Hello(0, rank, RankConnection::kCalls)));
  }
  ASSERT_TRUE(one.Join().ok()) << one.Join();
  ASSERT_TRUE(two.Join().ok()) << two.Join();
  channels[1] = one.expected()->Release();
  channels[2] = two.expected()->Release();
  std::vector<absl::Status> met(3);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto collective =
          MakeChannelCollective(rank, std::move(channels[rank].gathers),
                                {.timeout = kDial, .clock = &clock, .pause = [](uint64_t) {
                                   std::this_thread::yield();
                                 }});
      met[rank] = collective->Barrier({5, 1, 1});
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const absl::Status& status : met) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(one.refused() + two.refused(), 0);
}

TEST_P(RankSocketsTest, WhoSaysAnotherHelloIsClosedAndTheOthersAreStillTaken) {
  const SystemClock clock;
  Waiting follower(1, 2, GetParam(), &clock);
  follower.Start(kDial);
  RankHello stranger = Hello(0, 1);
  stranger.secret[0] ^= 1;
  if (GetParam() == RankWire::kTls) {
    // It does not get as far as a hello.
    const auto refused = DialRank(kHost, follower.port(), stranger, GetParam(), kDial);
    EXPECT_EQ(ReasonOf(refused.status()), "RANK_UNREACHABLE") << refused.status();
    EXPECT_NE(refused.status().message().find("secret"), std::string::npos) << refused.status();
  } else {
    EXPECT_TRUE(Closes(Dial(follower.port(), stranger).get()));
  }
  const auto calls = Dial(follower.port(), Hello(0, 1, RankConnection::kCalls));
  const auto gathers = Dial(follower.port(), Hello(0, 1));
  EXPECT_TRUE(follower.Join().ok());
  EXPECT_EQ(follower.refused(), 1);
}

TEST_P(RankSocketsTest, WhoSpeaksTheOtherWayIsClosedAndTheOthersAreStillTaken) {
  const SystemClock clock;
  Waiting follower(1, 2, GetParam(), &clock);
  follower.Start(kDial);
  const bool tls = GetParam() == RankWire::kTls;
  auto other =
      DialRank(kHost, follower.port(), Hello(0, 1), tls ? RankWire::kPlain : RankWire::kTls, kDial);
  EXPECT_TRUE(!other.ok() || Closes(other->get()));
  const auto calls = Dial(follower.port(), Hello(0, 1, RankConnection::kCalls));
  const auto gathers = Dial(follower.port(), Hello(0, 1));
  EXPECT_TRUE(follower.Join().ok());
  EXPECT_EQ(follower.refused(), 1);
}

TEST_P(RankSocketsTest, WhoComesTwiceIsClosedTheSecondTime) {
  const SystemClock clock;
  Waiting follower(1, 2, GetParam(), &clock);
  follower.Start(kDial);
  const auto first = Dial(follower.port(), Hello(0, 1));
  const auto second = Dial(follower.port(), Hello(0, 1));
  const bool closes = Closes(second.get());
  EXPECT_TRUE(closes);
  EXPECT_EQ(follower.refused(), 1);
  follower.Stop();
  EXPECT_TRUE(absl::IsCancelled(follower.Join()));
}

TEST_P(RankSocketsTest, WhoDoesNotSayAllOfAHelloIsClosedOnceTheTimeHasPassed) {
  TurnedClock clock;
  Waiting follower(1, 2, GetParam(), &clock);
  follower.Start(milliseconds(3'600'000));
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(follower.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(silent, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_EQ(send(silent, "STRH", 4, MSG_NOSIGNAL), 4);
  EXPECT_TRUE(Eventually([&] {
    clock.Turn(milliseconds(300));
    return follower.refused() == 1;
  }));
  uint8_t byte = 0;
  EXPECT_LE(recv(silent, &byte, 1, 0), 0);
  close(silent);
  // Others come as before.
  const auto calls = Dial(follower.port(), Hello(0, 1, RankConnection::kCalls));
  const auto gathers = Dial(follower.port(), Hello(0, 1));
  EXPECT_TRUE(follower.Join().ok());
}

TEST_P(RankSocketsTest, WhoIsMissingIsNamedOnceTheTimeHasPassed) {
  TurnedClock clock;
  Waiting follower(1, 3, GetParam(), &clock);
  follower.Start(milliseconds(1000));
  const auto calls = Dial(follower.port(), Hello(0, 1, RankConnection::kCalls));
  std::atomic<bool> ended{false};
  absl::Status status;
  std::thread waits([&] {
    status = follower.Join();
    ended = true;
  });
  while (!ended) {
    clock.Turn(milliseconds(100));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waits.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(status), kCollectiveTimeout);
  EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status;
}

TEST_P(RankSocketsTest, AnAddressWhereNobodyListensIsNamed) {
  uint16_t port = 0;
  { port = Listen()->port(); }
  const auto channel = DialRank(kHost, port, Hello(0, 1), GetParam(), kDial);
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(channel.status()), "RANK_UNREACHABLE");
  EXPECT_NE(channel.status().message().find("127.0.0.1:" + std::to_string(port)), std::string::npos)
      << channel.status();
}

TEST(RankDialTest, WhoWaitsForARankThatSaysNothingIsStopped) {
  std::unique_ptr<RankListener> silent = Listen();
  int looks = 0;
  const auto channel = DialRank(kHost, silent->port(), Hello(0, 1), RankWire::kTls,
                                milliseconds(3'600'000), [&] { return ++looks == 3; });
  EXPECT_TRUE(absl::IsCancelled(channel.status())) << channel.status();
  EXPECT_EQ(looks, 3);
}

TEST_P(RankSocketsTest, AnAddressOfAnotherMachineIsNoneToListenAt) {
  const auto listener = RankListener::Open("192.0.2.1", 0, kNoPatience);
  EXPECT_EQ(ReasonOf(listener.status()), "RANK_LISTEN") << listener.status();
}

TEST_P(RankSocketsTest, APortWhereAnotherListensIsWaitedFor) {
  std::unique_ptr<RankListener> first = Listen();
  const uint16_t port = first->port();
  const auto refused = RankListener::Open(kHost, port, kNoPatience);
  EXPECT_EQ(ReasonOf(refused.status()), "RANK_LISTEN") << refused.status();
  absl::StatusOr<std::unique_ptr<RankListener>> second;
  std::thread waits([&] { second = RankListener::Open(kHost, port, kDial); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  first = nullptr;
  waits.join();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->port(), port);
}

}  // namespace
}  // namespace strata
