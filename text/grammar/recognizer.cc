#include "text/grammar/recognizer.h"

#include <set>
#include <utility>

#include "common/status.h"
#include "text/grammar/schema_errors.h"
#include "text/unicode/utf8.h"

namespace strata {

// Writes each rule as states of its own.
class Recognizer::Builder {
 public:
  Builder(Recognizer* result, size_t max_states) : result_(result), max_states_(max_states) {}

  absl::Status AddRule(size_t rule, const GrammarExpr& body) {
    rule_ = rule;
    ASSIGN_OR_RETURN(const size_t end, Add(body, result_->starts_[rule]));
    result_->states_[end].final = true;
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> NewState() {
    if (result_->states_.size() >= max_states_) {
      return SchemaTooComplex("states", max_states_);
    }
    result_->states_.emplace_back();
    result_->states_.back().rule = rule_;
    return result_->states_.size() - 1;
  }

  void set_rule(size_t rule) { rule_ = rule; }

 private:
  absl::StatusOr<size_t> Add(const GrammarExpr& expr, size_t begin) {
    switch (expr.kind) {
      case GrammarExpr::Kind::kLiteral: {
        size_t at = begin;
        for (size_t i = 0; i < expr.text.size();) {
          ASSIGN_OR_RETURN(at, Move(CharSet::Of(NextChar(expr.text, &i)), at));
        }
        return at;
      }
      case GrammarExpr::Kind::kClass:
        return Move(expr.set, begin);
      case GrammarExpr::Kind::kToken:
        return Move(CharSet(), begin);  // No character is one.
      case GrammarExpr::Kind::kRule: {
        ASSIGN_OR_RETURN(const size_t end, NewState());
        result_->states_[begin].calls.emplace_back(expr.rule, end);
        return end;
      }
      case GrammarExpr::Kind::kSequence: {
        size_t at = begin;
        for (const GrammarExpr& child : expr.children) {
          ASSIGN_OR_RETURN(at, Add(child, at));
        }
        return at;
      }
      case GrammarExpr::Kind::kChoice: {
        ASSIGN_OR_RETURN(const size_t end, NewState());
        for (const GrammarExpr& child : expr.children) {
          ASSIGN_OR_RETURN(const size_t own, NewState());
          result_->states_[begin].silent.push_back(own);
          ASSIGN_OR_RETURN(const size_t child_end, Add(child, own));
          result_->states_[child_end].silent.push_back(end);
        }
        return end;
      }
      case GrammarExpr::Kind::kRepeat:
        return Repeat(expr, begin);
    }
    return begin;
  }

  absl::StatusOr<size_t> Move(CharSet set, size_t begin) {
    ASSIGN_OR_RETURN(const size_t end, NewState());
    result_->states_[begin].moves.emplace_back(std::move(set), end);
    return end;
  }

  absl::StatusOr<size_t> Repeat(const GrammarExpr& expr, size_t begin) {
    size_t at = begin;
    for (size_t i = 0; i < expr.min; ++i) {
      ASSIGN_OR_RETURN(at, Add(expr.children[0], at));
    }
    ASSIGN_OR_RETURN(const size_t end, NewState());
    if (expr.max == GrammarExpr::kNoLimit) {
      ASSIGN_OR_RETURN(const size_t loop, NewState());
      result_->states_[at].silent.push_back(loop);
      ASSIGN_OR_RETURN(const size_t again, Add(expr.children[0], loop));
      result_->states_[again].silent.push_back(loop);
      result_->states_[loop].silent.push_back(end);
      return end;
    }
    for (size_t i = expr.min; i < expr.max; ++i) {
      result_->states_[at].silent.push_back(end);
      ASSIGN_OR_RETURN(at, Add(expr.children[0], at));
    }
    result_->states_[at].silent.push_back(end);
    return end;
  }

  Recognizer* const result_;
  const size_t max_states_;
  size_t rule_ = 0;
};

// One text. A column has the states that may be reached there, each with where its rule began.
class Recognizer::Run {
 public:
  explicit Run(const Recognizer& machine) : machine_(machine) {
    columns_.emplace_back();
    Add(machine.starts_[machine.root_], 0);
  }

