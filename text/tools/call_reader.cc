#include "text/tools/call_reader.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

using Body = ToolFormat::Body;
using Match = MarkedText::Match;

// Of a call that has not begun; what is longer is text.
constexpr size_t kMaxHeldBytes = size_t{64} << 10;
constexpr size_t kMaxNameBytes = 512;
constexpr std::string_view kMistralId = "[CALL_ID]";

}  // namespace

MarkedFormat::MarkedFormat(const ToolFormat& format,
                           const std::function<bool(std::string_view)>& is_special)
    : row(format) {
  const auto mark = [&](std::string_view text) { return Marked(text, row.tokens, is_special); };
  section_open = mark(row.section_open);
  section_close = mark(row.section_close);
  call_open = mark(row.call_open);
  call_close = mark(row.call_close);
  name_open = mark(row.name_open);
  name_end = mark(row.name_end);
  arguments_open = mark(row.arguments_open);
  arguments_close = mark(row.arguments_close);
  key_open = mark(row.key_open);
  // A key that has a second tag behind it.
  const size_t blank = row.key_end.find("> <");
  const bool two = blank != std::string_view::npos;
  key_end = mark(two ? row.key_end.substr(0, blank + 1) : row.key_end);
  value_open = mark(two ? row.key_end.substr(blank + 2) : "");
  value_close = mark(row.value_close);
  quote = mark(row.quote);
}

void HeldText::Take(size_t bytes) {
  if (!context_.events->in_call()) held_ += context_.text->left().substr(0, bytes);
  context_.text->Take(bytes);
}

void HeldText::SkipBlanks() {
  const std::string_view left = context_.text->left().substr(0, room());
  size_t blanks = 0;
  while (blanks < left.size() && IsBlank(left[blanks])) {
    ++blanks;
  }
  Take(blanks);
}

Reading HeldText::Expect(std::string_view literal) {
  SkipBlanks();
  switch (context_.text->At(literal)) {
    case Match::kYes:
      Take(literal.size());
      return Reading::kOn;
    case Match::kMaybe:
      return Reading::kWaits;
    default:
      return Reading::kFailed;
  }
}

size_t HeldText::room() const {
  return context_.events->in_call()     ? std::string_view::npos
         : held_.size() > kMaxHeldBytes ? 0
                                        : kMaxHeldBytes + 1 - held_.size();
}

std::vector<std::string> CallReader::Openings() const {
  const MarkedFormat& format = *context_.format;
  std::vector<std::string> openings;
  for (const std::string* one : {&format.section_open, &format.call_open}) {
    if (!one->empty()) openings.push_back(*one);
  }
  // Models leave the section's tag out at times.
  if (format.row.body == Body::kTagged && !format.name_open.empty()) {
    openings.push_back(format.name_open);
  }
  return openings;
}

void CallReader::Begin(std::string_view opening) {
  const MarkedFormat& format = *context_.format;
  held_.Forget();
  in_section_ = !format.section_open.empty();
  if (opening == format.section_open) {
    held_.Take(opening.size());
    state_ = State::kSection;
  } else if (opening == format.call_open) {
    held_.Take(opening.size());
    state_ = State::kBody;
  } else {
    state_ = State::kBody;  // The name's tag is part of it.
  }
}

void CallReader::BeginBare() {
  held_.Forget();
  in_section_ = false;
  if (context_.format->row.body == Body::kPython) {
    python_.Begin();
    state_ = State::kPython;
    return;
  }
  json_.Begin(/*bare=*/true);
  state_ = State::kJson;
}

Reading CallReader::Step(std::string* said) {
  Reading reading = Once();
  if (reading == Reading::kWaits && context_.text->ended()) {
    reading = Reading::kFailed;
  }
  if (held_.too_long()) {
    reading = Reading::kFailed;
  }
  if (reading == Reading::kDone) {
    held_.Forget();
  } else if (reading == Reading::kFailed) {
    if (context_.events->in_call()) context_.events->EndCall(/*whole=*/false);
    *said = held_.Give();
  }
  return reading;
}

