// SHA-256 (OpenSSL) and CRC-32C.
#ifndef STRATA_COMMON_DIGEST_H_
#define STRATA_COMMON_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata {

using Sha256Bytes = std::array<uint8_t, 32>;

// Incremental SHA-256. One thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t bytes);
  void Update(std::string_view data) { Update(data.data(), data.size()); }
  // Ends the digest; the object begins a new one.
  Sha256Bytes Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string ToHex(const Sha256Bytes& digest);
std::string Sha256Hex(std::string_view data);

// CRC-32C (Castagnoli, reflected 0x82F63B78; RFC 3720 B.4) of `data`, continuing `crc` (0 first).
// Uses the SSE4.2 instruction where the processor has it.
uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes);
// The portable form, for tests of the other.
uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t bytes);

}  // namespace strata

#endif  // STRATA_COMMON_DIGEST_H_
