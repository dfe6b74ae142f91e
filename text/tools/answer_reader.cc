#include "text/tools/answer_reader.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

using Match = MarkedText::Match;

// Of a message; what is longer is text.
constexpr size_t kMaxHeaderBytes = 4096;

// Where the markup of thoughts, or a part of it, is one token.
std::string MarkedThought(std::string_view markup, const ThoughtFormat& row,
                          const std::function<bool(std::string_view)>& is_special) {
  if (!row.tokens.empty()) {
    return Marked(markup, row.tokens, is_special);
  }
  return !markup.empty() && is_special(markup) ? MarkedToken(markup) : std::string(markup);
}

// The word behind `label` in a header, up to white space or a token; "" if there is none.
std::string WordBehind(std::string_view header, std::string_view label) {
  const size_t found = header.find(label);
  if (found == std::string_view::npos) {
    return "";
  }
  std::string_view word = header.substr(found + label.size());
  size_t end = 0;
  while (end < word.size() && !IsBlank(word[end]) && word[end] != kTokenBegins &&
         word[end] != '<') {
    ++end;
  }
  return std::string(word.substr(0, end));
}

AnswerReaderOptions Complete(AnswerReaderOptions options) {
  if (options.is_special == nullptr) {
    options.is_special = [](std::string_view) { return false; };
  }
  if (options.offered == nullptr) options.tools = nullptr;
  return options;
}

}  // namespace

AnswerReader::AnswerReader(AnswerReaderOptions options)
    : options_(Complete(std::move(options))),
      harmony_((options_.tools != nullptr && options_.tools->body == ToolFormat::Body::kHarmony) ||
               ThoughtsAreChannels()),
      events_(options_.tools == nullptr ? ToolFormat::Ids::kLong : options_.tools->ids,
              options_.id_seed) {
  if (harmony_) {
    state_ = State::kHeader;
    return;
  }
  if (options_.tools != nullptr) {
    format_.emplace(*options_.tools, options_.is_special);
    call_.emplace(ReadingContext{&*format_, options_.offered.get(), &text_, &events_});
    openings_ = call_->Openings();
  }
  if (options_.thoughts != nullptr) {
    thought_open_ = MarkedThought(options_.thoughts->open, *options_.thoughts, options_.is_special);
    thought_close_ =
        MarkedThought(options_.thoughts->close, *options_.thoughts, options_.is_special);
    if (options_.in_thought || options_.behind_thought) events_.EndText();
    if (options_.in_thought) {
      state_ = State::kThought;
    }
  }
}

bool AnswerReader::ThoughtsAreChannels() const {
  return options_.thoughts != nullptr && options_.thoughts->open.empty();
}

bool AnswerReader::in_thought() const {
  return state_ == State::kThought || (state_ == State::kMessage && message_ == Message::kThought);
}

void AnswerReader::Add(std::string_view text) {
  text_.Add(text);
  Run();
}

void AnswerReader::AddToken(std::string_view name) {
  text_.AddToken(name);
  Run();
}

void AnswerReader::Finish() {
  text_.End();
  Run();
  if (events_.in_call()) events_.EndCall(/*whole=*/false);
  if (!in_thought() && !full()) events_.Finish();
}

void AnswerReader::Run() {
  Reading reading = Reading::kOn;
  while (reading == Reading::kOn && !full()) {
    switch (state_) {
      case State::kText:
        reading = Text();
        break;
      case State::kThought:
        reading = Thought();
        break;
      case State::kCall:
        reading = Call();
        break;
      case State::kHeader:
        reading = Header();
        break;
      case State::kMessage:
        reading = InMessage();
        break;
      case State::kCallMessage:
        reading = CallMessage();
        break;
    }
  }
  if (full()) text_.Take(text_.left().size());
  text_.Trim();
}

void AnswerReader::DropToken() {
  const size_t end = text_.left().find(kTokenEnds);
  text_.Take(end == std::string_view::npos ? text_.left().size() : end + 1);
}

