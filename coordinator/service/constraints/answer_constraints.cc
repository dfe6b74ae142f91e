#include "coordinator/service/constraints/answer_constraints.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/limits.h"
#include "common/mutex.h"
#include "common/rpc/fair_calls.h"
#include "common/status.h"
#include "coordinator/service/constraints/answer_tokens.h"
#include "coordinator/service/constraints/constraint_reading.h"
#include "coordinator/service/constraints/mask_threads.h"
#include "coordinator/service/constraints/recent_refusals.h"
#include "coordinator/service/constraints/shared_work.h"
#include "text/masks/answer_matcher.h"
#include "text/masks/mask_compiler.h"
#include "text/masks/mask_program.h"

namespace strata {
namespace {

// Sources whose grammars are known by their digests.
constexpr size_t kMostSources = 4096;
constexpr size_t kMostMaskThreads = 4;
constexpr char kWaitingHint[] =
    "try again in a moment, or raise --max-waiting-constraints of strata-coordinator";

MaskCompilerOptions CompilerOptions(const ConstraintOptions& options) {
  MaskCompilerOptions result;
  result.command = options.program;
  // Should the coordinator be gone: the process ends by itself a little later.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.compile_timeout).count();
  result.command.push_back(absl::StrCat(seconds == 0 ? 0 : seconds + 1));
  result.command.push_back(absl::StrCat(options.compile_memory));
  result.command.push_back(
      absl::StrCat(std::chrono::ceil<milliseconds>(options.mask_time).count()));
  result.timeout = options.compile_timeout;
  result.max_kept_bytes = options.kept_bytes;
  return result;
}

FairCallsOptions CallsOptions(const ConstraintOptions& options) {
  return {.threads = std::max<size_t>(1, options.compilers),
          .large_threads = 0,
          .large_bytes = ~uint64_t{0},
          .waiting = options.waiting,
          .name = "waiting_constraints",
          .hint = kWaitingHint};
}

// One answer's, on its way.
struct Call {
  std::shared_ptr<const ModelRuntime> model;
  AnswerWanted wanted;
  std::string caller;
  std::string key;
  AnswerConstraints::Done done;

  bool Wanted() const { return wanted.still().ok(); }
  // With why it is not wanted any more, if it is not.
  void Fail(const absl::Status& why) const {
    const absl::Status still = wanted.still();
    done(still.ok() ? why : still);
  }
};

using Tokens = std::shared_ptr<const MaskVocabulary>;
using Compiled = std::shared_ptr<const CompiledGrammar>;

absl::Status TooMany(size_t most) {
  return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
               absl::StrCat(most, " answers wait for their constraints already"))
      .Limit(absl::StrCat("waiting_constraints=", most))
      .Hint(kWaitingHint);
}

class CompiledConstraints final : public AnswerConstraints {
 public:
  CompiledConstraints(ConstraintOptions options, Host host)
      : options_(std::move(options)),
        host_(std::move(host)),
        compiler_(CompilerOptions(options_)),
        masks_(std::make_shared<MaskThreads>(
            std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 2, kMostMaskThreads))),
        vocabulary_work_(options_.waiting + options_.compilers),
        grammar_work_(options_.waiting + options_.compilers),
        calls_(CallsOptions(options_)) {}
  ~CompiledConstraints() override { Stop(); }

  void Prepare(std::shared_ptr<const ModelRuntime> model, AnswerWanted wanted,
               const std::string& caller, const std::string& key, Done done) override;
  void Stop() override {
    compiler_.Stop();  // What waits for a compiler is told so by it, one after another.
    calls_.Stop();
    masks_->Stop();
  }
  const ConstraintOptions& options() const override { return options_; }

 private:
  // What is known of a model's tokens.
  struct Vocabulary {
    std::weak_ptr<const ModelRuntime> model;
    Tokens tokens;
    std::map<std::string, std::shared_ptr<const ThoughtEnd>> ends;  // By `close`.
  };

