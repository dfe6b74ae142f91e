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

void Runtime::SetDepth(Object* object, int below) const {
  object->depth = below + 1;
  if (object->depth > limits_.max_depth) {
    FailDepth();
  }
}

Value Runtime::Sequence(Kind kind, std::vector<Value> items) {
  Step(1 + items.size() / 4);
  int below = 0;
  for (const Value& item : items) {
    below = std::max(below, item.depth());
  }
  auto list = std::make_shared<ListObject>(&budget_, std::move(items));
  SetDepth(list.get(), below);
  return Value(kind, std::move(list));
}

Value Runtime::Iterator(std::vector<Value> items, std::string_view type_name) {
  Step(1 + items.size() / 4);
  int below = 0;
  for (const Value& item : items) {
    below = std::max(below, item.depth());
  }
  auto iterator = std::make_shared<IteratorObject>(&budget_, std::move(items), type_name);
  SetDepth(iterator.get(), below);
  return Value(Kind::kIterator, std::move(iterator));
}

Value Runtime::Group(Value key, Value list) {
  Value group = Tuple({std::move(key), std::move(list)});
  group.As<ListObject>().is_group = true;
  return group;
}

Value Runtime::Namespace(NamespaceObject::Members members) {
  namespaces_.push_back(std::make_shared<NamespaceObject>(&budget_, std::move(members)));
  return Value(Kind::kNamespace, namespaces_.back());
}

void Runtime::ClearNamespaces() {
  for (const auto& names : namespaces_) {
    names->members.clear();
  }
}

Value Runtime::Dict(DictObject::Entries entries) {
  Step(1 + entries.size());
  int below = 0;
  std::unordered_multimap<size_t, size_t> index;
  size_t kept = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Value& key = entries[i].first;
    StepBytes(key.IsString() ? key.text().size() : 0);
    const size_t hash = HashOf(key);
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
  for (const auto& [key, value] : entries) {
    below = std::max({below, key.depth(), value.depth()});
  }
  auto dict = std::make_shared<DictObject>(&budget_, std::move(entries));
  if (kept > 8) {
    dict->index = std::move(index);
  }
  SetDepth(dict.get(), below);
  return Value(Kind::kDict, std::move(dict));
}

}  // namespace strata::jinja
