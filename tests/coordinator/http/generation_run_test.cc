#include "coordinator/http/generation_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/http/http_api.h"
#include "coordinator/http/http_backend.h"
#include "tests/coordinator/http/answers.h"
#include "tests/coordinator/service/coordinator_testing.h"
#include "tests/counting_allocator.h"
#include "tests/fuzz/fake_http_backend.h"

namespace strata {
namespace {

using ::testing::Contains;
using testing::CoordinatorTest;
using ::testing::HasSubstr;
using ::testing::Pair;

// Its first answer is for the test, which says too whether its client is behind.
class TestResponder : public HttpResponder {
 public:
  void Answer(HttpResponse response) override {
    thread_ = std::this_thread::get_id();
    answer_.set_value(std::move(response));
  }
  void Begin(HttpResponse) override {}
  absl::Status Write(std::string_view) override { return absl::OkStatus(); }
  bool Behind() override { return behind; }
  void End(std::string_view) override {}
  void OnGone(std::function<void()>) override {}
  void OnIdle(std::function<void()>) override {}
  void OnDrained(std::function<void()> call) override { drained = std::move(call); }

  HttpResponse Wait() { return answer_.get_future().get(); }
  std::thread::id thread() const { return thread_; }  // That answered.

  bool behind = false;
  std::function<void()> drained;

 private:
  std::promise<HttpResponse> answer_;
  std::thread::id thread_;
};

class TestAnswer : public HttpAnswer {
 public:
  explicit TestAnswer(bool stream = false) : stream_(stream) {}
  bool stream() const override { return stream_; }
  std::string OnMessage(size_t, const v1::GenerateResponse&) override { return "piece"; }
  std::string EndOfStream() override { return ""; }
  HttpResponse Whole() override { return {}; }
  HttpResponse Refusal(const absl::Status& status) const override {
    return {400, "text/plain", ReasonOf(status), {}};
  }
  std::string StreamError(const absl::Status&) const override { return ""; }

 private:
  const bool stream_;
};

// ---- Prompts.

class CountingTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text, bool special) const override {
    ++encoded;
    return real_->Encode(text, special);
  }
  std::string Decode(std::span<const uint32_t> ids, bool skip) const override {
    return real_->Decode(ids, skip);
  }
  std::unique_ptr<Stream> NewStream(std::span<const uint32_t> ids, bool skip) const override {
    return real_->NewStream(ids, skip);
  }
  std::optional<uint32_t> TokenToId(std::string_view token) const override {
    return real_->TokenToId(token);
  }
  uint32_t vocab_size() const override { return real_->vocab_size(); }
  std::string kind() const override { return real_->kind(); }

  mutable std::atomic<int> encoded = 0;

 private:
  const std::shared_ptr<const Tokenizer> real_ = testing::MakeSmallTokenizer();
};

class SharedPrompts : public CoordinatorTest {
 protected:
  SharedPrompts() {
    Start();
    AddModel("m");
    // The golden model has none.
    const auto model = std::const_pointer_cast<ModelRuntime>(*models_->Get("m"));
    auto counting = std::make_unique<CountingTokenizer>();
    tokenizer_ = counting.get();
    model->tokenizer = std::move(counting);
    backend_ = MakeHttpBackend(coordinator_.get());
  }

