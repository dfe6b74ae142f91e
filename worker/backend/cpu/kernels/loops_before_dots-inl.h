// The loops of every instruction set that need no dot products of integers: floats' and
// attention's. Included after the lanes, which they are written with, within a namespace.

#include "worker/backend/cpu/kernels/kernels-inl.h"
// After the kernels, whose sums it uses.
#include "worker/backend/cpu/kernels/attention_spans-inl.h"
#include "worker/backend/cpu/kernels/span_softmax-inl.h"
// After what it keeps.
#include "worker/backend/cpu/kernels/attention-inl.h"
// After attention, of which it is a kind.
#include "worker/backend/cpu/kernels/latent_attention-inl.h"
