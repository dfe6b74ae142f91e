// Adds to a grammar how JSON is written. One thread.
#ifndef STRATA_TEXT_GRAMMAR_JSON_TEXTS_H_
#define STRATA_TEXT_GRAMMAR_JSON_TEXTS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/number_set.h"
#include "text/grammar/string_set.h"

namespace strata {

// Strings are written with every escape that JSON has: a character stands for itself, as \uXXXX or
// as a pair of them, or by its short escape; half a pair is none. Of names and listed values, the
// printable characters of ASCII stand for themselves (but " and \, and / may be escaped).
class JsonTexts {
 public:
  // Both must outlive this. Strings have the characters of `escaped` as escapes alone.
  JsonTexts(Grammar* grammar, WorkBudget* budget, CharSet escaped = {})
      : grammar_(grammar), budget_(budget), escaped_(std::move(escaped)) {}

  // Blanks between two tokens, as many as the limits say or none.
  GrammarExpr Whitespace();
  // Any value; an object with members in any order.
  GrammarExpr AnyValue();
  GrammarExpr AnyObject();
  // A string with its quotes.
  absl::StatusOr<GrammarExpr> String(const StringSet& set);
  absl::StatusOr<GrammarExpr> String(const AutomatonPtr& texts);
  GrammarExpr Literal(std::string_view text);
  absl::StatusOr<GrammarExpr> Number(const NumberSet& set);
  // The texts of `pattern` as they are, not as a string of JSON.
  static GrammarExpr Raw(const RegexNode& pattern);
  // Those of an automaton, whatever follows them.
  absl::StatusOr<GrammarExpr> Raw(const AutomatonPtr& texts);

  // `name`, blanks, a colon, blanks, `value`.
  GrammarExpr Member(GrammarExpr name, GrammarExpr value);
  // A comma with blanks around it.
  GrammarExpr Comma();

 private:
  using Spelling = std::function<GrammarExpr(const CharSet&)>;

  // What of `set` stands for itself in a string.
  CharSet Themselves(const CharSet& set) const;
  size_t NewRule(std::string name, GrammarExpr body);
  // Of a whole value, or of its end.
  size_t NewValue(std::string name, GrammarExpr body);
  // One character of `set` within a string.
  GrammarExpr Character(const CharSet& set);
  // The same, but only the escapes.
  GrammarExpr Escape(const CharSet& set);
  GrammarExpr AnyString();
  // What follows within a string, with its last quotation mark: anything, or so many characters.
  GrammarExpr AnyRest();
  GrammarExpr RestOfLength(size_t min, size_t max);
  GrammarExpr AnyNumber();
  static GrammarExpr FromRegex(const RegexNode& regex, const Spelling& spelling);
  // The automaton's texts: within a string and with its last quotation mark, as a number, or as
  // they are.
  enum class Writing { kQuoted, kNumber, kRaw };
  absl::StatusOr<GrammarExpr> FromAutomaton(const AutomatonPtr& texts, Writing writing);

  Grammar* const grammar_;
  WorkBudget* const budget_;
  const CharSet escaped_;
  std::map<std::string, size_t> known_;  // Rules that there are once, by name.
  std::map<CharSet, GrammarExpr> characters_;
  std::map<CharSet, GrammarExpr> escapes_;
  // By what they are written as, and their states as text.
  std::map<std::string, GrammarExpr> automata_;
};

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_JSON_TEXTS_H_
