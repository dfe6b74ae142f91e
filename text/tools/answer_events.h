// What an answer says, piece by piece: text, thoughts, calls of tools.
#ifndef STRATA_TEXT_TOOLS_ANSWER_EVENTS_H_
#define STRATA_TEXT_TOOLS_ANSWER_EVENTS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tools/tool_formats.h"

namespace strata {

struct AnswerEvent {
  enum class Kind {
    kText,
    kThought,
    kCall,       // Begins: `call`, `id`, `name`.
    kArguments,  // More of the call's: `text`.
    kCallEnd,    // `whole`: its arguments are a JSON object. Else it was cut off.
  };
  Kind kind = Kind::kText;
  size_t call = 0;  // Of the answer, from 0.
  std::string text;
  std::string id;
  std::string name;
  bool whole = false;

  bool operator==(const AnswerEvent&) const = default;
};

// Makes the events. White space between what is said, thought and called is part of neither: it is
// held back until it is known what follows.
class AnswerEvents {
 public:
  // Ids of calls follow from `id_seed` and their number.
  AnswerEvents(ToolFormat::Ids ids, std::string id_seed)
      : ids_(ids), id_seed_(std::move(id_seed)) {}

  void Text(std::string_view text);
  void Thought(std::string_view text);
  // What was said or thought ends: blanks at its end go, and more of it is on a line of its own.
  void EndText();
  void EndThought();
  // `written`: the id that the model wrote.
  void BeginCall(std::string_view name, std::string_view written);
  void Arguments(std::string_view json);
  void EndCall(bool whole);
  // No more is to come: what was held back of text.
  void Finish();

  // Whether there is text since the last thought or call.
  bool said() const { return said_; }
  bool in_call() const { return in_call_; }
  size_t whole_calls() const { return whole_calls_; }
  std::vector<AnswerEvent> Take() { return std::exchange(events_, {}); }

 private:
  void Add(AnswerEvent::Kind kind, std::string_view text);
  // What of `text` can be said now.
  std::string Ready(std::string_view text);

  const ToolFormat::Ids ids_;
  const std::string id_seed_;
  std::vector<AnswerEvent> events_;
  std::string blanks_;        // Held back.
  bool skip_blanks_ = false;  // Until something is said.
  bool said_ = false;
  // There was some, and whether more of it begins a line.
  bool text_begun_ = false;
  bool text_ended_ = false;
  bool thought_begun_ = false;
  bool thought_ended_ = false;
  bool in_call_ = false;
  size_t calls_ = 0;
  size_t whole_calls_ = 0;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_ANSWER_EVENTS_H_
