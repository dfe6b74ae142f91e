// In the place of answer_constraints.cc in a build that cannot make masks.
#include <utility>

#include "common/status.h"
#include "coordinator/service/constraints/answer_constraints.h"

namespace strata {
namespace {

class AbsentConstraints : public AnswerConstraints {
 public:
  explicit AbsentConstraints(ConstraintOptions options) : options_(std::move(options)) {}

  void Prepare(std::shared_ptr<const ModelRuntime> /*model*/, AnswerWanted /*wanted*/,
               const std::string& /*caller*/, const std::string& /*key*/, Done done) override {
    done(Error(absl::StatusCode::kFailedPrecondition, "CONSTRAINTS_UNAVAILABLE",
               "this build of strata-coordinator cannot hold answers to constraints")
             .Hint("build it with -DSTRATA_XGRAMMAR=on, or install its package"));
  }
  void Stop() override {}
  const ConstraintOptions& options() const override { return options_; }

 private:
  const ConstraintOptions options_;
};

}  // namespace

int ConstraintProgramMain(int /*argc*/, char** /*argv*/) { return 2; }

std::unique_ptr<AnswerConstraints> MakeAnswerConstraints(ConstraintOptions options,
                                                         AnswerConstraints::Host /*host*/) {
  return std::make_unique<AbsentConstraints>(std::move(options));
}

}  // namespace strata
