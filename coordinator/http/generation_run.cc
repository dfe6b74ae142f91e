#include "coordinator/http/generation_run.h"

#include <utility>

#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/service/request/text_threads.h"

namespace strata {
namespace {

constexpr char kEventStream[] = "text/event-stream";
// A comment: clients leave it alone, and so does LoRAX's, which looks at lines of data only.
constexpr char kKeepAlive[] = ": keep-alive\n\n";

// Adds what follows `all` to it.
void Append(v1::GenerateResponse next, v1::GenerateResponse* all) {
  all->mutable_text()->append(next.text());
  next.clear_text();
  all->mutable_thought()->append(next.thought());
  next.clear_thought();
  for (v1::ToolCallPiece& piece : *next.mutable_tool_calls()) {
    v1::ToolCallPiece* last =
        all->tool_calls_size() == 0 ? nullptr : all->mutable_tool_calls(all->tool_calls_size() - 1);
    if (last == nullptr || last->index() != piece.index()) {
      *all->add_tool_calls() = std::move(piece);
    } else {
      last->mutable_arguments()->append(piece.arguments());
      last->set_done(piece.done());
    }
  }
  next.clear_tool_calls();
  for (v1::TokenLogprob& logprob : *next.mutable_logprobs()) {
    *all->add_logprobs() = std::move(logprob);
  }
  next.clear_logprobs();
  for (v1::TokenLogprob& logprob : *next.mutable_prompt_logprobs()) {
    *all->add_prompt_logprobs() = std::move(logprob);
  }
  next.clear_prompt_logprobs();
  all->MergeFrom(next);
}

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(RunOptions options, std::unique_ptr<HttpAnswer> answer,
      std::shared_ptr<HttpResponder> responder)
      : options_(std::move(options)), answer_(std::move(answer)), responder_(std::move(responder)) {
    if (options_.memory != nullptr)
      memory_ = std::make_shared<HttpMemory::Part>(options_.memory, KeyOf(options_.caller.get()));
  }

  void Start(HttpBackend* backend, std::vector<ChoiceRequest> requests);

 private:
  // One choice. It keeps the run until its end.
  class Choice : public GenerationReceiver {
   public:
    Choice(std::shared_ptr<Run> run, size_t index) : run_(std::move(run)), index_(index) {}
    void OnMessage(v1::GenerateResponse message) override {
      run_->OnMessage(index_, std::move(message));
    }
    bool Behind() override { return run_->responder_->Behind(); }
    void OnEnd(const absl::Status& status) override {
      const std::shared_ptr<Run> run = std::exchange(run_, nullptr);
      run->OnEnd(status);
    }

   private:
    std::shared_ptr<Run> run_;
    const size_t index_;
  };

  void OnMessage(size_t index, v1::GenerateResponse message) STRATA_EXCLUDES(mutex_);
  void OnEnd(const absl::Status& status) STRATA_EXCLUDES(mutex_);
  void ClientGone() STRATA_EXCLUDES(mutex_);
  void Idle() STRATA_EXCLUDES(mutex_);
  void Drained() STRATA_EXCLUDES(mutex_);
  // Takes in a message of an answer that is no stream.
  void Hold(size_t index, v1::GenerateResponse message) STRATA_REQUIRES(mutex_);
  // Makes the answer of what was held. Nothing else is said any more.
  void AnswerWhole();
  void Fail(const absl::Status& status) STRATA_REQUIRES(mutex_);
  void Begin() STRATA_REQUIRES(mutex_);
  void CancelAll() STRATA_REQUIRES(mutex_);
  void ReaderChanged() STRATA_REQUIRES(mutex_);

