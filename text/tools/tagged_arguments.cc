#include <algorithm>
#include <utility>

#include "text/tools/call_reader.h"

namespace strata {
namespace {

using Match = MarkedText::Match;

constexpr size_t kMaxKeyBytes = 512;
constexpr std::string_view kMarkEnd = "\">";

}  // namespace

void TaggedArguments::Begin(const ParameterTypes* types) {
  types_ = types;
  state_ = State::kBetween;
  first_ = true;
  Say("{");
}

Reading TaggedArguments::Step() {
  switch (state_) {
    case State::kBetween:
      return Between();
    case State::kKey:
      return Key();
    case State::kMark:
      return Mark();
    case State::kValueOpen: {
      const Reading open = held_->Expect(context_.format->value_open);
      if (open == Reading::kOn) state_ = State::kValueBegin;
      return open;
    }
    case State::kValueBegin:
      return BeginValue();
    default:
      return Value();
  }
}

Reading TaggedArguments::Between() {
  const MarkedFormat& format = *context_.format;
  held_->SkipBlanks();
  if (context_.text->left().empty()) {
    return Reading::kWaits;
  }
  const Match key = context_.text->At(format.key_open);
  if (key == Match::kYes) {
    held_->Take(format.key_open.size());
    state_ = State::kKey;
    return Reading::kOn;
  }
  // A section that ends ends its call, too.
  const Match section = context_.text->At(format.section_close);
  const Match close = context_.text->At(format.call_close);
  if (close == Match::kYes || section == Match::kYes) {
    Say("}");
    context_.events->EndCall(/*whole=*/true);
    if (close == Match::kYes) held_->Take(format.call_close.size());
    return Reading::kDone;
  }
  return key == Match::kMaybe || close == Match::kMaybe || section == Match::kMaybe
             ? Reading::kWaits
             : Reading::kFailed;
}

Reading TaggedArguments::Key() {
  const MarkedFormat& format = *context_.format;
  const std::string_view left = context_.text->left();
  const auto end = context_.text->Find(format.key_end);
  if (std::min(left.find(kTokenBegins), left.size()) < end.at) {
    return Reading::kFailed;
  }
  if (end.match != Match::kYes) {
    return left.size() > kMaxKeyBytes + kMarkupBytes ? Reading::kFailed : Reading::kWaits;
  }
  if (end.at > kMaxKeyBytes) {
    return Reading::kFailed;
  }
  key_ = left.substr(0, end.at);
  held_->Take(end.at + format.key_end.size());
  written_ = Written::kUnknown;
  state_ = format.key_end.ends_with("=\"") ? State::kMark
           : format.value_open.empty()     ? State::kValueBegin
                                           : State::kValueOpen;
  return Reading::kOn;
}

Reading TaggedArguments::Mark() {
  const auto end = context_.text->Find(kMarkEnd);
  if (end.match != Match::kYes) {
    return context_.text->left().size() > kMaxKeyBytes + kMarkupBytes ? Reading::kFailed
                                                                      : Reading::kWaits;
  }
  const std::string_view mark = context_.text->left().substr(0, end.at);
  if (mark != "true" && mark != "false") {
    return Reading::kFailed;
  }
  written_ = mark == "true" ? Written::kText : Written::kJson;
  held_->Take(end.at + kMarkEnd.size());
  state_ = State::kValueBegin;
  return Reading::kOn;
}

Reading TaggedArguments::BeginValue() {
  const std::string_view left = context_.text->left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  if (context_.format->row.values_in_lines && left.front() == '\n') {
    held_->Take(1);
  }
  Say((first_ ? "\"" : ", \"") + JsonEscaped(key_) + "\": ");
  first_ = false;
  const bool text =
      written_ == Written::kText || (written_ == Written::kUnknown && types_->IsText(key_));
  if (text) Say("\"");
  state_ = text ? State::kText : State::kHeld;
  return Reading::kOn;
}

Reading TaggedArguments::Value() {
  const MarkedFormat& format = *context_.format;
  const std::string_view left = context_.text->left();
  const auto close = context_.text->Find(format.value_close);
  const bool broken = std::min(left.find(kTokenBegins), left.size()) < close.at;
  const bool ended = close.match == Match::kYes && !broken;
  const bool cut = broken || (context_.text->ended() && !ended);
  if (!ended && !cut && state_ == State::kHeld) {
    return Reading::kWaits;
  }
  size_t end = broken ? left.find(kTokenBegins) : close.at;
  std::string_view value = left.substr(0, end);
  if (format.row.values_in_lines && value.ends_with('\n') && !cut) {
    // The line's end before the closing tag, or what may be it.
    value.remove_suffix(1);
    end -= ended ? 0 : 1;
  }
  if (state_ == State::kText) {
    Say(JsonEscaped(value));
    if (ended) Say("\"");
  } else if (ended) {
    Say(written_ == Written::kJson ? JsonOrText(value) : types_->Value(key_, value));
  } else {
    Say("\"" + JsonEscaped(value));  // Of a call that is cut off here.
  }
  held_->Take(end);
  if (cut) {
    return Reading::kFailed;
  }
  if (!ended) {
    return Reading::kWaits;
  }
  held_->Take(format.value_close.size());
  state_ = State::kBetween;
  return Reading::kOn;
}

}  // namespace strata
