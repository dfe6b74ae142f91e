// The race of prefill against generation, at the interface of a real strata-worker: what
// MiniCPM-o's sessions died of. The test is the coordinator, and does what a coordinator must never
// do.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "tests/eventually.h"
#include "tests/worker/service/worker_node_fixture.h"

namespace strata {
namespace {

using testing::FakeCoordinator;

// A strata-worker, killed at the end.
class WorkerProcess {
 public:
  WorkerProcess(const std::string& coordinator, const std::string& data_dir) {
    const char* bin = std::getenv("STRATA_BIN");
    const std::string path = std::string(bin == nullptr ? "build/bin" : bin) + "/strata-worker";
    pid_ = fork();
    if (pid_ == 0) {
      const int null = open("/dev/null", O_RDWR);
      dup2(null, 0);
      dup2(null, 1);
      dup2(null, 2);
      execl(path.c_str(), path.c_str(), "--coordinator", coordinator.c_str(), "--name", "w0",
            "--data-dir", data_dir.c_str(), "--threads", "1", "--memory", "1GiB", nullptr);
      _exit(127);
    }
  }
  ~WorkerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

class RaceTest : public WorkerNodeTest {
 protected:
  static constexpr uint64_t kEpoch = 3;

  void SetUp() override {
    WorkerNodeTest::SetUp();
    worker_ = std::make_unique<WorkerProcess>(coordinator_.address(), Dir("w0"));
    ASSERT_TRUE(coordinator_.Wait([&] { return coordinator_.registrations_ == 1; }));
    coordinator_.Send("w0", LoadOf(&coordinator_, 0, 1, kEpoch));
    ASSERT_EQ(WaitLoaded(&coordinator_, "w0").phase(), v1::LoadProgress::PHASE_READY);
    Begin(kEpoch);
  }
  void TearDown() override {
    link_ = nullptr;
    worker_ = nullptr;
    WorkerNodeTest::TearDown();
  }

  void Begin(uint64_t epoch) {
    epoch_ = epoch;
    step_ = 0;
    Fence(&coordinator_, "w0", epoch);
    ASSERT_FALSE(WaitFenced(&coordinator_, "w0").has_error());
    auto link = OpenFirst(&coordinator_, epoch);
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
  }

  // The state that a correct coordinator would keep of a sequence.
  struct Known {
    std::string id;
    uint64_t generation = 0;
    std::vector<uint32_t> tokens;

    Fingerprint At(size_t length) const {
      Fingerprint fingerprint = FingerprintRoot(kDeployment, kModelDigest, kClassName, "", 0);
      for (size_t i = 0; i < length; ++i) {
        fingerprint = FingerprintLink(fingerprint, tokens[i]);
      }
      return fingerprint;
    }
  };

  StepMessage Frame() {
    StepMessage message;
    message.header.set_deployment(kDeployment);
    message.header.set_epoch(epoch_);
    message.header.set_step(++step_);
    return message;
  }

  // `ids` at `position`, with the fingerprint that `known` has there.
  static void AddItem(const Known& known, uint32_t position, std::vector<uint32_t> ids,
                      StepMessage* message) {
    v1::StepItem* item = message->header.add_items();
    *item->mutable_sequence() = testing::Name(known.id, known.generation);
    item->set_position(position);
    item->set_fingerprint(known.At(std::min<size_t>(position, known.tokens.size())));
    item->set_sample(true);
    item->mutable_token_ids()->Add(ids.begin(), ids.end());
    if (position == 0) {
      *item->mutable_params() = testing::Greedy();
      item->mutable_params()->set_prompt_length(static_cast<uint32_t>(ids.size()));
    }
    message->header.set_rows(message->header.rows() + static_cast<uint32_t>(ids.size()));
  }

  ResultMessage Run(StepMessage message) {
    const uint64_t step = message.header.step();
    EXPECT_TRUE(link_->Send(std::move(message)).ok());
    ResultMessage result = coordinator_.TakeResult();
    EXPECT_EQ(result.header.step(), step);
    return result;
  }

  // Prefills a sequence and notes it in `known`. The token that follows.
  uint32_t Prefill(Known* known) {
    StepMessage message = Frame();
    AddItem(*known, 0, known->tokens, &message);
    const ResultMessage result = Run(std::move(message));
    EXPECT_EQ(result.header.items(0).tokens_size(), 1) << result.header.DebugString();
    return result.header.items(0).tokens(0).token_id();
  }

