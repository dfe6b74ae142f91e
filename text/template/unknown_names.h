// Filters and tests that a template names and that do not exist.
#ifndef STRATA_TEXT_TEMPLATE_UNKNOWN_NAMES_H_
#define STRATA_TEXT_TEMPLATE_UNKNOWN_NAMES_H_

#include <string>
#include <utility>
#include <vector>

#include "text/template/failure.h"

namespace strata::jinja {

// An unknown name fails the parsing, but inside an if it is an error only where it is reached.
class UnknownNames {
 public:
  void Add(std::string message, int line) {
    if (!tolerated_) {
      found_.emplace_back(std::move(message), line);
    }
  }
  size_t count() const { return found_.size(); }
  // Forgets all but the first `count`: what was found since turned out to be inside an if.
  void Forget(size_t count) { found_.resize(count); }
  // Fails for the first one.
  void Check() const {
    if (!found_.empty()) {
      FailSyntax(found_[0].first, found_[0].second);
    }
  }

  // Says whether unknown names are tolerated while it lives.
  class Tolerance {
   public:
    Tolerance(UnknownNames& names, bool tolerated)
        : names_(names), outer_(std::exchange(names.tolerated_, tolerated)) {}
    ~Tolerance() { names_.tolerated_ = outer_; }
    Tolerance(const Tolerance&) = delete;
    Tolerance& operator=(const Tolerance&) = delete;

   private:
    UnknownNames& names_;
    const bool outer_;
  };

 private:
  bool tolerated_ = false;
  std::vector<std::pair<std::string, int>> found_;  // Message and line.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_UNKNOWN_NAMES_H_
