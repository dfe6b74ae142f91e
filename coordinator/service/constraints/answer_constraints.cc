#include "coordinator/service/constraints/answer_constraints.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/limits.h"
#include "common/mutex.h"
#include "common/rpc/fair_calls.h"
#include "common/status.h"
#include "coordinator/service/constraints/answer_tokens.h"
#include "coordinator/service/constraints/constraint_reading.h"
#include "coordinator/service/constraints/mask_threads.h"
#include "text/masks/answer_matcher.h"
#include "text/masks/mask_compiler.h"
#include "text/masks/mask_program.h"

namespace strata {
namespace {

// Sources whose grammars are known by their digests.
constexpr size_t kMostSources = 4096;
constexpr size_t kMostMaskThreads = 4;

MaskCompilerOptions CompilerOptions(const ConstraintOptions& options) {
  MaskCompilerOptions result;
  result.command = options.program;
  // Should the coordinator be gone: the process ends by itself a little later.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.compile_timeout).count();
  result.command.push_back(absl::StrCat(seconds == 0 ? 0 : seconds + 1));
  result.command.push_back(absl::StrCat(options.compile_memory));
  result.timeout = options.compile_timeout;
  result.max_kept_bytes = options.kept_bytes;
  return result;
}

FairCallsOptions CallsOptions(const ConstraintOptions& options) {
  return {.threads = std::max<size_t>(1, options.compilers),
          .large_threads = 1,
          .large_bytes = ~uint64_t{0},
          .waiting = options.waiting,
          .name = "waiting_constraints",
          .hint =
              "try again in a moment, or raise --max-waiting-constraints of "
              "strata-coordinator"};
}

class CompiledConstraints final : public AnswerConstraints {
 public:
  CompiledConstraints(ConstraintOptions options, Host host)
      : options_(std::move(options)),
        host_(std::move(host)),
        compiler_(CompilerOptions(options_)),
        masks_(std::make_shared<MaskThreads>(
            std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 2, kMostMaskThreads))),
        calls_(CallsOptions(options_)) {}
  ~CompiledConstraints() override { Stop(); }

  void Prepare(std::shared_ptr<const ModelRuntime> model, AnswerWanted wanted,
               const std::string& caller, const std::string& key, Done done) override;
  void Stop() override {
    calls_.Stop();
    masks_->Stop();
  }
  const ConstraintOptions& options() const override { return options_; }

 private:
  // What is known of a model's tokens.
  struct Vocabulary {
    std::weak_ptr<const ModelRuntime> model;
    std::shared_ptr<const MaskVocabulary> tokens;
    std::map<std::string, std::shared_ptr<const ThoughtEnd>> ends;  // By `close`.
  };

  absl::StatusOr<std::shared_ptr<const MaskVocabulary>> TokensOf(
      const std::shared_ptr<const ModelRuntime>& model);
  std::shared_ptr<const ThoughtEnd> EndOf(const ModelRuntime& model, const std::string& close,
                                          const MaskVocabulary& tokens);
  absl::StatusOr<std::shared_ptr<const AnswerPlan>> Compile(
      const std::shared_ptr<const ModelRuntime>& model, AnswerWanted wanted);
  // The grammar of `source`, if it was read and is kept.
  std::shared_ptr<const CompiledGrammar> FindKept(const std::string& source);

