// The loops of every instruction set that are written with its dot products of integers, and
// MakeTable, the table of all. Included after the dot products, within a namespace.

// In this order.
#include "worker/backend/cpu/kernels/peak_loops-inl.h"
#include "worker/backend/cpu/kernels/quant_rows-inl.h"
// After the rows.
#include "worker/backend/cpu/kernels/quant-inl.h"
#include "worker/backend/cpu/kernels/super-inl.h"
#include "worker/backend/cpu/kernels/super_unpacked-inl.h"
// After the other super-blocks.
#include "worker/backend/cpu/kernels/super2-inl.h"
// After the super-blocks, whose MultiplyRows it uses.
#include "worker/backend/cpu/kernels/code-inl.h"
// After all that it lists.
#include "worker/backend/cpu/kernels/table-inl.h"
