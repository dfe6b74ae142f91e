#include "coordinator/service/request/request_draws.h"

#include <random>

namespace strata {

uint64_t DrawSeed() {
  thread_local std::random_device device;
  // 53 bits, so that every JSON reader keeps them.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

std::string DrawRequestId() {
  thread_local std::random_device device;
  static constexpr char kAlphabet[] = "0123456789abcdefghijkmnpqrstuvwxyz";
  std::string id = "req-";
  for (int i = 0; i < 20; ++i) {
    id += kAlphabet[device() % (sizeof(kAlphabet) - 1)];
  }
  return id;
}

}  // namespace strata
