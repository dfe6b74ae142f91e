// A coordinator's own facts, for `strata doctor`: of one that runs, and of one that is to.
#ifndef STRATA_COORDINATOR_EXAMINATION_H_
#define STRATA_COORDINATOR_EXAMINATION_H_

#include "common/app/flags.h"
#include "common/examination/examine.h"
#include "coordinator/serve_flags.h"

namespace strata {

ExamineOptions ExamineOptionsOf(const ServeFlags& flags);

// strata-coordinator examine: what a coordinator with these flags finds on this machine, without
// starting one, as a document on stdout. The exit code.
int ExamineMain(int argc, const char* const* argv, const GetEnvFn& get_env);

}  // namespace strata

#endif  // STRATA_COORDINATOR_EXAMINATION_H_
