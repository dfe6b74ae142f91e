// Runs a Program. One object renders once, on one thread.
#ifndef STRATA_TEXT_TEMPLATE_EVALUATOR_H_
#define STRATA_TEXT_TEMPLATE_EVALUATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/template_limits.h"

namespace strata::jinja {

// The variables of a block; those around it are its parents'.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> p) : parent(std::move(p)) {}
  Value* Find(int name) {
    for (auto& [id, value] : variables) {
      if (id == name) {
        return &value;
      }
    }
    return nullptr;
  }
  void Set(int name, Value value);

  const std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;
};

struct MacroObject : Object {
  MacroObject(Budget* budget, const MacroNode* n, std::shared_ptr<Scope> s)
      : Object(budget, 512), node(n), scope(std::move(s)) {}
  const MacroNode* const node;
  const std::shared_ptr<Scope> scope;  // Where it was defined.
};

// A running for loop: the iteration, and what the template sees as `loop`. Items are taken one by
// one, since a condition may depend on what the body of earlier turns did.
struct LoopObject : Object {
  LoopObject(Budget* budget, Runtime& runtime, const Statement* s, std::shared_ptr<Scope> around,
             const Value& iterable, int64_t level)
      : Object(budget, 256),
        statement(s),
        scope(std::move(around)),
        items(runtime, iterable),
        depth0(level) {}

  const Statement* const statement;
  const std::shared_ptr<Scope> scope;  // Around the loop.
  Items items;
  size_t next = 0;             // Of items.
  std::optional<Value> ahead;  // Taken already, by a look at the next item.
  std::vector<Value> rest;     // All further items, once the length was asked for.
  size_t next_of_rest = 0;
  std::optional<int64_t> length;
  std::optional<Value> previous;
  std::optional<Value> current;
  std::optional<std::vector<Value>> watched;  // By loop.changed.
  int64_t index0 = -1;
  const int64_t depth0;
};

class Evaluator final : public Runtime {
 public:
  Evaluator(const Program& program, const TemplateLimits& limits, int64_t now_s);
  ~Evaluator() override;

  // Throws Failure, its line filled in.
  std::string Render(const nlohmann::ordered_json& variables);

  Value Call(const Value& callee, Arguments& arguments) override;

  TemplateUse use() const {
    return {
        .steps = steps(), .output_bytes = output_bytes_, .value_bytes = budget_.most_used_bytes()};
  }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Statements.
  Flow Execute(const Block& block);
  Flow ExecuteOne(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteIn(std::shared_ptr<Scope> scope, const Block& block);
  Flow ExecuteSetBlock(const Statement& statement);
  Flow ExecuteFilter(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  Flow ExecuteAutoescape(const Statement& statement);
  void ExecuteCall(const Statement& statement);
  void DefineMacro(const Statement& statement);
  Flow RunLoop(const Statement& statement, const Value& iterable, std::shared_ptr<Scope> around,
               int64_t depth0);
  void Print(const Value& value);
  void Write(std::string_view text);
  // What `block` writes, run in `scope`.
  std::string Capture(std::shared_ptr<Scope> scope, const Block& block, Flow* flow);
  void Assign(const Expression& target, const Value& value);
  void AssignMember(const Expression& target, const Value& value);

  // Expressions.
  Value Eval(const Expression& node);
  Value EvalDispatch(const Expression& node);
  Value EvalName(int name);
  std::vector<Value> EvalAll(const std::vector<Expression*>& nodes);
  Value EvalDict(const Expression& node);
  Value EvalBinary(const Expression& node);
  Value EvalLogical(const Expression& node);
  Value EvalConcat(const Expression& node);
  Value EvalCompare(const Expression& node);
  Value EvalConditional(const Expression& node);
  Value EvalItem(const Expression& node);
  Value EvalSlice(const Expression& node);
  Value EvalFilter(const Expression& node);
  Value EvalTest(const Expression& node);
  Value EvalCall(const Expression& node);
  Arguments EvalArguments(const ArgumentNodes* nodes);

  // Calls and loops.
  Value CallMacro(const MacroObject& macro, Arguments& arguments);
  void BindParameters(const MacroObject& macro, Arguments& arguments);
  Value Attribute(const Value& object, std::string_view name);
  Value MacroAttribute(const MacroObject& macro, std::string_view name);
  Value LoopAttribute(const Value& object, std::string_view name);
  bool TakeItem(LoopObject* loop, Value* item);
  bool TakeRaw(LoopObject* loop, Value* item);
  const Value* PeekItem(LoopObject* loop);
  int64_t LoopLength(LoopObject* loop);

  Value FromJson(const nlohmann::ordered_json& json, int depth);
  void DefineVariables(const nlohmann::ordered_json& variables);

  const Program& program_;
  const std::shared_ptr<Scope> root_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> captured_scopes_;  // By macros: may form cycles.
  std::vector<std::optional<Value>> globals_;            // By number of name, once looked up.
  std::string output_;
  std::string* out_ = &output_;
  size_t output_bytes_ = 0;  // Of output_ and of all captures that run.
  int call_depth_ = 0;
  int line_ = 0;
  Value block_input_;  // Of the filter chain of a block.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_EVALUATOR_H_
