#include "common/model/row_digest.h"

#include "common/digest.h"

namespace strata {
namespace {

uint64_t DigestOf(std::span<const float> row, Sha256* sha) {
  sha->Update(row.data(), row.size_bytes());
  const Sha256Bytes digest = sha->Finish();
  uint64_t first = 0;
  for (size_t i = 0; i < sizeof(first); ++i) {
    first = first << 8 | digest[i];
  }
  return first;
}

}  // namespace

uint64_t RowDigest(std::span<const float> row) {
  Sha256 sha;
  return DigestOf(row, &sha);
}

std::vector<uint64_t> RowDigests(std::span<const float> rows, size_t columns) {
  Sha256 sha;
  std::vector<uint64_t> digests;
  digests.reserve(rows.size() / columns);
  for (size_t begin = 0; begin < rows.size(); begin += columns) {
    digests.push_back(DigestOf(rows.subspan(begin, columns), &sha));
  }
  return digests;
}

}  // namespace strata
