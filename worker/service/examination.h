// A worker's own facts, for `strata doctor`: of one that runs, and of one that is to.
#ifndef STRATA_WORKER_SERVICE_EXAMINATION_H_
#define STRATA_WORKER_SERVICE_EXAMINATION_H_

#include <string>

#include "common/app/flags.h"
#include "common/examination/examine.h"
#include "worker/service/worker_options.h"

namespace strata {

// What computes: `backend` as it is called, with the instruction set `isa`.
v1::ProcessorFacts ProcessorFactsOf(const std::string& backend, const std::string& isa);

// Of options that were completed. `address` is what others dial; "": not known.
ExamineOptions ExamineOptionsOf(const WorkerOptions& options, const std::string& address);

// strata-worker examine: what a worker with these flags finds on this machine, without starting
// one, as a document on stdout. The exit code.
int ExamineMain(int argc, const char* const* argv, const char* (*get_env)(const char*));

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_EXAMINATION_H_
