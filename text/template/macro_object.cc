#include "text/template/macro_object.h"

#include <string>
#include <vector>

namespace strata::jinja {

Value MacroObject::Attribute(Runtime& runtime, std::string_view name) const {
  if (name == "name") {
    return runtime.String(node->name);
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : node->parameters) {
      names.push_back(runtime.String(parameter));
    }
    return runtime.Tuple(std::move(names));
  }
  if (name == "catch_kwargs") {
    return Value::Bool(node->uses_kwargs);
  }
  if (name == "catch_varargs") {
    return Value::Bool(node->uses_varargs);
  }
  if (name == "caller") {
    return Value::Bool(node->uses_caller);
  }
  return Value::Undefined("'Macro object' has no attribute '" + NameInMessage(name) + "'");
}

}  // namespace strata::jinja
