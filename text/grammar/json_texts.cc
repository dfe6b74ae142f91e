#include "text/grammar/json_texts.h"

#include <cstdint>
#include <utility>

#include "common/status.h"
#include "text/grammar/escapes.h"
#include "text/grammar/number_texts.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kNoLimit = GrammarExpr::kNoLimit;
// Expressions within expressions that an automaton's states are written as, before a rule is made.
constexpr size_t kMaxInlined = 24;

// Characters of a string that are counted by a rule each: fast masks, but each rule takes time to
// compile.
constexpr size_t kMaxUnrolled = 64;

// Where each state goes, by target.
using Targets = std::map<size_t, CharSet>;

Targets TargetsOf(const Automaton::State& state) {
  std::map<size_t, std::vector<CharSet::Range>> ranges;
  for (const Automaton::Edge& edge : state.edges) {
    ranges[edge.to].push_back({edge.low, edge.high});
  }
  Targets targets;
  for (auto& [to, of_target] : ranges) {
    CharSet set(std::move(of_target));
    if (!set.empty()) {
      targets.emplace(to, std::move(set));
    }
  }
  return targets;
}

// How the characters of an automaton's edge are written.
struct EdgeWriting {
  CharSet themselves;
  GrammarExpr otherwise;  // Every other way; may be nothing.
};

// Writes an automaton's states as rules: each is what may follow, up to and with `end`. What makes
// masks reads such rules as one machine, in which a token stays within a rule as far as it is of
// characters that stand for themselves.
class StateWriter {
 public:
  // `ends_value`: as Grammar::SetEndsValue.
  StateWriter(const Automaton& automaton, std::string name, std::string end, bool ends_value,
              Grammar* grammar, const std::function<EdgeWriting(const CharSet&)>& writing)
      : automaton_(automaton),
        name_(std::move(name)),
        end_(std::move(end)),
        ends_value_(ends_value),
        grammar_(grammar),
        writing_(writing),
        ways_in_(automaton.states.size()),
        rules_(automaton.states.size(), kNoLimit) {
    for (size_t state = 0; state < automaton.states.size(); ++state) {
      targets_.push_back(TargetsOf(automaton.states[state]));
      for (const auto& [to, set] : targets_.back()) {
        ways_in_[to] += to == state ? 0 : 1;
      }
    }
    ++ways_in_[0];
  }

  GrammarExpr Write() {
    GrammarExpr start = Refer(0);
    for (size_t i = 0; i < open_.size(); ++i) {
      const size_t state = open_[i];
      grammar_->SetBody(rules_[state], Body(state, 0));
    }
    return start;
  }

 private:
  GrammarExpr Refer(size_t state) {
    if (rules_[state] == kNoLimit) {
      rules_[state] = grammar_->AddRule(name_);
      if (ends_value_) grammar_->SetEndsValue(rules_[state]);
      open_.push_back(state);
    }
    return GrammarExpr::Rule(rules_[state]);
  }

  GrammarExpr Body(size_t state, size_t depth) {
    std::vector<GrammarExpr> ways;
    GrammarExpr loop = GrammarExpr::EmptyText();
    for (const auto& [to, set] : targets_[state]) {
      EdgeWriting writing = writing_(set);
      const bool escapes = !writing.otherwise.IsNothing();
      if (escapes) {
        ways.push_back(GrammarExpr::Sequence({std::move(writing.otherwise), Refer(to)}));
      }
      if (writing.themselves.empty()) {
        continue;
      }
      GrammarExpr themselves = GrammarExpr::Class(std::move(writing.themselves));
      if (to == state) {
        loop = GrammarExpr::Repeat(std::move(themselves), 0, kNoLimit);
        continue;
      }
      const bool inlined = !escapes && ways_in_[to] == 1 && to != 0 && depth < kMaxInlined;
      GrammarExpr rest = inlined ? Body(to, depth + 1) : Refer(to);
      ways.push_back(GrammarExpr::Sequence({std::move(themselves), std::move(rest)}));
    }
    if (automaton_.states[state].accepting) {
      ways.push_back(GrammarExpr::Literal(end_));
    }
    return GrammarExpr::Sequence({std::move(loop), GrammarExpr::Choice(std::move(ways))});
  }