  Tokens KnownTokens(const std::shared_ptr<const ModelRuntime>& model);
  absl::StatusOr<Tokens> TokensOf(const std::shared_ptr<const ModelRuntime>& model);
  std::shared_ptr<const ThoughtEnd> EndOf(const ModelRuntime& model, const std::string& close,
                                          const MaskVocabulary& tokens);
  // The steps of a call: with its tokens, with what they and the wanted are known by, with the
  // grammar (null: any text).
  void WithTokens(const std::shared_ptr<Call>& call, const Tokens& tokens);
  void Compile(const std::shared_ptr<Call>& call, const Tokens& tokens, const std::string& source);
  void Begin(const std::shared_ptr<Call>& call, const Tokens& tokens, const Compiled& grammar,
             const std::string& source);
  absl::StatusOr<Compiled> CompileNow(const Call& call, const Tokens& tokens,
                                      const std::string& source);
  absl::StatusOr<Compiled> ReadAndCompile(const Call& call, const Tokens& tokens,
                                          const std::string& source);
  // The grammar of `source`, if it was read and is kept.
  Compiled FindKept(const std::string& source);
  absl::Status FindRefusal(const std::string& source);
  void Refuse(const std::string& source, const absl::Status& why);

  const ConstraintOptions options_;
  const Host host_;
  const SystemClock clock_;
  MaskCompiler compiler_;
  const std::shared_ptr<MaskThreads> masks_;
  Mutex mutex_;
  std::map<const ModelRuntime*, Vocabulary> vocabularies_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::string> grammars_ STRATA_GUARDED_BY(mutex_);  // By source.
  RecentRefusals refusals_ STRATA_GUARDED_BY(mutex_);                      // By source.
  SharedWork<Tokens> vocabulary_work_;
  SharedWork<Compiled> grammar_work_;
  FairCalls calls_;  // Last: its threads use the others.
};

// What a grammar is known by before it is read.
std::string SourceOf(const MaskVocabulary& tokens, const AnswerWanted& wanted) {
  return Sha256Hex(
      absl::StrCat(tokens.digest, "/",
                   wanted.constraint.has_value() ? wanted.constraint->SerializeAsString() : "", "/",
                   wanted.calls.has_value() ? wanted.calls->Source() : ""));
}

absl::Status NotWanted() { return absl::CancelledError("nobody waits for the answer any more"); }

Tokens CompiledConstraints::KnownTokens(const std::shared_ptr<const ModelRuntime>& model) {
  const MutexLock lock(&mutex_);
  const auto known = vocabularies_.find(model.get());
  return known != vocabularies_.end() && known->second.model.lock() == model ? known->second.tokens
                                                                             : nullptr;
}

absl::StatusOr<Tokens> CompiledConstraints::TokensOf(
    const std::shared_ptr<const ModelRuntime>& model) {
  if (const Tokens known = KnownTokens(model)) {
    return known;
  }
  if (model->tokenizer == nullptr) {
    return model->tokenizer_problem;
  }
  const uint32_t vocab = model->spec().vocab;
  if (vocab > kMaxMaskedVocab) {
    return Error(absl::StatusCode::kFailedPrecondition, "CONSTRAINT_VOCABULARY",
                 absl::StrCat("model '", model->name, "' has ", vocab,
                              " tokens, too many for masks of them"))
        .Limit(absl::StrCat("vocab=", kMaxMaskedVocab));
  }
  ASSIGN_OR_RETURN(AnswerTokens tokens,
                   AnswerTokensOf(*model->tokenizer, vocab, model->spec().eos_ids));
  ASSIGN_OR_RETURN(auto made,
                   MaskVocabulary::Make(std::move(tokens.tokens), std::move(tokens.stop_ids)));
  const MutexLock lock(&mutex_);
  std::erase_if(vocabularies_, [](const auto& entry) { return entry.second.model.expired(); });
  vocabularies_[model.get()] = {model, made, {}};
  return made;
}

