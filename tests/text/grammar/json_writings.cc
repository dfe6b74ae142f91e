#include "tests/text/grammar/json_writings.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace strata::testing {
namespace {

using Texts = std::vector<std::string>;

class Writer {
 public:
  Writer(std::string_view json, const Blanks& blanks, size_t max)
      : json_(json), blanks_(blanks), max_(max) {}

  Texts Value() {
    const char first = json_[at_];
    return first == '{' ? Object() : first == '[' ? Array() : Texts{Scalar()};
  }

 private:
  std::string Scalar() {
    const size_t begin = at_;
    if (json_[at_] == '"') {
      for (++at_; json_[at_] != '"'; ++at_) {
        at_ += json_[at_] == '\\' ? 1 : 0;
      }
      ++at_;
    } else {
      at_ = std::min(json_.find_first_of(",]}", at_), json_.size());
    }
    return std::string(json_.substr(begin, at_ - begin));
  }

  // Every text of `before` followed by every text of `own`.
  Texts Joined(const Texts& before, std::string_view between, const Texts& own) const {
    Texts result;
    for (const std::string& left : before) {
      for (const std::string& right : own) {
        if (result.size() < max_) {
          result.push_back(left + std::string(between) + right);
        }
      }
    }
    return result;
  }

  Texts Closed(char open, const std::vector<Texts>& parts, char close) const {
    const std::string inner(parts.empty() ? "" : blanks_.inner);
    Texts texts = {open + inner};
    for (size_t i = 0; i < parts.size(); ++i) {
      texts = Joined(texts, i == 0 ? "" : blanks_.comma, parts[i]);
    }
    return Joined(texts, inner, {std::string(1, close)});
  }

  Texts Array() {
    std::vector<Texts> items;
    for (++at_; json_[at_] != ']'; at_ += json_[at_] == ',' ? 1 : 0) {
      items.push_back(Value());
    }
    ++at_;
    return Closed('[', items, ']');
  }

  Texts Object() {
    std::vector<Texts> members;
    for (++at_; json_[at_] != '}'; at_ += json_[at_] == ',' ? 1 : 0) {
      const std::string name = Scalar();
      ++at_;
      members.push_back(Joined({name}, blanks_.colon, Value()));
    }
    ++at_;
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    Texts result;
    do {
      std::vector<Texts> ordered;
      for (const size_t index : order) {
        ordered.push_back(members[index]);
      }
      for (std::string& text : Closed('{', ordered, '}')) {
        if (result.size() < max_) {
          result.push_back(std::move(text));
        }
      }
    } while (result.size() < max_ && std::next_permutation(order.begin(), order.end()));
    return result;
  }

  const std::string_view json_;
  const Blanks& blanks_;
  const size_t max_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> EveryOrder(std::string_view json, const Blanks& blanks, size_t max) {
  return Writer(json, blanks, max).Value();
}

}  // namespace strata::testing
