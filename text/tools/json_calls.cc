#include <utility>

#include "nlohmann/json.hpp"
#include "text/tools/call_reader.h"

namespace strata {
namespace {

using Scanned = JsonScanner::Result;

// The text of a JSON string, or "" where it is none.
std::string Unquoted(const std::string& json) {
  const auto text = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  return text.is_string() ? text.get<std::string>() : "";
}

bool IsName(const std::string& key) { return key == "name" || key == "tool_name"; }
bool IsArguments(const std::string& key) {
  return key == "arguments" || key == "parameters" || key == "args";
}

}  // namespace

void JsonCalls::Begin(bool bare) {
  state_ = State::kBegin;
  bare_ = bare;
  list_ = false;
}

void JsonCalls::BeginObject() {
  held_->Take(1);
  name_.clear();
  arguments_.clear();
  called_ = false;
  state_ = State::kKeyOrEnd;
}

Reading JsonCalls::Step() {
  if (state_ == State::kInValue) {
    return InValue();
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
      if (next == '[' && !bare_) {
        list_ = true;
        return go(State::kItem);
      }
      [[fallthrough]];
    case State::kItem:
      if (next != '{') {
        return Reading::kFailed;
      }
      BeginObject();
      return Reading::kOn;
    case State::kKeyOrEnd:
    case State::kKey:
      if (next == '}' && state_ == State::kKeyOrEnd) {
        held_->Take(1);
        return EndObject();
      }
      if (next != '"') {
        return Reading::kFailed;
      }
      key_.clear();
      value_.clear();
      scanner_ = {};
      streams_ = false;
      state_ = State::kInValue;  // A key is a string, too; key_ is empty meanwhile.
      return Reading::kOn;
    case State::kColon:
      return next == ':' ? go(State::kValue) : Reading::kFailed;
    case State::kValue:
      return BeginValue();
    case State::kComma:
      if (next == '}') {
        held_->Take(1);
        return EndObject();
      }
      return next == ',' ? go(State::kKey) : Reading::kFailed;
    default:  // kSeparator.
      if (next == ']') {
        held_->Take(1);
        return Reading::kDone;
      }
      return next == ',' ? go(State::kItem) : Reading::kFailed;
  }
}

Reading JsonCalls::BeginValue() {
  scanner_ = {};
  value_.clear();
  streams_ = false;
  const char next = context_.text->left().front();
  if (IsArguments(key_) && !called_ && next == '{' && MayBegin()) {
    context_.events->BeginCall(name_, "");
    held_->Forget();
    called_ = true;
    streams_ = true;
  }
  state_ = State::kInValue;
  return Reading::kOn;
}

Reading JsonCalls::InValue() {
  const std::string_view left = context_.text->left().substr(0, held_->room());
  if (left.empty()) {
    return Reading::kWaits;
  }
  std::string said;
  size_t taken = 0;
  Scanned result = Scanned::kMore;
  while (taken < left.size() && result == Scanned::kMore) {
    result = left[taken] == kTokenBegins ? Scanned::kBad : scanner_.Add(left[taken], &said);
    taken += result == Scanned::kMore || result == Scanned::kEnds ? 1 : 0;
  }
  held_->Take(taken);
  if (streams_) {
    context_.events->Arguments(said);
  } else {
    value_ += said;
  }
  if (held_->too_long()) {
    return Reading::kFailed;
  }
  switch (result) {
    case Scanned::kBad:
      return Reading::kFailed;
    case Scanned::kMore:
      return Reading::kOn;
    default:
      return EndValue();
  }
}

Reading JsonCalls::EndValue() {
  if (streams_) {
    context_.events->EndCall(/*whole=*/true);
    streams_ = false;
    state_ = State::kComma;
    return Reading::kOn;
  }
  if (key_.empty()) {
    key_ = Unquoted(value_);
    if (key_.empty()) key_ = " ";  // Of no use, but a key.
    state_ = State::kColon;
    return Reading::kOn;
  }
  if (IsName(key_) && name_.empty()) {
    name_ = Unquoted(value_);
    if (!context_.offered->Has(name_)) {
      return Reading::kFailed;
    }
  } else if (IsArguments(key_) && !called_) {
    // A string that holds the JSON is taken for that.
    arguments_ = value_.starts_with('"') ? Unquoted(value_) : value_;
    if (value_ == "null") arguments_ = "{}";
    if (!arguments_.starts_with('{') || !IsJson(arguments_)) {
      return Reading::kFailed;
    }
  }
  state_ = State::kComma;
  return Reading::kOn;
}

Reading JsonCalls::EndObject() {
  if (!called_) {
    const bool whole = !arguments_.empty() || !bare_;
    if (!MayBegin() || !whole) {
      return Reading::kFailed;
    }
    context_.events->BeginCall(name_, "");
    context_.events->Arguments(arguments_.empty() ? "{}" : arguments_);
    context_.events->EndCall(/*whole=*/true);
  }
  held_->Forget();
  if (!list_) {
    return Reading::kDone;
  }
  state_ = State::kSeparator;
  return Reading::kOn;
}

}  // namespace strata
