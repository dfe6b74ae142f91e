#include "text/tokenizer/split_behavior.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

struct Part {
  TextRange range;
  bool match = false;
};

// The piece as an alternation of matches and what is between them.
std::vector<Part> PartsOf(TextRange piece, std::span<const TextRange> matches, bool invert) {
  std::vector<Part> parts;
  uint32_t at = piece.begin;
  for (const TextRange& match : matches) {
    const TextRange range{piece.begin + match.begin, piece.begin + match.end};
    if (range.begin > at) {
      parts.push_back({{at, range.begin}, invert});
    }
    parts.push_back({range, !invert});
    at = range.end;
  }
  if (at < piece.end) {
    parts.push_back({{at, piece.end}, invert});
  }
  return parts;
}

}  // namespace

std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  for (const auto& [known, behavior] : kNames) {
    if (name == known) {
      return behavior;
    }
  }
  return std::nullopt;
}

void SplitPiece(TextRange piece, std::span<const TextRange> matches, SplitBehavior behavior,
                bool invert, std::vector<TextRange>* pieces) {
  std::vector<Part> parts = PartsOf(piece, matches, invert);
  const size_t first = pieces->size();
  const auto add = [&](TextRange range, bool joins_previous) {
    if (joins_previous && pieces->size() > first) {
      pieces->back().end = range.end;
    } else {
      pieces->push_back(range);
    }
  };
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.match) {
          pieces->push_back(part.range);
        }
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) {
        pieces->push_back(part.range);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        add(part.range, part.match == previous_match);
        previous_match = part.match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        add(part.range, part.match && !previous_match);
        previous_match = part.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool joins = i > 0 && parts[i - 1].match && !parts[i].match;
        add(parts[i].range, joins);
      }
      break;
  }
  pieces->erase(std::remove_if(pieces->begin() + static_cast<ptrdiff_t>(first), pieces->end(),
                               [](const TextRange& range) { return range.begin == range.end; }),
                pieces->end());
}

}  // namespace strata
