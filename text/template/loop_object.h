// What a template sees as `loop`.
#ifndef STRATA_TEXT_TEMPLATE_LOOP_OBJECT_H_
#define STRATA_TEXT_TEMPLATE_LOOP_OBJECT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/expression_evaluator.h"
#include "text/template/operators.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/value.h"

namespace strata::jinja {

// The iteration of a running for loop. Items are taken one by one, since a condition may depend on
// what the body of earlier turns did.
class LoopObject : public Holder {
 public:
  // `around` is the scope around the loop, where `expressions` evaluates its condition.
  LoopObject(Runtime& runtime, Scopes& scopes, ExpressionEvaluator& expressions,
             const Statement& statement, std::shared_ptr<Scope> around, const Value& iterable,
             int64_t depth0)
      : Holder(runtime.budget(), 256),
        runtime_(runtime),
        scopes_(scopes),
        expressions_(expressions),
        statement_(statement),
        around_(std::move(around)),
        items_(std::in_place, runtime, iterable),
        depth0_(depth0) {}

  const Statement& statement() const { return statement_; }
  const std::shared_ptr<Scope>& around() const { return around_; }
  int64_t depth0() const { return depth0_; }

  void Empty() override;
  // Makes the next item the current one; false at the end.
  bool TakeItem(Value* item);
  // loop.name, where `self` is this object's value.
  Value Attribute(const Value& self, std::string_view name);

 private:
  static Value Cycle(Runtime& runtime, const Value& self, Arguments& arguments);
  static Value Changed(Runtime& runtime, const Value& self, Arguments& arguments);
  // The next item that passes the condition.
  bool TakeRaw(Value* item);
  // The item after the current one; null if there is none.
  const Value* PeekItem();
  int64_t Length();

  Runtime& runtime_;
  Scopes& scopes_;
  ExpressionEvaluator& expressions_;
  const Statement& statement_;
  std::shared_ptr<Scope> around_;
  std::optional<Items> items_;  // Null once emptied.
  size_t next_ = 0;             // Of items_.
  std::optional<Value> ahead_;  // Taken already, by a look at the next item.
  std::vector<Value> rest_;     // All further items, once the length was asked for.
  size_t next_of_rest_ = 0;
  std::optional<int64_t> length_;
  std::optional<Value> previous_;
  std::optional<Value> current_;
  std::optional<Value> watched_;  // By loop.changed: a tuple.
  int64_t index0_ = -1;
  const int64_t depth0_;
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_LOOP_OBJECT_H_
