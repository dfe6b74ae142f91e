// What every table of kernels must compute alike, over random shapes and all tails. It needs no
// library, so that a program for another processor, run by an emulator, can hold it too.
#ifndef STRATA_TESTS_WORKER_BACKEND_KERNEL_CASES_H_
#define STRATA_TESTS_WORKER_BACKEND_KERNEL_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// One call, or some, of a table. The digest is of all results; NaNs count as equal, as processors
// differ in their signs.
struct KernelCase {
  std::string name;
  uint64_t digest;
  friend bool operator==(const KernelCase&, const KernelCase&) = default;
};

// The cases are the same for every table, in the same order. `few`: a fifth of them, of all kinds.
std::vector<KernelCase> RunKernelCases(const Kernels& kernels, bool few = false);

// "" where they are equal, or the first that differ.
std::string Difference(const std::vector<KernelCase>& expected, const std::vector<KernelCase>& got);

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_KERNEL_CASES_H_
