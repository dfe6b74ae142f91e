#include "coordinator/cluster/problem_list.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

v1::Problem ProblemOf(std::string_view what, std::string_view hint) {
  v1::Problem problem;
  problem.set_what(std::string(what));
  problem.set_do_(std::string(hint));
  return problem;
}

}  // namespace

std::string SomeOf(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamed) {
    text += " and " + std::to_string(names.size() - kNamed) + " more";
  }
  return text;
}

void ProblemList::Add(std::string_view what, std::string_view hint) {
  groups_.push_back({{}, {}, {ProblemOf(what, hint)}});
}

void ProblemList::AddOne(const Kind& kind, std::string_view subject, std::string_view what,
                         std::string_view hint) {
  auto group = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& g) { return g.kind.many == kind.many; });
  if (group == groups_.end()) {
    group = groups_.insert(groups_.end(), {kind, {}, {}});
  }
  group->subjects.emplace_back(subject);
  if (group->problems.size() < kOneByOne) {
    group->problems.push_back(ProblemOf(what, hint));
  }
}

std::vector<v1::Problem> ProblemList::Take() {
  std::vector<v1::Problem> all;
  for (Group& group : groups_) {
    if (group.subjects.size() > kOneByOne) {
      all.push_back(ProblemOf(std::to_string(group.subjects.size()) + " " + group.kind.many + ": " +
                                  SomeOf(group.subjects),
                              group.kind.hint));
      continue;
    }
    for (v1::Problem& problem : group.problems) {
      all.push_back(std::move(problem));
    }
  }
  groups_.clear();
  return all;
}

}  // namespace strata
