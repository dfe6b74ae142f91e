#include <utility>

#include "text/tools/braced_literal.h"
#include "text/tools/call_reader.h"

namespace strata {

void BracedCalls::Begin() { state_ = State::kOpen; }

Reading BracedCalls::Step() {
  if (state_ == State::kValue) {
    return Value();
  }
  if (state_ == State::kOpen) {
    const Reading open = held_->Expect(context_.format->name_open);
    if (open == Reading::kOn) state_ = State::kName;
    return open;
  }
  held_->SkipBlanks();
  const std::string_view left = context_.text->left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  const char next = left.front();
  if (state_ == State::kBrace || state_ == State::kColon) {
    if (next != (state_ == State::kBrace ? '{' : ':')) {
      return Reading::kFailed;
    }
    if (state_ == State::kBrace) {
      context_.events->BeginCall(name_, "");
      held_->Forget();
      context_.events->Arguments("{");
      first_ = true;
    } else {
      end_.emplace(context_.format->quote);
    }
    held_->Take(1);
    state_ = state_ == State::kBrace ? State::kKeyOrEnd : State::kValue;
    return Reading::kOn;
  }
  if (state_ == State::kKeyOrEnd && next == '}') {
    context_.events->Arguments("}");
    context_.events->EndCall(/*whole=*/true);
    held_->Take(1);
    return Reading::kDone;
  }
  const std::optional<std::string> word = WordAhead(left);
  if (!word.has_value()) {
    return Reading::kWaits;
  }
  if (word->empty() || (state_ == State::kName && !context_.offered->Has(*word))) {
    return Reading::kFailed;
  }
  held_->Take(word->size());
  (state_ == State::kName ? name_ : key_) = *word;
  state_ = state_ == State::kName ? State::kBrace : State::kColon;
  return Reading::kOn;
}

Reading BracedCalls::Value() {
  const std::string_view left = context_.text->left();
  const std::optional<size_t> end = end_->Find(left, context_.text->ended());
  if (!end.has_value()) {
    return Reading::kWaits;
  }
  const std::optional<std::string> json =
      JsonOfBraced(left.substr(0, *end), context_.format->quote);
  if (!json.has_value() || (left[*end] != ',' && left[*end] != '}')) {
    return Reading::kFailed;
  }
  context_.events->Arguments((first_ ? "\"" : ", \"") + JsonEscaped(key_) + "\": " + *json);
  first_ = false;
  held_->Take(*end + (left[*end] == ',' ? 1 : 0));
  state_ = State::kKeyOrEnd;
  return Reading::kOn;
}

}  // namespace strata
