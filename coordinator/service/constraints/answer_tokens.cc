#include "coordinator/service/constraints/answer_tokens.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/status.h"
#include "text/grammar/token_mask.h"

namespace strata {
namespace {

// What the ids say behind other text; nullopt where they change that.
class TextBehind {
 public:
  static absl::StatusOr<TextBehind> Make(const Tokenizer& tokenizer) {
    ASSIGN_OR_RETURN(std::vector<uint32_t> before, tokenizer.Encode("a", false));
    std::string text = tokenizer.Decode(before, false);
    return TextBehind(&tokenizer, std::move(before), std::move(text));
  }

  std::optional<std::string> Of(const std::vector<uint32_t>& ids) const {
    std::vector<uint32_t> all = before_;
    all.insert(all.end(), ids.begin(), ids.end());
    const std::string text = tokenizer_->Decode(all, false);
    return text.starts_with(text_) ? std::optional(text.substr(text_.size())) : std::nullopt;
  }

 private:
  TextBehind(const Tokenizer* tokenizer, std::vector<uint32_t> before, std::string text)
      : tokenizer_(tokenizer), before_(std::move(before)), text_(std::move(text)) {}

  const Tokenizer* tokenizer_;
  std::vector<uint32_t> before_;
  std::string text_;
};

// Texts in which tokenizers that go by words take blanks away, or add some.
constexpr std::string_view kProbes[] = {"{\"a\" : [ 1 , 2.5 ] , \"b c\" : \"is n't it ? yes !\"}",
                                        "un believ able words . and , more",
                                        "  two  blanks\n\tand lines\n"};

absl::Status DependsOnOthers() {
  return Error(absl::StatusCode::kFailedPrecondition, "CONSTRAINT_TOKENIZER",
               "what a token of this model's tokenizer says depends on the tokens beside it, so "
               "that no constraint can be held")
      .Hint("ask without a constraint, or ask another model");
}

}  // namespace

absl::StatusOr<AnswerTokens> AnswerTokensOf(const Tokenizer& tokenizer, uint32_t logits,
                                            const std::vector<uint32_t>& stop_ids) {
  AnswerTokens result;
  result.tokens.resize(logits);
  ASSIGN_OR_RETURN(const TextBehind behind, TextBehind::Make(tokenizer));
  for (uint32_t id = 0; id < std::min(logits, tokenizer.vocab_size()); ++id) {
    const uint32_t ids[] = {id};
    const std::optional<std::string> bytes = tokenizer.BytesOf(id);
    if (!bytes.has_value() || bytes->size() > 1) {
      if (tokenizer.Decode(ids, /*skip_special_tokens=*/true).empty()) {
        const std::string name = tokenizer.Decode(ids, /*skip_special_tokens=*/false);
        if (!name.empty()) {
          result.tokens[id] = kSpecialTokenByte + name;
          continue;
        }
      }
    }
    result.tokens[id] = bytes.has_value() ? *bytes : behind.Of({id}).value_or("");
  }
  for (const uint32_t id : stop_ids) {
    if (id < logits) {
      result.tokens[id].clear();
      result.stop_ids.push_back(static_cast<int32_t>(id));
    }
  }
  for (const std::string_view probe : kProbes) {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, tokenizer.Encode(probe, false));
    std::string joined;
    for (const uint32_t id : ids) {
      joined += id < logits ? result.tokens[id] : "";
    }
    if (behind.Of(ids) != joined) {
      return DependsOnOthers();
    }
  }
  return result;
}

}  // namespace strata
