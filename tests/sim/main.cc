// strata-sim: the deterministic simulation. docs/RELIABILITY.md says what it proves.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/scale.h"
#include "tests/sim/shrink.h"
#include "tests/sim/simulation.h"

namespace strata::sim {
namespace {

constexpr char kUsage[] =
    R"(strata-sim: coordinator, workers and clients on one thread, with faults drawn from a seed

  --seeds N          run seeds 1..N and print what happened how often (default 200)
  --first S          begin at seed S instead of 1
  --seed S           run this seed alone
  --faults 0,3       of the seed's faults, only these (as a shrunk failure names them)
  --requests 1,2     likewise its requests
  --drafts           steps carry drafts whatever the seed, not in a fifth of the scenarios
  --trace            tell the run of --seed as a story
  --expect finding   fail unless there is one (a build without a guard)
  --no-shrink        print a failing seed as it is
  --scale            instead: schedulers, ledgers and placing of a large cluster that loses workers
  --scale-workers N  (default 1000, in pipelines of 4)
  --scale-requests N (default 100000)
  --scale-losses P   percent of the workers that are lost each simulated minute (default 5)

Exit status: 0 nothing found, 1 a finding, 2 wrong flags, 3 a fault or rule that never occurred.
)";

// A batch of fewer seeds need not meet every fault and rule.
constexpr uint64_t kSeedsThatMeetAll = 1000;
constexpr int kShrinkBudget = 400;

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 200;
  std::optional<uint64_t> seed;
  std::optional<std::vector<size_t>> faults;
  std::optional<std::vector<size_t>> requests;
  bool drafts = false;
  bool trace = false;
  bool expect_finding = false;
  bool shrink = true;
  bool scale = false;
  ScaleOptions scale_options;
};

// The seed at hand, for a check that aborts.
volatile std::sig_atomic_t aborting = 0;
char seed_line[96];
// A check that fails is a finding.
int abort_status = 1;

// How a finding is had again, behind its seed.
const char* MoreFlags(const Flags& flags) { return flags.drafts ? " --drafts" : ""; }

void SetSeedLine(uint64_t seed, const Flags& flags) {
  std::snprintf(seed_line, sizeof seed_line, "A check failed. Again: ./dev sim --seed %llu%s\n",
                static_cast<unsigned long long>(seed), MoreFlags(flags));
}

void OnAbort(int) {
  if (aborting == 0) {
    aborting = 1;
    std::fputs(seed_line, stderr);
  }
  std::_Exit(abort_status);
}