  v1::LinkFault TakeFault() {
    return coordinator_.Take("w0", [](const v1::WorkerMessage& m) { return m.has_link_fault(); })
        .link_fault();
  }

  // Steps of `known` still give what they should: nothing that was refused left a trace.
  void ExpectUntouched(Known known, uint32_t next) {
    known.tokens.push_back(next);
    StepMessage message = Frame();
    AddItem(known, static_cast<uint32_t>(known.tokens.size() - 1), {next}, &message);
    Known fresh{.id = "fresh", .generation = known.generation + 1000, .tokens = known.tokens};
    AddItem(fresh, 0, fresh.tokens, &message);
    const ResultMessage result = Run(std::move(message));
    ASSERT_EQ(result.header.items(0).tokens_size(), 1) << result.header.DebugString();
    EXPECT_EQ(result.header.items(0).tokens(0).token_id(),
              result.header.items(1).tokens(0).token_id());
  }

  FakeCoordinator coordinator_;
  std::unique_ptr<WorkerProcess> worker_;
  std::unique_ptr<LinkSender> link_;
  uint64_t epoch_ = 0;
  uint64_t step_ = 0;
};

TEST_F(RaceTest, OfPrefillAndDecodeOfOneSequenceOneIsRefused) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  const uint32_t next = Prefill(&known);
  // A generator goes on at its end while a prefill, which has not heard of that, begins anew.
  StepMessage message = Frame();
  AddItem(known, 5, {next}, &message);
  AddItem(known, 0, {5, 6, 7}, &message);
  const ResultMessage result = Run(std::move(message));
  EXPECT_EQ(result.header.items(0).tokens_size(), 1);
  EXPECT_EQ(result.header.items(1).error().reason(), "SEQUENCE_TWICE");
  // The same in a frame of its own.
  StepMessage late = Frame();
  AddItem(known, 0, {5, 6, 7}, &late);
  const v1::ItemResult refused = Run(std::move(late)).header.items(0);
  ASSERT_EQ(refused.error().reason(), "POSITION_MISMATCH");
  EXPECT_EQ(refused.error().facts().at("position"), "0");
  EXPECT_EQ(refused.error().facts().at("length"), "6");
}

TEST_F(RaceTest, GrowthByOneTokenAndByManyIsCaught) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  const uint32_t next = Prefill(&known);
  // Somebody else has appended one token, or many: the position is no longer the one named.
  for (const uint32_t position : {4u, 1u, 6u, 40u}) {
    StepMessage message = Frame();
    AddItem(known, position, {next}, &message);
    const v1::ItemResult item = Run(std::move(message)).header.items(0);
    EXPECT_EQ(item.error().reason(), "POSITION_MISMATCH") << position;
    EXPECT_EQ(item.error().code(), static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(item.error().facts().at("length"), "5");
  }
  // The right length with other tokens before it is no better.
  Known other = known;
  other.tokens[2] = 77;
  StepMessage message = Frame();
  AddItem(other, 5, {next}, &message);
  EXPECT_EQ(Run(std::move(message)).header.items(0).error().reason(), "FINGERPRINT_MISMATCH");
  ExpectUntouched(known, next);
}

TEST_F(RaceTest, ADuplicateFrameIsDiscardedAndCounted) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  StepMessage message = Frame();
  AddItem(known, 0, known.tokens, &message);
  StepMessage again = message;
  const uint32_t next = Run(std::move(message)).header.items(0).tokens(0).token_id();
  EXPECT_TRUE(link_->Send(std::move(again)).ok());
  ExpectUntouched(known, next);  // The next result is the next step's.
  EXPECT_TRUE(coordinator_.Wait([&] { return true; }));
  EXPECT_TRUE(
      Eventually([this] { return coordinator_.HeartbeatOf("w0").frames_discarded() == 1; }));
}

TEST_F(RaceTest, AStaleItemGivesAStaleResult) {
  Known older{.id = "session", .generation = 4, .tokens = {5, 6, 7}};
  Known newer{.id = "session", .generation = 9, .tokens = {1, 2, 3, 4}};
  const uint32_t next = Prefill(&newer);
  StepMessage message = Frame();
  AddItem(older, 0, older.tokens, &message);
  EXPECT_EQ(Run(std::move(message)).header.items(0).error().reason(), "STALE_GENERATION");
  ExpectUntouched(newer, next);
}

TEST_F(RaceTest, AGapBreaksTheLinkAndIsReported) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  const uint32_t next = Prefill(&known);
  known.tokens.push_back(next);
  ++step_;
  StepMessage message = Frame();
  AddItem(known, 5, {next}, &message);
  EXPECT_TRUE(link_->Send(std::move(message)).ok());
  const v1::LinkFault fault = TakeFault();
  EXPECT_EQ(fault.epoch(), kEpoch);
  EXPECT_NE(fault.error().message(), "");
}

