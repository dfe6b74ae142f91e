// Reads one call, or a section of them, as a row of the table says it is written. What turns out
// not to be one is given back as text.
#ifndef STRATA_TEXT_TOOLS_CALL_READER_H_
#define STRATA_TEXT_TOOLS_CALL_READER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tools/answer_events.h"
#include "text/tools/braced_literal.h"
#include "text/tools/json_scanner.h"
#include "text/tools/marked_text.h"
#include "text/tools/offered_tools.h"
#include "text/tools/python_literal.h"
#include "text/tools/tool_formats.h"

namespace strata {

// How a step of reading ended.
enum class Reading {
  kOn,     // It went on; the next step may, too.
  kWaits,  // For what was not written yet.
  kDone,
  kFailed,
};

// A row's texts, with what is special in a vocabulary marked as such.
struct MarkedFormat {
  MarkedFormat(const ToolFormat& row, const std::function<bool(std::string_view)>& is_special);

  const ToolFormat& row;
  std::string section_open, section_close, call_open, call_close, name_open, name_end;
  std::string arguments_open, arguments_close, key_open, key_end, value_open, value_close, quote;
};

// What is read, and by what. All of it outlives the readers.
struct ReadingContext {
  const MarkedFormat* format = nullptr;
  const OfferedTools* offered = nullptr;
  MarkedText* text = nullptr;
  AnswerEvents* events = nullptr;
};

// Text that was taken for a call that has not begun: it may have to be said.
class HeldText {
 public:
  explicit HeldText(const ReadingContext& context) : context_(context) {}

  // Takes `bytes` of what is left.
  void Take(size_t bytes);
  // Takes white space.
  void SkipBlanks();
  // Takes `literal`, behind white space if there is any: kOn where it is there, kWaits where it may
  // be, else kFailed.
  Reading Expect(std::string_view literal);
  void Forget() { held_.clear(); }
  std::string Give() { return WithoutTokens(std::exchange(held_, {})); }
  // Of a call that has not begun, so many bytes may be taken at a time: one more than a call may
  // have in front, which makes it text.
  size_t room() const;
  bool too_long() const { return room() == 0; }

 private:
  const ReadingContext& context_;
  std::string held_;
};

// {"name": ..., "arguments": {...}}, or a list of them.
class JsonCalls {
 public:
  JsonCalls(const ReadingContext& context, HeldText* held) : context_(context), held_(held) {}

  // `bare`: calls are divided by semicolons, and one has arguments.
  void Begin(bool bare);
  // kDone where a call or the list of them ended.
  Reading Step();

 private:
  enum class State { kBegin, kItem, kKeyOrEnd, kKey, kColon, kValue, kInValue, kComma, kSeparator };

  Reading BeginValue();
  Reading InValue();
  Reading EndValue();
  Reading EndObject();
  bool MayBegin() const { return context_.offered->Has(name_); }
  void BeginObject();

  const ReadingContext& context_;
  HeldText* const held_;
  State state_ = State::kBegin;
  bool bare_ = false;
  bool list_ = false;
  JsonScanner scanner_;
  std::string key_;
  std::string value_;      // Of what is not said as it comes.
  std::string name_;       // Of the object, "" before it is known.
  std::string arguments_;  // That came before the name.
  bool called_ = false;    // The object's call was said.
  bool streams_ = false;   // The value is the arguments, which are said as they come.
};

// Arguments between tags, as JSON.
class TaggedArguments {
 public:
  TaggedArguments(const ReadingContext& context, HeldText* held) : context_(context), held_(held) {}

  // The call was begun.
  void Begin(const ParameterTypes* types);
  Reading Step();  // kDone behind the call's end.

 private:
  enum class State { kBetween, kKey, kMark, kValueOpen, kValueBegin, kText, kHeld };

  Reading Between();
  Reading Key();
  Reading Mark();
  Reading BeginValue();
  Reading Value();
  void Say(std::string_view json) { context_.events->Arguments(json); }

  const ReadingContext& context_;
  HeldText* const held_;
  const ParameterTypes* types_ = nullptr;
  State state_ = State::kBetween;
  bool first_ = true;
  std::string key_;
  enum class Written { kUnknown, kText, kJson } written_ = Written::kUnknown;
};

// The name that `left` begins with, as the two below have them; nullopt: it may go on.
std::optional<std::string> WordAhead(std::string_view left);

// [name(key=value, ...), ...], values as Python writes them. An argument is said once it is whole.
class PythonCalls {
 public:
  PythonCalls(const ReadingContext& context, HeldText* held) : context_(context), held_(held) {}

  void Begin();
  Reading Step();  // kDone behind the list.

 private:
  enum class State { kBegin, kName, kOpen, kKeyOrEnd, kEquals, kValue, kSeparator };

  Reading Value();

  const ReadingContext& context_;
  HeldText* const held_;
  State state_ = State::kBegin;
  std::string name_;
  std::string key_;
  bool first_ = true;
  PythonValueEnd end_;
};

// NAME{KEY:VALUE,...} behind what opens a name, values as braced_literal.h has them. An argument is
// said once it is whole.
class BracedCalls {
 public:
  BracedCalls(const ReadingContext& context, HeldText* held) : context_(context), held_(held) {}

  void Begin();
  Reading Step();  // kDone behind the last brace.

 private:
  enum class State { kOpen, kName, kBrace, kKeyOrEnd, kColon, kValue };

  Reading Value();

  const ReadingContext& context_;
  HeldText* const held_;
  State state_ = State::kOpen;
  std::string name_;
  std::string key_;
  bool first_ = true;
  std::optional<BracedValueEnd> end_;
};

// One section or call, from its opening on.
class CallReader {
 public:
  explicit CallReader(const ReadingContext& context)
      : context_(context),
        held_(context_),
        json_(context_, &held_),
        python_(context_, &held_),
        braced_(context_, &held_),
        tagged_(context_, &held_) {}
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // What may open a call in text.
  std::vector<std::string> Openings() const;
  // One of them stands at the beginning of what is left.
  void Begin(std::string_view opening);
  // What begins a call without markup does, where an answer may be one.
  void BeginBare();
  // After kFailed, `said` is what was taken and is text.
  Reading Step(std::string* said);

 private:
  enum class State {
    kSection,
    kBody,
    kNameOpen,
    kName,
    kCallId,
    kArgumentsOpen,
    kArgumentsBegin,
    kArguments,
    kArgumentsClose,
    kJson,
    kPython,
    kBraced,
    kTagged,
    kCallClose,
    kBareNext,
    kBareItem,
  };

  Reading Once();
  Reading Section();
  Reading Body();
  Reading Name();
  Reading EndName(size_t end, size_t behind, State next);
  Reading Arguments();
  Reading CallClose();
  Reading Go(State state) {
    state_ = state;
    return Reading::kOn;
  }

  const ReadingContext context_;
  HeldText held_;
  JsonCalls json_;
  PythonCalls python_;
  BracedCalls braced_;
  TaggedArguments tagged_;
  JsonScanner scanner_;
  State state_ = State::kSection;
  bool in_section_ = false;
  std::string name_;
  std::string written_id_;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_CALL_READER_H_