  // Follows all that needs no character.
  void Settle() {
    for (size_t i = 0; i < columns_.back().items.size(); ++i) {
      const auto [state_index, origin] = columns_.back().items[i];
      const State& state = machine_.states_[state_index];
      for (const size_t next : state.silent) {
        Add(next, origin);
      }
      for (const auto& [rule, next] : state.calls) {
        columns_.back().waiting.push_back({rule, next, origin});
        Add(machine_.starts_[rule], columns_.size() - 1);
        if (columns_.back().empty_rules.contains(rule)) {
          Add(next, origin);
        }
      }
      if (state.final) {
        Complete(state.rule, origin);
      }
    }
  }

  bool Step(char32_t character) {
    std::vector<std::pair<size_t, size_t>> reached;
    for (const auto& [state_index, origin] : columns_.back().items) {
      for (const auto& [set, next] : machine_.states_[state_index].moves) {
        if (set.Contains(character)) {
          reached.emplace_back(next, origin);
        }
      }
    }
    columns_.emplace_back();
    complete_ = false;
    for (const auto& [state, origin] : reached) {
      Add(state, origin);
    }
    return !reached.empty();
  }

  bool complete() const { return complete_; }

 private:
  struct Waiting {
    size_t rule;
    size_t next;
    size_t origin;
  };
  struct Column {
    std::vector<std::pair<size_t, size_t>> items;
    std::set<std::pair<size_t, size_t>> known;
    std::vector<Waiting> waiting;
    std::set<size_t> empty_rules;  // Those that took the empty text here.
  };

  void Add(size_t state, size_t origin) {
    if (columns_.back().known.emplace(state, origin).second) {
      columns_.back().items.emplace_back(state, origin);
    }
  }

  void Complete(size_t rule, size_t origin) {
    if (origin == columns_.size() - 1) {
      columns_.back().empty_rules.insert(rule);
    }
    complete_ = complete_ || (rule == machine_.root_ && origin == 0);
    // Grows while it is gone over where the column is this one.
    for (size_t i = 0; i < columns_[origin].waiting.size(); ++i) {
      const Waiting waiting = columns_[origin].waiting[i];
      if (waiting.rule == rule) {
        Add(waiting.next, waiting.origin);
      }
    }
  }

  const Recognizer& machine_;
  std::vector<Column> columns_;
  bool complete_ = false;  // The root has been read by the end of the last column.
};

absl::StatusOr<Recognizer> Recognizer::Make(const Grammar& grammar, size_t max_states) {
  Recognizer result;
  Builder builder(&result, max_states);
  for (size_t rule = 0; rule < grammar.size(); ++rule) {
    builder.set_rule(rule);
    ASSIGN_OR_RETURN(const size_t start, builder.NewState());
    result.starts_.push_back(start);
  }
  for (size_t rule = 0; rule < grammar.size(); ++rule) {
    RETURN_IF_ERROR(builder.AddRule(rule, grammar.body(rule)));
  }
  result.root_ = grammar.root();
  return result;
}

Recognizer::Verdict Recognizer::Check(std::string_view text) const {
  const size_t well_formed = FirstInvalidUtf8(text).value_or(text.size());
  Verdict verdict;
  Run run(*this);
  run.Settle();
  while (verdict.prefix < well_formed) {
    size_t next = verdict.prefix;
    const char32_t character = NextChar(text.substr(0, well_formed), &next);
    if (!run.Step(character)) {
      return verdict;
    }
    run.Settle();
    verdict.prefix = next;
  }
  verdict.complete = verdict.prefix == text.size() && run.complete();
  return verdict;
}

}  // namespace strata
