// A table of exact scalar code, in the tiles, and with the dot products' operands, of an
// instruction set. Included after its kTiling and kDotOperands, within a namespace.

#include "worker/backend/cpu/kernels/part_functions-inl.h"
// The lanes.
#include "worker/backend/cpu/kernels/isa/lanes_scalar-inl.h"
// After the lanes, which they are written with.
#include "worker/backend/cpu/kernels/loops_before_dots-inl.h"
// After the lanes.
#include "worker/backend/cpu/kernels/isa/int_dot_scalar-inl.h"
// After the dot product, of which it makes lines.
#include "tests/worker/backend/int_line_scalar-inl.h"
// After the dot products, which they are written with.
#include "worker/backend/cpu/kernels/loops_after_dots-inl.h"
// After the loops.
#include "worker/backend/cpu/kernels/parts-inl.h"