  const RunOptions options_;
  // Written before anything is submitted.
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<std::shared_ptr<HttpGeneration>> generations_;
  Mutex mutex_;
  const std::unique_ptr<HttpAnswer> answer_;  // Under mutex_, and AnswerWhole's once it is over.
  const std::shared_ptr<HttpResponder> responder_;
  size_t left_ STRATA_GUARDED_BY(mutex_) = 0;  // Choices that have not ended.
  // Of an answer that is no stream: what each choice said, in one.
  std::vector<v1::GenerateResponse> held_ STRATA_GUARDED_BY(mutex_);
  uint64_t held_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<HttpMemory::Part> memory_;  // For held_, and what is made of it; as answer_.
  bool begun_ STRATA_GUARDED_BY(mutex_) = false;
  bool behind_ STRATA_GUARDED_BY(mutex_) = false;  // The generations know that the client is.
  bool over_ STRATA_GUARDED_BY(mutex_) = false;    // Nothing more is said.
};

void Run::Start(HttpBackend* backend, std::vector<ChoiceRequest> requests) {
  // All choices are one request of its caller's.
  GenerationOptions options{.deadline = options_.deadline,
                            .default_max_tokens = options_.default_max_tokens,
                            .times = options_.times,
                            .use = std::make_shared<KeyUse>(options_.caller)};
  for (size_t i = 0; i < requests.size(); ++i) {
    // Usage counts a prompt once, however many choices it has.
    options.charge_prompt = requests[i].request.sampling().choice() == 0;
    options.prompt = requests[i].prompt;
    choices_.push_back(std::make_unique<Choice>(shared_from_this(), i));
    generations_.push_back(backend->NewGeneration(options, choices_.back().get()));
  }
  options.use.reset();  // They alone have it.
  options.prompt.reset();
  {
    MutexLock lock(&mutex_);
    left_ = requests.size();
    held_.resize(answer_->stream() ? 0 : left_);
  }
  responder_->OnGone([weak = weak_from_this()] {
    if (const auto run = weak.lock()) run->ClientGone();
  });
  if (answer_->stream()) {
    responder_->OnIdle([weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->Idle();
    });
    responder_->OnDrained([weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->Drained();
    });
  }
  // Each is run though the answer may be over already: then it ends at once.
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.reset();  // Its generation has it, and lets go of it.
    generations_[i]->Run(requests[i].request);
  }
}

void Run::OnMessage(size_t index, v1::GenerateResponse message) {
  MutexLock lock(&mutex_);
  if (over_) {
    return;
  }
  if (message.has_finish() && message.finish().reason() == "cancelled") {
    Fail(Error(absl::StatusCode::kCancelled, "CANCELLED", "the request was cancelled"));
    return;
  }
  if (!answer_->stream()) {
    Hold(index, std::move(message));
    return;
  }
  const std::string piece = answer_->OnMessage(index, message);
  Begin();
  if (piece.empty()) {
    return;
  }
  if (const absl::Status taken = responder_->Write(piece); !taken.ok()) {
    Fail(taken);
  } else if (responder_->Behind() && !std::exchange(behind_, true)) {
    ReaderChanged();
  }
}

void Run::Drained() {
  MutexLock lock(&mutex_);
  behind_ = responder_->Behind();  // It may be so again since.
  if (!over_) {
    ReaderChanged();
  }
}

void Run::Hold(size_t index, v1::GenerateResponse message) {
  held_bytes_ += message.text().size() + message.thought().size();
  for (const v1::ToolCallPiece& piece : message.tool_calls()) {
    held_bytes_ += piece.id().size() + piece.name().size() + piece.arguments().size();
  }
  for (const auto* logprobs : {&message.logprobs(), &message.prompt_logprobs()}) {
    for (const v1::TokenLogprob& logprob : *logprobs) {
      held_bytes_ += kLogprobBytes * (1 + static_cast<uint64_t>(logprob.top_size()));
    }
  }
  if (held_bytes_ > options_.max_answer_bytes) {
    Fail(Error(absl::StatusCode::kOutOfRange, "ANSWER_TOO_LARGE",
               "the answer is too large to be held until its end")
             .Limit("answer_bytes=" + std::to_string(options_.max_answer_bytes))
             .Hint("ask for a stream, for fewer logprobs or choices, or raise --max-http-answer of "
                   "strata-coordinator"));
    return;
  }
  if (memory_ != nullptr) {
    if (const absl::Status held = memory_->Resize(held_bytes_); !held.ok()) {
      Fail(held);
      return;
    }
  }
  Append(std::move(message), &held_[index]);
}

