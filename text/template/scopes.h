// The variables of a rendering.
#ifndef STRATA_TEXT_TEMPLATE_SCOPES_H_
#define STRATA_TEXT_TEMPLATE_SCOPES_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

// The variables of a block; those around it are its parents', as many as the source nests.
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

// The scope that is run in, those around it, and the globals below them all.
class Scopes {
 public:
  Scopes(Runtime& runtime, const Program& program);

  const std::shared_ptr<Scope>& root() const { return root_; }
  const std::shared_ptr<Scope>& current() const { return current_; }

  // The value of a name as the current scope sees it; an undefined one if there is none.
  Value Find(int name);
  // target = value, in the current scope.
  void Assign(const Expression& target, const Value& value);

  // Makes another scope the current one while it lives.
  class Enter {
   public:
    Enter(Scopes& scopes, std::shared_ptr<Scope> scope)
        : scopes_(scopes), outer_(std::exchange(scopes.current_, std::move(scope))) {}
    ~Enter() { scopes_.current_ = std::move(outer_); }
    Enter(const Enter&) = delete;
    Enter& operator=(const Enter&) = delete;

   private:
    Scopes& scopes_;
    std::shared_ptr<Scope> outer_;
  };

 private:
  void AssignMember(const Expression& target, const Value& value);

  Runtime& runtime_;
  const Program& program_;
  const std::shared_ptr<Scope> root_;
  std::shared_ptr<Scope> current_;
  std::vector<std::optional<Value>> globals_;  // By number of name, once looked up.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_SCOPES_H_
