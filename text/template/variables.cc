#include "text/template/variables.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "text/template/failure.h"
#include "text/template/integer.h"
#include "text/template/template_jsonl.h"

namespace strata::jinja {
namespace {

// These values belong to the caller's input, so no budget of the template counts them.
Value FromJson(const nlohmann::ordered_json& json, const TemplateLimits& limits, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > limits.max_depth / 2) {
    FailLimit("the variables nest deeper than " + std::to_string(limits.max_depth / 2) + " levels");
  }
  switch (json.type()) {
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Int(json.get<int64_t>());
    case Type::number_unsigned: {
      Value number;
      ParseInteger(nullptr, std::to_string(json.get<uint64_t>()), 10, &number);
      return number;
    }
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return Value::Constant(json.get_ref<const std::string&>());
    case Type::binary: {
      const auto& bytes = json.get_binary();
      Value number;
      const std::string digits(bytes.begin(), bytes.end());
      if (bytes.subtype() != kBigIntegerSubtype || !ParseInteger(nullptr, digits, 10, &number)) {
        Fail("a variable is no JSON value");
      }
      return number;
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        items.push_back(FromJson(item, limits, depth + 1));
      }
      int below = 0;
      for (const Value& item : items) {
        below = std::max(below, item.depth());
      }
      auto list = std::make_shared<ListObject>(nullptr, std::move(items));
      list->depth = below + 1;
      return Value(Kind::kList, std::move(list));
    }
    case Type::object: {
      DictObject::Entries entries;
      entries.reserve(json.size());
      int below = 0;
      for (const auto& [key, value] : json.items()) {
        entries.emplace_back(Value::Constant(key), FromJson(value, limits, depth + 1));
        below = std::max(below, entries.back().second.depth());
      }
      auto dict = std::make_shared<DictObject>(nullptr, std::move(entries));
      dict->depth = below + 1;
      if (dict->entries.size() > 8) {
        for (size_t i = 0; i < dict->entries.size(); ++i) {
          dict->index.emplace(HashOf(dict->entries[i].first.text()), i);
        }
      }
      return Value(Kind::kDict, std::move(dict));
    }
    default:
      return Value::None();
  }
}

}  // namespace

void DefineVariables(const nlohmann::ordered_json& variables, const Program& program,
                     const TemplateLimits& limits, Scope* root) {
  const auto define = [&](const std::string& name, const auto& make) {
    const auto found = program.name_ids.find(name);
    if (found != program.name_ids.end()) {  // Others cannot be seen by the template.
      root->Set(found->second, make());
    }
  };
  define("messages", [] {
    return Value(Kind::kList, std::make_shared<ListObject>(nullptr, std::vector<Value>()));
  });
  define("tools", [] { return Value::None(); });
  define("documents", [] { return Value::None(); });
  define("add_generation_prompt", [] { return Value::Bool(false); });
  if (!variables.is_object()) {
    Fail("the variables must be a JSON object");
  }
  for (const auto& [name, value] : variables.items()) {
    define(name, [&json = value, &limits] { return FromJson(json, limits, 1); });
  }
}

}  // namespace strata::jinja
