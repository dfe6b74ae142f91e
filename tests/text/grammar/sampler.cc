#include "tests/text/grammar/sampler.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace strata::testing {
namespace {

constexpr size_t kUnknown = static_cast<size_t>(-1) / 2;
constexpr size_t kMaxDepth = 12;
constexpr size_t kMaxText = 400;

}  // namespace

Sampler::Sampler(const Grammar& grammar, uint64_t seed)
    : grammar_(grammar), heights_(grammar.size(), kUnknown), random_(seed) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = 0; rule < grammar.size(); ++rule) {
      const size_t height = HeightOf(grammar.body(rule)) + 1;
      if (height < heights_[rule]) {
        heights_[rule] = height;
        changed = true;
      }
    }
  }
}

size_t Sampler::HeightOf(const GrammarExpr& expr) const {
  switch (expr.kind) {
    case GrammarExpr::Kind::kLiteral:
    case GrammarExpr::Kind::kClass:
    case GrammarExpr::Kind::kToken:
      return 0;
    case GrammarExpr::Kind::kRule:
      return heights_[expr.rule];
    case GrammarExpr::Kind::kRepeat:
      return expr.min == 0 ? 0 : HeightOf(expr.children[0]);
    case GrammarExpr::Kind::kSequence: {
      size_t height = 0;
      for (const GrammarExpr& child : expr.children) {
        height = std::max(height, HeightOf(child));
      }
      return height;
    }
    case GrammarExpr::Kind::kChoice:
      break;
  }
  size_t height = kUnknown;
  for (const GrammarExpr& child : expr.children) {
    height = std::min(height, HeightOf(child));
  }
  return height;
}

std::string Sampler::Draw() {
  std::string text;
  Append(grammar_.body(grammar_.root()), 0, &text);
  return text;
}

void Sampler::Append(const GrammarExpr& expr, size_t depth, std::string* text) {
  const bool must_end = depth > kMaxDepth || text->size() > kMaxText;
  switch (expr.kind) {
    case GrammarExpr::Kind::kLiteral:
      *text += expr.text;
      return;
    case GrammarExpr::Kind::kClass: {
      const auto& ranges = expr.set.ranges();
      const CharSet::Range& range = ranges[random_() % ranges.size()];
      // Mostly near the border, where mistakes are.
      const uint64_t span = range.high - range.low + 1;
      AppendUtf8(
          range.low + static_cast<char32_t>(
                          random_() % (random_() % 4 == 0 ? span : std::min<uint64_t>(span, 4))),
          text);
      return;
    }
    case GrammarExpr::Kind::kToken:
      *text += '\xff' + expr.text + '\xfe';
      return;
    case GrammarExpr::Kind::kRule:
      Append(grammar_.body(expr.rule), depth + 1, text);
      return;
    case GrammarExpr::Kind::kSequence:
      for (const GrammarExpr& child : expr.children) {
        Append(child, depth, text);
      }
      return;
    case GrammarExpr::Kind::kRepeat: {
      size_t times = expr.min;
      while (!must_end && times < expr.max && times < expr.min + 6 && random_() % 2 == 0) {
        ++times;
      }
      for (size_t i = 0; i < times; ++i) {
        Append(expr.children[0], depth, text);
      }
      return;
    }
    case GrammarExpr::Kind::kChoice:
      break;
  }
  if (!must_end) {
    Append(expr.children[random_() % expr.children.size()], depth, text);
    return;
  }
  Append(*std::min_element(expr.children.begin(), expr.children.end(),
                           [this](const GrammarExpr& a, const GrammarExpr& b) {
                             return HeightOf(a) < HeightOf(b);
                           }),
         depth, text);
}

}  // namespace strata::testing
