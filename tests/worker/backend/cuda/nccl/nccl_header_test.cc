// That nccl_calls.h says what NCCL's header says.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "worker/backend/cuda/nccl/nccl_calls.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define STRATA_HAS_NCCL_HEADER 1
#endif

namespace strata::cuda {
namespace {

#ifdef STRATA_HAS_NCCL_HEADER

// Passed alike: pointers as pointers, integers and enumerations as integers of that size, and
// structs as structs.
template <typename A, typename B>
constexpr bool kAlike =
    sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
    std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) == (std::is_integral_v<B> || std::is_enum_v<B>);

template <typename A, typename B>
struct SameCall : std::false_type {};
template <typename RA, typename... A, typename RB, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<RA (*)(A...), RB (*)(B...)>
    : std::bool_constant<kAlike<RA, RB> && (kAlike<A, B> && ...)> {
};

TEST(NcclHeader, HasTheCallsOfTheTable) {
#define STRATA_EXPECT_CALL(theirs, ours) \
  EXPECT_TRUE((SameCall<decltype(&theirs), decltype(NcclCalls::ours)>::value)) << #theirs
  STRATA_EXPECT_CALL(ncclGetVersion, get_version);
  STRATA_EXPECT_CALL(ncclGetErrorString, get_error_string);
  STRATA_EXPECT_CALL(ncclGetLastError, get_last_error);
  STRATA_EXPECT_CALL(ncclGetUniqueId, get_unique_id);
  STRATA_EXPECT_CALL(ncclCommInitRankConfig, comm_init_rank_config);
  STRATA_EXPECT_CALL(ncclCommGetAsyncError, comm_get_async_error);
  STRATA_EXPECT_CALL(ncclCommAbort, comm_abort);
  STRATA_EXPECT_CALL(ncclAllGather, all_gather);
  STRATA_EXPECT_CALL(ncclBroadcast, broadcast);
  STRATA_EXPECT_CALL(ncclGroupStart, group_start);
  STRATA_EXPECT_CALL(ncclGroupEnd, group_end);
#undef STRATA_EXPECT_CALL
}

TEST(NcclHeader, HasTheNumbers) {
  EXPECT_EQ(static_cast<int>(NcclResult::kSuccess), ncclSuccess);
  EXPECT_EQ(static_cast<int>(NcclResult::kUnhandledCudaError), ncclUnhandledCudaError);
  EXPECT_EQ(static_cast<int>(NcclResult::kSystemError), ncclSystemError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInternalError), ncclInternalError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInvalidArgument), ncclInvalidArgument);
  EXPECT_EQ(static_cast<int>(NcclResult::kInvalidUsage), ncclInvalidUsage);
  EXPECT_EQ(static_cast<int>(NcclResult::kRemoteError), ncclRemoteError);
  EXPECT_EQ(static_cast<int>(NcclResult::kInProgress), ncclInProgress);
  EXPECT_EQ(static_cast<int>(NcclDataType::kUint8), ncclUint8);
  EXPECT_EQ(sizeof(NcclUniqueId), sizeof(ncclUniqueId));
}

// Later versions have more behind it.
TEST(NcclHeader, HasTheConfigurationThatAnInitializerMakes) {
  if (NCCL_VERSION_CODE < kNcclOldestVersion) {
    GTEST_SKIP() << "nccl.h is of " << NCCL_VERSION_CODE;
  }
  if (NCCL_VERSION_CODE == kNcclHeaderVersion) {
    EXPECT_EQ(sizeof(NcclConfig), sizeof(ncclConfig_t));
  }
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.nvlink_centric_sched, theirs.nvlinkCentricSched);
  EXPECT_EQ(ours.net_name, theirs.netName);
  EXPECT_EQ(offsetof(NcclConfig, size), offsetof(ncclConfig_t, size));
  EXPECT_EQ(offsetof(NcclConfig, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(NcclConfig, traffic_class), offsetof(ncclConfig_t, trafficClass));
  EXPECT_EQ(offsetof(NcclConfig, comm_name), offsetof(ncclConfig_t, commName));
  EXPECT_EQ(offsetof(NcclConfig, shrink_share), offsetof(ncclConfig_t, shrinkShare));
  EXPECT_EQ(offsetof(NcclConfig, nvlink_centric_sched), offsetof(ncclConfig_t, nvlinkCentricSched));
}

#else

TEST(NcclHeader, HasTheCallsOfTheTable) {
  GTEST_SKIP() << "no nccl.h is found beside CUDA's headers: NCCL's package of NVIDIA has it";
}

#endif

}  // namespace
}  // namespace strata::cuda