  const ConstraintOptions options_;
  const Host host_;
  MaskCompiler compiler_;
  const std::shared_ptr<MaskThreads> masks_;
  Mutex mutex_;
  std::map<const ModelRuntime*, Vocabulary> vocabularies_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::string> grammars_ STRATA_GUARDED_BY(mutex_);  // By source.
  FairCalls calls_;  // Last: its threads use the others.
};

// What a grammar is known by before it is read.
std::string SourceOf(const ModelRuntime& model, const AnswerWanted& wanted) {
  return Sha256Hex(
      absl::StrCat(model.weights_digest(), "/", model.name, "/",
                   wanted.constraint.has_value() ? wanted.constraint->SerializeAsString() : "", "/",
                   wanted.calls.has_value() ? wanted.calls->Source() : "", "/", wanted.rule.ebnf));
}

absl::StatusOr<std::shared_ptr<const MaskVocabulary>> CompiledConstraints::TokensOf(
    const std::shared_ptr<const ModelRuntime>& model) {
  {
    const MutexLock lock(&mutex_);
    const auto known = vocabularies_.find(model.get());
    if (known != vocabularies_.end() && known->second.model.lock() == model) {
      return known->second.tokens;
    }
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

std::shared_ptr<const CompiledGrammar> CompiledConstraints::FindKept(const std::string& source) {
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

absl::StatusOr<std::shared_ptr<const AnswerPlan>> CompiledConstraints::Compile(
    const std::shared_ptr<const ModelRuntime>& model, AnswerWanted wanted) {
  auto plan = std::make_shared<AnswerPlan>();
  ASSIGN_OR_RETURN(plan->vocabulary, TokensOf(model));
  const std::string source = SourceOf(*model, wanted);
  plan->rule = std::move(wanted.rule);
  if (wanted.constraint.has_value() || wanted.calls.has_value() || !plan->rule.ebnf.empty()) {
    plan->grammar = FindKept(source);
    if (plan->grammar == nullptr) {
      if (wanted.calls.has_value()) {
        ASSIGN_OR_RETURN(plan->rule.ebnf,
                         EbnfOfCalls(*wanted.calls, wanted.constraint, *model->tokenizer,
                                     options_.max_source_bytes));
      } else if (wanted.constraint.has_value()) {
        ASSIGN_OR_RETURN(plan->rule.ebnf,
                         EbnfOfConstraint(*wanted.constraint, options_.max_source_bytes));
      }
      ASSIGN_OR_RETURN(plan->grammar, compiler_.Compile(plan->rule.ebnf, plan->vocabulary));
      const MutexLock lock(&mutex_);
      if (grammars_.size() >= kMostSources) {
        grammars_.clear();
      }
      grammars_[source] = MaskCompiler::DigestOf(plan->rule.ebnf, *plan->vocabulary);
    }
  }
  plan->rule.ebnf.clear();
  if (plan->rule.thought.has_value()) {
    plan->blanks = BlankTokens(plan->vocabulary->tokens);
  }
  if (plan->rule.thought.has_value() && !plan->rule.thought->close_token.has_value()) {
    plan->thought_end = EndOf(*model, plan->rule.thought->close, *plan->vocabulary);
  }
  return plan;
}

void CompiledConstraints::Prepare(std::shared_ptr<const ModelRuntime> model, AnswerWanted wanted,
                                  const std::string& caller, const std::string& key, Done done) {
  auto prepare = [this, model, key](AnswerWanted asked, const Done& told) {
    auto plan = Compile(model, std::move(asked));
    if (!plan.ok()) {
      told(plan.status());
      return;
    }
    told(ThreadedConstraint::Make(*std::move(plan), key, host_, masks_));
  };
  bool known = false;
  {
    const MutexLock lock(&mutex_);
    const auto vocabulary = vocabularies_.find(model.get());
    known = vocabulary != vocabularies_.end() && vocabulary->second.model.lock() == model;
  }
  if (known && FindKept(SourceOf(*model, wanted)) != nullptr) {
    prepare(std::move(wanted), done);
    return;
  }
  const uint64_t bytes = (wanted.constraint.has_value() ? wanted.constraint->ByteSizeLong() : 0) +
                         (wanted.calls.has_value() ? wanted.calls->offered->source().size() : 0) +
                         wanted.rule.ebnf.size();
  auto shared = std::make_shared<AnswerWanted>(std::move(wanted));
  const absl::Status taken =
      calls_.Run(caller, bytes, [prepare, shared, done] { prepare(std::move(*shared), done); });
  if (!taken.ok()) {
    done(taken);
  }
}

}  // namespace

int ConstraintProgramMain(int argc, char** argv) {
  return argc != 3
             ? 2
             : RunMaskProgram(STDIN_FILENO, STDOUT_FILENO, std::strtoull(argv[1], nullptr, 10),
                              std::strtoull(argv[2], nullptr, 10));
}

std::unique_ptr<AnswerConstraints> MakeAnswerConstraints(ConstraintOptions options,
                                                         AnswerConstraints::Host host) {
  return std::make_unique<CompiledConstraints>(std::move(options), std::move(host));
}

}  // namespace strata
