#include "text/grammar/char_set.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace strata {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

}  // namespace

CharSet::CharSet(std::vector<Range> ranges) {
  std::vector<Range> scalars;
  for (const Range& range : ranges) {
    if (range.low < kFirstSurrogate) {
      scalars.push_back({range.low, std::min<char32_t>(range.high, kFirstSurrogate - 1)});
    }
    if (range.high > kLastSurrogate) {
      scalars.push_back({std::max<char32_t>(range.low, kLastSurrogate + 1),
                         std::min<char32_t>(range.high, kLastCharacter)});
    }
  }
  std::sort(scalars.begin(), scalars.end());
  for (const Range& range : scalars) {
    if (range.low > range.high) {
      continue;
    }
    if (!ranges_.empty() && range.low <= ranges_.back().high + 1) {
      ranges_.back().high = std::max(ranges_.back().high, range.high);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CharSet::Contains(char32_t character) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), character,
                                      [](char32_t c, const Range& r) { return c < r.low; });
  return after != ranges_.begin() && character <= std::prev(after)->high;
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(all));
}

CharSet CharSet::Intersection(const CharSet& other) const {
  CharSet result;
  size_t a = 0;
  size_t b = 0;
  while (a < ranges_.size() && b < other.ranges_.size()) {
    const char32_t low = std::max(ranges_[a].low, other.ranges_[b].low);
    const char32_t high = std::min(ranges_[a].high, other.ranges_[b].high);
    if (low <= high) {
      result.ranges_.push_back({low, high});
    }
    ranges_[a].high < other.ranges_[b].high ? ++a : ++b;
  }
  return result;
}

CharSet CharSet::Complement() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.low > next) {
      gaps.push_back({next, range.low - 1});
    }
    next = range.high + 1;
  }
  if (next <= kLastCharacter) {
    gaps.push_back({next, kLastCharacter});
  }
  return CharSet(std::move(gaps));
}

}  // namespace strata
