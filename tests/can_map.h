// Whether the platform library that a test is linked with maps files here.
#ifndef STRATA_TESTS_CAN_MAP_H_
#define STRATA_TESTS_CAN_MAP_H_

#include <cstdio>

#include "common/platform/platform.h"

namespace strata::testing {

inline bool CanMap() {
  std::FILE* const file = std::tmpfile();
  uint8_t* const page = AllocatePages(1, PageBytes());
  if (file == nullptr || page == nullptr) {
    return false;
  }
  const bool can =
      std::fputc('x', file) == 'x' && std::fflush(file) == 0 && MapFile(fileno(file), page, 1).ok();
  FreePages(page, 1);
  std::fclose(file);
  return can;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_CAN_MAP_H_
