// A table of exact scalar code, in the tiles, and with the dot products' operands, of an
// instruction set. Included after its kTiling, kDotSigned and DotActivation, within a namespace.

#include "worker/backend/cpu/lanes_scalar-inl.h"
// After the lanes, which it is written with.
#include "worker/backend/cpu/kernels-inl.h"
// After the kernels, whose sums it uses.
#include "worker/backend/cpu/attention_spans-inl.h"
// After what it keeps.
#include "worker/backend/cpu/attention-inl.h"
// After attention, of which it is a kind.
#include "worker/backend/cpu/latent_attention-inl.h"
// After the lanes.
#include "worker/backend/cpu/int_dot_scalar-inl.h"
// After the dot product, of which it makes lines.
#include "tests/worker/backend/int_line_scalar-inl.h"
// In this order.
#include "worker/backend/cpu/peak_loops-inl.h"
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/super-inl.h"
#include "worker/backend/cpu/table-inl.h"
