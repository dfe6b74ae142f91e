// What is drawn at random for a request that does not say. Any thread.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_DRAWS_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_DRAWS_H_

#include <cstdint>
#include <string>

namespace strata {

uint64_t DrawSeed();
std::string DrawRequestId();

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_REQUEST_DRAWS_H_
