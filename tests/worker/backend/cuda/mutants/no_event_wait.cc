// Copies beside kernels that do not wait for what the kernels compute.
#include "worker/backend/cuda/device/device.h"
#define WaitFor(stream, event) Health()

#include "worker/backend/cuda/shard/transfers.cc"
