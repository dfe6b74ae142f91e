// Arguments to parameters.
#include "text/template/builtins.h"
#include "text/template/operators.h"

namespace strata::jinja {

Parameters::Parameters(std::string_view function, Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    Fail(std::string(function) + "() takes at most " + std::to_string(names_.size()) +
         " argument(s), " + std::to_string(arguments.positional.size()) + " given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
  }
  for (auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < names_.size() && names_[i] != name) {
      ++i;
    }
    if (i == names_.size()) {
      Fail("'" + name + "' is an invalid keyword argument for " + std::string(function) + "()");
    }
    if (values_[i]) {
      Fail(std::string(function) + "() got multiple values for argument '" + name + "'");
    }
    values_[i] = std::move(value);
  }
}

void TakesNothing(std::string_view function, Arguments& arguments) {
  const Parameters none(function, arguments, {});
}

const Value& Parameters::Get(size_t i) const {
  if (!values_[i]) {
    Fail(std::string(function_) + "() missing 1 required positional argument: '" +
         std::string(names_[i]) + "'");
  }
  return *values_[i];
}

bool Parameters::IsTrue(size_t i, bool fallback) const {
  return values_[i] ? Truth(*values_[i]) : fallback;
}

int64_t Parameters::Integer(size_t i, int64_t fallback) const {
  if (!values_[i]) {
    return fallback;
  }
  if (values_[i]->Is(Kind::kBigInt)) {
    FailLimit(std::string(names_[i]) + " of " + std::string(function_) + "() is too large");
  }
  if (!values_[i]->IsInteger()) {
    if (values_[i]->IsUndefined()) {
      FailUndefined(*values_[i]);
    }
    Fail("'" + std::string(TypeName(*values_[i])) + "' object cannot be interpreted as an integer");
  }
  return values_[i]->integer();
}

const std::string& Parameters::Text(size_t i) const {
  const Value& value = Get(i);
  if (!value.IsString()) {
    if (value.IsUndefined()) {
      FailUndefined(value);
    }
    Fail(std::string(function_) + "(): " + std::string(names_[i]) + " must be str, not " +
         std::string(TypeName(value)));
  }
  return value.text();
}

}  // namespace strata::jinja