Reading CallReader::Once() {
  const MarkedFormat& format = *context_.format;
  switch (state_) {
    case State::kSection:
      return Section();
    case State::kBody:
      return Body();
    case State::kNameOpen: {
      const Reading open = held_.Expect(format.name_open);
      return open == Reading::kOn ? Go(State::kName) : open;
    }
    case State::kName:
      return Name();
    case State::kCallId: {
      const auto end = context_.text->Find(format.name_end);
      if (end.match != Match::kYes) {
        return context_.text->left().size() > kMaxNameBytes + kMarkupBytes ? Reading::kFailed
                                                                           : Reading::kWaits;
      }
      if (end.at > kMaxNameBytes) {
        return Reading::kFailed;
      }
      held_.Take(end.at + format.name_end.size());
      return Go(State::kArgumentsBegin);
    }
    case State::kArgumentsOpen: {
      const Reading open = held_.Expect(format.arguments_open);
      return open == Reading::kOn ? Go(State::kArgumentsBegin) : open;
    }
    case State::kArgumentsBegin:
      held_.SkipBlanks();
      if (context_.text->left().empty()) {
        return Reading::kWaits;
      }
      if (context_.text->left().front() != '{') {
        return Reading::kFailed;
      }
      context_.events->BeginCall(name_, written_id_);
      held_.Forget();
      scanner_ = {};
      return Go(State::kArguments);
    case State::kArguments:
      return Arguments();
    case State::kArgumentsClose: {
      const Reading close = held_.Expect(format.arguments_close);
      return close == Reading::kOn ? Go(State::kCallClose) : close;
    }
    case State::kJson: {
      const Reading json = json_.Step();
      if (json != Reading::kDone) {
        return json;
      }
      held_.Forget();
      return Go(format.row.bare ? State::kBareNext : State::kCallClose);
    }
    case State::kPython: {
      const Reading python = python_.Step();
      if (python != Reading::kDone) {
        return python;
      }
      held_.Forget();
      return Go(State::kCallClose);
    }
    case State::kBraced: {
      const Reading braced = braced_.Step();
      if (braced != Reading::kDone) {
        return braced;
      }
      held_.Forget();
      return Go(State::kCallClose);
    }
    case State::kTagged: {
      const Reading tagged = tagged_.Step();
      if (tagged != Reading::kDone) {
        return tagged;
      }
      held_.Forget();
      return in_section_ ? Go(State::kSection) : Reading::kDone;
    }
    case State::kCallClose:
      return CallClose();
    case State::kBareNext: {
      held_.SkipBlanks();
      if (context_.text->left().empty()) {
        return context_.text->ended() ? Reading::kDone : Reading::kWaits;
      }
      held_.Forget();
      if (context_.text->left().front() != ';') {
        return Reading::kDone;
      }
      held_.Take(1);
      return Go(State::kBareItem);
    }
    case State::kBareItem:
      held_.SkipBlanks();
      if (context_.text->left().empty()) {
        return Reading::kWaits;
      }
      json_.Begin(/*bare=*/true);
      return context_.text->left().front() == '{' ? Go(State::kJson) : Reading::kFailed;
  }
  return Reading::kFailed;
}

Reading CallReader::Section() {
  const MarkedFormat& format = *context_.format;
  held_.SkipBlanks();
  const std::string_view left = context_.text->left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  const bool called = context_.events->whole_calls() > 0;
  const Match close = context_.text->At(format.section_close);
  if (close == Match::kYes && called) {
    held_.Take(format.section_close.size());
    return Reading::kDone;
  }
  Match open = context_.text->At(format.call_open);
  if (open == Match::kYes) {
    held_.Take(format.call_open.size());
    return Go(State::kBody);
  }
  if (format.row.body == Body::kTagged) {
    open = context_.text->At(format.name_open);
    if (open == Match::kYes) {
      return Go(State::kBody);
    }
  } else if (format.row.body == Body::kJson && left.front() == '{') {
    return Go(State::kBody);
  }
  if (close == Match::kMaybe || open == Match::kMaybe) {
    return Reading::kWaits;
  }
  return Reading::kFailed;
}

Reading CallReader::Body() {
  const MarkedFormat& format = *context_.format;
  if (format.row.body == Body::kJson) {
    json_.Begin(/*bare=*/false);
    return Go(State::kJson);
  }
  if (format.row.body == Body::kPython) {
    python_.Begin();
    return Go(State::kPython);
  }
  if (format.row.body == Body::kBraced) {
    braced_.Begin();
    return Go(State::kBraced);
  }
  if (format.row.ids == ToolFormat::Ids::kShort) {  // Mistral's older models write a list.
    held_.SkipBlanks();
    const std::string_view left = context_.text->left();
    if (left.empty()) {
      return Reading::kWaits;
    }
    if (left.front() == '{' || left.front() == '[') {
      json_.Begin(/*bare=*/false);
      return Go(State::kJson);
    }
  }
  return Go(format.name_open.empty() ? State::kName : State::kNameOpen);
}

