#include "common/digest.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Digest, Sha256OfAbcIsTheStandardsExample) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, Crc32cMatchesTheStandardsExamples) {
  // RFC 3720, B.4.
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  EXPECT_EQ(Crc32c(0, zeros.data(), zeros.size()), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(0, ones.data(), ones.size()), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xE3069283u);
}

TEST(Digest, PortableCrcEqualsTheInstructionAtEveryLengthAndCutsAnywhere) {
  std::string data;
  for (int i = 0; i < 300; ++i) {
    data += static_cast<char>(i * 37 + i / 7);
  }
  for (size_t n = 0; n <= data.size(); ++n) {
    const uint32_t whole = Crc32c(0, data.data(), n);
    ASSERT_EQ(whole, Crc32cPortable(0, data.data(), n)) << n;
    ASSERT_EQ(whole, Crc32c(Crc32c(0, data.data(), n / 3), data.data() + n / 3, n - n / 3)) << n;
  }
}

}  // namespace
}  // namespace strata
