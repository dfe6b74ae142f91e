// The routes on a backend whose clock, key and tokenizer are the test's.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "coordinator/http/http_api.h"
#include "tests/coordinator/http/answers.h"
#include "tests/fuzz/fake_http_backend.h"

namespace strata {
namespace {

using std::chrono::seconds;

class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(int* encoded) : encoded_(encoded) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               bool add_special_tokens) const override {
    ++*encoded_;
    return tokenizer_->Encode(text, add_special_tokens);
  }
  absl::StatusOr<std::vector<uint32_t>> EncodeUpTo(std::string_view text, bool add_special_tokens,
                                                   size_t most) const override {
    ++*encoded_;
    return tokenizer_->EncodeUpTo(text, add_special_tokens, most);
  }
  size_t max_bytes_per_id() const override { return tokenizer_->max_bytes_per_id(); }
  std::string Decode(std::span<const uint32_t> ids, bool skip_special_tokens) const override {
    return tokenizer_->Decode(ids, skip_special_tokens);
  }
  std::unique_ptr<Stream> NewStream(std::span<const uint32_t> context,
                                    bool skip_special_tokens) const override {
    return tokenizer_->NewStream(context, skip_special_tokens);
  }
  std::optional<uint32_t> TokenToId(std::string_view token) const override {
    return tokenizer_->TokenToId(token);
  }
  uint32_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string kind() const override { return tokenizer_->kind(); }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_ = testing::MakeSmallTokenizer();
  int* const encoded_;
};

class TestBackend : public fuzz::FakeHttpBackend {
 public:
  TestBackend() {
    auto model = std::make_shared<ModelRuntime>();
    model->name = kModel;
    manifest = std::make_shared<ModelManifest>(*(*FakeHttpBackend::GetRuntime(kModel))->manifest);
    model->manifest = manifest;
    model->tokenizer = std::make_unique<CountingTokenizer>(&encoded);
    model_ = std::move(model);
  }

  TimePoint Now() const override { return now; }
  absl::StatusOr<std::shared_ptr<Caller>> Authenticate(std::string_view) override { return caller; }
  absl::StatusOr<std::shared_ptr<const ModelRuntime>> GetRuntime(const std::string&) override {
    return model_;
  }

  absl::StatusOr<PromptLimit> LongestPrompt(const std::string&) override {
    return PromptLimit{longest,
                       Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED", "too long")};
  }

  TimePoint now = seconds(1000);
  uint64_t longest = 100;  // Tokens of a prompt.
  std::shared_ptr<ModelManifest> manifest;
  std::shared_ptr<Caller> caller;
  int encoded = 0;  // Texts that became token ids.

 private:
  std::shared_ptr<const ModelRuntime> model_;
};

class KeptAnswer : public HttpResponder {
 public:
  explicit KeptAnswer(int* status) : status_(status) {}
  void Answer(HttpResponse response) override { *status_ = response.status; }
  void Begin(HttpResponse) override {}
  absl::Status Write(std::string_view) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  void End(std::string_view) override {}
  void OnGone(std::function<void()>) override {}
  void OnIdle(std::function<void()>) override {}
  void OnDrained(std::function<void()>) override {}

 private:
  int* const status_;
};

// Requests that the routes tokenize themselves, and the status of each when it is late.
struct Texts {
  const char* path;
  const char* body;
  int late;
};
constexpr Texts kTexts[] = {
    {"/v1/completions", R"({"model":"m","prompt":"abc","echo":true})", 504},
    {"/v1/completions", R"({"model":"m","prompt":"abc","add_special_tokens":false})", 504},
    {"/", R"({"inputs":"abc","parameters":{"truncate":2}})", 424},
    {"/generate", R"({"inputs":"abc","parameters":{"decoder_input_details":true}})", 424},
};

class HttpRoutes : public ::testing::Test {
 protected:
  // What a request is refused with whose turn comes after `waits`; 0: it is not.
  int Serve(const Texts& texts, HttpHeaders headers, nanoseconds waits) {
    int status = 0;
    std::function<void()> call;
    HttpApi api(&backend_, {.run = [&](std::function<void()> serve) {
      call = std::move(serve);
      return absl::OkStatus();
    }});
    backend_.encoded = 0;
    api.Serve({"POST", texts.path, "", texts.body, std::move(headers)},
              std::make_shared<KeptAnswer>(&status));
    backend_.now += waits;
    std::exchange(call, nullptr)();
    for (const auto& generation : backend_.Live()) generation->Cancel();
    backend_.EndCancelled();
    return status == 499 ? 0 : status;
  }

