#include "coordinator/examination.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/platform/platform.h"

namespace strata {

ExamineOptions ExamineOptionsOf(const ServeFlags& flags) {
  ExamineOptions examine;
  examine.program = "strata-coordinator";
  examine.address = flags.listen;
  examine.tls_dir = flags.security.tls_dir;
  examine.data_dir = flags.data_dir;
  examine.flags = flags.given;
  return examine;
}

int ExamineMain(int argc, const char* const* argv, const GetEnvFn& get_env) {
  ServeFlags f;
  f.data_dir = DefaultDataDir("coordinator",
                              [](const char* name) -> const char* { return std::getenv(name); });
  Flags flags("strata-coordinator", "STRATA_COORDINATOR_",
              "What a coordinator with these flags would find on this machine.");
  Register(&flags, &f);
  if (const auto exit = flags.Parse(argc, argv, get_env)) {
    return *exit;
  }
  if (const absl::Status checked = Check(f); !checked.ok()) {
    std::fprintf(stderr, "strata-coordinator: %s\n", std::string(checked.message()).c_str());
    return 2;
  }
  f.given = flags.Report();
  ExamineOptions examine = ExamineOptionsOf(f);
  examine.running = false;
  std::printf("%s\n", FactsDocument(Examine(examine)).c_str());
  return 0;
}

}  // namespace strata
