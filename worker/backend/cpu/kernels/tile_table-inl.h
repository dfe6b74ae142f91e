// The table of an instruction set with matrix tiles. Included after table-inl.h.

constexpr Kernels MakeTileTable(const char* isa) {
  Kernels table = MakeTable(isa);
  table.run_dots = RunTileDots;
  return table;
}
