#include <algorithm>
#include <utility>

#include "text/tools/call_reader.h"
#include "text/tools/python_literal.h"

namespace strata {
namespace {

constexpr size_t kMaxWordBytes = 512;

}  // namespace

void PythonCalls::Begin() { state_ = State::kBegin; }

std::optional<std::string> WordAhead(std::string_view left) {
  size_t end = 0;
  while (end < left.size() && IsPythonNameByte(left[end])) {
    ++end;
  }
  if (end == left.size() && end <= kMaxWordBytes) {
    return std::nullopt;
  }
  return std::string(left.substr(0, end));
}

Reading PythonCalls::Step() {
  if (state_ == State::kValue) {
    return Value();
  }
  held_->SkipBlanks();
  const std::string_view left = context_.text->left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  const char next = left.front();
  const auto go = [&](State state) {
    held_->Take(1);
    state_ = state;
    return Reading::kOn;
  };
  switch (state_) {
    case State::kBegin:
      return next == '[' ? go(State::kName) : Reading::kFailed;
    case State::kName: {
      const std::optional<std::string> name = WordAhead(left);
      if (!name.has_value()) {
        return Reading::kWaits;
      }
      if (!context_.offered->Has(*name)) {
        return Reading::kFailed;
      }
      name_ = *name;
      held_->Take(name->size());
      state_ = State::kOpen;
      return Reading::kOn;
    }
    case State::kOpen:
      if (next != '(') {
        return Reading::kFailed;
      }
      context_.events->BeginCall(name_, "");
      held_->Forget();
      context_.events->Arguments("{");
      first_ = true;
      return go(State::kKeyOrEnd);
    case State::kKeyOrEnd: {
      if (next == ')') {
        context_.events->Arguments("}");
        context_.events->EndCall(/*whole=*/true);
        return go(State::kSeparator);
      }
      const std::optional<std::string> key = WordAhead(left);
      if (!key.has_value()) {
        return Reading::kWaits;
      }
      if (key->empty()) {
        return Reading::kFailed;
      }
      key_ = *key;
      held_->Take(key->size());
      state_ = State::kEquals;
      return Reading::kOn;
    }
    case State::kEquals:
      if (next != '=') {
        return Reading::kFailed;
      }
      end_ = {};
      return go(State::kValue);
    default:  // kSeparator.
      if (next == ']') {
        held_->Take(1);
        return Reading::kDone;
      }
      return next == ',' ? go(State::kName) : Reading::kFailed;
  }
}

Reading PythonCalls::Value() {
  const std::string_view left = context_.text->left();
  const size_t token = left.find(kTokenBegins);
  const std::optional<size_t> end = end_.Find(left.substr(0, token));
  if (!end.has_value()) {
    return token == std::string_view::npos ? Reading::kWaits : Reading::kFailed;
  }
  const std::optional<std::string> json = JsonOfPython(left.substr(0, *end));
  if (!json.has_value() || (left[*end] != ',' && left[*end] != ')')) {
    return Reading::kFailed;
  }
  context_.events->Arguments((first_ ? "\"" : ", \"") + JsonEscaped(key_) + "\": " + *json);
  first_ = false;
  held_->Take(*end + (left[*end] == ',' ? 1 : 0));
  state_ = State::kKeyOrEnd;
  return Reading::kOn;
}

}  // namespace strata
