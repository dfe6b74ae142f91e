// An answer as a tokenizer would cut it, and what is read of it.
#ifndef STRATA_TESTS_TEXT_TOOLS_READING_H_
#define STRATA_TESTS_TEXT_TOOLS_READING_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tools/answer_reader.h"

namespace strata::testing {

// A piece of an answer: text, or a special token.
struct Part {
  std::string text;
  bool token = false;
};

// Cuts `answer` at each of `tokens`.
inline std::vector<Part> PartsOf(std::string_view answer,
                                 const std::vector<std::string_view>& tokens) {
  std::vector<Part> parts;
  std::string text;
  while (!answer.empty()) {
    std::string_view longest;
    for (const std::string_view token : tokens) {
      if (token.size() > longest.size() && answer.starts_with(token)) longest = token;
    }
    if (longest.empty()) {
      text += answer.front();
      answer.remove_prefix(1);
      continue;
    }
    if (!text.empty()) parts.push_back({std::exchange(text, {}), false});
    parts.push_back({std::string(longest), true});
    answer.remove_prefix(longest.size());
  }
  if (!text.empty()) parts.push_back({std::move(text), false});
  return parts;
}

// What was said as one event where it is of a kind.
inline std::vector<AnswerEvent> Merged(const std::vector<AnswerEvent>& events) {
  using Kind = AnswerEvent::Kind;
  std::vector<AnswerEvent> merged;
  for (const AnswerEvent& event : events) {
    const bool text =
        event.kind == Kind::kText || event.kind == Kind::kThought || event.kind == Kind::kArguments;
    if (text && !merged.empty() && merged.back().kind == event.kind) {
      merged.back().text += event.text;
    } else {
      merged.push_back(event);
    }
  }
  return merged;
}

// Reads `parts`, the texts in them cut where `cut(byte of all text)` says so.
template <typename Cut>
std::vector<AnswerEvent> Read(const AnswerReaderOptions& options, const std::vector<Part>& parts,
                              const Cut& cut) {
  AnswerReader reader(options);
  std::vector<AnswerEvent> events;
  const auto take = [&] {
    for (AnswerEvent& event : reader.Take()) {
      events.push_back(std::move(event));
    }
  };
  size_t at = 0;
  for (const Part& part : parts) {
    if (part.token) {
      reader.AddToken(part.text);
      take();
      continue;
    }
    std::string piece;
    for (const char byte : part.text) {
      if (!piece.empty() && cut(at)) {
        reader.Add(std::exchange(piece, {}));
        take();
      }
      piece += byte;
      ++at;
    }
    reader.Add(piece);
    take();
  }
  reader.Finish();
  take();
  return Merged(events);
}

inline std::vector<AnswerEvent> ReadWhole(const AnswerReaderOptions& options,
                                          const std::vector<Part>& parts) {
  return Read(options, parts, [](size_t) { return false; });
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_TEXT_TOOLS_READING_H_
