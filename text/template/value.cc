#include "text/template/value.h"

#include <algorithm>

#include "text/template/failure.h"
#include "text/template/operators.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {

void Budget::Charge(size_t bytes) {
  used_bytes_ += bytes;
  if (used_bytes_ > limit_bytes_) {
    used_bytes_ -= bytes;
    FailLimit("the values of the template take more than " + std::to_string(limit_bytes_) +
              " bytes");
  }
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
}

Value Value::Constant(std::string text) {
  return Value(Kind::kString, std::make_shared<StringObject>(nullptr, std::move(text), false));
}

Value Value::Undefined(std::string message) {
  return Value(Kind::kUndefined, std::make_shared<UndefinedObject>(std::move(message)));
}

size_t StringObject::Length() const {
  int64_t length = length_.load(std::memory_order_relaxed);
  if (length < 0) {
    length = static_cast<int64_t>(CountCodePoints(text));
    length_.store(length, std::memory_order_relaxed);
  }
  return static_cast<size_t>(length);
}

const Value* DictObject::Find(Runtime& runtime, const Value& key) const {
  if (index.empty()) {
    for (const auto& [candidate, value] : entries) {
      if (KeyEquals(runtime, candidate, key)) {
        return &value;
      }
    }
    return nullptr;
  }
  auto [begin, end] = index.equal_range(HashOf(runtime, key));
  for (; begin != end; ++begin) {
    if (KeyEquals(runtime, entries[begin->second].first, key)) {
      return &entries[begin->second].second;
    }
  }
  return nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  if (index.empty()) {
    for (const auto& [candidate, value] : entries) {
      if (candidate.IsString() && candidate.text() == key) {
        return &value;
      }
    }
    return nullptr;
  }
  auto [begin, end] = index.equal_range(HashOf(key));
  for (; begin != end; ++begin) {
    const Value& candidate = entries[begin->second].first;
    if (candidate.IsString() && candidate.text() == key) {
      return &entries[begin->second].second;
    }
  }
  return nullptr;
}

Value* NamespaceObject::Find(Runtime& runtime, std::string_view name) {
  runtime.Step(members.size() / 16);
  for (auto& [member, value] : members) {
    if (member.text() == name) {
      return &value;
    }
  }
  return nullptr;
}

void NamespaceObject::Set(Runtime& runtime, const Value& name, const Value& value) {
  if (Value* member = Find(runtime, name.text())) {
    *member = value;
  } else {
    Grow(kBytesOfMember);
    members.emplace_back(name, value);
  }
}

std::string_view TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.safe() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      switch (v.As<DictViewObject>().what) {
        case DictViewObject::What::kKeys:
          return "dict_keys";
        case DictViewObject::What::kValues:
          return "dict_values";
        case DictViewObject::What::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return v.As<IteratorObject>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

std::string ObjectTypeName(const Value& v) {
  return v.Is(Kind::kNone) ? "None" : std::string(TypeName(v)) + " object";
}

std::string NameInMessage(std::string_view name) {
  constexpr size_t kMaxBytes = 100;
  return std::string(name.size() <= kMaxBytes ? name
                                              : name.substr(0, PreviousStart(name, kMaxBytes)));
}

}  // namespace strata::jinja
