// Problems for `status`, where many that are alike are told as one.
#ifndef STRATA_COORDINATOR_CLUSTER_PROBLEM_LIST_H_
#define STRATA_COORDINATOR_CLUSTER_PROBLEM_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "strata/v1/admin.pb.h"

namespace strata {

class ProblemList {
 public:
  // So many that are alike are listed one by one; more are one problem that names some.
  static constexpr size_t kOneByOne = 3;

  void Add(std::string_view what, std::string_view hint);

  // What problems of one kind are called when they are told together: "5 nodes are lost: a, b, c
  // and 2 more".
  struct Kind {
    std::string many;  // "nodes are lost". What tells kinds apart.
    std::string hint;  // For all of them.
  };
  // One of a kind, about `subject`; `what` and `hint` are for it alone.
  void AddOne(const Kind& kind, std::string_view subject, std::string_view what,
              std::string_view hint);

  // In the order in which they, or the first of their kind, were added.
  std::vector<v1::Problem> Take();

 private:
  struct Group {
    Kind kind;
    std::vector<std::string> subjects;
    std::vector<v1::Problem> problems;  // The first ones.
  };
  std::vector<Group> groups_;
};

// "a, b, c and 2 more".
std::string SomeOf(const std::vector<std::string>& names);

}  // namespace strata

#endif  // STRATA_COORDINATOR_CLUSTER_PROBLEM_LIST_H_