  // The most memory that `count` choices of a prompt of `bytes` take while none of them was looked
  // at by the event loop; then they are refused, since the model is not loaded.
  uint64_t PeakOf(uint32_t count, size_t bytes) {
    std::promise<void> opened;
    std::promise<void> held;
    coordinator_->PostToLoop([&] {
      held.set_value();
      opened.get_future().wait();
    });
    held.get_future().wait();
    testing::ResetPeak();
    const uint64_t before = testing::LiveBytes();
    const auto responder = std::make_shared<TestResponder>();
    {
      v1::GenerateRequest request;
      request.set_model("m");
      for (size_t i = 0; i < bytes; i += 4) request.mutable_text()->append("abc ");
      std::vector<ChoiceRequest> choices;
      AddChoices(std::move(request), count, "r", 7, &choices);
      EXPECT_EQ(choices.size(), count);
      EXPECT_EQ(choices.back().request.sampling().choice(), count - 1);
      EXPECT_EQ(choices.back().request.sampling().seed(), 7u);
      RunGenerations(backend_.get(), std::move(choices), RunOptions(),
                     std::make_unique<TestAnswer>(), responder);
    }
    const uint64_t peak = testing::PeakBytes() - before;
    opened.set_value();
    EXPECT_EQ(responder->Wait().body, "MODEL_NOT_LOADED");
    OnLoop([] {});
    return peak;
  }

  CountingTokenizer* tokenizer_ = nullptr;
  std::unique_ptr<HttpBackend> backend_;
};

TEST_F(SharedPrompts, ChoicesHoldTheirPromptOnceAndItIsTokenizedOnce) {
  constexpr size_t kBytes = 15 * 1024;  // A longer text asks the loop first whether it may fit.
  PeakOf(1, 64);
  tokenizer_->encoded = 0;
  const uint64_t one = PeakOf(1, kBytes);
  EXPECT_EQ(tokenizer_->encoded, 1);
  const uint64_t many = PeakOf(128, kBytes);
  EXPECT_EQ(tokenizer_->encoded, 2);
  if (testing::CountsAllocations()) {
    EXPECT_GT(one, kBytes);
    EXPECT_LT(many, one + 64 * kBytes);
  }
}

// ---- Whole answers.

// Says when the generation that it made was run.
class AwaitedBackend : public fuzz::FakeHttpBackend {
 public:
  std::shared_ptr<HttpGeneration> NewGeneration(const GenerationOptions& options,
                                                GenerationReceiver* receiver) override {
    made_ = std::dynamic_pointer_cast<fuzz::FakeGeneration>(
        FakeHttpBackend::NewGeneration(options, receiver));
    return std::make_shared<Awaited>(this);
  }
  std::shared_ptr<fuzz::FakeGeneration> WaitForRun() {
    ran_.acquire();
    return std::move(made_);
  }

 private:
  class Awaited : public HttpGeneration {
   public:
    explicit Awaited(AwaitedBackend* backend) : backend_(backend), made_(backend->made_) {}
    void Run(const v1::GenerateRequest& request) override {
      made_->Run(request);
      backend_->ran_.release();
    }
    void Cancel() override { made_->Cancel(); }
    void ReaderChanged() override { made_->ReaderChanged(); }

   private:
    AwaitedBackend* const backend_;
    const std::shared_ptr<fuzz::FakeGeneration> made_;
  };

  std::shared_ptr<fuzz::FakeGeneration> made_;
  std::binary_semaphore ran_{0};
};

TEST(WholeAnswers, HoldTheirPartOfOneMemoryUntilTheyAreSent) {
  AwaitedBackend backend;
  const auto memory = std::make_shared<HttpMemory>(700);
  HttpApi api(&backend, {.memory = memory});
  for (const bool fits : {true, false}) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"model": "m", "prompt": "a", "logprobs": 0})";
    const auto responder = std::make_shared<TestResponder>();
    api.Serve(std::move(request), responder);
    const auto generation = backend.WaitForRun();
    generation->Say(97, "a");
    EXPECT_EQ(memory->held(), kLogprobBytes + 1);
    if (!fits) generation->Say(98, "b");
    generation->Finish("length");
    HttpResponse whole = responder->Wait();
    EXPECT_EQ(whole.status, fits ? 200 : 429);
    if (fits) {
      EXPECT_EQ(memory->held(), whole.body.size());
      whole = {};
    } else {
      EXPECT_THAT(whole.body, HasSubstr("--max-http-memory"));
      EXPECT_THAT(whole.headers, Contains(Pair("Retry-After", "1")));
    }
    EXPECT_EQ(memory->held(), 0u);
  }
}

