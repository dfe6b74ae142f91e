#include "coordinator/service/running/draft_models.h"

#include <memory>
#include <utility>

#include "coordinator/deployment/serving.h"

namespace strata {
namespace {

// The params of a guess: drawn like the session's own token, and nothing told besides.
v1::SequenceParams ParamsOf(const v1::SequenceParams& session) {
  v1::SequenceParams params;
  *params.mutable_sampling() = session.sampling();
  return params;
}

}  // namespace

// Hears a guess, and hands it on.
class DraftModels::Sink final : public SessionSink {
 public:
  Sink(DraftModels* models, uint64_t deployment, std::string key, uint32_t known)
      : models_(models), deployment_(deployment), key_(std::move(key)), known_(known) {}

  void OnStarted(const StartedInfo& /*info*/) override {}
  void OnRows(const RowsInfo& /*rows*/) override {}
  Verdict OnToken(const TokenInfo& token) override {
    tokens_.push_back(token.token.token_id());
    return Verdict::kContinue;
  }
  void OnDone(const FinishInfo& /*info*/) override {
    models_->Answer(deployment_, key_, known_, std::move(tokens_));
  }
  void OnFailed(const absl::Status& /*status*/) override {
    models_->Answer(deployment_, key_, known_, {});
  }

 private:
  DraftModels* const models_;
  const uint64_t deployment_;
  const std::string key_;
  const uint32_t known_;
  std::vector<uint32_t> tokens_;
};

Engine* DraftModels::GuesserOf(const Deployment& deployment) const {
  const Serving serving = ServingOf(*deployments_, deployment.DraftModel());
  return serving.engine == nullptr || serving.engine->down() ? nullptr : serving.engine;
}

bool DraftModels::Ask(uint64_t deployment, GuessRequest request) {
  const Deployment* asking = deployments_->Find(deployment);
  if (asking == nullptr || GuesserOf(*asking) == nullptr) {
    return false;
  }
  // Later: that engine may be at work, and tell this one.
  loop_->Post([this, deployment, request = std::move(request)]() mutable {
    Run(deployment, std::move(request));
  });
  return true;
}

void DraftModels::Run(uint64_t deployment, GuessRequest request) {
  const Deployment* asking = deployments_->Find(deployment);
  Engine* guesser = asking == nullptr ? nullptr : GuesserOf(*asking);
  const auto known = static_cast<uint32_t>(request.tokens.size());
  if (guesser == nullptr) {
    Answer(deployment, request.key, known, {});
    return;
  }
  SessionRequest guess;
  // No client's: no request id has a line feed (ScopedId).
  guess.key = "\n\ndraft/" + std::to_string(++asked_);
  guess.request_id = "draft-" + std::to_string(asked_);
  guess.prompt = std::move(request.tokens);
  guess.max_tokens = request.most;
  guess.params = ParamsOf(request.params);
  guess.ignore_eos = true;
  guess.cache_salt = request.cache_salt;
  guess.speculate = Speculate::kOff;
  auto sink = std::make_shared<Sink>(this, deployment, request.key, known);
  if (!guesser->Submit(std::move(guess), std::move(sink), clock_->Now()).ok()) {
    Answer(deployment, request.key, known, {});
  }
}

void DraftModels::Answer(uint64_t deployment, const std::string& key, uint32_t known,
                         std::vector<uint32_t> guesses) {
  loop_->Post([this, deployment, key, known, guesses = std::move(guesses)]() mutable {
    const Deployment* asking = deployments_->Find(deployment);
    if (asking != nullptr && asking->engine() != nullptr) {
      asking->engine()->OnGuesses(key, known, std::move(guesses), clock_->Now());
    }
  });
}

}  // namespace strata
