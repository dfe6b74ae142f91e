// How deep the parser is in its own recursion.
#ifndef STRATA_TEXT_TEMPLATE_NESTING_H_
#define STRATA_TEXT_TEMPLATE_NESTING_H_

#include <string>

#include "text/template/failure.h"
#include "text/template/token_reader.h"

namespace strata::jinja {

class Nesting {
 public:
  // `tokens` says which line an error is of.
  Nesting(int max_depth, const TokenReader& tokens) : max_depth_(max_depth), tokens_(tokens) {}

  // One level while it lives; fails where the source nests too deep.
  class Level {
   public:
    explicit Level(Nesting& nesting) : nesting_(nesting) {
      if (++nesting_.depth_ > nesting_.max_depth_) {
        --nesting_.depth_;
        FailDepth(nesting_.max_depth_, nesting_.tokens_.line());
      }
    }
    ~Level() { --nesting_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Nesting& nesting_;
  };

  [[noreturn]] static void FailDepth(int max_depth, int line) {
    throw Failure{Failure::Kind::kLimit,
                  "the template nests deeper than " + std::to_string(max_depth) + " levels", line};
  }

 private:
  const int max_depth_;
  const TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_NESTING_H_
