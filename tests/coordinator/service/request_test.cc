#include "coordinator/service/request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/fingerprint.h"
#include "common/limits.h"
#include "common/status.h"
#include "tests/golden.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of 100 tokens with the bundled model's tokenizer and template, or without.
std::shared_ptr<ModelRuntime> Model(bool with_text) {
  auto manifest = std::make_shared<ModelManifest>();
  manifest->spec.vocab = 1024;
  manifest->spec.hidden = 8;
  manifest->spec.eos_ids = {1009, 1012};
  manifest->bos_token = "<|begin_of_text|>";
  auto model = std::make_shared<ModelRuntime>();
  model->name = "m";
  model->tokenizer_problem = Error(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER", "none");
  model->template_problem =
      Error(absl::StatusCode::kFailedPrecondition, "NO_CHAT_TEMPLATE", "none");
  if (with_text) {
    const std::string json =
        testing::ReadFileOrFail(testing::SourcePath("models/recall/tokenizer.json"));
    auto tokenizer = ParseTokenizer(json);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    model->tokenizer = *std::move(tokenizer);
    auto chat = ParseChatTemplate("{{ bos_token }}{{ messages[0].content }}");
    EXPECT_TRUE(chat.ok()) << chat.status();
    model->chat_template = *std::move(chat);
  }
  model->defaults.set_temperature(0.5f);
  model->manifest = manifest;
  return model;
}

v1::GenerateRequest Ids(std::initializer_list<uint32_t> ids) {
  v1::GenerateRequest request;
  for (const uint32_t id : ids) request.mutable_tokens()->add_ids(id);
  return request;
}

const RequestContext kContext{77, "made-up", 0};

TEST(Request, MinTokensBarsTheModelsEndTokensUnlessTheyAreIgnored) {
  v1::GenerateRequest request = Ids({1, 2});
  EXPECT_EQ(ResolveRequest(request, *Model(false), kContext)->session.params.stop_ids_size(), 0);
  request.set_min_tokens(5);
  const auto resolved = ResolveRequest(request, *Model(false), kContext);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->session.params.min_tokens(), 5u);
  EXPECT_THAT(resolved->session.params.stop_ids(), ElementsAre(1009, 1012));
  request.set_ignore_eos(true);
  EXPECT_EQ(ResolveRequest(request, *Model(false), kContext)->session.params.stop_ids_size(), 0);
  request.set_max_tokens(5);
  EXPECT_TRUE(ResolveRequest(request, *Model(false), kContext).ok());
  request.set_max_tokens(4);
  const absl::Status refused = ResolveRequest(request, *Model(false), kContext).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused), "MIN_TOKENS");
}

TEST(Request, InputEmbeddingsAreRowsOfTheModelsHiddenSize) {
  const auto model = Model(false);
  const std::vector<float> values(model->spec().hidden, 0.5f);
  const std::string row(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  v1::GenerateRequest request = Ids({1, 2});
  v1::InputEmbedding* embedding = request.add_input_embeddings();
  embedding->set_position(1);
  embedding->set_values(row);
  const auto resolved = ResolveRequest(request, *model, kContext);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_EQ(resolved->session.embeddings.size(), 1u);
  EXPECT_EQ(resolved->session.embeddings[0].position, 1u);
  EXPECT_EQ(resolved->session.embeddings[0].values, row);
  EXPECT_EQ(resolved->session.embeddings[0].link, EmbeddingLink(row));

  const float infinite = std::numeric_limits<float>::infinity();
  std::string with_infinity = row;
  with_infinity.replace(4, 4, reinterpret_cast<const char*>(&infinite), 4);
  for (const std::string& bad : {row.substr(4), row + "abcd", std::string(), with_infinity}) {
    embedding->set_values(bad);
    const absl::Status refused = ResolveRequest(request, *model, kContext).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad.size();
    EXPECT_EQ(ReasonOf(refused), "INPUT_EMBEDDINGS");
  }
  embedding->set_values(row);
  while (request.input_embeddings_size() * row.size() <= kMaxInputEmbeddingBytes) {
    request.add_input_embeddings()->set_values(row);
  }
  const absl::Status refused = ResolveRequest(request, *model, kContext).status();
  EXPECT_EQ(ReasonOf(refused), "INPUT_EMBEDDINGS");
  EXPECT_EQ(DetailOf(refused).limit(),
            "input_embedding_bytes=" + std::to_string(kMaxInputEmbeddingBytes));
}

TEST(Request, DefaultsComeFromTheModelThenFromTheTable) {
  const auto resolved = ResolveRequest(Ids({1, 2}), *Model(false), kContext);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const v1::SamplingParams& s = resolved->session.params.sampling();
  EXPECT_EQ(s.temperature(), 0.5f);
  EXPECT_EQ(s.top_p(), 1.0f);
  EXPECT_EQ(s.seed(), 77u);
  EXPECT_EQ(resolved->session.request_id, "made-up");
  EXPECT_THAT(resolved->session.stop_ids, ElementsAre(1009, 1012));
  EXPECT_THAT(*resolved->prompt, ElementsAre(1, 2));
}

TEST(Request, WhatIsAskedBeatsTheModelsDefaults) {
  v1::GenerateRequest request = Ids({1});
  request.set_request_id("mine");
  request.mutable_sampling()->set_temperature(0.0f);
  request.mutable_sampling()->set_seed(5);
  const auto resolved = ResolveRequest(request, *Model(false), kContext);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->session.params.sampling().temperature(), 0.0f);
  EXPECT_EQ(resolved->session.params.sampling().seed(), 5u);
  EXPECT_EQ(resolved->session.request_id, "mine");
}

