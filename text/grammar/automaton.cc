#include "text/grammar/automaton.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);
// States that are looked at to find those that are alike; then the automaton stays as it is.
constexpr size_t kMaxMinimizing = 200'000;

// Joins neighbouring edges to the same state.
void AddEdge(char32_t low, char32_t high, size_t to, std::vector<Automaton::Edge>* edges) {
  if (!edges->empty() && edges->back().to == to && edges->back().high + 1 == low) {
    edges->back().high = high;
  } else {
    edges->push_back({low, high, to});
  }
}

// Which states lead to an accepting one.
std::vector<bool> Useful(const Automaton& automaton) {
  std::vector<std::vector<size_t>> from(automaton.states.size());
  std::vector<size_t> open;
  std::vector<bool> useful(automaton.states.size());
  for (size_t state = 0; state < automaton.states.size(); ++state) {
    for (const Automaton::Edge& edge : automaton.states[state].edges) {
      from[edge.to].push_back(state);
    }
    if (automaton.states[state].accepting) {
      useful[state] = true;
      open.push_back(state);
    }
  }
  while (!open.empty()) {
    const size_t state = open.back();
    open.pop_back();
    for (const size_t before : from[state]) {
      if (!useful[before]) {
        useful[before] = true;
        open.push_back(before);
      }
    }
  }
  return useful;
}

