// The decisions about what a disk or another node gave, in a translation unit of their own as
// worker/runner/step_policy.h: a test links others.
#ifndef STRATA_WORKER_WEIGHTS_CACHE_POLICY_H_
#define STRATA_WORKER_WEIGHTS_CACHE_POLICY_H_

#include <cstdint>
#include <string_view>

namespace strata::cache_policy {

// Whether bytes of which the digest is `found` are the blob that is named `named`.
bool IsBlob(std::string_view found, std::string_view named);

// Whether packed weights of which the checksum is `found` are those that were written, with
// `noted`.
bool IsIntact(uint32_t found, uint32_t noted);

}  // namespace strata::cache_policy

#endif  // STRATA_WORKER_WEIGHTS_CACHE_POLICY_H_