Reading CallReader::Name() {
  const MarkedFormat& format = *context_.format;
  const bool tagged = format.row.body == Body::kTagged;
  const bool mistral = format.row.ids == ToolFormat::Ids::kShort;
  // What ends the name is what comes first.
  MarkedText::Found end{Match::kNo, context_.text->left().size()};
  size_t behind = 0;
  State next = State::kTagged;
  const auto may_end = [&](std::string_view mark, size_t taken, State then) {
    const MarkedText::Found found = context_.text->Find(mark);
    if (found.match != Match::kNo && found.at < end.at) {
      end = found;
      behind = taken;
      next = then;
    }
  };
  may_end(format.name_end, format.name_end.size(),
          tagged                          ? State::kTagged
          : format.arguments_open.empty() ? State::kArgumentsBegin
                                          : State::kArgumentsOpen);
  if (tagged && format.name_open.empty()) {
    // Where no line ends behind the name: at once the first argument, or the end.
    may_end(format.key_open, 0, State::kTagged);
    may_end(format.call_close, 0, State::kTagged);
  }
  if (mistral) {
    const std::string id_mark =
        format.name_end.front() == kTokenBegins ? MarkedToken(kMistralId) : std::string(kMistralId);
    may_end(id_mark, id_mark.size(), State::kCallId);
    may_end("{", 0, State::kArgumentsBegin);
  }
  // Names have no special tokens in them, but may be ended by one.
  const std::string_view left = context_.text->left();
  if (std::min(left.find(kTokenBegins), left.size()) < end.at) {
    return Reading::kFailed;
  }
  if (end.match == Match::kYes) {
    return EndName(end.at, behind, next);
  }
  return left.size() > kMaxNameBytes + kMarkupBytes ? Reading::kFailed : Reading::kWaits;
}

Reading CallReader::EndName(size_t end, size_t behind, State next) {
  std::string_view name = Stripped(context_.text->left().substr(0, end));
  written_id_.clear();
  if (context_.format->row.ids == ToolFormat::Ids::kWritten) {
    written_id_ = name;
    const size_t colon = name.rfind(':');
    name = name.substr(0, colon);
    if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
  }
  const ParameterTypes* types = context_.offered->Find(name);
  if (types == nullptr || end > kMaxNameBytes) {
    return Reading::kFailed;
  }
  name_ = name;
  held_.Take(end + behind);
  if (next == State::kTagged) {
    context_.events->BeginCall(name_, written_id_);
    held_.Forget();
    tagged_.Begin(types);
  }
  return Go(next);
}

Reading CallReader::Arguments() {
  const std::string_view left = context_.text->left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  std::string said;
  size_t taken = 0;
  auto result = JsonScanner::Result::kMore;
  while (taken < left.size() && result == JsonScanner::Result::kMore) {
    result =
        left[taken] == kTokenBegins ? JsonScanner::Result::kBad : scanner_.Add(left[taken], &said);
    taken += result == JsonScanner::Result::kBad ? 0 : 1;
  }
  held_.Take(taken);
  context_.events->Arguments(said);
  if (result == JsonScanner::Result::kBad) {
    return Reading::kFailed;
  }
  if (result == JsonScanner::Result::kMore) {
    return Reading::kOn;
  }
  context_.events->EndCall(/*whole=*/true);
  return Go(context_.format->arguments_close.empty() ? State::kCallClose : State::kArgumentsClose);
}

Reading CallReader::CallClose() {
  const std::string& close = context_.format->call_close;
  held_.SkipBlanks();
  if (context_.text->left().empty() && !context_.text->ended()) {
    return Reading::kWaits;
  }
  const Match match = context_.text->At(close);
  if (match == Match::kMaybe) {
    return Reading::kWaits;
  }
  if (match == Match::kYes) {
    held_.Take(close.size());
  }
  held_.Forget();
  return in_section_ ? Go(State::kSection) : Reading::kDone;
}

}  // namespace strata
