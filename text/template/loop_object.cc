#include "text/template/loop_object.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/template/failure.h"

namespace strata::jinja {

void LoopObject::Empty() {
  around_.reset();
  items_.reset();
  ahead_.reset();
  rest_.clear();
  previous_.reset();
  current_.reset();
  watched_.reset();
}

bool LoopObject::TakeRaw(Value* item) {
  if (length_) {
    if (next_of_rest_ == rest_.size()) {
      return false;
    }
    *item = rest_[next_of_rest_++];
    return true;
  }
  while (next_ < items_->size()) {
    runtime_.Step();
    *item = (*items_)[next_++];
    if (statement_.condition == nullptr) {
      return true;
    }
    const Scopes::Enter inside(scopes_, std::make_shared<Scope>(around_));
    scopes_.Assign(*statement_.target, *item);
    if (Truth(expressions_.Eval(*statement_.condition))) {
      return true;
    }
  }
  return false;
}

bool LoopObject::TakeItem(Value* item) {
  if (ahead_) {
    *item = std::move(*ahead_);
    ahead_.reset();
  } else if (!TakeRaw(item)) {
    return false;
  }
  ++index0_;
  previous_ = std::move(current_);
  current_ = *item;
  return true;
}

const Value* LoopObject::PeekItem() {
  if (!ahead_) {
    Value item;
    if (!TakeRaw(&item)) {
      return nullptr;
    }
    ahead_ = std::move(item);
  }
  return &*ahead_;
}

int64_t LoopObject::Length() {
  if (length_) {
    return *length_;
  }
  if (statement_.condition == nullptr) {
    return static_cast<int64_t>(items_->size());
  }
  std::vector<Value> rest;
  for (Value item; TakeRaw(&item);) {
    rest.push_back(std::move(item));
  }
  rest_ = std::move(rest);
  length_ = static_cast<int64_t>(rest_.size()) + index0_ + 1 + (ahead_ ? 1 : 0);
  return *length_;
}

Value LoopObject::Cycle(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) {
    Fail("no items for cycling given");
  }
  const auto index = static_cast<size_t>(std::max<int64_t>(self.As<LoopObject>().index0_, 0));
  return arguments.positional[index % arguments.positional.size()];
}

Value LoopObject::Changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  auto& loop = self.As<LoopObject>();
  const Value values = runtime.Tuple(std::move(arguments.positional));
  if (loop.watched_ && Equals(runtime, *loop.watched_, values)) {
    return Value::Bool(false);
  }
  loop.watched_ = values;
  return Value::Bool(true);
}

Value LoopObject::Attribute(const Value& self, std::string_view name) {
  if (name == "index") return Value::Int(index0_ + 1);
  if (name == "index0") return Value::Int(index0_);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "last") return Value::Bool(PeekItem() == nullptr);
  if (name == "length") return Value::Int(Length());
  if (name == "revindex") return Value::Int(Length() - index0_);
  if (name == "revindex0") return Value::Int(Length() - index0_ - 1);
  if (name == "depth") return Value::Int(depth0_ + 1);
  if (name == "depth0") return Value::Int(depth0_);
  if (name == "previtem") {
    return previous_ ? *previous_ : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* next = PeekItem();
    return next != nullptr ? *next : Value::Undefined("there is no next item");
  }
  if (name == "cycle") {
    return runtime_.Method(self, "cycle", &LoopObject::Cycle);
  }
  if (name == "changed") {
    return runtime_.Method(self, "changed", &LoopObject::Changed);
  }
  return Value::Undefined("'LoopContext object' has no attribute '" + NameInMessage(name) + "'");
}

}  // namespace strata::jinja
