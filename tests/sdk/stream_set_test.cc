// Many completions on one thread.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "common/status.h"
#include "sdk/cpp/strata.h"
#include "tests/eventually.h"
#include "tests/sdk/fake_coordinator.h"

namespace strata::sdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using strata::testing::FakeCoordinator;
using strata::testing::FakeLogprob;
using strata::testing::FakeText;
using strata::testing::FakeToken;
using strata::testing::Mishap;

GenerateRequest Request(uint64_t seed, uint32_t max_tokens = 6) {
  GenerateRequest request;
  request.model = "recall";
  request.prompt = std::vector<uint32_t>{1, 2, 3};
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

struct Ended {
  std::vector<uint32_t> token_ids;
  std::string text;
  absl::Status status;
  Generation result;
  int ends = 0;
};

class StreamSetTest : public ::testing::Test {
 protected:
  StreamSetTest() : client_(Connect()) {}
  std::unique_ptr<Client> Connect() {
    auto client = Client::Connect({.coordinator = coordinator_.address(), .api_key = "secret"});
    EXPECT_TRUE(client.ok());
    return *std::move(client);
  }
  // Until all have ended.
  std::map<uint64_t, Ended> Finish(StreamSet* set) {
    std::map<uint64_t, Ended> all;
    const auto give_up = steady_clock::now() + kGiveUpAfter;
    while (set->in_flight() > 0 && steady_clock::now() < give_up) {
      const auto event = set->Next(steady_clock::now() + milliseconds(100));
      if (!event.has_value()) continue;
      Ended& one = all[event->id];
      one.token_ids.insert(one.token_ids.end(), event->piece.token_ids.begin(),
                           event->piece.token_ids.end());
      one.text += event->piece.text;
      if (event->ended) {
        ++one.ends;
        one.status = event->status;
        one.result = event->result;
      }
    }
    EXPECT_EQ(set->in_flight(), 0u);
    return all;
  }

  FakeCoordinator coordinator_;
  std::unique_ptr<Client> client_;
};

TEST_F(StreamSetTest, EachAnswerIsItsOwn) {
  StreamSet set(*client_);
  constexpr uint64_t kCount = 40;
  for (uint64_t id = 0; id < kCount; ++id) set.Start(id, Request(/*seed=*/id + 1));
  EXPECT_EQ(set.in_flight(), kCount);
  const auto all = Finish(&set);
  ASSERT_EQ(all.size(), kCount);
  for (const auto& [id, one] : all) {
    EXPECT_TRUE(one.status.ok()) << one.status;
    EXPECT_EQ(one.ends, 1);
    std::vector<uint32_t> ids;
    std::string text;
    for (uint32_t i = 0; i < 6; ++i) {
      ids.push_back(FakeToken(id + 1, i));
      text += FakeText(id + 1, i);
    }
    EXPECT_EQ(one.token_ids, ids);
    EXPECT_EQ(one.text, text);
    EXPECT_EQ(one.result.finish_reason, "length");
    EXPECT_EQ(one.result.prompt_tokens, 3u);
    EXPECT_EQ(one.result.seed, id + 1);
    EXPECT_EQ(one.result.numerics_class, strata::testing::kFakeClass);
    EXPECT_FALSE(one.result.request_id.empty());
  }
  EXPECT_EQ(coordinator_.last_authorization(), "Bearer secret");
}

TEST_F(StreamSetTest, LogprobsAndLogitsCome) {
  StreamSet set(*client_);
  GenerateRequest request = Request(5, 2);
  request.logprobs = 1;
  request.prompt_logprobs = 0;
  request.return_logits = true;
  set.Start(1, request);
  std::vector<TokenLogprob> logprobs;
  size_t prompt_logprobs = 0;
  std::vector<float> logits;
  while (set.in_flight() > 0) {
    const auto event = set.Next(steady_clock::now() + kGiveUpAfter);
    ASSERT_TRUE(event.has_value());
    logprobs.insert(logprobs.end(), event->piece.logprobs.begin(), event->piece.logprobs.end());
    prompt_logprobs += event->piece.prompt_logprobs.size();
    logits.insert(logits.end(), event->piece.logits.begin(), event->piece.logits.end());
  }
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_EQ(logprobs[1].logprob, FakeLogprob(5, 1));
  EXPECT_EQ(prompt_logprobs, 2u);
  ASSERT_EQ(logits.size(), 4u * strata::testing::kFakeVocab);
  EXPECT_EQ(logits.back(), strata::testing::FakeLogit(3, strata::testing::kFakeVocab - 1));
}

TEST_F(StreamSetTest, AFailureIsThatOfOneRequest) {
  coordinator_.Plan({{Mishap::kFail, 0}, {Mishap::kBreak, 2}, {Mishap::kNoFinish, 2}});
  StreamSet set(*client_);
  std::map<uint64_t, Ended> all;
  for (uint64_t id = 0; id < 4; ++id) {  // In turn, so that each meets its own mishap.
    set.Start(id, Request(id + 1));
    all.merge(Finish(&set));
  }
  EXPECT_EQ(Reason(all[0].status), "KV_NEVER_FITS");
  EXPECT_EQ(Reason(all[1].status), "CONNECTION_LOST");
  EXPECT_EQ(all[1].token_ids.size(), 2u);
  EXPECT_EQ(Reason(all[2].status), "ANSWER_INCOMPLETE");
  EXPECT_TRUE(all[3].status.ok()) << all[3].status;
  EXPECT_EQ(coordinator_.generate_requests().size(), 4u) << "none is sent again";
}

TEST_F(StreamSetTest, CancellingEndsAllHereAndThere) {
  coordinator_.Plan({{Mishap::kHang, 1}, {Mishap::kHang, 1}});
  StreamSet set(*client_);
  set.Start(7, Request(1));
  set.Start(8, Request(2));
  EXPECT_TRUE(set.Next(steady_clock::now() + kGiveUpAfter).has_value());
  set.CancelAll();
  const auto all = Finish(&set);
  EXPECT_EQ(all.at(7).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(all.at(8).status.code(), absl::StatusCode::kCancelled);
}

TEST_F(StreamSetTest, ADeadlineAndACancelledHandleEndOneRequest) {
  coordinator_.Plan({{Mishap::kHang, 1}});
  StreamSet set(*client_);
  set.Start(1, Request(1), {.timeout = milliseconds(50), .cancellation = {}});
  EXPECT_EQ(Reason(Finish(&set).at(1).status), "DEADLINE_EXCEEDED");
  const Cancellation cancelled;
  cancelled.Cancel();
  set.Start(2, Request(1), {.timeout = {}, .cancellation = cancelled});
  const auto event = set.Next(steady_clock::now() + kGiveUpAfter);
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(event->ended);
  EXPECT_EQ(event->status.code(), absl::StatusCode::kCancelled);
}

TEST_F(StreamSetTest, WaitsNoLongerThanAsked) {
  StreamSet set(*client_);
  const auto begin = steady_clock::now();
  EXPECT_FALSE(set.Next(begin + milliseconds(30)).has_value());
  EXPECT_GE(steady_clock::now() - begin, milliseconds(30));
  coordinator_.Plan({{Mishap::kHang, 0}});
  set.Start(1, Request(1));
  EXPECT_FALSE(set.Next(steady_clock::now() + milliseconds(200)).has_value());
}  // And the destructor cancels what hangs.

}  // namespace
}  // namespace strata::sdk
