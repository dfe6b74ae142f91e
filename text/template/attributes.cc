// object.name, object[key] and object[a:b:c].
#include <algorithm>
#include <cstdlib>

#include "text/template/builtins.h"
#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

Value Unsafe(const Value& object, std::string_view name) {
  return Value::Undefined("access to attribute '" + NameInMessage(name) + "' of '" +
                          std::string(TypeName(object)) + "' object is unsafe.");
}

Value Missing(const Value& object, std::string_view name) {
  return Value::Undefined("'" + ObjectTypeName(object) + "' has no attribute '" +
                          NameInMessage(name) + "'");
}

bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

// What object.name is by Python's attributes alone; undefined where there is none.
Value PlainAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (!name.empty() && name[0] == '_') {
    return Unsafe(object, name);
  }
  switch (object.kind()) {
    case Kind::kNamespace:
      if (Value* member = object.As<NamespaceObject>().Find(runtime, name)) {
        return *member;
      }
      break;
    case Kind::kTuple:
      if (object.As<ListObject>().is_group && (name == "grouper" || name == "list")) {
        return object.items()[name == "list" ? 1 : 0];
      }
      break;
    case Kind::kCycler: {
      const auto& cycler = object.As<CyclerObject>();
      if (name == "current") {
        return cycler.items[cycler.position];
      }
      break;
    }
    default:
      break;
  }
  return FindMethod(runtime, object, name);
}

// What object[key] is by Python's subscripts alone; undefined where there is none.
bool Subscript(Runtime& runtime, const Value& object, const Value& key, Value* result) {
  switch (object.kind()) {
    case Kind::kDict:
      if (key.Is(Kind::kList) || key.Is(Kind::kDict)) {
        return false;
      }
      runtime.StepBytes(key.IsString() ? key.text().size() : 0);
      if (const Value* found = key.IsString() ? object.As<DictObject>().Find(key.text())
                                              : object.As<DictObject>().Find(runtime, key)) {
        *result = *found;
        return true;
      }
      return false;
    case Kind::kNamespace:
      if (key.IsString() && !key.text().empty()) {
        if (Value* member = object.As<NamespaceObject>().Find(runtime, key.text())) {
          *result = *member;
          return true;
        }
      }
      return false;
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      break;
    default:
      return false;
  }
  if (!key.IsInteger()) {
    return false;
  }
  const int64_t length = Length(object);
  const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) {
    return false;
  }
  const auto at = static_cast<size_t>(index);
  if (object.IsSequence()) {
    *result = object.items()[at];
  } else if (object.Is(Kind::kRange)) {
    const auto& range = object.As<RangeObject>();
    *result = Value::Int(range.start + index * range.step);
  } else {
    const auto& string = object.As<StringObject>();
    const size_t byte = string.ascii() ? at : ByteOffset(string.text, at);
    runtime.StepCharacters(string.ascii() ? 0 : byte);
    *result =
        runtime.String(string.text.substr(byte, DecodeAt(string.text, byte).bytes), string.safe);
  }
  return true;
}

// An index of a slice, clipped as Python does.
int64_t ClipIndex(const Value& v, int64_t fallback, int64_t length, bool backward) {
  if (v.Is(Kind::kNone)) {
    return fallback;
  }
  if (v.IsUndefined()) {
    FailUndefined(v);
  }
  if (!v.IsInteger() && !v.Is(Kind::kBigInt)) {
    Fail("slice indices must be integers or None or have an __index__ method");
  }
  int64_t index = v.Is(Kind::kBigInt)
                      ? (IntegerOrder(v, Value::Int(0)) < 0 ? INT64_MIN / 2 : INT64_MAX / 2)
                      : std::clamp(v.integer(), INT64_MIN / 2, INT64_MAX / 2);
  if (index < 0) {
    index += length;
  }
  return backward ? std::clamp<int64_t>(index, -1, length - 1)
                  : std::clamp<int64_t>(index, 0, length);
}

struct SliceBounds {
  int64_t start, step, count;
};

SliceBounds BoundsOf(int64_t length, const Value& start, const Value& stop, const Value& step) {
  int64_t by = 1;
  if (!step.Is(Kind::kNone)) {
    if (!step.IsInteger()) {
      Fail("slice indices must be integers or None or have an __index__ method");
    }
    by = std::clamp<int64_t>(step.integer(), -(int64_t{1} << 40), int64_t{1} << 40);
  }
  if (by == 0) {
    Fail("slice step cannot be zero");
  }
  const bool backward = by < 0;
  const int64_t first = ClipIndex(start, backward ? length - 1 : 0, length, backward);
  const int64_t end = ClipIndex(stop, backward ? -1 : length, length, backward);
  const int64_t span = backward ? first - end : end - first;
  const int64_t stride = std::abs(by);
  return {first, by, span <= 0 ? 0 : (span + stride - 1) / stride};
}

