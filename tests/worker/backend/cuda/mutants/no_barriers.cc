// Products whose threads do not wait for each other.
#include "worker/backend/cuda/emulation/emulation.h"
#undef __syncthreads
#define __syncthreads()

#include "worker/backend/cuda/kernels/products.cc"
