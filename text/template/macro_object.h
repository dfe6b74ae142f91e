// A macro, or the `caller` of a call block.
#ifndef STRATA_TEXT_TEMPLATE_MACRO_OBJECT_H_
#define STRATA_TEXT_TEMPLATE_MACRO_OBJECT_H_

#include <memory>
#include <string_view>
#include <utility>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/scopes.h"
#include "text/template/value.h"

namespace strata::jinja {

struct MacroObject : Holder {
  MacroObject(Budget* budget, const MacroNode* n, std::shared_ptr<Scope> s)
      : Holder(budget, 512), node(n), scope(std::move(s)) {}
  void Empty() override { scope.reset(); }
  // macro.name
  Value Attribute(Runtime& runtime, std::string_view name) const;

  const MacroNode* const node;
  std::shared_ptr<Scope> scope;  // Where it was defined.
};

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_MACRO_OBJECT_H_
