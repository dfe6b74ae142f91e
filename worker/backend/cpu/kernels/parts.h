// A table of kernels takes minutes to compile: so its source is compiled once for each part, at the
// same time, of which one holds the table and the others the products of some formats of weights.
// STRATA_KERNELS_PART says which part is compiled; where it is not defined, all are in one.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_PARTS_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_PARTS_H_

// As cmake/StrataKernels.cmake has them.
#define STRATA_PART_TABLE 1   // And all loops that are no products.
#define STRATA_PART_FLOATS 2  // Weights that are stored as floats.
#define STRATA_PART_INTS 3    // Integers of 8 and 4 bits, and int8 activations.
#define STRATA_PART_SUPERS 4  // Super-blocks, and int8 activations.
#define STRATA_PART_CODES 5   // Codes of 4 bits, and int8 activations.
#define STRATA_PART_WIDE 6    // All quantized weights, and float activations.

#ifdef STRATA_KERNELS_PART
#define STRATA_HAS_PART(part) (STRATA_KERNELS_PART == (part))
// What the other parts use is there all the same.
#pragma GCC diagnostic ignored "-Wunused-function"
#else
#define STRATA_HAS_PART(part) 1
#endif

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_PARTS_H_
