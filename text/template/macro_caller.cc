#include "text/template/macro_caller.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/template/failure.h"
#include "text/template/parser.h"

namespace strata::jinja {

void MacroCaller::BindParameters(const MacroObject& macro, Arguments& arguments) {
  const MacroNode& node = *macro.node;
  const size_t count = node.parameters.size();
  const size_t first_default = count - node.defaults.size();
  const auto take_named = [&arguments](std::string_view name, Value* value) {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [name](const auto& entry) { return entry.first == name; });
    if (found == arguments.named.end()) {
      return false;
    }
    *value = std::move(found->second);
    arguments.named.erase(found);
    return true;
  };
  for (size_t i = 0; i < count; ++i) {
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!take_named(node.parameters[i], &value)) {
      value = i >= first_default
                  ? expressions_.Eval(*node.defaults[i - first_default])
                  : Value::Undefined("parameter '" + NameInMessage(node.parameters[i]) +
                                     "' was not provided");
    }
    scopes_.current()->Set(node.parameter_ids[i], std::move(value));
  }
  if (node.uses_caller && scopes_.current()->Find(kNameCaller) == nullptr) {
    Value caller = Value::Undefined("No caller defined");
    take_named("caller", &caller);
    scopes_.current()->Set(kNameCaller, std::move(caller));
  }
  if (node.uses_kwargs) {
    DictObject::Entries entries;
    for (auto& [name, value] : arguments.named) {
      entries.emplace_back(runtime_.String(name), std::move(value));
    }
    scopes_.current()->Set(kNameKwargs, runtime_.Dict(std::move(entries)));
  } else if (!arguments.named.empty()) {
    Fail("macro '" + node.name + "' takes no keyword argument '" + arguments.named[0].first + "'");
  }
  if (node.uses_varargs) {
    const size_t extra = std::min(count, arguments.positional.size());
    arguments.positional.erase(arguments.positional.begin(),
                               arguments.positional.begin() + static_cast<ptrdiff_t>(extra));
    scopes_.current()->Set(kNameVarargs, runtime_.Tuple(std::move(arguments.positional)));
  } else if (arguments.positional.size() > count) {
    Fail("macro '" + node.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
}

Value MacroCaller::Call(const MacroObject& macro, Arguments& arguments) {
  const Runtime::Deeper deeper(runtime_);
  const int max_depth = runtime_.limits().max_depth;
  if (++depth_ > max_depth) {
    FailLimit("the macros of the template call each other deeper than " +
              std::to_string(max_depth) + " levels");
  }
  const int line = expressions_.line();
  std::string text;
  {
    const Scopes::Enter inside(scopes_, std::make_shared<Scope>(macro.scope));
    BindParameters(macro, arguments);
    StatementRunner::Flow flow = StatementRunner::Flow::kNext;  // No break leaves a macro.
    text = statements_.Capture(scopes_.current(), macro.node->body, &flow);
  }
  expressions_.set_line(line);  // What fails in a macro keeps the line there.
  --depth_;
  return runtime_.String(std::move(text), runtime_.autoescape());
}

}  // namespace strata::jinja