// Without edges to useless states, and without states that are not reached.
Automaton Trimmed(const Automaton& automaton) {
  const std::vector<bool> useful = Useful(automaton);
  std::vector<size_t> number(automaton.states.size(), kNowhere);
  std::vector<size_t> order = {0};
  number[0] = 0;
  Automaton result;
  for (size_t i = 0; i < order.size(); ++i) {
    Automaton::State state{.accepting = automaton.states[order[i]].accepting, .edges = {}};
    for (const Automaton::Edge& edge : automaton.states[order[i]].edges) {
      if (!useful[edge.to]) {
        continue;
      }
      if (number[edge.to] == kNowhere) {
        number[edge.to] = order.size();
        order.push_back(edge.to);
      }
      AddEdge(edge.low, edge.high, number[edge.to], &state.edges);
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

// States of a trimmed automaton by the shortest and the longest text that is accepted from them on:
// those that are alike are in one group, and long chains are told apart at once.
std::vector<size_t> LengthGroups(const Automaton& automaton) {
  const size_t size = automaton.states.size();
  std::vector<std::vector<size_t>> from(size);
  std::vector<size_t> edges_left(size);
  std::vector<size_t> shortest(size, kNowhere);
  std::vector<size_t> longest(size, kNowhere);  // kNowhere: there are texts of any length.
  std::deque<size_t> open;
  std::deque<size_t> ended;
  for (size_t state = 0; state < size; ++state) {
    for (const Automaton::Edge& edge : automaton.states[state].edges) {
      from[edge.to].push_back(state);
    }
    edges_left[state] = automaton.states[state].edges.size();
    if (automaton.states[state].accepting) {
      shortest[state] = 0;
      open.push_back(state);
    }
    if (edges_left[state] == 0) {
      longest[state] = 0;
      ended.push_back(state);
    }
  }
  for (; !open.empty(); open.pop_front()) {
    for (const size_t before : from[open.front()]) {
      if (shortest[before] == kNowhere) {
        shortest[before] = shortest[open.front()] + 1;
        open.push_back(before);
      }
    }
  }
  std::vector<size_t> below(size);
  for (; !ended.empty(); ended.pop_front()) {
    for (const size_t before : from[ended.front()]) {
      below[before] = std::max(below[before], longest[ended.front()] + 1);
      if (--edges_left[before] == 0) {
        longest[before] = below[before];
        ended.push_back(before);
      }
    }
  }
  std::map<std::pair<size_t, size_t>, size_t> groups;
  std::vector<size_t> result;
  for (size_t state = 0; state < size; ++state) {
    result.push_back(
        groups.emplace(std::pair(shortest[state], longest[state]), groups.size()).first->second);
  }
  return result;
}

// ---- From a tree to states that may be in several at once.

struct Nondeterministic {
  struct State {
    std::vector<size_t> silent;
    std::vector<std::pair<const CharSet*, size_t>> moves;
  };
  std::vector<State> states;
};

class NondeterministicBuilder {
 public:
  NondeterministicBuilder(Nondeterministic* result, WorkBudget* budget)
      : result_(result), budget_(budget) {}

  absl::StatusOr<size_t> NewState() {
    result_->states.emplace_back();
    // Several of these make one state in the end.
    if (result_->states.size() / 8 > budget_->limits().max_states) {
      return SchemaTooComplex("states of one automaton", budget_->limits().max_states);
    }
    RETURN_IF_ERROR(budget_->AddSteps(1));
    return result_->states.size() - 1;
  }

  // The state in which `node` has been read from `begin` on.
  absl::StatusOr<size_t> Add(const RegexNode& node, size_t begin) {
    switch (node.kind) {
      case RegexNode::Kind::kSet: {
        ASSIGN_OR_RETURN(const size_t end, NewState());
        result_->states[begin].moves.emplace_back(&node.set, end);
        return end;
      }
      case RegexNode::Kind::kConcat: {
        size_t at = begin;
        for (const RegexPtr& child : node.children) {
          ASSIGN_OR_RETURN(at, Add(*child, at));
        }
        return at;
      }
      case RegexNode::Kind::kAlternate: {
        ASSIGN_OR_RETURN(const size_t end, NewState());
        for (const RegexPtr& child : node.children) {
          ASSIGN_OR_RETURN(const size_t own, NewState());
          result_->states[begin].silent.push_back(own);
          ASSIGN_OR_RETURN(const size_t child_end, Add(*child, own));
          result_->states[child_end].silent.push_back(end);
        }
        return end;
      }
      case RegexNode::Kind::kRepeat:
        return AddRepeat(node, begin);
      case RegexNode::Kind::kBegin:
      case RegexNode::Kind::kEnd:
        return begin;
    }
    return begin;
  }

 private:
  absl::StatusOr<size_t> AddRepeat(const RegexNode& node, size_t begin) {
    const RegexNode& child = *node.children[0];
    size_t at = begin;
    for (size_t i = 0; i < node.min; ++i) {
      RETURN_IF_ERROR(budget_->AddSteps(1));
      ASSIGN_OR_RETURN(at, Add(child, at));
    }
    ASSIGN_OR_RETURN(const size_t end, NewState());
    if (node.max == RegexNode::kNoLimit) {
      ASSIGN_OR_RETURN(const size_t loop, NewState());
      result_->states[at].silent.push_back(loop);
      ASSIGN_OR_RETURN(const size_t again, Add(child, loop));
      result_->states[again].silent.push_back(loop);
      result_->states[loop].silent.push_back(end);
      return end;
    }
    for (size_t i = node.min; i < node.max; ++i) {
      RETURN_IF_ERROR(budget_->AddSteps(1));
      result_->states[at].silent.push_back(end);
      ASSIGN_OR_RETURN(at, Add(child, at));
    }
    result_->states[at].silent.push_back(end);
    return end;
  }

  Nondeterministic* const result_;
  WorkBudget* const budget_;
};

// Sorted, with all that is reached in silence.
std::vector<size_t> Closure(const Nondeterministic& machine, std::vector<size_t> states,
                            std::vector<bool>* seen) {
  std::vector<size_t> open = states;
  for (const size_t state : states) {
    (*seen)[state] = true;
  }
  while (!open.empty()) {
    const size_t state = open.back();
    open.pop_back();
    for (const size_t next : machine.states[state].silent) {
      if (!(*seen)[next]) {
        (*seen)[next] = true;
        states.push_back(next);
        open.push_back(next);
      }
    }
  }
  for (const size_t state : states) {
    (*seen)[state] = false;
  }
  std::sort(states.begin(), states.end());
  return states;
}

// For each interval of characters that the states tell apart, where they go. Each range of a class
// is a step, and so is each target of an interval.
absl::StatusOr<std::vector<std::pair<CharSet::Range, std::vector<size_t>>>> Moves(
    const Nondeterministic& machine, const std::vector<size_t>& states, WorkBudget* budget) {
  std::map<char32_t, std::vector<std::pair<size_t, bool>>> borders;  // Target; begins or ends.
  for (const size_t state : states) {
    for (const auto& [set, to] : machine.states[state].moves) {
      RETURN_IF_ERROR(budget->AddSteps(set->ranges().size()));
      for (const CharSet::Range& range : set->ranges()) {
        borders[range.low].emplace_back(to, true);
        borders[range.high + 1].emplace_back(to, false);
      }
    }
  }
  std::vector<std::pair<CharSet::Range, std::vector<size_t>>> result;
  std::map<size_t, size_t> active;
  for (auto border = borders.begin(); border != borders.end(); ++border) {
    for (const auto& [to, begins] : border->second) {
      if (begins) {
        ++active[to];
      } else if (--active[to] == 0) {
        active.erase(to);
      }
    }
    const auto next = std::next(border);
    if (next != borders.end() && !active.empty()) {
      RETURN_IF_ERROR(budget->AddSteps(active.size()));
      std::vector<size_t> targets;
      for (const auto& [to, count] : active) {
        targets.push_back(to);
      }
      result.emplace_back(CharSet::Range{border->first, next->first - 1}, std::move(targets));
    }
  }
  return result;
}

// ---- Two automata side by side.

// `keep` says whether a pair of states accepts, by whether each does.
absl::StatusOr<AutomatonPtr> Combined(const Automaton& a, const Automaton& b,
                                      const std::function<bool(bool, bool)>& keep,
                                      WorkBudget* budget) {
  using Pair = std::pair<size_t, size_t>;  // kNowhere: refused already.
  std::map<Pair, size_t> numbers;
  std::vector<Pair> order;
  const auto number_of = [&](Pair pair) -> absl::StatusOr<size_t> {
    const auto [found, added] = numbers.emplace(pair, order.size());
    if (added) {
      order.push_back(pair);
      RETURN_IF_ERROR(budget->AddState(order.size()));
    }
    return found->second;
  };
  const std::vector<Automaton::Edge> none;
  Automaton result;
  RETURN_IF_ERROR(number_of({0, 0}).status());
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [in_a, in_b] = order[i];
    const auto& edges_a = in_a == kNowhere ? none : a.states[in_a].edges;
    const auto& edges_b = in_b == kNowhere ? none : b.states[in_b].edges;
    Automaton::State state{.accepting = keep(in_a != kNowhere && a.states[in_a].accepting,
                                             in_b != kNowhere && b.states[in_b].accepting),
                           .edges = {}};
    RETURN_IF_ERROR(budget->AddSteps(edges_a.size() + edges_b.size() + 1));
    size_t at_a = 0;
    size_t at_b = 0;
    for (char32_t low = 0; low <= kLastCharacter;) {
      while (at_a < edges_a.size() && edges_a[at_a].high < low) {
        ++at_a;
      }
      while (at_b < edges_b.size() && edges_b[at_b].high < low) {
        ++at_b;
      }
      Pair to = {kNowhere, kNowhere};
      char32_t high = kLastCharacter;
      const auto step = [&](const std::vector<Automaton::Edge>& edges, size_t at, size_t* target) {
        if (at == edges.size()) {
          return;
        }
        if (edges[at].low > low) {
          high = std::min<char32_t>(high, edges[at].low - 1);
        } else {
          high = std::min(high, edges[at].high);
          *target = edges[at].to;
        }
      };
      step(edges_a, at_a, &to.first);
      step(edges_b, at_b, &to.second);
      const bool useful = (to.first != kNowhere && (to.second != kNowhere || keep(true, false))) ||
                          (to.second != kNowhere && keep(false, true));
      if (useful) {
        ASSIGN_OR_RETURN(const size_t number, number_of(to));
        AddEdge(low, high, number, &state.edges);
      }
      low = high + 1;
    }
    result.states.push_back(std::move(state));
  }
  return Minimal(std::move(result));
}

}  // namespace

bool Automaton::Accepts(std::string_view text) const {
  size_t state = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = NextChar(text, &at);
    const std::vector<Edge>& edges = states[state].edges;
    const auto edge =
        std::lower_bound(edges.begin(), edges.end(), character,
                         [](const Edge& e, char32_t wanted) { return e.high < wanted; });
    if (edge == edges.end() || edge->low > character) {
      return false;
    }
    state = edge->to;
  }
  return states[state].accepting;
}

