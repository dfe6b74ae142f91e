// Methods of everything but strings, and the finding of methods.
#include <algorithm>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/operators.h"

namespace strata::jinja {
namespace {

Value View(Runtime& runtime, const Value& self, DictViewObject::What what) {
  return runtime.Container(Kind::kDictView,
                           std::make_shared<DictViewObject>(runtime.budget(), self, what), self);
}

Value DictItems(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("items", arguments);
  return View(runtime, self, DictViewObject::What::kItems);
}
Value DictKeys(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("keys", arguments);
  return View(runtime, self, DictViewObject::What::kKeys);
}
Value DictValues(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("values", arguments);
  return View(runtime, self, DictViewObject::What::kValues);
}

Value DictGet(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("get", arguments, {"key", "default"});
  runtime.StepBytes(parameters.Get(0).IsString() ? parameters.Get(0).text().size() : 0);
  HashOf(runtime, parameters.Get(0));  // Fails for what cannot be a key.
  const Value* found = self.As<DictObject>().Find(runtime, parameters.Get(0));
  return found != nullptr ? *found : parameters.GetOr(1, Value::None());
}

Value Copy(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("copy", arguments);
  return self;  // Containers do not change.
}

Value SequenceIndex(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("index", arguments, {"value", "start", "stop"});
  const int64_t length = Length(self);
  const auto clip = [length](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + length : i, 0, length);
  };
  const int64_t stop = clip(parameters.Integer(2, length));
  const Items items(runtime, self);
  for (int64_t i = clip(parameters.Integer(1, 0)); i < stop; ++i) {
    if (Equals(runtime, items[static_cast<size_t>(i)], parameters.Get(0))) {
      return Value::Int(i);
    }
  }
  Fail("the value is not in the " + std::string(TypeName(self)));
}

Value SequenceCount(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("count", arguments, {"value"});
  const Items items(runtime, self);
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    count += Equals(runtime, items[i], parameters.Get(0)) ? 1 : 0;
  }
  return Value::Int(count);
}

Value FloatIsInteger(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("is_integer", arguments);
  return Value::Bool(std::isfinite(self.real()) && self.real() == std::floor(self.real()));
}

Value IntBitLength(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("bit_length", arguments);
  uint64_t magnitude = self.integer() < 0 ? 0 - static_cast<uint64_t>(self.integer())
                                          : static_cast<uint64_t>(self.integer());
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) {
    ++bits;
  }
  return Value::Int(bits);
}

Value CyclerNext(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("next", arguments);
  auto& cycler = self.As<CyclerObject>();
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value CyclerReset(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("reset", arguments);
  self.As<CyclerObject>().position = 0;
  return Value::None();
}

// dict.fromkeys(keys, value=None): the one attribute that transformers leaves of Python's type.
Value DictFromKeys(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) {
    Fail("dict.fromkeys() takes no keyword arguments");
  }
  const Parameters parameters("fromkeys", arguments, {"iterable", "value"});
  const Items keys(runtime, parameters.Get(0));
  const Value value = parameters.GetOr(1, Value::None());
  DictObject::Entries entries;
  for (size_t i = 0; i < keys.size(); ++i) {
    entries.emplace_back(keys[i], value);
  }
  return runtime.Dict(std::move(entries));
}

constexpr MethodEntry kDictMethods[] = {{"get", &DictGet},
                                        {"items", &DictItems},
                                        {"keys", &DictKeys},
                                        {"values", &DictValues},
                                        {"copy", &Copy}};
constexpr MethodEntry kListMethods[] = {
    {"index", &SequenceIndex}, {"count", &SequenceCount}, {"copy", &Copy}};
constexpr MethodEntry kTupleMethods[] = {{"index", &SequenceIndex}, {"count", &SequenceCount}};
constexpr MethodEntry kIntMethods[] = {{"bit_length", &IntBitLength}};
constexpr MethodEntry kFloatMethods[] = {{"is_integer", &FloatIsInteger}};
constexpr MethodEntry kDictTypeMethods[] = {{"fromkeys", &DictFromKeys}};
constexpr MethodEntry kCyclerMethods[] = {{"next", &CyclerNext}, {"reset", &CyclerReset}};

// What Python has but an immutable sandbox refuses.
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <typename Table>
Value FindIn(Runtime& runtime, const Table& table, const Value& self, std::string_view name) {
  for (const MethodEntry& entry : table) {
    if (entry.name == name) {
      return runtime.Method(self, entry.name, entry.call);
    }
  }
  return Value();
}

template <typename Table>
bool IsAmong(const Table& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Value FindMethod(Runtime& runtime, const Value& self, std::string_view name) {
  const bool refused = (self.Is(Kind::kList) && IsAmong(kListMutators, name)) ||
                       (self.Is(Kind::kDict) && IsAmong(kDictMutators, name));
  if (refused) {
    return Value::Undefined("access to attribute '" + std::string(name) + "' of '" +
                            std::string(TypeName(self)) + "' object is unsafe.");
  }
  switch (self.kind()) {
    case Kind::kString: {
      const Value method = FindIn(runtime, kStringMethods, self, name);
      return method.IsUndefined() ? FindIn(runtime, kStringTestMethods, self, name) : method;
    }
    case Kind::kDict:
      return FindIn(runtime, kDictMethods, self, name);
    case Kind::kList:
      return FindIn(runtime, kListMethods, self, name);
    case Kind::kTuple:
    case Kind::kRange:
      return FindIn(runtime, kTupleMethods, self, name);
    case Kind::kBool:
    case Kind::kInt:
      return FindIn(runtime, kIntMethods, self, name);
    case Kind::kFloat:
      return FindIn(runtime, kFloatMethods, self, name);
    case Kind::kCycler:
      return FindIn(runtime, kCyclerMethods, self, name);
    case Kind::kFunction:
      return self.As<FunctionObject>().name == "dict"
                 ? FindIn(runtime, kDictTypeMethods, self, name)
                 : Value();
    default:
      return Value();
  }
}

}  // namespace strata::jinja
