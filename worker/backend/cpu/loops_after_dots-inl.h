// The loops of every instruction set that are written with its dot products of integers, and
// MakeTable, the table of all. Included after the dot products, within a namespace.

// In this order.
#include "worker/backend/cpu/peak_loops-inl.h"
#include "worker/backend/cpu/quant_rows-inl.h"
// After the rows.
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/super-inl.h"
#include "worker/backend/cpu/super_unpacked-inl.h"
// After the other super-blocks.
#include "worker/backend/cpu/super2-inl.h"
// After the super-blocks, whose MultiplyRows it uses.
#include "worker/backend/cpu/code-inl.h"
// After all that it lists.
#include "worker/backend/cpu/table-inl.h"
