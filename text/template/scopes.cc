#include "text/template/scopes.h"

#include <string>

#include "text/template/builtins.h"
#include "text/template/failure.h"
#include "text/template/operators.h"

namespace strata::jinja {

void Scope::Set(int name, Value value) {
  if (Value* found = Find(name)) {
    *found = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Scopes::Scopes(Runtime& runtime, const Program& program)
    : runtime_(runtime),
      program_(program),
      root_(std::make_shared<Scope>(nullptr)),
      current_(root_),
      globals_(program.names.size()) {}

Value Scopes::Find(int name) {
  for (Scope* scope = current_.get(); scope != nullptr; scope = scope->parent.get()) {
    runtime_.Step(scope->variables.size() / 16);
    if (const Value* found = scope->Find(name)) {
      return *found;
    }
  }
  std::optional<Value>& global = globals_[static_cast<size_t>(name)];
  if (!global) {
    const std::string& text = program_.names[static_cast<size_t>(name)];
    global = FindGlobal(text);
    if (global->IsUndefined()) {
      global = Value::Undefined("'" + text + "' is undefined");
    }
  }
  return *global;
}

void Scopes::Assign(const Expression& target, const Value& value) {
  runtime_.Step(1 + current_->variables.size() / 16);
  switch (target.kind) {
    case Expression::Kind::kName:
      current_->Set(target.name, value);
      return;
    case Expression::Kind::kMember:
      AssignMember(target, value);
      return;
    default:
      break;
  }
  const size_t wanted = target.operands.size();
  if (!value.IsUndefined() && !value.IsString() && value.kind() < Kind::kString) {
    Fail("cannot unpack non-iterable " + std::string(TypeName(value)) + " object");
  }
  const Items items(runtime_, value);
  if (items.size() < wanted) {
    Fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
         std::to_string(items.size()) + ")");
  }
  if (items.size() > wanted) {
    Fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
  }
  for (size_t i = 0; i < wanted; ++i) {
    Assign(*target.operands[i], items[i]);
  }
}

void Scopes::AssignMember(const Expression& target, const Value& value) {
  const Value object = Find(target.name);
  if (!object.Is(Kind::kNamespace)) {
    Fail("cannot assign attribute on non-namespace object");
  }
  SetMember(runtime_, object, target.value, value);
}

}  // namespace strata::jinja
