// strata-sim-ranks: the simulation of a stage's ranks. docs/RELIABILITY.md says what it proves.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/ranks/rank_simulation.h"

namespace strata::sim {
namespace {

constexpr char kUsage[] =
    R"(strata-sim-ranks: one stage over two to four ranks, on one thread, with faults drawn from a seed

  --seeds N          run seeds 1..N and print what happened how often (default 200)
  --first S          begin at seed S instead of 1
  --seed S           run this seed alone
  --trace            tell the run of --seed as a story
  --expect finding   fail unless there is one (a build without a guard)

Exit status: 0 nothing found, 1 a finding, 2 wrong flags, 3 a fault that never occurred.
)";

// Fewer seeds need not meet every fault.
constexpr uint64_t kSeedsThatMeetAll = 300;

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 200;
  std::optional<uint64_t> seed;
  bool trace = false;
  bool expect_finding = false;
};

// A check that fails is a finding.
char seed_line[96];
int abort_status = 1;

void OnAbort(int) {
  std::fputs(seed_line, stderr);
  std::_Exit(abort_status);
}

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--trace") {
      flags->trace = true;
      continue;
    }
    if (i + 1 == argc) {
      return false;
    }
    const std::string value = argv[++i];
    const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (flag == "--seeds") {
      flags->seeds = number;
    } else if (flag == "--first") {
      flags->first = number;
    } else if (flag == "--seed") {
      flags->seed = number;
    } else if (flag == "--expect" && value == "finding") {
      flags->expect_finding = true;
    } else {
      return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, &flags)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  abort_status = flags.expect_finding ? 0 : 1;
  std::signal(SIGABRT, OnAbort);
  const uint64_t first = flags.seed.value_or(flags.first);
  const uint64_t seeds = flags.seed ? 1 : flags.seeds;
  const auto tell = [](const std::string& what) { std::printf("%s\n", what.c_str()); };
  RankCounts all;
  uint64_t findings = 0;
  const std::clock_t began = std::clock();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    std::snprintf(seed_line, sizeof seed_line,
                  "A check failed. Again: ./dev sim --ranks --seed %llu\n",
                  static_cast<unsigned long long>(seed));
    const RankRun run =
        SimulateRanks(seed, flags.trace ? std::function<void(const std::string&)>(tell) : nullptr);
    for (size_t i = 0; i < kRankFaults; ++i) {
      all.struck[i] += run.counts.struck[i];
    }
    all.steps += run.counts.steps;
    all.broken += run.counts.broken;
    all.joined += run.counts.joined;
    if (run.finding) {
      ++findings;
      std::printf("seed %llu: %s\n  as a story: ./dev sim --ranks --seed %llu --trace\n",
                  static_cast<unsigned long long>(seed), run.finding->c_str(),
                  static_cast<unsigned long long>(seed));
    }
  }
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  std::printf("  steps of the same bits as of one rank %12llu\n",
              static_cast<unsigned long long>(all.steps));
  std::printf("  steps that ranks failed               %12llu\n",
              static_cast<unsigned long long>(all.broken));
  std::printf("  epochs of ranks                       %12llu\n",
              static_cast<unsigned long long>(all.joined));
  bool met = true;
  for (size_t i = 0; i < kRankFaults; ++i) {
    std::printf("  fault: %-30s %12llu\n", NameOf(static_cast<RankFault>(i)),
                static_cast<unsigned long long>(all.struck[i]));
    met = met && all.struck[i] > 0;
  }
  std::printf("%llu seeds, %.1f s of processor time, %.2f ms a seed: %llu findings\n",
              static_cast<unsigned long long>(seeds), seconds,
              1e3 * seconds / static_cast<double>(seeds),
              static_cast<unsigned long long>(findings));
  if (flags.expect_finding) {
    return findings > 0 ? 0 : 1;
  }
  return findings > 0 ? 1 : !met && seeds >= kSeedsThatMeetAll ? 3 : 0;
}

}  // namespace
}  // namespace strata::sim

int main(int argc, char** argv) { return strata::sim::Main(argc, argv); }
