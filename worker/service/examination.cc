#include "worker/service/examination.h"

#include <cstdio>
#include <utility>

#include "common/rpc/peer_dial.h"
#include "common/rpc/transport.h"
#include "common/status.h"
#include "worker/backend/cpu/kernels/choose_kernels.h"
#include "worker/backend/cpu/kernels/isa.h"
#include "worker/backend/optional_backends.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kDialTimeout{3000};

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "strata-worker: %s\n", Describe(status).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

// The way to the coordinator; the reason where this machine's own files are the cause.
v1::LinkFacts DialCoordinator(const WorkerOptions& options) {
  const auto transport = Transport::Make(options.security);
  if (transport.ok()) {
    return DialPeer(*transport, options.name, {.node = "", .address = options.coordinator},
                    kDialTimeout);
  }
  return {};
}

}  // namespace

v1::ProcessorFacts ProcessorFactsOf(const std::string& backend, const std::string& isa) {
  v1::ProcessorFacts facts;
  facts.set_backend(backend);
  facts.set_isa(isa);
  facts.set_best_isa(cpu::MachineIsas().back());
  facts.set_built_isa(cpu::MachineKernels().back()->isa);
  facts.add_backends("cpu");
  if (CudaIsBuilt()) {
    facts.add_backends("cuda");
  }
  if (MlxIsBuilt()) {
    facts.add_backends("mlx");
  }
  return facts;
}

ExamineOptions ExamineOptionsOf(const WorkerOptions& options, const std::string& address) {
  ExamineOptions examine;
  examine.program = "strata-worker";
  examine.node = options.name;
  examine.address = address;
  examine.address_is_given = !options.advertise.empty();
  examine.tls_dir = options.security.tls_dir;
  examine.data_dir = options.data_dir;
  examine.promised_memory_bytes = options.memory_bytes;
  examine.cache_limit_bytes = options.cache_limit_bytes;
  examine.flags = options.flags;
  return examine;
}

int ExamineMain(int argc, const char* const* argv, const char* (*get_env)(const char*)) {
  WorkerOptions options;
  if (const auto exit = ParseWorkerFlags(argc, argv, get_env, &options)) {
    return *exit;
  }
  if (const absl::Status status = CompleteWorkerOptions(get_env, &options); !status.ok()) {
    return Refuse(status);
  }
  const auto kernels = cpu::ChooseKernels(options.isa);
  if (!kernels.ok()) {
    return Refuse(kernels.status());
  }
  const bool cpu =
      options.backend == "cpu" || (options.backend == "auto" && !CudaIsBuilt() && !MlxHasGpu());
  ExamineOptions examine = ExamineOptionsOf(options, options.advertise);
  examine.running = false;
  examine.processor = ProcessorFactsOf(cpu ? "cpu" : options.backend, (*kernels)->isa);
  v1::MachineFacts facts = Examine(examine);
  // What is available now may be without what a worker that runs here has; and where --memory is
  // not given, it is a share of what is there at the start.
  facts.mutable_memory()->set_available_bytes(facts.memory().total_bytes());
  if (!options.memory_given) {
    facts.mutable_memory()->set_promised_bytes(0);
  }
  if (v1::LinkFacts link = DialCoordinator(options); !link.address().empty()) {
    *facts.mutable_to_coordinator() = std::move(link);
  }
  std::printf("%s\n", FactsDocument(facts).c_str());
  return 0;
}

}  // namespace strata
