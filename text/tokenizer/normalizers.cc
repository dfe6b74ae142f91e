#include "text/tokenizer/normalizers.h"

#include "common/status.h"
#include "text/tokenizer/byte_alphabet.h"

namespace strata {
namespace {

// As BERT has it: the ideographs of Unicode 8.
bool IsBertChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void StripNonspacing(char32_t character, std::string* out) {
  if (!IsNonspacingMark(character)) {
    AppendUtf8(character, out);
  }
}

}  // namespace

absl::Status UnicodeNormalizer::Apply(NormalizedText* text) const {
  if (!IsAscii(text->text)) {
    text->text = Normalize(text->text, form_);
  }
  return CheckGrown(text->text.size(), text->max_bytes);
}

absl::Status PrependNormalizer::Apply(NormalizedText* text) const {
  if (!text->text.empty()) {
    text->text.insert(0, prefix_);
  }
  return CheckGrown(text->text.size(), text->max_bytes);
}

absl::Status ReplaceNormalizer::Apply(NormalizedText* text) const {
  if (text->text.empty()) {
    return absl::OkStatus();
  }
  std::vector<TextRange> matches;
  RETURN_IF_ERROR(pattern_.FindAll(text->text, &matches));
  if (matches.empty()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      CheckGrown(text->text.size() + matches.size() * content_.size(), text->max_bytes));
  if (content_.empty() && matches[0].begin == 0 && matches[0].end > 0) {
    text->at_start = false;
  }
  text->text = ReplaceMatches(text->text, matches, content_);
  return absl::OkStatus();
}

size_t ReplaceNormalizer::max_shrink() const {
  const size_t of = pattern_.literal().size();  // A regular expression may match any length.
  return of == 0 || content_.empty() ? 0 : (of + content_.size() - 1) / content_.size();
}

absl::Status StripNormalizer::Apply(NormalizedText* text) const {
  std::string& s = text->text;
  if (right_) {
    s.resize(TrailingWhiteSpace(s));
  }
  if (left_) {
    if (const size_t blank = LeadingWhiteSpace(s); blank > 0) {
      s.erase(0, blank);
      text->at_start = false;
    }
  }
  return absl::OkStatus();
}

absl::Status CharacterNormalizer::Apply(NormalizedText* text) const {
  std::string out;
  out.reserve(text->text.size());
  for (size_t at = 0; at < text->text.size();) {
    const bool first = at == 0;
    map_(NextChar(text->text, &at), &out);
    if (first && out.empty()) {
      text->at_start = false;
    }
  }
  text->text = std::move(out);
  return CheckGrown(text->text.size(), text->max_bytes);
}

size_t CharacterNormalizer::max_shrink() const {
  return map_ == &CharacterNormalizer::Lowercase ? 4 : 0;  // The others drop some.
}

void CharacterNormalizer::Lowercase(char32_t character, std::string* out) {
  if (character == 0x130) {  // The one whose lower case is two characters.
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(LowerCase(character), out);
  }
}

void CharacterNormalizer::StripAccents(char32_t character, std::string* out) {
  if (!IsMark(character)) {
    AppendUtf8(character, out);
  }
}

void CharacterNormalizer::Nmt(char32_t c, std::string* out) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool blank = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  AppendUtf8(blank ? U' ' : c, out);
}

absl::Status BertNormalizer::Apply(NormalizedText* text) const {
  std::string out;
  out.reserve(text->text.size());
  for (size_t at = 0; at < text->text.size();) {
    const bool first = at == 0;
    const char32_t c = NextChar(text->text, &at);
    if (options_.clean_text && (c == 0 || c == 0xFFFD || IsBertControl(c))) {
      text->at_start &= !first;
    } else if (options_.split_chinese && IsBertChinese(c)) {
      out.push_back(' ');
      AppendUtf8(c, &out);
      out.push_back(' ');
    } else {
      AppendUtf8(options_.clean_text && IsWhiteSpace(c) ? U' ' : c, &out);
    }
  }
  text->text = std::move(out);
  if (options_.strip_accents && !IsAscii(text->text)) {
    text->text = Normalize(text->text, NormalForm::kNfd);
    RETURN_IF_ERROR(CheckGrown(text->text.size(), text->max_bytes));
    RETURN_IF_ERROR(CharacterNormalizer(&StripNonspacing).Apply(text));
  }
  if (options_.lowercase) {
    return CharacterNormalizer(&CharacterNormalizer::Lowercase).Apply(text);
  }
  return CheckGrown(text->text.size(), text->max_bytes);
}

absl::Status ByteLevelNormalizer::Apply(NormalizedText* text) const {
  std::string out;
  AppendByteLevel(text->text, &out);
  text->text = std::move(out);
  return CheckGrown(text->text.size(), text->max_bytes);
}

size_t SequenceNormalizer::max_shrink() const {
  size_t shrink = 1;
  for (const auto& part : parts_) {
    shrink *= part->max_shrink();
  }
  return shrink;
}

absl::Status SequenceNormalizer::Apply(NormalizedText* text) const {
  for (const auto& part : parts_) {
    RETURN_IF_ERROR(part->Apply(text));
  }
  return absl::OkStatus();
}

}  // namespace strata
