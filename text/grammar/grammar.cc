#include "text/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

using Kind = GrammarExpr::Kind;

// Whether `expr` takes a text where the rules of `productive` do.
bool IsProductive(const GrammarExpr& expr, const std::vector<bool>& productive) {
  const auto is = [&productive](const GrammarExpr& child) {
    return IsProductive(child, productive);
  };
  switch (expr.kind) {
    case Kind::kLiteral:
    case Kind::kToken:
      return true;
    case Kind::kClass:
      return !expr.set.empty();
    case Kind::kSequence:
      return std::all_of(expr.children.begin(), expr.children.end(), is);
    case Kind::kChoice:
      return std::any_of(expr.children.begin(), expr.children.end(), is);
    case Kind::kRepeat:
      return expr.min == 0 || is(expr.children[0]);
    case Kind::kRule:
      return productive[expr.rule];
  }
  return false;
}

// Calls `visit(rule)` for each rule that `expr` names.
template <typename Visit>
void VisitRules(const GrammarExpr& expr, const Visit& visit) {
  if (expr.kind == Kind::kRule) {
    visit(expr.rule);
  }
  for (const GrammarExpr& child : expr.children) {
    VisitRules(child, visit);
  }
}

// Of an expression that is productive.
GrammarExpr PrunedExpr(const GrammarExpr& expr, const std::vector<bool>& productive) {
  GrammarExpr result = expr;
  result.children.clear();
  for (const GrammarExpr& child : expr.children) {
    if (IsProductive(child, productive)) {
      result.children.push_back(PrunedExpr(child, productive));
    }
  }
  if (result.kind == Kind::kRepeat && (result.children.empty() || result.max == 0)) {
    return GrammarExpr::Literal("");
  }
  if (result.kind == Kind::kChoice && result.children.size() == 1) {
    return GrammarExpr(std::move(result.children[0]));
  }
  return result;
}

std::vector<bool> ProductiveRules(const Grammar& grammar) {
  std::vector<std::vector<size_t>> users(grammar.size());
  std::vector<size_t> open;
  for (size_t rule = 0; rule < grammar.size(); ++rule) {
    VisitRules(grammar.body(rule), [&](size_t used) { users[used].push_back(rule); });
    open.push_back(rule);
  }
  std::vector<bool> productive(grammar.size());
  while (!open.empty()) {
    const size_t rule = open.back();
    open.pop_back();
    if (!productive[rule] && IsProductive(grammar.body(rule), productive)) {
      productive[rule] = true;
      open.insert(open.end(), users[rule].begin(), users[rule].end());
    }
  }
  return productive;
}

}  // namespace

GrammarExpr GrammarExpr::Literal(std::string text) {
  GrammarExpr expr;
  expr.text = std::move(text);
  return expr;
}

GrammarExpr GrammarExpr::Class(CharSet set) {
  GrammarExpr expr;
  expr.kind = Kind::kClass;
  expr.set = std::move(set);
  return expr;
}

GrammarExpr GrammarExpr::Sequence(std::vector<GrammarExpr> children) {
  GrammarExpr expr;
  expr.kind = Kind::kSequence;
  for (GrammarExpr& child : children) {
    if (child.kind == Kind::kSequence) {
      std::move(child.children.begin(), child.children.end(), std::back_inserter(expr.children));
    } else if (child.kind == Kind::kLiteral && !expr.children.empty() &&
               expr.children.back().kind == Kind::kLiteral) {
      expr.children.back().text += child.text;
    } else if (!child.IsEmptyText()) {
      expr.children.push_back(std::move(child));
    }
  }
  if (expr.children.empty()) {
    return Literal("");
  }
  return expr.children.size() == 1 ? GrammarExpr(std::move(expr.children[0])) : expr;
}

GrammarExpr GrammarExpr::Choice(std::vector<GrammarExpr> children) {
  GrammarExpr expr;
  expr.kind = Kind::kChoice;
  for (GrammarExpr& child : children) {
    if (child.kind == Kind::kChoice) {
      std::move(child.children.begin(), child.children.end(), std::back_inserter(expr.children));
    } else {
      expr.children.push_back(std::move(child));
    }
  }
  return expr.children.size() == 1 ? GrammarExpr(std::move(expr.children[0])) : expr;
}

