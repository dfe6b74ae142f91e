#include "text/grammar/regex_anchors.h"

#include <cstddef>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kMaxBranches = 1'000;

RegexPtr AnyText() { return RegexRepeat(RegexSet(CharSet::All()), 0, RegexNode::kNoLimit); }

class AnchorResolver {
 public:
  AnchorResolver(const RegexNode& pattern, WorkBudget* budget) : budget_(budget) {
    FindAnchors(pattern);
  }

  // Whether more text may stand before the match, and behind it.
  struct Sides {
    bool before;
    bool behind;
  };

  // Adds what `parts` in turn take.
  absl::Status Add(std::span<const RegexPtr> parts, Sides sides) {
    if (++branches_ > kMaxBranches) {
      return absl::UnimplementedError("has ^ or $ in too many alternatives");
    }
    while (!parts.empty()) {
      if (parts.front()->kind == Kind::kBegin) {
        sides.before = false;
        parts = parts.subspan(1);
      } else if (parts.back()->kind == Kind::kEnd) {
        sides.behind = false;
        parts = parts.first(parts.size() - 1);
      } else if (HasAnchor(*parts.front())) {
        return Spread(parts, 0, sides);
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
    RETURN_IF_ERROR(budget_->AddSteps(parts.size()));
    std::vector<RegexPtr> all;
    if (sides.before) {
      all.push_back(AnyText());
    }
    all.insert(all.end(), parts.begin(), parts.end());
    if (sides.behind) {
      all.push_back(AnyText());
    }
    found_.push_back(RegexConcat(std::move(all)));
    return absl::OkStatus();
  }

  RegexPtr Result() { return RegexAlternate(std::move(found_)); }

 private:
  bool FindAnchors(const RegexNode& node) {
    bool has = node.kind == Kind::kBegin || node.kind == Kind::kEnd;
    for (const RegexPtr& child : node.children) {
      has |= FindAnchors(*child);
    }
    if (has) {
      anchored_.insert(&node);
    }
    return has;
  }
  bool HasAnchor(const RegexNode& node) const { return anchored_.contains(&node); }

  // One branch for each way of the part `index`, which has an anchor.
  absl::Status Spread(std::span<const RegexPtr> parts, size_t index, Sides sides) {
    const RegexPtr& part = parts[index];
    const auto add = [&](std::span<const RegexPtr> by) -> absl::Status {
      RETURN_IF_ERROR(budget_->AddSteps(parts.size() + by.size()));
      const auto place = parts.begin() + static_cast<ptrdiff_t>(index);
      std::vector<RegexPtr> replaced(parts.begin(), place);
      replaced.insert(replaced.end(), by.begin(), by.end());
      replaced.insert(replaced.end(), place + 1, parts.end());
      return Add(replaced, sides);
    };
    switch (part->kind) {
      case Kind::kConcat:
        return add(part->children);
      case Kind::kAlternate:
        for (const RegexPtr& child : part->children) {
          RETURN_IF_ERROR(add({&child, 1}));
        }
        return absl::OkStatus();
      case Kind::kRepeat:
        if (part->max == 1) {
          if (part->min == 0) {
            RETURN_IF_ERROR(add({}));
          }
          return add(part->children);
        }
        return absl::UnimplementedError("repeats ^ or $");
      // An end at the front of something, or a beginning at its back: only of the empty text.
      default:
        return absl::UnimplementedError("has ^ or $ in its middle");
    }
  }

  WorkBudget* const budget_;
  std::unordered_set<const RegexNode*> anchored_;
  std::vector<RegexPtr> found_;
  size_t branches_ = 0;
};

}  // namespace

absl::StatusOr<RegexPtr> ResolveAnchors(const RegexPtr& pattern, PatternUse use,
                                        WorkBudget* budget) {
  AnchorResolver resolver(*pattern, budget);
  const bool anywhere = use == PatternUse::kSearch;
  RETURN_IF_ERROR(resolver.Add({&pattern, 1}, {.before = anywhere, .behind = anywhere}));
  return resolver.Result();
}

}  // namespace strata