std::shared_ptr<const ThoughtEnd> CompiledConstraints::EndOf(const ModelRuntime& model,
                                                             const std::string& close,
                                                             const MaskVocabulary& tokens) {
  {
    const MutexLock lock(&mutex_);
    if (const auto end = vocabularies_[&model].ends.find(close);
        end != vocabularies_[&model].ends.end()) {
      return end->second;
    }
  }
  auto made = std::make_shared<const ThoughtEnd>(close, tokens.tokens);
  const MutexLock lock(&mutex_);
  return vocabularies_[&model].ends[close] = std::move(made);
}

Compiled CompiledConstraints::FindKept(const std::string& source) {
  std::string digest;
  {
    const MutexLock lock(&mutex_);
    const auto known = grammars_.find(source);
    if (known == grammars_.end()) {
      return nullptr;
    }
    digest = known->second;
  }
  return compiler_.Kept(digest);
}

absl::Status CompiledConstraints::FindRefusal(const std::string& source) {
  const MutexLock lock(&mutex_);
  return refusals_.Find(source, clock_.Now());
}

void CompiledConstraints::Refuse(const std::string& source, const absl::Status& why) {
  const MutexLock lock(&mutex_);
  refusals_.Add(source, why, clock_.Now());
}

void CompiledConstraints::Prepare(std::shared_ptr<const ModelRuntime> model, AnswerWanted wanted,
                                  const std::string& caller, const std::string& key, Done done) {
  const auto call = std::make_shared<Call>(
      Call{std::move(model), std::move(wanted), caller, key, std::move(done)});
  if (const Tokens tokens = KnownTokens(call->model)) {
    WithTokens(call, tokens);
    return;
  }
  // Those that wait keep the model, so that no other one has its place.
  const std::string name = absl::StrCat(reinterpret_cast<uintptr_t>(call->model.get()));
  const auto joined = vocabulary_work_.Join(
      name, {[call] { return call->Wanted(); },
             [this, call](const absl::StatusOr<Tokens>& tokens) {
               tokens.ok() ? WithTokens(call, *tokens) : call->Fail(tokens.status());
             }});
  if (joined == SharedWork<Tokens>::Joined::kFirst) {
    masks_->Run([this, name, model = call->model](bool stopped) {
      vocabulary_work_.End(name, stopped ? ConstraintsStopped() : TokensOf(model));
    });
  } else if (joined == SharedWork<Tokens>::Joined::kFull) {
    call->done(TooMany(options_.waiting + options_.compilers));
  }
}

void CompiledConstraints::WithTokens(const std::shared_ptr<Call>& call, const Tokens& tokens) {
  const AnswerWanted& wanted = call->wanted;
  if (wanted.rule.thought.has_value()) {
    const absl::Status thought = CheckThought(*wanted.rule.thought, tokens->tokens.size());
    if (!thought.ok()) {
      call->done(thought);
      return;
    }
  }
  if (!wanted.constraint.has_value() && !wanted.calls.has_value()) {
    Begin(call, tokens, nullptr, "");
    return;
  }
  const std::string source = SourceOf(*tokens, wanted);
  if (absl::Status refused = FindRefusal(source); !refused.ok()) {
    call->done(refused);
  } else if (const Compiled kept = FindKept(source)) {
    Begin(call, tokens, kept, source);
  } else {
    Compile(call, tokens, source);
  }
}

void CompiledConstraints::Compile(const std::shared_ptr<Call>& call, const Tokens& tokens,
                                  const std::string& source) {
  using Joined = SharedWork<Compiled>::Joined;
  const Joined joined = grammar_work_.Join(
      source, {[call] { return call->Wanted(); },
               [this, call, tokens, source](const absl::StatusOr<Compiled>& grammar) {
                 grammar.ok() ? Begin(call, tokens, *grammar, source)
                              : call->Fail(grammar.status());
               }});
  if (joined == Joined::kFull) {
    call->done(TooMany(options_.waiting + options_.compilers));
  }
  if (joined != Joined::kFirst) {
    return;
  }
  const AnswerWanted& wanted = call->wanted;
  const uint64_t bytes = (wanted.constraint.has_value() ? wanted.constraint->ByteSizeLong() : 0) +
                         (wanted.calls.has_value() ? wanted.calls->offered->source().size() : 0);
  const absl::Status taken = calls_.Run(call->caller, bytes, [this, call, tokens, source] {
    if (grammar_work_.Wanted(source, NotWanted())) {
      grammar_work_.End(source, CompileNow(*call, tokens, source));
    }
  });
  if (!taken.ok()) {
    grammar_work_.End(source, taken);
  }
}

