#include "text/grammar/regex_anchors.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kMaxBranches = 1'000;

bool HasAnchor(const RegexNode& node) {
  return node.kind == Kind::kBegin || node.kind == Kind::kEnd ||
         std::any_of(node.children.begin(), node.children.end(),
                     [](const RegexPtr& child) { return HasAnchor(*child); });
}

RegexPtr AnyText() { return RegexRepeat(RegexSet(CharSet::All()), 0, RegexNode::kNoLimit); }

class AnchorResolver {
 public:
  // Whether more text may stand before the match, and behind it.
  struct Sides {
    bool before;
    bool behind;
  };

  // Adds what `parts` in turn take.
  absl::Status Add(std::vector<RegexPtr> parts, Sides sides) {
    if (++branches_ > kMaxBranches) {
      return absl::UnimplementedError("has ^ or $ in too many alternatives");
    }
    while (!parts.empty()) {
      if (parts.front()->kind == Kind::kBegin) {
        sides.before = false;
        parts.erase(parts.begin());
      } else if (parts.back()->kind == Kind::kEnd) {
        sides.behind = false;
        parts.pop_back();
      } else if (HasAnchor(*parts.front())) {
        return Spread(std::move(parts), 0, sides);
      } else if (HasAnchor(*parts.back())) {
        return Spread(parts, parts.size() - 1, sides);
      } else {
        break;
      }
    }
    for (const RegexPtr& part : parts) {
      if (HasAnchor(*part)) {
        return absl::UnimplementedError("has ^ or $ in its middle");
      }
    }
    if (sides.before) {
      parts.insert(parts.begin(), AnyText());
    }
    if (sides.behind) {
      parts.push_back(AnyText());
    }
    found_.push_back(RegexConcat(std::move(parts)));
    return absl::OkStatus();
  }

  RegexPtr Result() { return RegexAlternate(std::move(found_)); }

 private:
  // One branch for each way of the part `index`, which has an anchor.
  absl::Status Spread(std::vector<RegexPtr> parts, size_t index, Sides sides) {
    const RegexPtr part = parts[index];
    const auto replaced = [&](const std::vector<RegexPtr>& by) {
      std::vector<RegexPtr> result(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(index));
      result.insert(result.end(), by.begin(), by.end());
      result.insert(result.end(), parts.begin() + static_cast<ptrdiff_t>(index) + 1, parts.end());
      return result;
    };
    switch (part->kind) {
      case Kind::kConcat:
        return Add(replaced(part->children), sides);
      case Kind::kAlternate:
        for (const RegexPtr& child : part->children) {
          RETURN_IF_ERROR(Add(replaced({child}), sides));
        }
        return absl::OkStatus();
      case Kind::kRepeat:
        if (part->max == 1) {
          if (part->min == 0) {
            RETURN_IF_ERROR(Add(replaced({}), sides));
          }
          return Add(replaced({part->children[0]}), sides);
        }
        return absl::UnimplementedError("repeats ^ or $");
      // An end at the front of something, or a beginning at its back: only of the empty text.
      default:
        return absl::UnimplementedError("has ^ or $ in its middle");
    }
  }

  std::vector<RegexPtr> found_;
  size_t branches_ = 0;
};

}  // namespace

absl::StatusOr<RegexPtr> ResolveAnchors(const RegexPtr& pattern, PatternUse use) {
  AnchorResolver resolver;
  const bool anywhere = use == PatternUse::kSearch;
  RETURN_IF_ERROR(resolver.Add({pattern}, {.before = anywhere, .behind = anywhere}));
  return resolver.Result();
}

}  // namespace strata
