// What the HTTP API runs on in a fuzz target: one model with a small tokenizer, and generations
// that say what the target has them say. One thread.
#ifndef STRATA_TESTS_FUZZ_FAKE_HTTP_BACKEND_H_
#define STRATA_TESTS_FUZZ_FAKE_HTTP_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/http/http_backend.h"
#include "coordinator/service/request/request.h"

namespace strata::fuzz {

// One choice of a request. It holds its receiver to what a coordinator promises: nothing is said
// before Run, after the end, or from within Cancel.
class FakeGeneration : public HttpGeneration {
 public:
  FakeGeneration(std::shared_ptr<const ModelRuntime> model, GenerationReceiver* receiver,
                 const GenerationOptions& options)
      : model_(std::move(model)),
        receiver_(receiver),
        default_max_tokens_(options.default_max_tokens),
        prompt_(options.prompt) {}

  void Run(const v1::GenerateRequest& request) override;
  void Cancel() override { cancelled_ = true; }
  void ReaderChanged() override { paused_ = live() && receiver_->Behind(); }

  bool live() const { return run_ && !ended_; }
  bool cancelled() const { return cancelled_; }
  bool paused() const { return paused_; }

  // Each only while it lives. What is said before the first token begins the answer.
  void Start();
  void Say(uint32_t id, std::string_view text);  // Ends it with "length" after the last token.
  void Finish(const std::string& reason);
  void Fail(const absl::Status& status);

 private:
  const std::shared_ptr<const ModelRuntime> model_;
  GenerationReceiver* const receiver_;
  const uint32_t default_max_tokens_;
  const std::shared_ptr<SharedPrompt> prompt_;
  SessionRequest session_;
  uint32_t max_tokens_ = 0;
  uint32_t tokens_ = 0;
  bool run_ = false;
  bool started_ = false;
  bool ended_ = false;
  bool cancelled_ = false;
  bool paused_ = false;
};

class FakeHttpBackend : public HttpBackend {
 public:
  static constexpr char kModel[] = "m";

  FakeHttpBackend();

  TimePoint Now() const override { return std::chrono::hours(1); }
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view) override {
    return nullptr;  // No key was made.
  }
  bool Healthy() const override { return true; }
  std::string DrawRequestId() override { return "drawn-" + std::to_string(++drawn_); }
  uint64_t DrawSeed() override { return 7; }
  absl::StatusOr<std::vector<v1::Model>> ListModels() override;
  absl::StatusOr<v1::Model> GetModel(const std::string& name) override;
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> GetRuntime(const std::string& name) override;
  absl::StatusOr<std::string> MetricsText() override { return std::string("# none\n"); }
  std::shared_ptr<HttpGeneration> NewGeneration(const GenerationOptions& options,
                                                GenerationReceiver* receiver) override;

  // Those that run, the oldest first.
  std::vector<std::shared_ptr<FakeGeneration>> Live();
  // Ends those that were cancelled, as the loop of a coordinator does soon after.
  void EndCancelled();
  // Whether nobody holds any of them any more.
  bool Forgotten() { return Live().empty() && generations_.empty(); }

 private:
  std::shared_ptr<const ModelRuntime> model_;
  std::vector<std::shared_ptr<FakeGeneration>> generations_;
  uint64_t drawn_ = 0;
};

}  // namespace strata::fuzz

#endif  // STRATA_TESTS_FUZZ_FAKE_HTTP_BACKEND_H_
