// strata-worker.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/app/log.h"
#include "common/app/signals.h"
#include "common/platform/platform.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "worker/joining/join.h"
#include "worker/service/bench.h"
#include "worker/service/examination.h"
#include "worker/service/selftest.h"
#include "worker/service/worker_options.h"
#include "worker/service/worker_process.h"

namespace {

const char* GetEnv(const char* name) { return std::getenv(name); }

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "strata-worker: %s\n", strata::Describe(status).c_str());
  // What flags ask for, and is not here, is wrong use as what cannot be.
  const std::string reason = strata::ReasonOf(status);
  const bool absent = reason == "BACKEND_ABSENT" || reason == "DEVICE_ABSENT" ||
                      reason == "NCCL_ABSENT" || reason == "NCCL_TOO_OLD";
  return absent || absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  strata::BlockStopSignals();
  strata::SetUpGrpc();
  if (argc > 1 && std::string_view(argv[1]) == "bench") {
    return strata::BenchMain(argc - 1, argv + 1, GetEnv);
  }
  if (argc > 1 && std::string_view(argv[1]) == "selftest") {
    return strata::SelftestMain(argc - 1, argv + 1, GetEnv);
  }
  if (argc > 1 && std::string_view(argv[1]) == "join") {
    return strata::JoinMain(argc - 1, argv + 1, GetEnv);
  }
  if (argc > 1 && std::string_view(argv[1]) == "examine") {
    return strata::ExamineMain(argc - 1, argv + 1, GetEnv);
  }
  strata::WorkerOptions options;
  if (const auto exit = strata::ParseWorkerFlags(argc, argv, GetEnv, &options)) {
    return *exit;
  }
  if (absl::Status status = strata::SetUpLogging(options.log_level, options.log_format);
      !status.ok()) {
    return Fail(status);
  }
  if (absl::Status status = strata::CompleteWorkerOptions(GetEnv, &options); !status.ok()) {
    return Fail(status);
  }
  strata::SetLogNode(options.name);
  strata::GiveWay(static_cast<int>(options.nice));
  const absl::Status status = strata::RunWorker(options);
  return status.ok() ? 0 : Fail(status);
}
