// The table of an instruction set with matrix tiles. Included after table-inl.h.

// Tiles left in use would be kept at every switch of threads, and keep the core from its deep
// sleep.
void MatmulWithTiles(const MatmulArgs& args, size_t first, size_t end) {
  Matmul(args, first, end);
  if (configured_rows != 0) {
    ReleaseTiles();
    configured_rows = 0;
  }
}

constexpr Kernels MakeTileTable(const char* isa) {
  Kernels table = MakeTable(isa);
  table.matmul = MatmulWithTiles;
  table.run_dots = RunTileDots;
  return table;
}