  const Automaton& automaton_;
  const std::string name_;
  const std::string end_;
  const bool ends_value_;
  Grammar* const grammar_;
  const std::function<EdgeWriting(const CharSet&)>& writing_;
  std::vector<Targets> targets_;
  std::vector<size_t> ways_in_;
  std::vector<size_t> rules_;
  std::vector<size_t> open_;
};

// The same for automata that are equal state by state, as those are that come about alike.
std::string StatesAsText(const Automaton& automaton) {
  std::string text;
  for (const Automaton::State& state : automaton.states) {
    text += state.accepting ? '+' : '-';
    for (const Automaton::Edge& edge : state.edges) {
      text += std::to_string(static_cast<uint32_t>(edge.low)) + "-" +
              std::to_string(static_cast<uint32_t>(edge.high)) + ">" + std::to_string(edge.to) +
              ",";
    }
  }
  return text;
}

GrammarExpr Text(std::string_view text) { return GrammarExpr::Literal(std::string(text)); }

GrammarExpr Quotes(GrammarExpr content) {
  return GrammarExpr::Sequence({Text("\""), std::move(content), Text("\"")});
}

}  // namespace

CharSet JsonTexts::Themselves(const CharSet& set) const {
  const CharSet themselves = WrittenAsThemselves(set);
  return escaped_.empty() ? themselves : themselves.Minus(escaped_);
}

size_t JsonTexts::NewRule(std::string name, GrammarExpr body) {
  const size_t rule = grammar_->AddRule(std::move(name));
  grammar_->SetBody(rule, std::move(body));
  return rule;
}

size_t JsonTexts::NewValue(std::string name, GrammarExpr body) {
  const size_t rule = NewRule(std::move(name), std::move(body));
  grammar_->SetEndsValue(rule);
  return rule;
}

GrammarExpr JsonTexts::Whitespace() {
  const auto [found, added] = known_.emplace("ws", 0);
  if (added) {
    const CharSet blanks({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}});
    found->second = NewRule(
        "ws", GrammarExpr::Repeat(GrammarExpr::Class(blanks), 0, budget_->limits().max_whitespace));
  }
  return GrammarExpr::Rule(found->second);
}

GrammarExpr JsonTexts::Comma() {
  return GrammarExpr::Sequence({Whitespace(), Text(","), Whitespace()});
}

GrammarExpr JsonTexts::Member(GrammarExpr name, GrammarExpr value) {
  return GrammarExpr::Sequence(
      {std::move(name), Whitespace(), Text(":"), Whitespace(), std::move(value)});
}

GrammarExpr JsonTexts::AnyString() {
  const auto [found, added] = known_.emplace("string", 0);
  if (added) {
    found->second = NewValue("string", GrammarExpr::Sequence({Text("\""), AnyRest()}));
  }
  return GrammarExpr::Rule(found->second);
}

GrammarExpr JsonTexts::AnyRest() {
  // Not as one character after the other: a token of many would begin a rule for each, which takes
  // what makes masks a thousand times as long.
  const GrammarExpr themselves =
      GrammarExpr::Repeat(GrammarExpr::Class(Themselves(CharSet::All())), 0, kNoLimit);
  return GrammarExpr::Sequence(
      {themselves,
       GrammarExpr::Repeat(GrammarExpr::Sequence({Escape(CharSet::All()), themselves}), 0,
                           kNoLimit),
       Text("\"")});
}

