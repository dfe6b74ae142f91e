// Which sampling parameters are accepted: workers and coordinator refuse with the same words, the
// latter before a request is queued.
#ifndef STRATA_COMMON_SAMPLING_PARAMS_H_
#define STRATA_COMMON_SAMPLING_PARAMS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "strata/v1/types.pb.h"

namespace strata {

// Whether every field that is set is finite and in its range, and every id of logit_bias below
// `vocab`. INVALID_ARGUMENT (SAMPLING_PARAMETER) names the field, its value and the range. Unset
// fields are accepted.
absl::Status ValidateSampling(const v1::SamplingParams& params, uint32_t vocab);

// Whether every optional field is set, as the step protocol wants it; INVALID_ARGUMENT
// (SAMPLING_INCOMPLETE) names the first one that is not.
absl::Status CheckSamplingComplete(const v1::SamplingParams& params);

// Complete parameters with every filter and penalty off.
v1::SamplingParams PlainSampling(float temperature, uint64_t seed);

}  // namespace strata

#endif  // STRATA_COMMON_SAMPLING_PARAMS_H_