TEST(WholeAnswers, AreMadeOnAnotherThreadThanTheOneThatSaysTheLastOfThem) {
  for (const std::string path : {"/v1/completions", "/generate"}) {
    AwaitedBackend backend;
    HttpApi api(&backend, {});
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = path == "/generate" ? R"({"inputs": "a", "parameters": {"details": true}})"
                                       : R"({"model": "m", "prompt": "a", "logprobs": 0})";
    const auto responder = std::make_shared<TestResponder>();
    api.Serve(std::move(request), responder);
    const auto generation = backend.WaitForRun();
    generation->Say(97, "a");
    generation->Say(98, "b");
    generation->Finish("length");
    const HttpResponse whole = responder->Wait();
    EXPECT_NE(responder->thread(), std::this_thread::get_id());
    EXPECT_EQ(whole.status, 200);
    EXPECT_THAT(whole.body, HasSubstr(R"("ab")"));
    EXPECT_THAT(whole.body, HasSubstr(path == "/generate" ? R"("text":"b")" : R"(["a","b"])"));
  }
}

// ---- Streams.

// A backend that gives out the generations it made.
class KeepingBackend : public fuzz::FakeHttpBackend {
 public:
  std::shared_ptr<HttpGeneration> NewGeneration(const GenerationOptions& options,
                                                GenerationReceiver* receiver) override {
    auto made = FakeHttpBackend::NewGeneration(options, receiver);
    generations.push_back(std::dynamic_pointer_cast<fuzz::FakeGeneration>(made));
    return made;
  }
  std::vector<std::shared_ptr<fuzz::FakeGeneration>> generations;
};

class PausedRun : public ::testing::Test {
 protected:
  void Begin(bool stream) {
    v1::GenerateRequest request;
    request.set_model("m");
    request.set_text("abc");
    std::vector<ChoiceRequest> choices;
    AddChoices(std::move(request), 3, "r", 7, &choices);
    RunOptions options;
    options.elsewhere = [](const std::function<void()>& task) { task(); };
    RunGenerations(&backend_, std::move(choices), std::move(options),
                   std::make_unique<TestAnswer>(stream), responder_);
    ASSERT_EQ(backend_.generations.size(), 3u);
  }
  int Paused() const {
    int paused = 0;
    for (const auto& generation : backend_.generations) paused += generation->paused() ? 1 : 0;
    return paused;
  }

  KeepingBackend backend_;
  const std::shared_ptr<TestResponder> responder_ = std::make_shared<TestResponder>();
};

TEST_F(PausedRun, EveryChoiceOfAStreamWaitsForAClientThatIsBehindUntilItIsNot) {
  Begin(true);
  backend_.generations[0]->Say(97, "a");
  EXPECT_EQ(Paused(), 0);
  responder_->behind = true;
  backend_.generations[1]->Say(97, "a");
  EXPECT_EQ(Paused(), 3);
  backend_.generations[2]->Say(97, "a");  // It was under way.
  responder_->behind = false;
  responder_->drained();
  EXPECT_EQ(Paused(), 0);
  // Behind again before it was told that it is not.
  responder_->behind = true;
  backend_.generations[0]->Say(97, "a");
  EXPECT_EQ(Paused(), 3);
  responder_->drained();
  EXPECT_EQ(Paused(), 3);
  responder_->behind = false;
  responder_->drained();
  EXPECT_EQ(Paused(), 0);
  for (const auto& generation : backend_.generations) generation->Finish("stop");
  responder_->drained();
}

TEST_F(PausedRun, AnAnswerThatIsHeldUntilItsEndWaitsForNobody) {
  Begin(false);
  responder_->behind = true;
  for (const auto& generation : backend_.generations) generation->Say(97, "a");
  EXPECT_EQ(Paused(), 0);
  EXPECT_EQ(responder_->drained, nullptr);
  for (const auto& generation : backend_.generations) generation->Finish("stop");
  responder_->Wait();
}

}  // namespace
}  // namespace strata
