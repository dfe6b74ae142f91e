// The loops of every instruction set that are written with its dot products of integers, and
// MakeTable, the table of all. Included after the dot products, within a namespace.

// In this order.
#include "worker/backend/cpu/peak_loops-inl.h"
#include "worker/backend/cpu/quant_rows-inl.h"
// After the rows.
#include "worker/backend/cpu/quant-inl.h"
#include "worker/backend/cpu/super-inl.h"
#include "worker/backend/cpu/table-inl.h"