GrammarExpr JsonTexts::RestOfLength(size_t min, size_t max) {
  const auto [found, added] =
      known_.emplace("rest " + std::to_string(min) + " " + std::to_string(max), 0);
  if (added) {
    const size_t rule = grammar_->AddRule("rest");
    grammar_->SetEndsValue(rule);
    found->second = rule;
    std::vector<GrammarExpr> ways;
    if (min == 0) {
      ways.push_back(max == kNoLimit ? AnyRest() : Text("\""));
    }
    if (max > 0 && (min > 0 || max != kNoLimit)) {
      const GrammarExpr next =
          RestOfLength(min == 0 ? 0 : min - 1, max == kNoLimit ? max : max - 1);
      ways.push_back(GrammarExpr::Sequence({GrammarExpr::Class(Themselves(CharSet::All())), next}));
      ways.push_back(GrammarExpr::Sequence({Escape(CharSet::All()), next}));
    }
    grammar_->SetBody(rule, GrammarExpr::Choice(std::move(ways)));
    return GrammarExpr::Rule(rule);
  }
  return GrammarExpr::Rule(found->second);
}

GrammarExpr JsonTexts::AnyNumber() {
  const auto [found, added] = known_.emplace("number", 0);
  if (added) {
    found->second = NewValue("number", Raw(*NumberTexts(Notation::kAll)));
  }
  return GrammarExpr::Rule(found->second);
}

GrammarExpr JsonTexts::AnyValue() {
  const auto [found, added] = known_.emplace("value", 0);
  if (added) {
    const size_t rule = grammar_->AddRule("value");
    grammar_->SetEndsValue(rule);
    found->second = rule;
    const GrammarExpr value = GrammarExpr::Rule(rule);
    const size_t array = NewValue(
        "array",
        GrammarExpr::Sequence(
            {Text("["), Whitespace(),
             GrammarExpr::Optional(GrammarExpr::Sequence(
                 {value, GrammarExpr::Repeat(GrammarExpr::Sequence({Comma(), value}), 0, kNoLimit),
                  Whitespace()})),
             Text("]")}));
    grammar_->SetBody(
        rule, GrammarExpr::Choice({AnyObject(), GrammarExpr::Rule(array), AnyString(), AnyNumber(),
                                   Text("true"), Text("false"), Text("null")}));
  }
  return GrammarExpr::Rule(known_["value"]);
}

GrammarExpr JsonTexts::AnyObject() {
  const auto [found, added] = known_.emplace("object", 0);
  if (added) {
    const size_t rule = grammar_->AddRule("object");
    grammar_->SetEndsValue(rule);
    found->second = rule;
    const GrammarExpr member = Member(AnyString(), AnyValue());
    grammar_->SetBody(
        rule, GrammarExpr::Sequence(
                  {Text("{"), Whitespace(),
                   GrammarExpr::Optional(GrammarExpr::Sequence(
                       {member,
                        GrammarExpr::Repeat(GrammarExpr::Sequence({Comma(), member}), 0, kNoLimit),
                        Whitespace()})),
                   Text("}")}));
  }
  return GrammarExpr::Rule(known_["object"]);
}

GrammarExpr JsonTexts::Literal(std::string_view text) {
  std::vector<GrammarExpr> characters = {Text("\"")};
  for (size_t at = 0; at < text.size();) {
    const char32_t next = NextChar(text, &at);
    characters.push_back(escaped_.Contains(next) ? Escape(CharSet::Of(next)) : UsualWriting(next));
  }
  characters.push_back(Text("\""));
  return GrammarExpr::Sequence(std::move(characters));
}

GrammarExpr JsonTexts::Character(const CharSet& set) {
  const auto known = characters_.find(set);
  if (known != characters_.end()) {
    return known->second;
  }
  const GrammarExpr result =
      set.empty()
          ? GrammarExpr::Choice({})
          : GrammarExpr::Rule(NewRule(
                "char", escaped_.empty() ? EveryWriting(set)
                                         : GrammarExpr::Choice({GrammarExpr::Class(Themselves(set)),
                                                                Escape(set)})));
  characters_.emplace(set, result);
  return result;
}

GrammarExpr JsonTexts::Escape(const CharSet& set) {
  const auto known = escapes_.find(set);
  if (known != escapes_.end()) {
    return known->second;
  }
  // The backslash itself is no part of the rule, so that it is seen where the string goes on.
  const GrammarExpr result =
      set.empty() ? GrammarExpr::Nothing()
                  : GrammarExpr::Sequence(
                        {Text("\\"), GrammarExpr::Rule(NewRule("escape", BehindBackslash(set)))});
  escapes_.emplace(set, result);
  return result;
}

