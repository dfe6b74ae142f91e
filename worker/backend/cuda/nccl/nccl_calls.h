// NCCL's calls that Strata makes, as a table that its library fills in (nccl_library.h), or a test.
// Names and layouts are those of the header of NCCL 2.28, written down here so that no build needs
// it; nccl_header_test.cc compares both where the header is found.
#ifndef STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_CALLS_H_
#define STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_CALLS_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

// As NCCL_VERSION has it: that of the header, and the oldest library that is used.
inline constexpr int kNcclHeaderVersion = 22809;
inline constexpr int kNcclOldestVersion = 22800;

enum class NcclResult : uint32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclDataType : uint32_t { kUint8 = 1 };

// A communicator of one rank (ncclComm_t is a pointer to one).
struct NcclComm;

// By which ranks find each other.
struct NcclUniqueId {
  char internal[128] = {};
};

// ncclConfig_t, as NCCL_CONFIG_INITIALIZER makes it.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclHeaderVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

// Of a communicator that does not block no call waits: what it began is under way while
// comm_get_async_error gives kInProgress.
struct NcclCalls {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm* comm) = nullptr;
  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* error) = nullptr;
  NcclResult (*comm_abort)(NcclComm* comm) = nullptr;
  NcclResult (*all_gather)(const void* send, void* receive, size_t count, NcclDataType type,
                           NcclComm* comm, Stream stream) = nullptr;
  NcclResult (*broadcast)(const void* send, void* receive, size_t count, NcclDataType type,
                          int root, NcclComm* comm, Stream stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_CALLS_H_