void Run::OnEnd(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    --left_;
    if (over_) {
      return;
    }
    if (!status.ok()) {
      Fail(status);
      return;
    }
    if (left_ > 0) {
      return;
    }
    over_ = true;
    if (answer_->stream()) {
      Begin();
      responder_->End(answer_->EndOfStream());
      return;
    }
  }
  options_.elsewhere([self = shared_from_this()] { self->AnswerWhole(); });
}

void Run::AnswerWhole() {
  std::vector<v1::GenerateResponse> held;
  {
    MutexLock lock(&mutex_);  // Not for longer: the server's thread may say that the client went.
    held.swap(held_);
  }
  for (size_t i = 0; i < held.size(); ++i) {
    answer_->OnMessage(i, std::exchange(held[i], {}));
  }
  HttpResponse whole = answer_->Whole();
  // It is there already: where there is no room for what it has grown by, that is not counted.
  if (memory_ != nullptr) (void)memory_->Resize(whole.body.size());
  whole.held = std::exchange(memory_, nullptr);
  whole.headers.insert(whole.headers.end(), options_.headers.begin(), options_.headers.end());
  responder_->Answer(std::move(whole));
}

void Run::Begin() {
  if (!std::exchange(begun_, true)) {
    HttpResponse head;
    head.content_type = kEventStream;
    head.headers = options_.headers;
    // Proxies are not to hold a stream back.
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    responder_->Begin(std::move(head));
  }
}

void Run::Fail(const absl::Status& status) {
  over_ = true;
  held_.clear();
  memory_.reset();
  CancelAll();
  if (begun_) {
    responder_->End(answer_->StreamError(status));
    return;
  }
  HttpResponse refusal = answer_->Refusal(status);
  refusal.headers.insert(refusal.headers.end(), options_.headers.begin(), options_.headers.end());
  responder_->Answer(std::move(refusal));
}

void Run::ClientGone() {
  MutexLock lock(&mutex_);
  if (!std::exchange(over_, true)) {
    held_.clear();
    memory_.reset();
    CancelAll();
  }
}

void Run::Idle() {
  MutexLock lock(&mutex_);
  if (over_) {
    return;
  }
  Begin();
  if (const absl::Status taken = responder_->Write(kKeepAlive); !taken.ok()) {
    Fail(taken);
  }
}

void Run::ReaderChanged() {
  for (const auto& generation : generations_) {
    generation->ReaderChanged();
  }
}

// One that has ended already is left alone by its generation.
void Run::CancelAll() {
  for (const auto& generation : generations_) {
    generation->Cancel();
  }
}

}  // namespace

void AddChoices(v1::GenerateRequest prompt, uint32_t count, const std::string& request_id,
                uint64_t seed, std::vector<ChoiceRequest>* choices) {
  const auto shared = std::make_shared<SharedPrompt>(&prompt);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t number = choices->size();
    v1::GenerateRequest& choice = choices->emplace_back(ChoiceRequest{prompt, shared}).request;
    choice.set_request_id(number == 0 ? request_id : request_id + "#" + std::to_string(number));
    v1::SamplingParams* sampling = choice.mutable_sampling();
    sampling->set_choice(i);
    if (!sampling->has_seed()) sampling->set_seed(seed);
  }
}

void RunGenerations(HttpBackend* backend, std::vector<ChoiceRequest> requests, RunOptions options,
                    std::unique_ptr<HttpAnswer> answer, std::shared_ptr<HttpResponder> responder) {
  std::make_shared<Run>(std::move(options), std::move(answer), std::move(responder))
      ->Start(backend, std::move(requests));
}

}  // namespace strata
