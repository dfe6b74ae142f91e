// Reads an answer as it comes: which of it is text, which is thought, which calls tools. One state
// machine for all families, driven by the rows of tool_formats.h. What it says does not depend on
// how the answer is cut into pieces.
#ifndef STRATA_TEXT_TOOLS_ANSWER_READER_H_
#define STRATA_TEXT_TOOLS_ANSWER_READER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tools/answer_events.h"
#include "text/tools/call_reader.h"
#include "text/tools/marked_text.h"
#include "text/tools/offered_tools.h"
#include "text/tools/tool_formats.h"

namespace strata {

struct AnswerReaderOptions {
  const ToolFormat* tools = nullptr;                      // Null: calls stay text.
  const ThoughtFormat* thoughts = nullptr;                // Null: thoughts stay text.
  std::shared_ptr<const OfferedTools> offered = nullptr;  // Null: calls stay text.
  // Whether the vocabulary has this text as a special token, which AddToken tells.
  std::function<bool(std::string_view)> is_special = nullptr;
  std::string id_seed = "";     // From which ids of calls follow.
  bool in_thought = false;      // The prompt has opened one already.
  bool behind_thought = false;  // The prompt has one, which ended.
  bool one_call = false;        // Nothing is read behind the first whole call.
};

class AnswerReader {
 public:
  explicit AnswerReader(AnswerReaderOptions options);
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  // More of the answer: text (UTF-8, cut anywhere), or a special token by its name. Those that mean
  // nothing to the format are dropped.
  void Add(std::string_view text);
  void AddToken(std::string_view name);
  void Finish();
  // What was found since the last time. Events of a kind that follow each other are one.
  std::vector<AnswerEvent> Take() { return events_.Take(); }

  bool in_thought() const;
  // A call is being read, from its opening on.
  bool in_call() const { return state_ == State::kCall || state_ == State::kCallMessage; }
  size_t whole_calls() const { return events_.whole_calls(); }
  // The first call ended, and it was to be the only one.
  bool full() const { return options_.one_call && events_.whole_calls() > 0; }

 private:
  enum class State { kText, kThought, kCall, kHeader, kMessage, kCallMessage };
  // What harmony says of a message.
  enum class Message { kText, kThought, kCall };

  void Run();
  Reading Text();
  Reading Thought();
  Reading Call();
  Reading Header();
  void ReadHeader(const std::string& header);
  Reading InMessage();
  Reading CallMessage();
  Reading EndMessage();
  void DropToken();
  bool ThoughtsAreChannels() const;

  const AnswerReaderOptions options_;
  const bool harmony_;
  std::optional<MarkedFormat> format_;
  MarkedText text_;
  AnswerEvents events_;
  std::optional<CallReader> call_;
  std::vector<std::string> openings_;  // Of calls.
  std::string thought_open_, thought_close_;
  State state_ = State::kText;
  // Harmony's.
  Message message_ = Message::kText;
  std::string header_;  // Of a call's message, for the case that it is none.
  std::string name_;
  JsonScanner scanner_;
  bool begun_ = false;
  bool ended_ = false;  // The message's call.
};

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_ANSWER_READER_H_
