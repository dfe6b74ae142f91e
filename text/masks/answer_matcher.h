// Which tokens may come next in one answer: a thought, then a text that follows a grammar. A pure
// function of the rule, the vocabulary and the tokens that were taken.
#ifndef STRATA_TEXT_MASKS_ANSWER_MATCHER_H_
#define STRATA_TEXT_MASKS_ANSWER_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/grammar/token_mask.h"
#include "text/masks/answer_rule.h"
#include "text/masks/mask_compiler.h"
#include "text/masks/thought_end.h"

namespace strata {

// A rule with what it was compiled to. Immutable; any thread, and many answers.
struct AnswerPlan {
  AnswerRule rule;
  std::shared_ptr<const MaskVocabulary> vocabulary;
  std::shared_ptr<const CompiledGrammar> grammar;  // Null: any text.
  std::shared_ptr<const ThoughtEnd> thought_end;   // Null where a special token is the end.
  // Tokens that are white space alone, some of which may come between thought and text.
  std::vector<uint32_t> blanks;
};

struct AnswerMask {
  // One bit for each id, the lowest bit of the first word being id 0. Empty: any may come.
  std::vector<uint32_t> words;
  // None may come but those that end the answer.
  bool complete = false;
};

// NOT_SUPPORTED where a token of the rule is none of so many that the model can say.
absl::Status CheckThought(const ThoughtRule& thought, size_t vocab);

// Those of `tokens` that are blanks, tabs and line ends alone.
std::vector<uint32_t> BlankTokens(const std::vector<std::string>& tokens);

// One thread at a time.
class AnswerMatcher {
 public:
  // Errors are CheckThought's too.
  static absl::StatusOr<std::unique_ptr<AnswerMatcher>> Make(
      std::shared_ptr<const AnswerPlan> plan);

  // CONSTRAINT_STUCK: no token of the vocabulary goes on with the text, which is not complete.
  // MASK_FAILED.
  absl::StatusOr<AnswerMask> Next();
  // One more token of the answer, which the newest mask has and which does not end it; else
  // MASK_FAILED.
  absl::Status Take(uint32_t token);

 private:
  enum class Phase {
    kOpening,  // A thought may begin: `at` of its first tokens came, which may be the text's, too.
    kThought,
    kClosing,  // Its end is forced: `at` of its tokens came.
    kBehind,   // The thought has ended: `at` tokens of blanks came.
    kText,
  };
  // Where it is, but for the text.
  struct State {
    Phase phase = Phase::kText;
    size_t at = 0;
    ThoughtEnd::State end = 0;
    uint32_t thought_tokens = 0;
    uint32_t taken = 0;
  };

 public:
  // To come back to.
  class Place {
   private:
    friend class AnswerMatcher;
    State state;
    size_t text_taken = 0;
  };
  // Nothing where a thought may begin, behind which it cannot come back.
  std::optional<Place> Here() const;
  // Takes back what came behind the place, where it has been since its last GoBack. MASK_FAILED.
  absl::Status GoBack(const Place& place);

  const MaskVocabulary& vocabulary() const { return *plan_->vocabulary; }

 private:
  AnswerMatcher(std::shared_ptr<const AnswerPlan> plan, std::unique_ptr<TokenMatcher> text);

  std::vector<uint32_t> AllTokens() const;
  std::vector<uint32_t> Only(uint32_t token) const;
  absl::StatusOr<AnswerMask> NextOfText();
  absl::StatusOr<AnswerMask> NextOfOpening();
  AnswerMask NextOfThought() const;
  absl::Status TakeText(uint32_t token);
  absl::Status TakeOpening(uint32_t token);
  absl::Status TakeBehind(uint32_t token);
  void EndThought();
  void TakeThought(uint32_t token);
  void BeginThought();
  void Clear(uint32_t token, std::vector<uint32_t>* words) const;
  bool HasOthers(const std::vector<uint32_t>& words) const;

  const std::shared_ptr<const AnswerPlan> plan_;
  const std::unique_ptr<TokenMatcher> text_;  // Null: any text.
  State state_;
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_ANSWER_MATCHER_H_
