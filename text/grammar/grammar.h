// Context-free grammars over characters: what every constraint becomes. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_GRAMMAR_H_
#define STRATA_TEXT_GRAMMAR_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "text/grammar/char_set.h"
#include "text/grammar/grammar_limits.h"

namespace strata {

struct GrammarExpr {
  enum class Kind {
    kLiteral,   // `text`, well-formed UTF-8; may be empty.
    kClass,     // One character of `set`.
    kSequence,  // The children in turn.
    kChoice,    // One of the children; none: nothing.
    kRepeat,    // The one child `min` to `max` times.
    kRule,      // What rule `rule` says.
    kToken,     // The special token `token`, which is no character; `text` is its name.
  };
  static constexpr size_t kNoLimit = static_cast<size_t>(-1);

  static GrammarExpr EmptyText() { return Literal(""); }
  static GrammarExpr Nothing() { return Choice({}); }
  static GrammarExpr Literal(std::string text);
  static GrammarExpr Class(CharSet set);
  static GrammarExpr Sequence(std::vector<GrammarExpr> children);
  static GrammarExpr Choice(std::vector<GrammarExpr> children);
  static GrammarExpr Optional(GrammarExpr child) { return Repeat(std::move(child), 0, 1); }
  static GrammarExpr Repeat(GrammarExpr child, size_t min, size_t max);
  static GrammarExpr Rule(size_t rule);
  static GrammarExpr Token(uint32_t token, std::string name);

  bool IsEmptyText() const { return kind == Kind::kLiteral && text.empty(); }
  bool IsNothing() const { return kind == Kind::kChoice && children.empty(); }
  // Expressions in it, with itself.
  size_t Count() const;
  // The highest count that a repetition in it names; 0 without one.
  size_t HighestCount() const;

  Kind kind = Kind::kLiteral;
  std::string text;
  CharSet set;
  std::vector<GrammarExpr> children;
  size_t rule = 0;
  uint32_t token = 0;
  size_t min = 0;
  size_t max = kNoLimit;
};

class Grammar {
 public:
  // A rule that has no body yet takes nothing. Names are not unique and may be empty.
  size_t AddRule(std::string name) {
    rules_.push_back({std::move(name), GrammarExpr::Nothing(), false});
    return rules_.size() - 1;
  }
  void SetBody(size_t rule, GrammarExpr body);
  // Adds the rules of another grammar; returns what its root is here.
  size_t AddRulesOf(const Grammar& other);
  // Says that behind the rule, wherever it stands, come blanks and one of `,]}:`, or the end. It
  // changes nothing that the grammar takes; what makes masks need not try all tokens then.
  void SetEndsValue(size_t rule) { rules_[rule].ends_value = true; }
  bool EndsValue(size_t rule) const { return rules_[rule].ends_value; }
  // Takes that back of all rules: other text follows.
  void ForgetEndsOfValues();

  // The rule that the whole text follows.
  size_t root() const { return root_; }
  void set_root(size_t rule) { root_ = rule; }

  size_t size() const { return rules_.size(); }
  const std::string& name(size_t rule) const { return rules_[rule].name; }
  const GrammarExpr& body(size_t rule) const { return rules_[rule].body; }
  // Expressions of all rules.
  size_t expressions() const { return expressions_; }

  // SCHEMA_TOO_COMPLEX beyond the limits.
  absl::Status CheckSize(const GrammarLimits& limits) const;

  // Without what leads to no text, and without rules that are not needed. No way through the result
  // ends before a text is complete. Where there is no text at all, the root takes nothing.
  Grammar Pruned() const;
  bool IsEmpty() const { return rules_.empty() || body(root_).IsNothing(); }

 private:
  struct NamedRule {
    std::string name;
    GrammarExpr body;
    bool ends_value;
  };

  std::vector<NamedRule> rules_;
  size_t root_ = 0;
  size_t expressions_ = 0;
  size_t highest_count_ = 0;
};

// In the form that llama.cpp and XGrammar read, the root's name being `root`; of a pruned grammar
// that is not empty.
std::string EbnfOf(const Grammar& grammar);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_GRAMMAR_H_
