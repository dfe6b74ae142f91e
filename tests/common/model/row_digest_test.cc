#include "common/model/row_digest.h"

#include <gtest/gtest.h>

#include <array>

namespace strata {
namespace {

// python3 -c "import hashlib, struct;
//             print(hashlib.sha256(struct.pack('<3f', 1.5, -2.25, 1e-3)).hexdigest()[:16])"
TEST(RowDigest, IsTheBeginningOfTheSha256OfTheValuesBytes) {
  EXPECT_EQ(RowDigest(std::array{1.5f, -2.25f, 1e-3f}), 0x2ff655a93b3e1829u);
  EXPECT_EQ(RowDigest(std::array{1.0f}), 0xe00e5eb9444182f3u);
  EXPECT_NE(RowDigest(std::array{0.0f}), RowDigest(std::array{-0.0f}));
}

TEST(RowDigest, RowsAreDigestedEachByItself) {
  const std::array rows{1.5f, -2.25f, 1e-3f, 1.0f, 2.0f, 3.0f};
  EXPECT_EQ(RowDigests(rows, 3), (std::vector{RowDigest(std::array{1.5f, -2.25f, 1e-3f}),
                                              RowDigest(std::array{1.0f, 2.0f, 3.0f})}));
  EXPECT_EQ(RowDigests(rows, 1)[3], RowDigest(std::array{1.0f}));
}

}  // namespace
}  // namespace strata
