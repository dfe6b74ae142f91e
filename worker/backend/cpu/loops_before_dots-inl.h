// The loops of every instruction set that need no dot products of integers: floats' and
// attention's. Included after the lanes, which they are written with, within a namespace.

#include "worker/backend/cpu/kernels-inl.h"
// After the kernels, whose sums it uses.
#include "worker/backend/cpu/attention_spans-inl.h"
#include "worker/backend/cpu/span_softmax-inl.h"
// After what it keeps.
#include "worker/backend/cpu/attention-inl.h"
// After attention, of which it is a kind.
#include "worker/backend/cpu/latent_attention-inl.h"