GrammarExpr GrammarExpr::Repeat(GrammarExpr child, size_t min, size_t max) {
  if (min == 1 && max == 1) {
    return child;
  }
  GrammarExpr expr;
  expr.kind = Kind::kRepeat;
  expr.children.push_back(std::move(child));
  expr.min = min;
  expr.max = max;
  return expr;
}

GrammarExpr GrammarExpr::Rule(size_t rule) {
  GrammarExpr expr;
  expr.kind = Kind::kRule;
  expr.rule = rule;
  return expr;
}

GrammarExpr GrammarExpr::Token(uint32_t token, std::string name) {
  GrammarExpr expr;
  expr.kind = Kind::kToken;
  expr.token = token;
  expr.text = std::move(name);
  return expr;
}

size_t GrammarExpr::Count() const {
  size_t count = 1;
  for (const GrammarExpr& child : children) {
    count += child.Count();
  }
  return count;
}

size_t GrammarExpr::HighestCount() const {
  size_t highest = 0;
  if (kind == Kind::kRepeat) {
    highest = max == kNoLimit ? min : max;
  }
  for (const GrammarExpr& child : children) {
    highest = std::max(highest, child.HighestCount());
  }
  return highest;
}

void Grammar::SetBody(size_t rule, GrammarExpr body) {
  highest_count_ = std::max(highest_count_, body.HighestCount());
  expressions_ += body.Count();
  rules_[rule].body = std::move(body);
}

size_t Grammar::AddRulesOf(const Grammar& other) {
  const size_t first = rules_.size();
  const auto renumber = [first](auto&& self, GrammarExpr* expr) -> void {
    if (expr->kind == Kind::kRule) {
      expr->rule += first;
    }
    for (GrammarExpr& child : expr->children) {
      self(self, &child);
    }
  };
  for (const NamedRule& rule : other.rules_) {
    rules_.push_back({rule.name, GrammarExpr::Nothing(), rule.ends_value});
    GrammarExpr body = rule.body;
    renumber(renumber, &body);
    SetBody(rules_.size() - 1, std::move(body));
  }
  return first + other.root_;
}

void Grammar::ForgetEndsOfValues() {
  for (NamedRule& rule : rules_) {
    rule.ends_value = false;
  }
}

absl::Status Grammar::CheckSize(const GrammarLimits& limits) const {
  if (rules_.size() > limits.max_rules) {
    return SchemaTooComplex("rules of a grammar", limits.max_rules);
  }
  if (expressions_ > limits.max_expressions) {
    return SchemaTooComplex("expressions of a grammar", limits.max_expressions);
  }
  if (highest_count_ > limits.max_count) {
    return SchemaTooComplex("repetitions", limits.max_count);
  }
  return absl::OkStatus();
}

Grammar Grammar::Pruned() const {
  const std::vector<bool> productive = ProductiveRules(*this);
  Grammar result;
  if (rules_.empty() || !productive[root_]) {
    result.AddRule("root");
    return result;
  }
  // What the root needs, in the order in which it is met.
  std::vector<GrammarExpr> bodies;
  std::vector<size_t> order = {root_};
  std::vector<size_t> number(rules_.size(), rules_.size());
  number[root_] = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    bodies.push_back(PrunedExpr(rules_[order[i]].body, productive));
    VisitRules(bodies.back(), [&](size_t rule) {
      if (number[rule] == rules_.size()) {
        number[rule] = order.size();
        order.push_back(rule);
      }
    });
  }
  const auto renumber = [&number](auto&& self, GrammarExpr* expr) -> void {
    if (expr->kind == Kind::kRule) {
      expr->rule = number[expr->rule];
    }
    for (GrammarExpr& child : expr->children) {
      self(self, &child);
    }
  };
  for (size_t i = 0; i < order.size(); ++i) {
    renumber(renumber, &bodies[i]);
    result.SetBody(result.AddRule(rules_[order[i]].name), std::move(bodies[i]));
    if (rules_[order[i]].ends_value) {
      result.SetEndsValue(i);
    }
  }
  return result;
}

}  // namespace strata
