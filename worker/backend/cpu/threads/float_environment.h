// Round to nearest, subnormals as they are: what every result depends on.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_FLOAT_ENVIRONMENT_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_FLOAT_ENVIRONMENT_H_

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "common/check.h"

namespace strata::cpu {

// Sets the calling thread's floating-point control, checks it, and puts back what was there.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() : before_(Get()) {
    const uint64_t wanted = before_ & ~kForbidden;
    if (wanted != before_) {
      Set(wanted);
    }
    STRATA_CHECK((Get() & kForbidden) == 0);
  }
  ~ScopedFloatEnvironment() {
    if ((before_ & kForbidden) != 0) {
      Set(before_);
    }
  }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // MXCSR: flush to zero (15), rounding control (14, 13), denormals are zeros (6).
  static constexpr uint64_t kForbidden = 0xe040;
  static uint64_t Get() { return _mm_getcsr(); }
  static void Set(uint64_t control) { _mm_setcsr(static_cast<uint32_t>(control)); }
#elif defined(__aarch64__)
  // FPCR: flush to zero (24), rounding mode (23, 22), flush 16-bit to zero (19), flush inputs (0).
  static constexpr uint64_t kForbidden = 0x1c80001;
  static uint64_t Get() {
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void Set(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#else
  static constexpr uint64_t kForbidden = 1;
  static uint64_t Get() { return std::fegetround() == FE_TONEAREST ? 0 : 1; }
  static void Set(uint64_t control) {
    if (control == 0) {
      std::fesetround(FE_TONEAREST);
    }
  }
#endif
  const uint64_t before_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_FLOAT_ENVIRONMENT_H_
