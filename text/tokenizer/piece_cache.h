// Pieces that were seen in one text, and where their ids stand: words come again, and are short.
#ifndef STRATA_TEXT_TOKENIZER_PIECE_CACHE_H_
#define STRATA_TEXT_TOKENIZER_PIECE_CACHE_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace strata {

// Holds views: the pieces outlive it. Used by one thread.
class PieceCache {
 public:
  // Whether the piece was seen; then its ids are appended to those that it was seen in.
  bool Repeat(std::string_view piece, std::vector<uint32_t>* ids) const {
    if (piece.size() > kMaxBytes) {
      return false;
    }
    const auto found = seen_.find(Key(piece));
    if (found == seen_.end()) {
      return false;
    }
    for (size_t i = found->second.first; i < found->second.second; ++i) {
      const uint32_t id = (*ids)[i];
      ids->push_back(id);
    }
    return true;
  }
  // That the piece's ids are those from `begin` to `end`.
  void Add(std::string_view piece, size_t begin, size_t end) {
    if (piece.size() <= kMaxBytes && seen_.size() < kMaxPieces) {
      seen_.emplace(Key(piece), std::make_pair(begin, end));
    }
  }

 private:
  static constexpr size_t kMaxPieces = 8192;
  static constexpr size_t kMaxBytes = 64;

  static absl::string_view Key(std::string_view piece) { return {piece.data(), piece.size()}; }

  absl::flat_hash_map<absl::string_view, std::pair<size_t, size_t>> seen_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOKENIZER_PIECE_CACHE_H_