absl::StatusOr<Compiled> CompiledConstraints::CompileNow(const Call& call, const Tokens& tokens,
                                                         const std::string& source) {
  if (Compiled kept = FindKept(source)) {
    return kept;  // Since this one has joined.
  }
  RETURN_IF_ERROR(compiler_.CheckRuns());
  const TimePoint begin = clock_.Now();
  auto grammar = ReadAndCompile(call, tokens, source);
  host_.metrics->OnCompiled(grammar.status(), clock_.Now() - begin);
  host_.metrics->OnKept(compiler_.kept_grammars(), compiler_.kept_bytes());
  return grammar;
}

absl::StatusOr<Compiled> CompiledConstraints::ReadAndCompile(const Call& call, const Tokens& tokens,
                                                             const std::string& source) {
  const AnswerWanted& wanted = call.wanted;
  const auto ebnf = wanted.calls.has_value()
                        ? EbnfOfCalls(*wanted.calls, wanted.constraint, *call.model->tokenizer,
                                      call.model->spec().vocab, options_.max_source_bytes)
                        : EbnfOfConstraint(*wanted.constraint, options_.max_source_bytes);
  auto grammar =
      ebnf.ok() ? compiler_.Compile(*ebnf, tokens) : absl::StatusOr<Compiled>(ebnf.status());
  if (absl::IsInvalidArgument(grammar.status())) {
    Refuse(source, grammar.status());
  }
  RETURN_IF_ERROR(grammar.status());
  const MutexLock lock(&mutex_);
  if (grammars_.size() >= kMostSources) {
    grammars_.clear();
  }
  grammars_[source] = MaskCompiler::DigestOf(*ebnf, *tokens);
  return grammar;
}

void CompiledConstraints::Begin(const std::shared_ptr<Call>& call, const Tokens& tokens,
                                const Compiled& grammar, const std::string& source) {
  masks_->Run([this, call, tokens, grammar, source](bool stopped) {
    if (stopped || !call->Wanted()) {
      call->Fail(stopped ? ConstraintsStopped() : NotWanted());
      return;
    }
    auto plan = std::make_shared<AnswerPlan>();
    plan->rule = call->wanted.rule;
    plan->vocabulary = tokens;
    plan->grammar = grammar;
    if (plan->rule.thought.has_value()) {
      plan->blanks = BlankTokens(tokens->tokens);
      if (!plan->rule.thought->close_token.has_value()) {
        plan->thought_end = EndOf(*call->model, plan->rule.thought->close, *tokens);
      }
    }
    call->done(ThreadedConstraint::Make(
        std::move(plan),
        {.key = call->key,
         .host = host_,
         .threads = masks_,
         .limits = MaskTimeLimits::OfOne(options_.mask_time),
         .on_too_expensive = [this, source](const absl::Status& why) { Refuse(source, why); }}));
  });
}

}  // namespace

int ConstraintProgramMain(int argc, char** argv) {
  CloseInherited();
  return argc != 4 ? 2 : RunMaskProgram(STDIN_FILENO, STDOUT_FILENO, MaskProgramLimitsOf(argv + 1));
}

std::unique_ptr<AnswerConstraints> MakeAnswerConstraints(ConstraintOptions options,
                                                         AnswerConstraints::Host host) {
  return std::make_unique<CompiledConstraints>(std::move(options), std::move(host));
}

}  // namespace strata
