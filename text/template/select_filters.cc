// Filters that apply filters and tests: map, select, reject and their kin.
#include "text/template/builtins.h"
#include "text/template/operators.h"

namespace strata::jinja {
namespace {

// The name in front of the arguments, taken from them.
std::string TakeName(Arguments* arguments, const char* what) {
  if (arguments->positional.empty() || !arguments->positional[0].IsString()) {
    Fail(std::string(what) + " must be given by its name");
  }
  std::string name = arguments->positional[0].text();
  arguments->positional.erase(arguments->positional.begin());
  return name;
}

Value Map(Runtime& runtime, const Value& input, Arguments& arguments) {
  return runtime.Lazily([&](std::vector<Value>* results) {
    if (!Truth(input)) {
      return;
    }
    if (arguments.positional.empty() && !arguments.named.empty() &&
        arguments.named[0].first != "default") {
      const Parameters parameters("map", arguments, {"attribute", "default"});
      const bool has_default = parameters.Has(1) && !parameters.Get(1).Is(Kind::kNone);
      const Items items(runtime, input);
      for (size_t i = 0; i < items.size(); ++i) {
        Value value = GetPath(runtime, items[i], parameters.Get(0));
        results->push_back(value.IsUndefined() && has_default ? parameters.Get(1) : value);
      }
      return;
    }
    const std::string name = TakeName(&arguments, "map: the filter");
    const FilterFunction filter = FindFilter(name);
    if (filter == nullptr) {
      Fail("No filter named '" + name + "'.");
    }
    const Items items(runtime, input);
    for (size_t i = 0; i < items.size(); ++i) {
      runtime.Step(4 + arguments.positional.size() + arguments.named.size());
      Arguments copy = arguments;
      results->push_back(filter(runtime, items[i], copy));
    }
  });
}

template <bool kWanted, bool kByAttribute>
Value Select(Runtime& runtime, const Value& input, Arguments& arguments) {
  return runtime.Lazily([&](std::vector<Value>* results) {
    if (!Truth(input)) {
      return;
    }
    Value path;
    if (kByAttribute) {
      if (arguments.positional.empty()) {
        Fail("Missing parameter for attribute name");
      }
      path = arguments.positional[0];
      arguments.positional.erase(arguments.positional.begin());
    }
    TestFunction test = nullptr;
    if (!arguments.positional.empty()) {
      const std::string name = TakeName(&arguments, "select: the test");
      test = FindTest(name);
      if (test == nullptr) {
        Fail("No test named '" + name + "'.");
      }
    }
    const Items items(runtime, input);
    for (size_t i = 0; i < items.size(); ++i) {
      runtime.Step(3 + arguments.positional.size() + arguments.named.size());
      const Value item = items[i];
      const Value value = kByAttribute ? GetPath(runtime, item, path) : item;
      Arguments copy = arguments;
      const bool passes = test != nullptr ? test(runtime, value, copy) : Truth(value);
      if (passes == kWanted) {
        results->push_back(item);
      }
    }
  });
}

constexpr FilterEntry kOfSelection[] = {
    {"map", &Map},
    {"select", &Select<true, false>},
    {"reject", &Select<false, false>},
    {"selectattr", &Select<true, true>},
    {"rejectattr", &Select<false, true>},
};

}  // namespace

const std::span<const FilterEntry> kSelectFilters(kOfSelection);

FilterFunction FindFilter(std::string_view name) {
  for (const auto& table : {kStringFilters, kSequenceFilters, kSelectFilters, kValueFilters}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) {
        return entry.function;
      }
    }
  }
  return nullptr;
}

}  // namespace strata::jinja