absl::StatusOr<GrammarExpr> JsonTexts::String(const StringSet& set) {
  if (set.values()) {
    std::vector<GrammarExpr> ways;
    for (const std::string& value : *set.values()) {
      ways.push_back(Literal(value));
    }
    return GrammarExpr::Choice(std::move(ways));
  }
  if (set.IsOfLength()) {
    if (set.max() < set.min()) {
      return GrammarExpr::Choice({});
    }
    if (set.min() == 0 && set.max() == StringSet::kNoLimit) {
      return AnyString();
    }
    if ((set.max() == StringSet::kNoLimit ? set.min() : set.max()) <= kMaxUnrolled) {
      return GrammarExpr::Sequence({Text("\""), RestOfLength(set.min(), set.max())});
    }
    return Quotes(GrammarExpr::Repeat(Character(CharSet::All()), set.min(), set.max()));
  }
  const Spelling spelling = [this](const CharSet& of) { return Character(of); };
  if (set.pattern() != nullptr) {
    return Quotes(FromRegex(*set.pattern(), spelling));
  }
  ASSIGN_OR_RETURN(const AutomatonPtr texts, set.ToAutomaton(budget_));
  return String(texts);
}

absl::StatusOr<GrammarExpr> JsonTexts::String(const AutomatonPtr& texts) {
  ASSIGN_OR_RETURN(GrammarExpr rest, FromAutomaton(texts, Writing::kQuoted));
  return GrammarExpr::Sequence({Text("\""), std::move(rest)});
}

absl::StatusOr<GrammarExpr> JsonTexts::Number(const NumberSet& set) {
  return set.texts() == nullptr ? AnyNumber() : FromAutomaton(set.texts(), Writing::kNumber);
}

absl::StatusOr<GrammarExpr> JsonTexts::Raw(const AutomatonPtr& texts) {
  return FromAutomaton(texts, Writing::kRaw);
}

GrammarExpr JsonTexts::Raw(const RegexNode& pattern) {
  return FromRegex(pattern, [](const CharSet& of) { return GrammarExpr::Class(of); });
}

GrammarExpr JsonTexts::FromRegex(const RegexNode& regex, const Spelling& spelling) {
  std::vector<GrammarExpr> children;
  for (const RegexPtr& child : regex.children) {
    children.push_back(FromRegex(*child, spelling));
  }
  switch (regex.kind) {
    case RegexNode::Kind::kSet:
      return spelling(regex.set);
    case RegexNode::Kind::kConcat:
      return GrammarExpr::Sequence(std::move(children));
    case RegexNode::Kind::kAlternate:
      return GrammarExpr::Choice(std::move(children));
    case RegexNode::Kind::kRepeat:
      return GrammarExpr::Repeat(std::move(children[0]), regex.min, regex.max);
    case RegexNode::Kind::kBegin:
    case RegexNode::Kind::kEnd:
      break;
  }
  return GrammarExpr::Literal("");
}

absl::StatusOr<GrammarExpr> JsonTexts::FromAutomaton(const AutomatonPtr& texts, Writing writing) {
  static constexpr const char* kNames[] = {"text", "number", "raw"};
  const bool quoted = writing == Writing::kQuoted;
  const std::string name = kNames[static_cast<int>(writing)];
  const std::string key = name + " " + StatesAsText(*texts);
  const auto known = automata_.find(key);
  if (known != automata_.end()) {
    return known->second;
  }
  const std::function<EdgeWriting(const CharSet&)> edge = [&](const CharSet& of) {
    return quoted ? EdgeWriting{Themselves(of), Escape(of)}
                  : EdgeWriting{of, GrammarExpr::Nothing()};
  };
  const GrammarExpr result =
      StateWriter(*texts, name, quoted ? "\"" : "", writing != Writing::kRaw, grammar_, edge)
          .Write();
  RETURN_IF_ERROR(grammar_->CheckSize(budget_->limits()));
  automata_.emplace(key, result);
  return result;
}

}  // namespace strata