TEST(Request, TheTemplateAloneWritesTheBeginningOfAChat) {
  v1::GenerateRequest request;
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("Hi");
  const auto resolved = ResolveRequest(request, *Model(true), kContext);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(std::count(resolved->prompt->begin(), resolved->prompt->end(), 1008), 1);
}

// A tokenizer that is only asked what a text's bytes say.
class NeverEncodes : public Tokenizer {
 public:
  explicit NeverEncodes(std::unique_ptr<Tokenizer> real) : real_(std::move(real)) {}
  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view, bool) const override {
    ADD_FAILURE() << "a text was tokenized";
    return std::vector<uint32_t>{};
  }
  size_t max_bytes_per_id() const override { return real_->max_bytes_per_id(); }
  std::string Decode(std::span<const uint32_t>, bool) const override { return ""; }
  std::unique_ptr<Stream> NewStream(std::span<const uint32_t> context, bool skip) const override {
    return real_->NewStream(context, skip);
  }
  std::optional<uint32_t> TokenToId(std::string_view) const override { return std::nullopt; }
  uint32_t vocab_size() const override { return real_->vocab_size(); }
  std::string kind() const override { return real_->kind(); }

 private:
  const std::unique_ptr<Tokenizer> real_;
};

// A context of `tokens` and one to generate; counts how often it is asked for.
RequestContext Limited(uint64_t tokens, int* asked) {
  RequestContext context = kContext;
  context.limit = [tokens, asked]() -> absl::StatusOr<PromptLimit> {
    ++*asked;
    return PromptLimit{
        tokens, Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED", "it is too long")};
  };
  return context;
}

TEST(Request, WhatCanNeverFitByItsBytesIsRefusedBeforeItIsTokenized) {
  const auto model = Model(true);
  model->tokenizer = std::make_unique<NeverEncodes>(std::move(model->tokenizer));
  const size_t per_id = model->tokenizer->max_bytes_per_id();
  ASSERT_GT(per_id, 0u);
  v1::GenerateRequest request;
  request.set_text(std::string(4'000'000, 'x'));
  int asked = 0;
  const uint64_t most = 4'000'000 / per_id - 1;
  EXPECT_EQ(ReasonOf(ResolveRequest(request, *model, Limited(most, &asked)).status()),
            "CONTEXT_EXCEEDED");
  // What a template makes counts, as a prompt that several answers share does.
  v1::GenerateRequest chat;
  chat.mutable_chat()->add_messages()->set_content(request.text());
  EXPECT_EQ(ReasonOf(ResolveRequest(chat, *model, Limited(most, &asked)).status()),
            "CONTEXT_EXCEEDED");
  SharedPrompt shared(&request);
  EXPECT_EQ(ReasonOf(shared.Ids(*model, 0, Limited(most, &asked).limit).status()),
            "CONTEXT_EXCEEDED");
  EXPECT_EQ(asked, 3);
}

TEST(Request, OfALongTextNoMoreThanOneTokenTooManyIsLookedFor) {
  const auto model = Model(true);
  v1::GenerateRequest request;
  for (int i = 0; i < 4000; ++i) request.mutable_text()->append("word ");
  const size_t tokens = model->tokenizer->Encode(request.text(), true)->size();
  int asked = 0;
  EXPECT_EQ(ResolveRequest(request, *model, Limited(tokens, &asked))->prompt->size(), tokens);
  EXPECT_EQ(ReasonOf(ResolveRequest(request, *model, Limited(tokens - 1, &asked)).status()),
            "CONTEXT_EXCEEDED");
  EXPECT_EQ(asked, 2);
  // Short ones are the engine's to refuse, by how long they are.
  request.set_text("word word word");
  EXPECT_TRUE(ResolveRequest(request, *model, Limited(1, &asked)).ok());
  EXPECT_EQ(asked, 2);
  // Why there is no limit is why it is refused.
  request.set_text(std::string(100'000, 'x'));
  RequestContext away = kContext;
  away.limit = [] { return absl::UnavailableError("it is loading"); };
  EXPECT_EQ(ResolveRequest(request, *model, away).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Request, TextForAModelWithoutTokenizerIsRefusedWithThatReason) {
  v1::GenerateRequest request;
  request.set_text("Hi");
  EXPECT_EQ(ReasonOf(ResolveRequest(request, *Model(false), kContext).status()), "NO_TOKENIZER");
  request.mutable_chat()->add_messages()->set_content("Hi");
  EXPECT_EQ(ReasonOf(ResolveRequest(request, *Model(false), kContext).status()),
            "NO_CHAT_TEMPLATE");
}

TEST(Request, LimitsAreNamed) {
  const auto model = Model(true);
  auto reason = [&](const v1::GenerateRequest& request) {
    return ReasonOf(ResolveRequest(request, *model, kContext).status());
  };
  EXPECT_EQ(reason(v1::GenerateRequest()), "NO_PROMPT");
  v1::GenerateRequest request = Ids({1});
  request.set_request_id("a\nb");
  EXPECT_EQ(reason(request), "BAD_REQUEST_ID");
  request.set_request_id(std::string(129, 'x'));
  EXPECT_EQ(reason(request), "BAD_REQUEST_ID");
  request = Ids({1});
  request.set_logprobs(101);
  EXPECT_EQ(reason(request), "TOO_MANY_LOGPROBS");
  request = Ids({1});
  request.add_stop("");
  EXPECT_EQ(reason(request), "BAD_STOP");
  for (int i = 0; i < 17; ++i) request.add_stop("x");
  EXPECT_EQ(reason(request), "TOO_MANY_STOPS");
  request = Ids({1});
  request.mutable_sampling()->set_temperature(-1);
  EXPECT_THAT(Describe(ResolveRequest(request, *model, kContext).status()),
              HasSubstr("temperature"));
}

}  // namespace
}  // namespace strata
