// The names that a template finds without defining them.
#ifndef STRATA_TEXT_TEMPLATE_BUILTINS_H_
#define STRATA_TEXT_TEMPLATE_BUILTINS_H_

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/value.h"

namespace strata::jinja {

// Null if there is none of that name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);
// An undefined value if there is none.
Value FindGlobal(std::string_view name);
// A method of a str, list, tuple, dict, int, float, cycler, loop or `dict` itself; undefined if
// there is none. One that Python has but the sandbox refuses is undefined with that as its message.
Value FindMethod(Runtime& runtime, const Value& self, std::string_view name);

// Assigns the arguments of a call to parameters by position and name.
class Parameters {
 public:
  // Fails for too many arguments and for names that are not among `names`.
  Parameters(std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> names);

  bool Has(size_t i) const { return values_[i].has_value(); }
  // The argument; fails if it was not given.
  const Value& Get(size_t i) const;
  Value GetOr(size_t i, const Value& fallback) const { return Has(i) ? *values_[i] : fallback; }
  bool IsTrue(size_t i, bool fallback = false) const;
  // An int that fits; fails for other types.
  int64_t Integer(size_t i, int64_t fallback) const;
  // A string; fails for other types.
  const std::string& Text(size_t i) const;

 private:
  const std::string_view function_;
  const std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

// Fails for any argument.
void TakesNothing(std::string_view function, Arguments& arguments);

// object.name and object[key] as the sandbox allows them: undefined where there is nothing.
Value GetAttribute(Runtime& runtime, const Value& object, std::string_view name);
Value GetItem(Runtime& runtime, const Value& object, const Value& key);
// object[start:stop:step], each None or an integer.
Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step);
// What `attribute` of a filter names: "a.b.0", or a number.
Value GetPath(Runtime& runtime, const Value& object, const Value& path);
// Only attributes, no items (the attr filter).
Value GetAttributeOnly(Runtime& runtime, const Value& object, std::string_view name);

// namespace.name = value, where the sandbox allows it.
void SetMember(Runtime& runtime, const Value& names, const Value& name, const Value& value);

// Tables of the files that implement them.
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
struct TestEntry {
  std::string_view name;
  TestFunction function;
};
struct MethodEntry {
  std::string_view name;
  MethodObject::Call call;
};
extern const std::span<const FilterEntry> kStringFilters;
extern const std::span<const FilterEntry> kSequenceFilters;
extern const std::span<const FilterEntry> kSelectFilters;
extern const std::span<const FilterEntry> kValueFilters;
extern const std::span<const MethodEntry> kStringMethods;
extern const std::span<const MethodEntry> kStringTestMethods;

}  // namespace strata::jinja

#endif  // STRATA_TEXT_TEMPLATE_BUILTINS_H_
