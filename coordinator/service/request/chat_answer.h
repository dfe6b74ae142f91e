// What the answer to a chat is read for, and how it is told: thoughts and calls of tools apart from
// text.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_ANSWER_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_ANSWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/service/request/model_runtime.h"
#include "strata/v1/inference.pb.h"

namespace strata {

class AnswerReader;
class OfferedTools;
struct ThoughtFormat;
struct ToolFormat;

// What of a chat is needed once its prompt is made.
struct ChatAnswer {
  std::shared_ptr<const OfferedTools> offered;  // Null: none may be called.
  bool one_call = false;
  std::optional<uint32_t> thought_budget_tokens;
  bool must_call = false;  // No answer but calls.
  std::string only;        // The one of the offered that may be called; "": any.
  std::string prompt_end;  // The last bytes of the prompt, white space behind them left out.
};

// INVALID_ARGUMENT (BAD_FIELD, NOT_SUPPORTED) names what of the tools is wrong, or that the model's
// template shows none. `prompt` is what it made.
absl::StatusOr<ChatAnswer> ChatAnswerOf(const v1::ChatInput& chat, const ModelRuntime& model,
                                        std::string_view prompt);

// Its format of calls. INVALID_ARGUMENT (NOT_SUPPORTED): it is not known.
absl::StatusOr<const ToolFormat*> ToolFormatOf(const ModelRuntime& model,
                                               const v1::LoadOptions& options);
// The format whose messages have channels, where the answer begins with the header of one; null
// where it does not: the model writes none, or the prompt has begun a message.
absl::StatusOr<const ToolFormat*> ChannelsOf(const ModelRuntime& model,
                                             const v1::LoadOptions& options,
                                             const ChatAnswer& answer);
// Whether the prompt has begun a thought of the format.
bool BeginsThought(const ChatAnswer& answer, const ThoughtFormat& format);
// Whether the token has a text that is no part of an answer's.
bool IsSpecialToken(const Tokenizer& tokenizer, uint32_t id);
// The special token that `name` is, which is no part of a text.
std::optional<uint32_t> SpecialTokenOf(const Tokenizer& tokenizer, std::string_view name);

// INVALID_ARGUMENT (BAD_FIELD): a format of tools or thoughts that there is not.
absl::Status CheckAnswerFormats(const v1::LoadOptions& options);

// One answer on its way. One thread at a time.
class ChatReader {
 public:
  ~ChatReader();
  // Null where answers of the model, as it was loaded, are all text. `id_seed`: from which ids of
  // calls follow. INVALID_ARGUMENT (NOT_SUPPORTED): calls cannot be read. `model` outlives it.
  static absl::StatusOr<std::unique_ptr<ChatReader>> Make(const ModelRuntime& model,
                                                          const v1::LoadOptions& options,
                                                          const ChatAnswer& answer,
                                                          std::string id_seed);

  // Whether `id` is a special token, which has no part in the text.
  bool IsToken(uint32_t id) const;
  // More text, then, if `id` is one, that special token.
  void Add(std::string_view text);
  void AddToken(uint32_t id);
  void Finish();
  // What was found since the last time, into `response`.
  void Tell(v1::GenerateResponse* response);

  bool in_thought() const;
  bool in_call() const;
  // Calls keep to what they may be, and so end where they are complete: no stop string cuts them.
  bool holds_calls() const { return holds_calls_; }
  // Whether there is a whole call.
  bool calls() const;
  // Nothing more is to be made.
  bool full() const;

 private:
  ChatReader(const Tokenizer* tokenizer, std::unique_ptr<AnswerReader> reader, bool holds_calls);

  const Tokenizer* const tokenizer_;
  const std::unique_ptr<AnswerReader> reader_;
  const bool holds_calls_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_CHAT_ANSWER_H_