AutomatonPtr Minimal(Automaton untrimmed) {
  Automaton automaton = Trimmed(untrimmed);
  std::vector<size_t> group = LengthGroups(automaton);
  size_t groups = 0;
  for (size_t steps = 0;; steps += group.size()) {
    if (steps > kMaxMinimizing) {
      return std::make_shared<const Automaton>(std::move(automaton));
    }
    // A state's own group, and which groups its characters lead to.
    std::map<std::pair<size_t, std::vector<std::tuple<char32_t, char32_t, size_t>>>, size_t> known;
    std::vector<size_t> next(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      std::vector<Automaton::Edge> joined;
      for (const Automaton::Edge& edge : automaton.states[i].edges) {
        AddEdge(edge.low, edge.high, group[edge.to], &joined);
      }
      std::vector<std::tuple<char32_t, char32_t, size_t>> edges;
      for (const Automaton::Edge& edge : joined) {
        edges.emplace_back(edge.low, edge.high, edge.to);
      }
      next[i] = known.emplace(std::pair(group[i], std::move(edges)), known.size()).first->second;
    }
    group = std::move(next);
    if (known.size() == groups) {
      break;
    }
    groups = known.size();
  }
  // State 0 is the first of its group, and groups are numbered as they are first met.
  auto result = std::make_shared<Automaton>();
  for (size_t i = 0; i < group.size(); ++i) {
    if (group[i] < result->states.size()) {
      continue;
    }
    Automaton::State state{.accepting = automaton.states[i].accepting, .edges = {}};
    for (const Automaton::Edge& edge : automaton.states[i].edges) {
      AddEdge(edge.low, edge.high, group[edge.to], &state.edges);
    }
    result->states.push_back(std::move(state));
  }
  return result;
}

