#include "common/digest.h"

#include <openssl/evp.h>

#include <cstring>

#include "common/check.h"
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace strata {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  STRATA_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t bytes) {
  STRATA_CHECK(EVP_DigestUpdate(context_->evp, data, bytes) == 1);
}

Sha256Bytes Sha256::Finish() {
  Sha256Bytes out;
  unsigned size = 0;
  STRATA_CHECK(EVP_DigestFinal_ex(context_->evp, out.data(), &size) == 1 && size == out.size());
  STRATA_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
  return out;
}

std::string ToHex(const Sha256Bytes& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  for (uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string Sha256Hex(std::string_view data) {
  Sha256 sha;
  sha.Update(data);
  return ToHex(sha.Finish());
}

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;

struct Crc32cTables {
  uint32_t t[8][256];
  constexpr Crc32cTables() : t() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
      }
      t[0][i] = crc;
    }
    for (int k = 1; k < 8; ++k) {
      for (uint32_t i = 0; i < 256; ++i) {
        t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
      }
    }
  }
};
constexpr Crc32cTables kTables;

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(uint32_t crc, const uint8_t* p, size_t n) {
  uint64_t c = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    c = _mm_crc32_u64(c, word);
  }
  auto c32 = static_cast<uint32_t>(c);
  for (; n > 0; --n, ++p) {
    c32 = _mm_crc32_u8(c32, *p);
  }
  return ~c32;
}
#endif

}  // namespace

uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t c = ~crc;
  const auto& t = kTables.t;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint32_t low =
        c ^ (uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24);
    c = t[7][low & 255] ^ t[6][(low >> 8) & 255] ^ t[5][(low >> 16) & 255] ^ t[4][low >> 24] ^
        t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
  }
  for (; bytes > 0; --bytes, ++p) {
    c = (c >> 8) ^ t[0][(c ^ *p) & 255];
  }
  return ~c;
}

uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) {
    return Crc32cSse42(crc, static_cast<const uint8_t*>(data), bytes);
  }
#endif
  return Crc32cPortable(crc, data, bytes);
}

}  // namespace strata