  TestBackend backend_;
};

TEST_F(HttpRoutes, ADeadlineThatPassedBeforeAThreadTookTheCallCostsNoTokenizing) {
  for (const Texts& texts : kTexts) {
    const HttpHeaders in_a_second = {{"X-Strata-Deadline", "1s"}};
    Serve(texts, in_a_second, milliseconds(999));
    EXPECT_GT(backend_.encoded, 0) << texts.body;
    EXPECT_EQ(Serve(texts, in_a_second, seconds(1)), texts.late) << texts.body;
    EXPECT_EQ(backend_.encoded, 0) << texts.body;
  }
}

TEST_F(HttpRoutes, ATextThatCanNeverFitIsRefusedByItsBytesOrItsFirstTokenTooMany) {
  std::string text;
  for (int i = 0; i < 6000; ++i) text += "abc";
  const std::string body = R"({"model":"m","prompt":")" + text + R"(","inputs":")" + text + "\",";
  const std::string completion = body + R"("echo":true})";
  const std::string bare = body + R"("add_special_tokens":false})";
  const std::string prefill = body + R"("parameters":{"decoder_input_details":true}})";
  const std::string cut = body + R"("parameters":{"truncate":2}})";
  const Texts texts[] = {{"/v1/completions", completion.c_str(), 400},
                         {"/v1/completions", bare.c_str(), 400},
                         {"/generate", prefill.c_str(), 422}};
  for (const Texts& one : texts) {
    backend_.longest = text.size() / 4 - 1;  // No token has more than 4 bytes.
    EXPECT_EQ(Serve(one, {}, seconds(0)), one.late);
    EXPECT_EQ(backend_.encoded, 0) << one.path;
    backend_.longest = text.size() / 4;
    EXPECT_EQ(Serve(one, {}, seconds(0)), one.late);
    EXPECT_EQ(backend_.encoded, 1) << one.path;
    backend_.longest = 6000;
    EXPECT_NE(Serve(one, {}, seconds(0)), one.late) << one.path;
  }
  // Of one that is cut, or need not be served, there may be what the model's context could hold.
  backend_.longest = 100;
  const std::string plain = body + R"("add_special_tokens":true})";
  for (const Texts& one :
       {Texts{"/generate", cut.c_str(), 422}, {"/tokenize", plain.c_str(), 422}}) {
    backend_.manifest->spec.context = static_cast<uint32_t>(text.size() / 4);
    EXPECT_NE(Serve(one, {}, seconds(0)), one.late) << one.path;
    EXPECT_GT(backend_.encoded, 0) << one.path;
    backend_.manifest->spec.context = static_cast<uint32_t>(text.size() / 4 - 1);
    EXPECT_EQ(Serve(one, {}, seconds(0)), one.late) << one.path;
    EXPECT_EQ(backend_.encoded, 0) << one.path;
  }
}

TEST_F(HttpRoutes, WhatAKeyMayNotAskForCostsNoTokenizing) {
  StoredKey key;
  key.limits.requests_per_minute = 1;
  for (const Texts& texts : kTexts) {
    backend_.caller = std::make_shared<Caller>(key, backend_.now);
    EXPECT_EQ(Serve(texts, {{"X-Strata-Priority", "1"}}, seconds(0)), 403) << texts.body;
    EXPECT_EQ(backend_.encoded, 0) << texts.body;
    Serve(texts, {}, seconds(0));
    EXPECT_GT(backend_.encoded, 0) << texts.body;
    ASSERT_TRUE(KeyUse(backend_.caller).Admit("x", false, 1, backend_.now).ok());
    EXPECT_EQ(Serve(texts, {}, seconds(0)), 429) << texts.body;
    EXPECT_EQ(backend_.encoded, 0) << texts.body;
  }
}

}  // namespace
}  // namespace strata
