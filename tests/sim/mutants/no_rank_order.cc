// Of a stage's ranks: columns that are filled in by who comes first.
#include "tests/sim/ranks/mutants/no_order.cc"
