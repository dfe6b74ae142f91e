// Of a stage's ranks: one that waits on though its own side has given up.
#include "tests/sim/ranks/mutants/no_abort.cc"