absl::StatusOr<AutomatonPtr> AutomatonOf(const RegexPtr& regex, WorkBudget* budget) {
  Nondeterministic machine;
  NondeterministicBuilder builder(&machine, budget);
  ASSIGN_OR_RETURN(const size_t begin, builder.NewState());
  ASSIGN_OR_RETURN(const size_t end, builder.Add(*regex, begin));
  std::vector<bool> seen(machine.states.size());
  std::map<std::vector<size_t>, size_t> numbers;
  std::vector<std::vector<size_t>> order;
  const auto number_of = [&](std::vector<size_t> states) -> absl::StatusOr<size_t> {
    states = Closure(machine, std::move(states), &seen);
    RETURN_IF_ERROR(budget->AddSteps(states.size()));
    const auto [found, added] = numbers.emplace(std::move(states), order.size());
    if (added) {
      order.push_back(found->first);
      RETURN_IF_ERROR(budget->AddState(order.size()));
    }
    return found->second;
  };
  Automaton result;
  RETURN_IF_ERROR(number_of({begin}).status());
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<size_t> states = order[i];
    Automaton::State state;
    state.accepting = std::binary_search(states.begin(), states.end(), end);
    ASSIGN_OR_RETURN(auto moves, Moves(machine, states, budget));
    for (auto& [range, targets] : moves) {
      ASSIGN_OR_RETURN(const size_t to, number_of(std::move(targets)));
      AddEdge(range.low, range.high, to, &state.edges);
    }
    result.states.push_back(std::move(state));
  }
  return Minimal(std::move(result));
}

absl::StatusOr<AutomatonPtr> IntersectionOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                            WorkBudget* budget) {
  return Combined(
      *a, *b, [](bool in_a, bool in_b) { return in_a && in_b; }, budget);
}

absl::StatusOr<AutomatonPtr> UnionOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                     WorkBudget* budget) {
  return Combined(
      *a, *b, [](bool in_a, bool in_b) { return in_a || in_b; }, budget);
}

absl::StatusOr<AutomatonPtr> DifferenceOf(const AutomatonPtr& a, const AutomatonPtr& b,
                                          WorkBudget* budget) {
  return Combined(
      *a, *b, [](bool in_a, bool in_b) { return in_a && !in_b; }, budget);
}

absl::StatusOr<AutomatonPtr> ComplementOf(const AutomatonPtr& a, WorkBudget* budget) {
  static const RegexPtr* const all =
      new RegexPtr(RegexRepeat(RegexSet(CharSet::All()), 0, RegexNode::kNoLimit));
  ASSIGN_OR_RETURN(const AutomatonPtr everything, AutomatonOf(*all, budget));
  return DifferenceOf(everything, a, budget);
}

}  // namespace strata
