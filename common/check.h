// CHECK for our own bugs only: prints what and where, and aborts.
#ifndef STRATA_COMMON_CHECK_H_
#define STRATA_COMMON_CHECK_H_

namespace strata::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);
}

#define STRATA_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::strata::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                  \
  } while (false)

#endif  // STRATA_COMMON_CHECK_H_
