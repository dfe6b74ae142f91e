// Matrix tiles exactly as AMX has them, in scalar code, for tests on machines that have none. What
// the processor refuses is a failed check.
#ifndef STRATA_TESTS_WORKER_BACKEND_TILES_H_
#define STRATA_TESTS_WORKER_BACKEND_TILES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/check.h"

namespace strata::cpu {

// A thread's tiles.
class Tiles {
 public:
  // Of ldtilecfg's 64 bytes: 0 is the palette, 16 to 31 are bytes a row and 48 to 55 rows, of each.
  void Configure(const void* config) {
    *this = {};
    std::memcpy(config_, config, sizeof(config_));
    STRATA_CHECK(config_[0] == 1);
    for (int i = 1; i < 64; ++i) {
      STRATA_CHECK(config_[i] == 0 || (i >= 16 && i < 32) || (i >= 48 && i < 56));
    }
    for (int tile = 0; tile < 8; ++tile) {
      STRATA_CHECK(Rows(tile) <= 16 && RowBytes(tile) <= 64);
    }
  }
  void Release() { *this = {}; }
  void Zero(int tile) {
    Check(tile);
    std::memset(bytes_[tile], 0, sizeof(bytes_[tile]));
  }
  void Load(int tile, const uint8_t* from, size_t stride) {
    Zero(tile);
    for (size_t row = 0; row < Rows(tile); ++row) {
      std::memcpy(bytes_[tile][row], from + row * stride, RowBytes(tile));
    }
  }
  void Store(int tile, uint8_t* to, size_t stride) const {
    Check(tile);
    for (size_t row = 0; row < Rows(tile); ++row) {
      std::memcpy(to + row * stride, bytes_[tile][row], RowBytes(tile));
    }
  }
  // c += a * b: signed bytes of a, unsigned ones of b, by fours.
  void DotSignedUnsigned(int c, int a, int b) { Dot<uint8_t>(c, a, b); }
  // The same, signed bytes of b.
  void DotSigned(int c, int a, int b) { Dot<int8_t>(c, a, b); }

 private:
  template <typename B>
  void Dot(int c, int a, int b) {
    Check(c);
    Check(a);
    Check(b);
    STRATA_CHECK(c != a && c != b && a != b);
    STRATA_CHECK(Rows(c) == Rows(a) && RowBytes(c) == RowBytes(b));
    STRATA_CHECK(RowBytes(a) == 4 * Rows(b) && RowBytes(c) % 4 == 0);
    for (size_t m = 0; m < Rows(c); ++m) {
      for (size_t n = 0; n < RowBytes(c) / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, bytes_[c][m] + 4 * n, sizeof(sum));
        for (size_t i = 0; i < RowBytes(a); ++i) {
          const B of_b = static_cast<B>(bytes_[b][i / 4][4 * n + i % 4]);
          sum += static_cast<int8_t>(bytes_[a][m][i]) * of_b;
        }
        std::memcpy(bytes_[c][m] + 4 * n, &sum, sizeof(sum));
      }
    }
  }
  size_t Rows(int tile) const { return config_[48 + tile]; }
  size_t RowBytes(int tile) const {
    return config_[16 + 2 * tile] + size_t{256} * config_[17 + 2 * tile];
  }
  void Check(int tile) const {
    STRATA_CHECK(config_[0] == 1 && Rows(tile) > 0 && RowBytes(tile) > 0);
  }

  uint8_t config_[64] = {};
  uint8_t bytes_[8][16][64] = {};
};

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_TILES_H_
