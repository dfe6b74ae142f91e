#include "text/tokenizer/text_pattern.h"

#include <utility>

#include "common/status.h"

namespace strata {

TextPattern TextPattern::OfLiteral(std::string literal) {
  TextPattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

absl::StatusOr<TextPattern> TextPattern::OfRegex(std::string_view expression) {
  TextPattern pattern;
  ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(expression));
  return pattern;
}

absl::Status TextPattern::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  if (regex_ != nullptr) {
    return regex_->FindAll(text, matches);
  }
  matches->clear();
  for (size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, at + literal_.size())) {
    matches->push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + literal_.size())});
  }
  return absl::OkStatus();
}

std::string ReplaceMatches(std::string_view text, std::span<const TextRange> matches,
                           std::string_view content) {
  std::string out;
  out.reserve(text.size() + matches.size() * content.size());
  size_t said = 0;
  for (const TextRange& match : matches) {
    out.append(text.substr(said, match.begin - said)).append(content);
    said = match.end;
  }
  out.append(text.substr(said));
  return out;
}

}  // namespace strata
