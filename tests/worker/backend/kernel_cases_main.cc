// The kernel cases as a program of its own, for machines that have none of our libraries.
//   kernel_cases write FILE                leaves the digests of this machine's tables
//   kernel_cases check FILE ISA [ISA...]   compares them; exactly these tables have to run here
// Either way, all tables of this machine have to agree.
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/worker/backend/kernel_cases.h"
#include "tests/worker/backend/tables.h"
#include "worker/backend/cpu/kernels/isa.h"
#include "worker/backend/cpu/threads/float_environment.h"

namespace strata::cpu {
namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "kernel_cases: %s\n", what.c_str());
  return 1;
}

// Lines of a digest and a name.
bool Write(const char* path, const std::vector<KernelCase>& cases) {
  std::ofstream file(path);
  for (const KernelCase& one : cases) {
    file << one.digest << ' ' << one.name << '\n';
  }
  return file.flush().good();
}
std::vector<KernelCase> Read(const char* path) {
  std::ifstream file(path);
  std::vector<KernelCase> cases;
  KernelCase one;
  while (file >> one.digest && file.get() == ' ' && std::getline(file, one.name)) {
    cases.push_back(one);
  }
  return cases;
}

int Main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what != "write" && what != "check") {
    return Fail("write FILE, or check FILE ISA...");
  }
  const ScopedFloatEnvironment environment;
  std::vector<KernelCase> first;
  std::string ran;
  for (const Kernels* kernels : MachineKernels()) {
    const std::vector<KernelCase> cases = RunKernelCases(*kernels);
    if (first.empty()) {
      first = cases;
    }
    if (const std::string wrong = Difference(first, cases); !wrong.empty()) {
      return Fail(std::string(kernels->isa) + " differs from " + MachineKernels()[0]->isa + ": " +
                  wrong);
    }
    ran += (ran.empty() ? "" : " ") + TableName(kernels);
  }
  std::printf("ran: %s; %zu cases each\n", ran.c_str(), first.size());
  if (what == "write") {
    return Write(argv[2], first) ? 0 : Fail("cannot write " + std::string(argv[2]));
  }
  std::string wanted;
  for (int i = 3; i < argc; ++i) {
    wanted += (wanted.empty() ? "" : " ") + std::string(argv[i]);
  }
  if (ran != wanted) {
    return Fail("it should have run: " + wanted);
  }
  const std::string wrong = Difference(Read(argv[2]), first);
  return wrong.empty() ? 0 : Fail("not as in " + std::string(argv[2]) + ": " + wrong);
}

}  // namespace
}  // namespace strata::cpu

int main(int argc, char** argv) { return strata::cpu::Main(argc, argv); }