Reading AnswerReader::Text() {
  const std::string_view left = text_.left();
  const bool bare = format_.has_value() && format_->row.bare;
  const char bare_opening = bare && format_->row.body == ToolFormat::Body::kPython ? '[' : '{';
  for (size_t at = 0; at < left.size(); ++at) {
    bool may_open = false;
    std::string_view opening;
    for (const std::string& one : openings_) {
      const Match match = text_.At(one, at);
      may_open = may_open || match == Match::kMaybe;
      if (match == Match::kYes && one.size() > opening.size()) opening = one;
    }
    const Match thought = text_.At(thought_open_, at);
    const bool bare_opens = bare && left[at] == bare_opening;
    if (opening.empty() && !may_open && thought == Match::kNo && !bare_opens &&
        left[at] != kTokenBegins) {
      continue;
    }
    if (at > 0) {
      events_.Text(left.substr(0, at));
      text_.Take(at);
      return Reading::kOn;
    }
    // An answer begins with its thoughts, and so does what follows a call.
    if (!opening.empty()) {
      call_->Begin(opening);
      state_ = State::kCall;
      return Reading::kOn;
    }
    if (thought == Match::kYes && !events_.said()) {
      text_.Take(thought_open_.size());
      events_.EndText();
      state_ = State::kThought;
      return Reading::kOn;
    }
    if (may_open || (thought == Match::kMaybe && !events_.said())) {
      return Reading::kWaits;
    }
    if (bare_opens && !events_.said()) {
      call_->BeginBare();
      state_ = State::kCall;
      return Reading::kOn;
    }
    if (left[at] == kTokenBegins) {
      DropToken();
      return Reading::kOn;
    }
    // It is none of these here.
    events_.Text(left.substr(0, 1));
    text_.Take(1);
    return Reading::kOn;
  }
  events_.Text(left);
  text_.Take(left.size());
  return Reading::kWaits;
}

Reading AnswerReader::Thought() {
  const std::string_view left = text_.left();
  const auto close = text_.Find(thought_close_);
  const size_t token = std::min(left.find(kTokenBegins), left.size());
  const size_t end = std::min(close.at, token);
  events_.Thought(left.substr(0, end));
  if (close.match == Match::kYes && close.at == end) {
    text_.Take(end + thought_close_.size());
    events_.EndThought();
    state_ = State::kText;
    return Reading::kOn;
  }
  text_.Take(end);
  if (close.match == Match::kMaybe && close.at == end) {
    return Reading::kWaits;
  }
  if (text_.left().empty()) {
    return Reading::kWaits;
  }
  // A special token. One that opens a call ends the thought.
  const bool opens = std::ranges::any_of(openings_, [this](const std::string& opening) {
    return opening.front() == kTokenBegins && text_.At(opening) == Match::kYes;
  });
  if (opens) {
    events_.EndThought();
    state_ = State::kText;
  } else {
    DropToken();
  }
  return Reading::kOn;
}

Reading AnswerReader::Call() {
  std::string said;
  const Reading reading = call_->Step(&said);
  if (reading == Reading::kFailed || reading == Reading::kDone) {
    events_.Text(said);
    state_ = State::kText;
    return Reading::kOn;
  }
  return reading;
}

Reading AnswerReader::Header() {
  const std::string_view left = text_.left();
  if (left.empty()) {
    return Reading::kWaits;
  }
  if (left.front() != kTokenBegins) {
    // Behind "<|start|>assistant" of the prompt, a function may be named at once.
    const Match to = text_.At(" to=");
    if (to == Match::kMaybe) {
      return Reading::kWaits;
    }
    if (to == Match::kNo) {
      message_ = Message::kText;
      state_ = State::kMessage;
      return Reading::kOn;
    }
  }
  const std::string message = MarkedToken("<|message|>");
  const auto end = text_.Find(message);
  if (end.match != Match::kYes && left.size() <= kMaxHeaderBytes + kMarkupBytes) {
    return Reading::kWaits;  // What ends in a header says nothing.
  }
  if (end.match != Match::kYes || end.at > kMaxHeaderBytes) {
    if (left.front() == kTokenBegins) {
      DropToken();  // Else it would begin a header again.
    }
    message_ = Message::kText;
    state_ = State::kMessage;
    return Reading::kOn;
  }
  const std::string header(left.substr(0, end.at));
  text_.Take(end.at + message.size());
  ReadHeader(header);
  return Reading::kOn;
}

