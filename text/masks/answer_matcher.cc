#include "text/masks/answer_matcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

// Models write a line end or two behind a thought.
constexpr size_t kMostBlankTokens = 4;

absl::Status NotOfTheMask(uint32_t token) {
  return Error(absl::StatusCode::kInternal, "MASK_FAILED",
               absl::StrCat("token ", token, " came, which the constraint does not admit there"));
}

}  // namespace

absl::Status CheckThought(const ThoughtRule& thought, size_t vocab) {
  for (const auto* const ids : {&thought.open_ids, &thought.close_ids}) {
    for (const uint32_t id : *ids) {
      if (id >= vocab) {
        return Error(absl::StatusCode::kInvalidArgument, "NOT_SUPPORTED",
                     absl::StrCat("the model has ", vocab, " tokens that it can say, and token ",
                                  id, ", which begins or ends its thoughts, is none of them"))
            .Hint("ask without a constraint and without a budget of thought");
      }
    }
  }
  return absl::OkStatus();
}

std::vector<uint32_t> BlankTokens(const std::vector<std::string>& tokens) {
  std::vector<uint32_t> blanks;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty() && tokens[id].find_first_not_of(" \t\r\n") == std::string::npos) {
      blanks.push_back(id);
    }
  }
  return blanks;
}

AnswerMatcher::AnswerMatcher(std::shared_ptr<const AnswerPlan> plan,
                             std::unique_ptr<TokenMatcher> text)
    : plan_(std::move(plan)), text_(std::move(text)) {
  if (!plan_->rule.thought.has_value()) {
    return;
  }
  const ThoughtRule& thought = *plan_->rule.thought;
  if (thought.opened) {
    BeginThought();
  } else if (!thought.open_ids.empty() &&
             (text_ == nullptr || thought.budget_tokens.value_or(1) > 0)) {
    // Where any text may come a thought cannot be barred: with a budget of 0 its end follows.
    state_.phase = Phase::kOpening;
  }
}

absl::StatusOr<std::unique_ptr<AnswerMatcher>> AnswerMatcher::Make(
    std::shared_ptr<const AnswerPlan> plan) {
  if (plan->rule.thought.has_value()) {
    RETURN_IF_ERROR(CheckThought(*plan->rule.thought, plan->vocabulary->tokens.size()));
  }
  std::unique_ptr<TokenMatcher> text;
  if (plan->grammar != nullptr) {
    ASSIGN_OR_RETURN(text, TokenMatcher::Make(plan->grammar));
  }
  return std::unique_ptr<AnswerMatcher>(new AnswerMatcher(std::move(plan), std::move(text)));
}

std::optional<AnswerMatcher::Place> AnswerMatcher::Here() const {
  if (state_.phase == Phase::kOpening) {
    return std::nullopt;
  }
  Place place;
  place.state = state_;
  place.text_taken = text_ == nullptr ? 0 : text_->taken();
  return place;
}

absl::Status AnswerMatcher::GoBack(const Place& place) {
  state_ = place.state;
  const size_t behind = text_ == nullptr ? 0 : text_->taken() - place.text_taken;
  return behind == 0 ? absl::OkStatus() : text_->Rollback(behind);
}

std::vector<uint32_t> AnswerMatcher::AllTokens() const {
  const size_t size = plan_->vocabulary->tokens.size();
  std::vector<uint32_t> words((size + 31) / 32, ~uint32_t{0});
  if (size % 32 != 0) {
    words.back() = (uint32_t{1} << (size % 32)) - 1;
  }
  return words;
}

std::vector<uint32_t> AnswerMatcher::Only(uint32_t token) const {
  std::vector<uint32_t> words((plan_->vocabulary->tokens.size() + 31) / 32, 0);
  words[token / 32] |= uint32_t{1} << (token % 32);
  return words;
}

