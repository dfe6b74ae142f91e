// Has constraints compiled in processes of their own, keeps what they became, and makes the masks
// of answers on threads beside the loop, so that no other stream waits for either.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_CONSTRAINTS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_CONSTRAINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/token_constraint.h"
#include "coordinator/metrics/constraint_metrics.h"
#include "coordinator/service/constraints/constraint_options.h"
#include "coordinator/service/request/calls_wanted.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/inference.pb.h"
#include "text/masks/answer_rule.h"

namespace strata {

// What an answer is to be held to.
struct AnswerWanted {
  // Its text; not set: any.
  std::optional<v1::Constraint> constraint;
  // Its calls of tools; not set: they are part of the text.
  std::optional<CallsWanted> calls;
  // Without the grammar.
  AnswerRule rule;
  // Why it is not wanted any more; ok as long as it is. Any thread; must not wait.
  std::function<absl::Status()> still = [] { return absl::OkStatus(); };
};

// Any thread, but for what it gives.
class AnswerConstraints {
 public:
  using Done = std::function<void(absl::StatusOr<std::shared_ptr<TokenConstraint>>)>;
  // Where a constraint tells that it has its next set, on the loop; then `key` is its session's.
  // What all of them cost is counted in `metrics`.
  struct Host {
    std::function<void(std::function<void()>)> run_on_loop;
    std::function<void(const std::string& key)> on_next;
    ConstraintMetrics* metrics;  // Outlives it.
  };

  virtual ~AnswerConstraints() = default;
  // Calls `done` once with one answer's constraint, whose first set is there: on a thread of its
  // own, or with an error before it returns. What several ask for is compiled once, and what was
  // refused is refused for a while. `caller` is who shares the compilers fairly.
  // Errors: those of EbnfOfConstraint, AnswerTokensOf, MaskCompiler::Compile and AnswerMatcher;
  // NO_TOKENIZER, CONSTRAINT_VOCABULARY, CONSTRAINT_EMPTY (it admits the empty text alone),
  // TOO_MANY_CALLS, STOPPING, and what `still` says; CONSTRAINTS_UNAVAILABLE from a build that
  // cannot make masks.
  virtual void Prepare(std::shared_ptr<const ModelRuntime> model, AnswerWanted wanted,
                       const std::string& caller, const std::string& key, Done done) = 0;
  // Ends what is being prepared; nothing is any more, and no set is made.
  virtual void Stop() = 0;

  virtual const ConstraintOptions& options() const = 0;
};

// A process that compiles: `argv` has its name, a limit of processor time in seconds, one of memory
// in bytes, and one of the first mask in milliseconds. Its exit status.
int ConstraintProgramMain(int argc, char** argv);

std::unique_ptr<AnswerConstraints> MakeAnswerConstraints(ConstraintOptions options,
                                                         AnswerConstraints::Host host);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_ANSWER_CONSTRAINTS_H_