void AnswerReader::ReadHeader(const std::string& header) {
  constexpr std::string_view kFunctions = "functions.";
  const std::string channel = WordBehind(header, MarkedToken("<|channel|>"));
  const std::string to = WordBehind(header, "to=");
  header_.clear();
  if (to.empty()) {
    message_ =
        channel == "analysis" && options_.thoughts != nullptr ? Message::kThought : Message::kText;
    state_ = State::kMessage;
    return;
  }
  name_ = to.starts_with(kFunctions) ? to.substr(kFunctions.size()) : to;
  if (options_.tools != nullptr && options_.offered->Has(name_)) {
    header_ = WithoutTokens(header);
    scanner_ = {};
    begun_ = false;
    ended_ = false;
    message_ = Message::kCall;
    state_ = State::kCallMessage;
    return;
  }
  events_.Text(WithoutTokens(header));
  message_ = Message::kText;
  state_ = State::kMessage;
}

Reading AnswerReader::EndMessage() {
  for (const char* token : {"<|start|>", "<|channel|>"}) {
    if (text_.At(MarkedToken(token)) == Match::kYes) {
      state_ = State::kHeader;
      return Reading::kOn;
    }
  }
  for (const char* token : {"<|end|>", "<|call|>", "<|return|>"}) {
    if (text_.At(MarkedToken(token)) == Match::kYes) {
      DropToken();
      state_ = State::kHeader;
      return Reading::kOn;
    }
  }
  DropToken();
  return Reading::kOn;
}

Reading AnswerReader::InMessage() {
  const std::string_view left = text_.left();
  const size_t end = std::min(left.find(kTokenBegins), left.size());
  if (message_ == Message::kThought) {
    events_.Thought(left.substr(0, end));
  } else {
    events_.Text(left.substr(0, end));
  }
  text_.Take(end);
  if (text_.left().empty()) {
    return Reading::kWaits;
  }
  const Reading reading = EndMessage();
  if (state_ == State::kHeader) {
    if (message_ == Message::kThought) {
      events_.EndThought();
    } else {
      events_.EndText();
    }
  }
  return reading;
}

Reading AnswerReader::CallMessage() {
  const auto to_text = [this] {
    if (events_.in_call()) events_.EndCall(/*whole=*/false);
    if (!begun_) events_.Text(header_);
    message_ = Message::kText;
    state_ = State::kMessage;
    return Reading::kOn;
  };
  if (text_.left().empty()) {
    return text_.ended() && !begun_ ? to_text() : Reading::kWaits;
  }
  if (ended_) {
    if (IsBlank(text_.left().front())) {
      text_.Take(1);
      return Reading::kOn;
    }
    return text_.left().front() == kTokenBegins ? EndMessage() : to_text();
  }
  if (!begun_) {
    if (IsBlank(text_.left().front())) {
      text_.Take(1);
      return Reading::kOn;
    }
    if (text_.left().front() != '{') {
      return to_text();
    }
    events_.BeginCall(name_, "");
    begun_ = true;
  }
  std::string said;
  const char next = text_.left().front();
  const auto result = next == kTokenBegins ? JsonScanner::Result::kBad : scanner_.Add(next, &said);
  events_.Arguments(said);
  if (result == JsonScanner::Result::kBad) {
    return to_text();
  }
  text_.Take(1);
  if (result == JsonScanner::Result::kEnds) {
    events_.EndCall(/*whole=*/true);
    ended_ = true;
  }
  return Reading::kOn;
}

}  // namespace strata
