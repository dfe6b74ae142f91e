#include "text/template/runtime.h"

#include <algorithm>
#include <string>

#include "text/template/operators.h"

namespace strata::jinja {

void Runtime::FailSteps() const {
  FailLimit("the template takes more than " + std::to_string(limits_.max_steps) + " steps");
}

void Runtime::FailDepth() const {
  FailLimit("the template nests deeper than " + std::to_string(limits_.max_depth) + " levels");
}

void Runtime::CheckBytes(size_t bytes) const {
  if (bytes > limits_.max_value_bytes) {
    FailLimit("a value of the template takes more than " + std::to_string(limits_.max_value_bytes) +
              " bytes");
  }
}

void Runtime::CheckBytes(size_t bytes, uint64_t count) const {
  uint64_t product = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(bytes), count, &product)) {
    product = UINT64_MAX;
  }
  CheckBytes(product);
}

Value Runtime::String(std::string text, bool safe) {
  CheckBytes(text.size());
  StepBytes(text.size());
  return Value(Kind::kString, std::make_shared<StringObject>(&budget_, std::move(text), safe));
}

Runtime::~Runtime() {
  for (const auto& holder : holders_) {
    holder->Empty();
  }
}

Value Runtime::Container(Kind kind, std::shared_ptr<Object> object,
                         std::span<const Value> held) const {
  int below = 0;
  for (const Value& value : held) {
    below = std::max(below, value.depth());
  }
  return Nested(kind, std::move(object), below);
}

Value Runtime::Nested(Kind kind, std::shared_ptr<Object> object, int below) const {
  object->depth = below + 1;
  if (object->depth > limits_.max_depth) {
    FailDepth();
  }
  return Value(kind, std::move(object));
}

Value Runtime::Method(const Value& self, std::string_view name, MethodObject::Call call) {
  return Container(Kind::kMethod, std::make_shared<MethodObject>(&budget_, self, name, call), self);
}

Value Runtime::Sequence(Kind kind, std::vector<Value> items) {
  Step(1 + items.size() / 4);
  auto list = std::make_shared<ListObject>(&budget_, std::move(items));
  return Container(kind, list, list->items);
}

Value Runtime::Iterator(std::vector<Value> items, std::string_view type_name) {
  Step(1 + items.size() / 4);
  auto iterator = std::make_shared<IteratorObject>(&budget_, std::move(items), type_name);
  return Container(Kind::kIterator, iterator, iterator->items);
}

Value Runtime::Group(Value key, Value list) {
  Value group = Tuple({std::move(key), std::move(list)});
  group.As<ListObject>().is_group = true;
  return group;
}

Value Runtime::Namespace(NamespaceObject::Members members) {
  auto names = std::make_shared<NamespaceObject>(&budget_, std::move(members));
  Keep(names);
  return Value(Kind::kNamespace, std::move(names));
}

Value Runtime::Dict(DictObject::Entries entries) {
  Step(1 + entries.size());
  std::unordered_multimap<size_t, size_t> index;
  size_t kept = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Value& key = entries[i].first;
    StepBytes(key.IsString() ? key.text().size() : 0);
    const size_t hash = HashOf(*this, key);
    auto [begin, end] = index.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& slot) {
      return Equals(*this, entries[slot.second].first, entries[i].first);
    });
    if (same != end) {
      entries[same->second].second = std::move(entries[i].second);
      continue;
    }
    index.emplace(hash, kept);
    if (kept != i) {
      entries[kept] = std::move(entries[i]);
    }
    ++kept;
  }
  entries.resize(kept);
  int below = 0;
  for (const auto& [key, value] : entries) {
    below = std::max({below, key.depth(), value.depth()});
  }
  auto dict = std::make_shared<DictObject>(&budget_, std::move(entries));
  if (kept > 8) {
    dict->index = std::move(index);
  }
  return Nested(Kind::kDict, std::move(dict), below);
}

}  // namespace strata::jinja
