// Membership, hashing, length and iteration.
#include <functional>

#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.IsString()) {
        if (item.IsUndefined()) {
          FailUndefined(item);
        }
        Fail("'in <string>' requires string as left operand, not " + std::string(TypeName(item)));
      }
      runtime.StepBytes(container.text().size() * 4);
      return Find(container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      runtime.StepBytes(item.IsString() ? item.text().size() : 0);
      HashOf(runtime, item);  // Fails for what cannot be a key.
      return container.As<DictObject>().Find(runtime, item) != nullptr;
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kCycler:
    case Kind::kJoiner:
      Fail("argument of type '" + std::string(TypeName(container)) + "' is not iterable");
    default: {
      const Items items(runtime, container);
      for (size_t i = 0; i < items.size(); ++i) {
        if (Equals(runtime, items[i], item)) {
          return true;
        }
      }
      return false;
    }
  }
}

size_t HashOf(std::string_view text) { return std::hash<std::string_view>()(text); }

size_t HashOf(Runtime& runtime, const Value& v) {
  switch (v.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>()(static_cast<double>(v.integer()));
    case Kind::kBigInt:
      return IntegerHash(v);
    case Kind::kFloat:
      return std::hash<double>()(v.real());
    case Kind::kString:
      return HashOf(v.text());
    case Kind::kNone:
    case Kind::kUndefined:
      return 0x9E3779B9;
    case Kind::kTuple: {
      size_t hash = v.items().size();
      for (const Value& item : v.items()) {
        runtime.StepBytes(item.IsString() ? item.text().size() : 0);
        hash = hash * 1000003 ^ HashOf(runtime, item);
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      Fail("unhashable type: '" + std::string(TypeName(v)) + "'");
    default:
      return std::hash<const void*>()(v.object());
  }
}

int64_t Length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(v.As<StringObject>().Length());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(v.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(v.As<DictObject>().entries.size());
    case Kind::kDictView:
      return Length(v.As<DictViewObject>().dict);
    case Kind::kRange:
      return v.As<RangeObject>().size;
    default:
      Fail("object of type '" + std::string(TypeName(v)) + "' has no len()");
  }
}

Items::Items(Runtime& runtime, const Value& v) : runtime_(runtime), owner_(v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString:
      runtime.CheckBytes(v.text().size() * sizeof(Value));
      own_.reserve(v.As<StringObject>().Length());
      for (size_t at = 0; at < v.text().size();) {
        const size_t bytes = DecodeAt(v.text(), at).bytes;
        own_.push_back(runtime.String(v.text().substr(at, bytes)));
        at += bytes;
      }
      size_ = own_.size();
      break;
    case Kind::kList:
    case Kind::kTuple:
      vector_ = &v.items();
      size_ = vector_->size();
      break;
    case Kind::kDict:
      source_ = Source::kKeys;
      size_ = v.As<DictObject>().entries.size();
      break;
    case Kind::kDictView: {
      const auto& view = v.As<DictViewObject>();
      owner_ = view.dict;
      source_ = view.what == DictViewObject::What::kKeys     ? Source::kKeys
                : view.what == DictViewObject::What::kValues ? Source::kValues
                                                             : Source::kPairs;
      size_ = owner_.As<DictObject>().entries.size();
      break;
    }
    case Kind::kRange:
      source_ = Source::kRange;
      size_ = static_cast<size_t>(v.As<RangeObject>().size);
      break;
    case Kind::kIterator: {
      auto& iterator = v.As<IteratorObject>();
      if (!iterator.failure.empty()) {
        Fail(iterator.failure);
      }
      own_.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next),
                  iterator.items.end());
      iterator.next = iterator.items.size();
      size_ = own_.size();
      break;
    }
    default:
      Fail("'" + std::string(TypeName(v)) + "' object is not iterable");
  }
  runtime.Step(1 + size_ / 16);
}

Value Items::operator[](size_t i) const {
  switch (source_) {
    case Source::kVector:
      return vector_ != nullptr ? (*vector_)[i] : own_[i];
    case Source::kRange: {
      const auto& range = owner_.As<RangeObject>();
      return Value::Int(range.start + static_cast<int64_t>(i) * range.step);
    }
    case Source::kKeys:
      return owner_.As<DictObject>().entries[i].first;
    case Source::kValues:
      return owner_.As<DictObject>().entries[i].second;
    case Source::kPairs: {
      const auto& [key, value] = owner_.As<DictObject>().entries[i];
      return runtime_.Tuple({key, value});
    }
  }
  return Value();
}

std::vector<Value> Items::ToVector() const {
  runtime_.CheckBytes(size_ * sizeof(Value));
  std::vector<Value> all;
  all.reserve(size_);
  for (size_t i = 0; i < size_; ++i) {
    all.push_back((*this)[i]);
  }
  return all;
}

}  // namespace strata::jinja