Value SliceString(Runtime& runtime, const StringObject& string, const SliceBounds& bounds) {
  const auto count = static_cast<size_t>(bounds.count);
  if (bounds.step == 1) {
    const auto start = static_cast<size_t>(bounds.start);
    runtime.StepCharacters(string.ascii() ? 0 : string.text.size());
    const size_t from = string.ascii() ? start : ByteOffset(string.text, start);
    const std::string_view rest = std::string_view(string.text).substr(from);
    return runtime.String(
        std::string(rest.substr(0, string.ascii() ? count : ByteOffset(rest, count))), string.safe);
  }
  std::vector<std::string_view> characters;
  runtime.StepCharacters(string.text.size() * 2);
  for (size_t at = 0; at < string.text.size();) {
    const size_t bytes = DecodeAt(string.text, at).bytes;
    characters.push_back(std::string_view(string.text).substr(at, bytes));
    at += bytes;
  }
  std::string text;
  for (int64_t i = 0; i < bounds.count; ++i) {
    text += characters[static_cast<size_t>(bounds.start + i * bounds.step)];
  }
  return runtime.String(std::move(text), string.safe);
}

}  // namespace

Value GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.IsUndefined()) {
    FailUndefined(object);
  }
  const bool is_private = !name.empty() && name[0] == '_' && !IsDunder(name);
  if (!(object.Is(Kind::kDict) && is_private)) {
    const Value attribute = PlainAttribute(runtime, object, name);
    if (!attribute.IsUndefined() || attribute.object() != nullptr) {
      return attribute;  // Or what Python has and the sandbox refuses.
    }
  }
  if (object.Is(Kind::kDict)) {
    if (const Value* item = object.As<DictObject>().Find(name)) {
      return *item;
    }
  }
  return Missing(object, name);
}

Value GetAttributeOnly(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.IsUndefined()) {
    return GetAttribute(runtime, object, name);
  }
  const Value attribute = PlainAttribute(runtime, object, name);
  return attribute.IsUndefined() && attribute.object() == nullptr ? Missing(object, name)
                                                                  : attribute;
}

Value GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.IsUndefined()) {
    FailUndefined(object);
  }
  Value found;
  if (Subscript(runtime, object, key, &found)) {
    return found;
  }
  if (key.IsString()) {
    const Value attribute = PlainAttribute(runtime, object, key.text());
    if (!attribute.IsUndefined() || attribute.object() != nullptr) {
      return attribute;
    }
    return Missing(object, key.text());
  }
  return Value::Undefined(ObjectTypeName(object) + " has no element " + ToRepr(runtime, key));
}

Value GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step) {
  switch (object.kind()) {
    case Kind::kUndefined:
      FailUndefined(object);
    case Kind::kString:
      return SliceString(runtime, object.As<StringObject>(),
                         BoundsOf(Length(object), start, stop, step));
    case Kind::kList:
    case Kind::kTuple: {
      const SliceBounds bounds = BoundsOf(Length(object), start, stop, step);
      std::vector<Value> items;
      items.reserve(static_cast<size_t>(bounds.count));
      for (int64_t i = 0; i < bounds.count; ++i) {
        items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
      }
      return object.Is(Kind::kList) ? runtime.List(std::move(items))
                                    : runtime.Tuple(std::move(items));
    }
    case Kind::kRange: {
      const auto& range = object.As<RangeObject>();
      const SliceBounds bounds = BoundsOf(range.size, start, stop, step);
      const int64_t first = range.start + bounds.start * range.step;
      const int64_t by = range.step * bounds.step;
      return Value(Kind::kRange, std::make_shared<RangeObject>(first, first + by * bounds.count, by,
                                                               bounds.count));
    }
    default:
      Fail("'" + std::string(TypeName(object)) + "' object has no slices");
  }
}

Value GetPath(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.IsString()) {
    return GetItem(runtime, object, path);
  }
  Value value = object;
  const std::string_view text = path.text();
  for (size_t at = 0; at <= text.size();) {
    runtime.Step();
    const size_t end = std::min(text.find('.', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    const bool is_number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    value = is_number ? GetItem(runtime, value, Value::Int(std::atoll(std::string(part).c_str())))
                      : GetItem(runtime, value, Value::Constant(std::string(part)));
  }
  return value;
}

void SetMember(Runtime& runtime, const Value& names, const Value& name, const Value& value) {
  if (name.text().starts_with('_')) {
    Fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
         name.text() + "'. Please rename the attribute.");
  }
  names.As<NamespaceObject>().Set(runtime, name, value);
}

}  // namespace strata::jinja
