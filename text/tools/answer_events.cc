#include "text/tools/answer_events.h"

#include "common/digest.h"
#include "text/tools/marked_text.h"

namespace strata {
namespace {

constexpr size_t kShortId = 9;
constexpr size_t kLongId = 24;

// Letters and digits that follow from `seed`.
std::string DrawnId(std::string_view seed, size_t length) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  Sha256 digest;
  digest.Update(seed);
  std::string id;
  for (const uint8_t byte : digest.Finish()) {
    if (id.size() < length) id += kLetters[byte % kLetters.size()];
  }
  return id;
}

}  // namespace

std::string AnswerEvents::Ready(std::string_view text) {
  if (skip_blanks_) {
    while (!text.empty() && IsBlank(text.front())) {
      text.remove_prefix(1);
    }
  }
  if (text.empty()) {
    return "";
  }
  skip_blanks_ = false;
  std::string all = std::exchange(blanks_, {});
  all += text;
  const size_t end = BlanksAtEnd(all);
  blanks_ = all.substr(end);
  all.resize(end);
  return all;
}

void AnswerEvents::Add(AnswerEvent::Kind kind, std::string_view text) {
  if (text.empty()) {
    return;
  }
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
  } else {
    AnswerEvent& event = events_.emplace_back();
    event.kind = kind;
    event.text = text;
    event.call = kind == AnswerEvent::Kind::kArguments ? calls_ - 1 : 0;
  }
}

void AnswerEvents::Text(std::string_view text) {
  std::string ready = Ready(text);
  if (ready.empty()) {
    return;
  }
  said_ = true;
  if (text_ended_ && text_begun_) ready.insert(0, 1, '\n');
  text_begun_ = true;
  text_ended_ = false;
  Add(AnswerEvent::Kind::kText, ready);
}

void AnswerEvents::Thought(std::string_view text) {
  std::string ready = Ready(text);
  if (ready.empty()) {
    return;
  }
  if (thought_ended_ && thought_begun_) ready.insert(0, 1, '\n');
  thought_begun_ = true;
  thought_ended_ = false;
  Add(AnswerEvent::Kind::kThought, ready);
}

void AnswerEvents::EndText() {
  blanks_.clear();
  skip_blanks_ = true;
  said_ = false;
  text_ended_ = true;
}

void AnswerEvents::EndThought() {
  EndText();
  thought_ended_ = true;
}

void AnswerEvents::BeginCall(std::string_view name, std::string_view written) {
  EndThought();
  AnswerEvent& event = events_.emplace_back();
  event.kind = AnswerEvent::Kind::kCall;
  event.call = calls_++;
  event.name = name;
  const std::string seed = id_seed_ + "/" + std::to_string(event.call);
  event.id = !written.empty()                  ? std::string(written)
             : ids_ == ToolFormat::Ids::kShort ? DrawnId(seed, kShortId)
             : ids_ == ToolFormat::Ids::kWritten
                 ? "functions." + event.name + ":" + std::to_string(event.call)
                 : "call_" + DrawnId(seed, kLongId);
  in_call_ = true;
}

void AnswerEvents::Arguments(std::string_view json) { Add(AnswerEvent::Kind::kArguments, json); }

void AnswerEvents::EndCall(bool whole) {
  AnswerEvent& event = events_.emplace_back();
  event.kind = AnswerEvent::Kind::kCallEnd;
  event.call = calls_ - 1;
  event.whole = whole;
  whole_calls_ += whole ? 1 : 0;
  in_call_ = false;
}

void AnswerEvents::Finish() {
  if (said_ || !text_begun_) Add(AnswerEvent::Kind::kText, blanks_);
  blanks_.clear();
}

}  // namespace strata
