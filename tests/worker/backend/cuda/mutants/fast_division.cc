// Gated products by a fast division: a product with the inverse.
#include "worker/backend/cuda/emulation/emulation.h"
#define __fdiv_rn(a, b) ((a) * (1.0f / (b)))

#include "worker/backend/cuda/kernels/rows.cc"