void AnswerMatcher::Clear(uint32_t token, std::vector<uint32_t>* words) const {
  (*words)[token / 32] &= ~(uint32_t{1} << (token % 32));
}

bool AnswerMatcher::HasOthers(const std::vector<uint32_t>& words) const {
  std::vector<uint32_t> others = words;
  for (const int32_t stop : plan_->vocabulary->stop_ids) {
    Clear(static_cast<uint32_t>(stop), &others);
  }
  for (const uint32_t word : others) {
    if (word != 0) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<AnswerMask> AnswerMatcher::Next() {
  const AnswerRule& rule = plan_->rule;
  switch (state_.phase) {
    case Phase::kText:
      return NextOfText();
    case Phase::kClosing:
      return AnswerMask{Only(rule.thought->close_ids[state_.at])};
    case Phase::kOpening:
      return NextOfOpening();
    case Phase::kBehind: {
      ASSIGN_OR_RETURN(AnswerMask mask, NextOfText());
      for (const uint32_t blank : plan_->blanks) {
        mask.words[blank / 32] |= uint32_t{1} << (blank % 32);
      }
      mask.complete = mask.complete && plan_->blanks.empty();
      return mask;
    }
    case Phase::kThought:
      break;
  }
  return NextOfThought();
}

// Of the thought, and of the text as long as that begins alike.
absl::StatusOr<AnswerMask> AnswerMatcher::NextOfOpening() {
  const uint32_t open = plan_->rule.thought->open_ids[state_.at];
  if (text_ != nullptr && text_->taken() < state_.at) {
    return AnswerMask{Only(open)};
  }
  absl::StatusOr<AnswerMask> mask = NextOfText();
  if (!mask.ok() && state_.at > 0) {
    return AnswerMask{Only(open)};
  }
  RETURN_IF_ERROR(mask.status());
  if (!mask->words.empty()) {
    mask->words[open / 32] |= uint32_t{1} << (open % 32);
    mask->complete = false;
  }
  return mask;
}

AnswerMask AnswerMatcher::NextOfThought() const {
  AnswerMask mask{AllTokens()};
  for (const uint32_t barred : plan_->rule.thought->barred_ids) {
    if (barred < plan_->vocabulary->tokens.size()) Clear(barred, &mask.words);
  }
  for (const int32_t stop : plan_->vocabulary->stop_ids) {
    Clear(static_cast<uint32_t>(stop), &mask.words);
  }
  if (plan_->thought_end != nullptr) {
    for (const uint32_t barred : plan_->thought_end->Barred(state_.end)) {
      Clear(barred, &mask.words);
    }
  }
  return mask;
}

absl::StatusOr<AnswerMask> AnswerMatcher::NextOfText() {
  if (text_ == nullptr) {
    return AnswerMask{};
  }
  AnswerMask mask{std::vector<uint32_t>((plan_->vocabulary->tokens.size() + 31) / 32, 0)};
  RETURN_IF_ERROR(text_->FillMask(mask.words));
  if (const size_t rest = plan_->vocabulary->tokens.size() % 32; rest != 0) {
    mask.words.back() &= (uint32_t{1} << rest) - 1;
  }
  if (!HasOthers(mask.words)) {
    if (!text_->IsComplete()) {
      return Error(absl::StatusCode::kFailedPrecondition, "CONSTRAINT_STUCK",
                   "no token of the model's goes on with the text, which the constraint does not "
                   "let end")
          .Hint("ask for texts that the model has tokens for");
    }
    mask.complete = true;
    return mask;
  }
  if (state_.taken < plan_->rule.min_tokens || plan_->rule.ignore_eos) {
    for (const int32_t stop : plan_->vocabulary->stop_ids) {
      Clear(static_cast<uint32_t>(stop), &mask.words);
    }
  }
  return mask;
}

absl::Status AnswerMatcher::Take(uint32_t token) {
  if (token >= plan_->vocabulary->tokens.size()) {
    return NotOfTheMask(token);
  }
  ++state_.taken;
  const AnswerRule& rule = plan_->rule;
  switch (state_.phase) {
    case Phase::kText:
      return TakeText(token);
    case Phase::kOpening:
      return TakeOpening(token);
    case Phase::kThought:
      TakeThought(token);
      return absl::OkStatus();
    case Phase::kBehind:
      return TakeBehind(token);
    case Phase::kClosing:
      break;
  }
  if (token != rule.thought->close_ids[state_.at]) {
    return NotOfTheMask(token);
  }
  if (++state_.at == rule.thought->close_ids.size()) {
    EndThought();
  }
  return absl::OkStatus();
}

absl::Status AnswerMatcher::TakeText(uint32_t token) {
  if (text_ == nullptr) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool accepted, text_->Accept(static_cast<int32_t>(token)));
  return accepted ? absl::OkStatus() : NotOfTheMask(token);
}

absl::Status AnswerMatcher::TakeOpening(uint32_t token) {
  const std::vector<uint32_t>& open = plan_->rule.thought->open_ids;
  bool of_text = text_ == nullptr;
  // A token without bytes is none of a text's.
  if (text_ != nullptr && text_->taken() == state_.at &&
      !plan_->vocabulary->tokens[token].empty()) {
    ASSIGN_OR_RETURN(of_text, text_->Accept(static_cast<int32_t>(token)));
  }
  if (token == open[state_.at]) {
    if (++state_.at < open.size()) {
      return absl::OkStatus();
    }
    if (text_ != nullptr) RETURN_IF_ERROR(text_->Rollback(text_->taken()));
    BeginThought();
    return absl::OkStatus();
  }
  if (text_ == nullptr && state_.at == 0 &&
      std::binary_search(plan_->blanks.begin(), plan_->blanks.end(), token)) {
    return absl::OkStatus();  // The thought may come behind it.
  }
  state_.phase = Phase::kText;
  return of_text ? absl::OkStatus() : NotOfTheMask(token);
}

void AnswerMatcher::EndThought() {
  state_.phase =
      text_ == nullptr || !plan_->rule.thought->blanks_behind ? Phase::kText : Phase::kBehind;
  state_.at = 0;
}

// What the text may begin with is its own.
absl::Status AnswerMatcher::TakeBehind(uint32_t token) {
  ASSIGN_OR_RETURN(const bool accepted, text_->Accept(static_cast<int32_t>(token)));
  if (accepted) {
    state_.phase = Phase::kText;
    return absl::OkStatus();
  }
  if (!std::binary_search(plan_->blanks.begin(), plan_->blanks.end(), token)) {
    return NotOfTheMask(token);
  }
  if (++state_.at == kMostBlankTokens) {
    state_.phase = Phase::kText;
  }
  return absl::OkStatus();
}

void AnswerMatcher::BeginThought() {
  const bool over = plan_->rule.thought->budget_tokens == 0u;
  state_.phase = over ? Phase::kClosing : Phase::kThought;
  state_.at = 0;
}

void AnswerMatcher::TakeThought(uint32_t token) {
  const ThoughtRule& thought = *plan_->rule.thought;
  ++state_.thought_tokens;
  bool ended = thought.close_token == token;
  if (plan_->thought_end != nullptr) {
    state_.end = plan_->thought_end->After(state_.end, plan_->vocabulary->tokens[token]);
    ended = plan_->thought_end->Ended(state_.end);
  }
  const bool goes_on =
      thought.close_token == token && thought.close_ids[0] == token && thought.close_ids.size() > 1;
  if (ended && goes_on && text_ != nullptr) {
    state_.phase = Phase::kClosing;
    state_.at = 1;
  } else if (ended) {
    EndThought();
  } else if (state_.thought_tokens == thought.budget_tokens) {
    state_.phase = Phase::kClosing;
    state_.at = 0;
  }
}

}  // namespace strata
