// Matrix tiles without instructions for them, see quant_tiles-inl.h and tiles.h.

thread_local Tiles tiles;

inline void LoadTileConfig(const void* config) { tiles.Configure(config); }
inline void ReleaseTiles() { tiles.Release(); }
template <int T>
void TileZero() {
  tiles.Zero(T);
}
template <int T>
void TileLoad(const void* from, size_t stride) {
  tiles.Load(T, static_cast<const uint8_t*>(from), stride);
}
template <int T>
void TileStore(void* to, size_t stride) {
  tiles.Store(T, static_cast<uint8_t*>(to), stride);
}
template <int C, int A, int B>
void TileDot() {
  tiles.DotSignedUnsigned(C, A, B);
}

template <int C, int A, int B>
void TileDotSigned() {
  tiles.DotSigned(C, A, B);
}

inline DotWeights Minus128(DotWeights weights) {
  uint8_t bytes[sizeof(weights)];
  std::memcpy(bytes, &weights, sizeof(bytes));
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(byte - 128);
  }
  std::memcpy(&weights, bytes, sizeof(bytes));
  return weights;
}