TEST_F(RaceTest, ReorderedFramesBreakTheLinkAndAFenceResynchronises) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  const uint32_t next = Prefill(&known);
  Known grown = known;
  grown.tokens.push_back(next);
  StepMessage first = Frame();
  AddItem(grown, 5, {next}, &first);
  StepMessage second = Frame();
  AddItem(grown, 6, {1}, &second);
  EXPECT_TRUE(link_->Send(std::move(second)).ok());
  EXPECT_EQ(TakeFault().epoch(), kEpoch);
  // The new epoch's first frame cuts to what was committed.
  Begin(kEpoch + 1);
  StepMessage resync = Frame();
  resync.header.set_resync(true);
  v1::TruncateCommand* truncate = resync.header.add_commands()->mutable_truncate();
  *truncate->mutable_sequence() = testing::Name(known.id, known.generation);
  truncate->set_length(5);
  truncate->set_fingerprint(known.At(5));
  EXPECT_FALSE(Run(std::move(resync)).header.commands(0).has_error());
  ExpectUntouched(known, next);
}

TEST_F(RaceTest, OfTwoSourcesOnlyTheOneThatLinkedLastIsHeard) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  const uint32_t next = Prefill(&known);
  // A second sender links to the same stage under the same epoch.
  auto second = OpenFirst(&coordinator_, kEpoch);
  ASSERT_TRUE(second.ok()) << second.status();
  std::unique_ptr<LinkSender> first = std::exchange(link_, *std::move(second));
  // Whatever the first one sends from now on, in or out of turn, is not computed.
  StepMessage decode = Frame();
  AddItem(known, 5, {next}, &decode);
  --step_;
  EXPECT_TRUE(Eventually([&] { return !first->Send(StepMessage(decode)).ok(); }))
      << "its link is broken";
  ExpectUntouched(known, next);
}

TEST_F(RaceTest, AFrameOfAnotherEpochIsNeverComputed) {
  Known known{.id = "session", .generation = 1, .tokens = {5, 6, 7, 8, 9}};
  Prefill(&known);
  Known other{.id = "other", .generation = 2, .tokens = {1, 2}};
  StepMessage future = Frame();
  future.header.set_epoch(kEpoch + 5);
  AddItem(other, 0, other.tokens, &future);
  EXPECT_TRUE(link_->Send(std::move(future)).ok());
  EXPECT_EQ(TakeFault().epoch(), kEpoch);
}

TEST_F(RaceTest, AMalformedItemFailsAlone) {
  Known good{.id = "good", .generation = 1, .tokens = {5, 6, 7}};
  StepMessage message = Frame();
  AddItem(good, 0, good.tokens, &message);
  AddItem({.id = "bad", .generation = 2, .tokens = {1}}, 0, {0xFFFFFFFF}, &message);
  AddItem({.id = "good too", .generation = 3, .tokens = {5, 6, 7}}, 0, {5, 6, 7}, &message);
  const ResultMessage result = Run(std::move(message));
  ASSERT_EQ(result.header.items_size(), 3);
  EXPECT_EQ(result.header.items(1).error().reason(), "TOKEN_OUT_OF_RANGE");
  ASSERT_EQ(result.header.items(0).tokens_size(), 1);
  EXPECT_EQ(result.header.items(0).tokens(0).token_id(),
            result.header.items(2).tokens(0).token_id());
}

}  // namespace
}  // namespace strata
