#include "tests/fuzz/fake_http_backend.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "tests/coordinator/http/answers.h"

namespace strata::fuzz {
namespace {

constexpr uint32_t kLongestAnswer = 200;
const RequestContext kContext{77, "made-up", 1'700'000'000};

std::shared_ptr<const ModelRuntime> MakeModel() {
  auto manifest = std::make_shared<ModelManifest>();
  manifest->spec.vocab = 259;
  manifest->spec.eos_ids = {3};
  auto model = std::make_shared<ModelRuntime>();
  model->name = FakeHttpBackend::kModel;
  model->manifest = std::move(manifest);
  auto tokenizer = ParseTokenizer(testing::SmallTokenizer().dump());
  auto chat = ParseChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}");
  STRATA_CHECK(tokenizer.ok() && chat.ok());
  model->tokenizer = *std::move(tokenizer);
  model->chat_template = *std::move(chat);
  return model;
}

}  // namespace

void FakeGeneration::Run(const v1::GenerateRequest& request) {
  STRATA_CHECK(!run_);
  run_ = true;
  if (cancelled_) {
    Fail(absl::CancelledError());
    return;
  }
  RequestContext context = kContext;
  context.default_max_tokens = default_max_tokens_;
  context.prompt = prompt_.get();
  auto resolved = ResolveRequest(request, *model_, context);
  if (!resolved.ok()) {
    Fail(resolved.status());
    return;
  }
  session_ = std::move(resolved->session);
  session_.prompt = *resolved->prompt;
  const uint32_t wanted =
      session_.max_tokens > 0 ? session_.max_tokens : session_.default_max_tokens;
  max_tokens_ = std::min(wanted, kLongestAnswer);
}

void FakeGeneration::Start() {
  if (!live() || std::exchange(started_, true)) {
    return;
  }
  const auto prompt = static_cast<uint32_t>(session_.prompt.size());
  v1::GenerateResponse message = testing::StartedMessage(prompt, max_tokens_);
  message.set_request_id(session_.request_id);
  receiver_->OnMessage(std::move(message));
  if (session_.prompt_logprobs && live()) {
    v1::GenerateResponse logprobs;
    for (size_t i = 1; i < session_.prompt.size(); ++i) {
      *logprobs.add_prompt_logprobs() = testing::Logprob(session_.prompt[i], -1.0f);
    }
    receiver_->OnMessage(std::move(logprobs));
  }
}

void FakeGeneration::Say(uint32_t id, std::string_view text) {
  Start();
  if (!live()) {
    return;
  }
  ++tokens_;
  v1::GenerateResponse message = testing::TokenMessage(id, std::string(text));
  if (session_.params.logprobs()) *message.add_logprobs() = testing::Logprob(id, -0.5f);
  receiver_->OnMessage(std::move(message));
  if (tokens_ >= max_tokens_) Finish("length");
}

void FakeGeneration::Finish(const std::string& reason) {
  Start();
  if (!live()) {
    return;
  }
  receiver_->OnMessage(
      testing::FinishMessage(reason, static_cast<uint32_t>(session_.prompt.size()), tokens_));
  Fail(absl::OkStatus());
}

void FakeGeneration::Fail(const absl::Status& status) {
  if (live()) {
    ended_ = true;
    receiver_->OnEnd(status);
  }
}

FakeHttpBackend::FakeHttpBackend() {
  static const std::shared_ptr<const ModelRuntime> model = MakeModel();
  model_ = model;
}

absl::StatusOr<std::vector<v1::Model>> FakeHttpBackend::ListModels() {
  v1::Model model;
  model.set_name(kModel);
  model.mutable_options()->set_context(1024);
  model.mutable_plan()->add_pipelines()->set_kv_tokens(4096);
  model.set_state("ready");
  return std::vector<v1::Model>{model};
}

absl::StatusOr<v1::Model> FakeHttpBackend::GetModel(const std::string& name) {
  RETURN_IF_ERROR(GetRuntime(name).status());
  return ListModels()->front();
}

absl::StatusOr<std::shared_ptr<const ModelRuntime>> FakeHttpBackend::GetRuntime(
    const std::string& name) {
  if (name != kModel) {
    return Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                 "there is no model '" + name + "'");
  }
  return model_;
}

std::shared_ptr<HttpGeneration> FakeHttpBackend::NewGeneration(const GenerationOptions& options,
                                                               GenerationReceiver* receiver) {
  auto generation = std::make_shared<FakeGeneration>(model_, receiver, options);
  generations_.push_back(generation);
  return generation;
}

std::vector<std::shared_ptr<FakeGeneration>> FakeHttpBackend::Live() {
  std::erase_if(generations_, [](const auto& generation) {
    return !generation->live() && generation.use_count() == 1;
  });
  std::vector<std::shared_ptr<FakeGeneration>> live;
  for (const auto& generation : generations_) {
    if (generation->live()) live.push_back(generation);
  }
  return live;
}

void FakeHttpBackend::EndCancelled() {
  for (const auto& generation : Live()) {
    if (generation->cancelled()) generation->Fail(absl::CancelledError());
  }
}

}  // namespace strata::fuzz