std::vector<size_t> ParseList(const std::string& text) {
  std::vector<size_t> list;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(',', begin);
    end = end == std::string::npos ? text.size() : end;
    list.push_back(std::stoull(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return list;
}

[[noreturn]] void Usage(int status) {
  std::fputs(kUsage, status == 0 ? stdout : stderr);
  std::exit(status);
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    auto value = [&]() -> std::string { return ++i < argc ? argv[i] : (Usage(2), ""); };
    try {
      if (flag == "--seeds") {
        flags.seeds = std::stoull(value());
      } else if (flag == "--first") {
        flags.first = std::stoull(value());
      } else if (flag == "--seed") {
        flags.seed = std::stoull(value());
      } else if (flag == "--faults") {
        flags.faults = ParseList(value());
      } else if (flag == "--requests") {
        flags.requests = ParseList(value());
      } else if (flag == "--drafts") {
        flags.drafts = true;
      } else if (flag == "--trace") {
        flags.trace = true;
      } else if (flag == "--no-shrink") {
        flags.shrink = false;
      } else if (flag == "--scale") {
        flags.scale = true;
      } else if (flag == "--scale-workers") {
        flags.scale_options.workers = static_cast<uint32_t>(std::stoul(value()));
      } else if (flag == "--scale-requests") {
        flags.scale_options.requests = static_cast<uint32_t>(std::stoul(value()));
      } else if (flag == "--scale-losses") {
        flags.scale_options.losses_percent = std::stod(value());
      } else if (flag == "--expect" && value() == "finding") {
        flags.expect_finding = true;
        abort_status = 0;
      } else {
        Usage(flag == "--help" ? 0 : 2);
      }
    } catch (const std::exception&) {
      Usage(2);
    }
  }
  return flags;
}

std::string Join(const std::vector<size_t>& list) {
  std::string text;
  for (const size_t entry : list) {
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  }
  return text.empty() ? "''" : text;
}

void PrintFinding(const Scenario& scenario, const Outcome& outcome, const Flags& flags) {
  std::printf("seed %llu: %s\n  again: ./dev sim --seed %llu%s\n",
              static_cast<unsigned long long>(scenario.seed), outcome.finding->c_str(),
              static_cast<unsigned long long>(scenario.seed), MoreFlags(flags));
  if (!flags.shrink) {
    return;
  }
  const auto fails = [&scenario](const Part& part) {
    return Simulate(Reduced(scenario, part), /*tell=*/false).finding.has_value();
  };
  const Part part = Shrink(scenario, fails, kShrinkBudget);
  const Outcome small = Simulate(Reduced(scenario, part), /*tell=*/false);
  std::printf(
      "  shrunk to %zu of %zu faults and %zu of %zu requests: %s\n"
      "  as a story: ./dev sim --seed %llu%s --faults %s --requests %s --trace\n",
      part.faults.size(), scenario.faults.size(), part.requests.size(), scenario.requests.size(),
      small.finding->c_str(), static_cast<unsigned long long>(scenario.seed), MoreFlags(flags),
      Join(part.faults).c_str(), Join(part.requests).c_str());
}

int RunOne(const Flags& flags) {
  const Scenario scenario = MakeScenario(*flags.seed, flags.drafts);
  SetSeedLine(scenario.seed, flags);
  Part part = Whole(scenario);
  const bool whole = !flags.faults.has_value() && !flags.requests.has_value();
  part.faults = flags.faults.value_or(part.faults);
  part.requests = flags.requests.value_or(part.requests);
  const auto known = [](const std::vector<size_t>& list, size_t size) {
    return std::all_of(list.begin(), list.end(), [size](size_t entry) { return entry < size; });
  };
  if (!known(part.faults, scenario.faults.size()) ||
      !known(part.requests, scenario.requests.size())) {
    Usage(2);
  }
  const Outcome outcome = Simulate(Reduced(scenario, part), flags.trace);
  std::fputs(flags.trace ? outcome.story.c_str() : "", stdout);
  if (!outcome.finding.has_value()) {
    std::printf("seed %llu: nothing found in %llu events\n",
                static_cast<unsigned long long>(scenario.seed),
                static_cast<unsigned long long>(outcome.events));
  } else if (flags.trace || !whole) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(scenario.seed),
                outcome.finding->c_str());
  } else {
    PrintFinding(scenario, outcome, flags);
  }
  return outcome.finding.has_value() == flags.expect_finding ? 0 : 1;
}

int RunBatch(const Flags& flags) {
  const std::clock_t began = std::clock();
  Counts counts;
  uint64_t events = 0;
  for (uint64_t seed = flags.first; seed < flags.first + flags.seeds; ++seed) {
    SetSeedLine(seed, flags);
    const Scenario scenario = MakeScenario(seed, flags.drafts);
    const Outcome outcome = Simulate(scenario, /*tell=*/false);
    if (outcome.finding.has_value()) {
      PrintFinding(scenario, outcome, flags);
      return flags.expect_finding ? 0 : 1;
    }
    counts.Add(outcome.counts);
    events += outcome.events;
  }
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  std::fputs(counts.Table().c_str(), stdout);
  std::printf("%llu seeds, %llu events, %.1f s of processor time, %.2f ms a seed: nothing found\n",
              static_cast<unsigned long long>(flags.seeds), static_cast<unsigned long long>(events),
              seconds, seconds * 1000 / static_cast<double>(std::max<uint64_t>(1, flags.seeds)));
  if (flags.expect_finding) {
    return 1;
  }
  const std::string missing = counts.Missing();
  if (flags.seeds >= kSeedsThatMeetAll && !missing.empty()) {
    std::printf("never occurred: %s\n", missing.c_str());
    return 3;
  }
  return 0;
}

}  // namespace
}  // namespace strata::sim

int main(int argc, char** argv) {
  std::signal(SIGABRT, strata::sim::OnAbort);
  const strata::sim::Flags flags = strata::sim::ParseFlags(argc, argv);
  if (flags.scale) {
    return strata::sim::RunScale(flags.scale_options) ? 0 : 1;
  }
  return flags.seed.has_value() ? strata::sim::RunOne(flags) : strata::sim::RunBatch(flags);
}
