#include "text/unicode/characters.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>

#include "common/check.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

utf8proc_category_t CategoryOf(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // Join_Control, and the symbols that are Alphabetic: circled and squared Latin letters.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) {
    return c >= '0' && c <= '9';
  }
  const utf8proc_category_t category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
           (c > 'z' && c < 0x7F);
  }
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsNonspacingMark(char32_t c) { return c >= 0x80 && CategoryOf(c) == UTF8PROC_CATEGORY_MN; }

bool IsBertControl(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CC:
      return c != '\t' && c != '\n' && c != '\r';
    case UTF8PROC_CATEGORY_CO:
      return true;
    case UTF8PROC_CATEGORY_CF:
      return c != 0x890 && c != 0x891 && c != 0x8E2 && c != 0x110CD && (c < 0x13430 || c > 0x1343F);
    default:
      return false;
  }
}

bool IsMark(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

char32_t LowerCase(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

size_t TrailingWhiteSpace(std::string_view text) {
  size_t end = text.size();
  for (size_t start = 0; end > 0 && IsWhiteSpace(CharBefore(text, end, &start));) {
    end = start;
  }
  return end;
}

size_t LeadingWhiteSpace(std::string_view text) {
  size_t at = 0;
  for (size_t next = 0; at < text.size(); at = next) {
    next = at;
    if (!IsWhiteSpace(NextChar(text, &next))) {
      break;
    }
  }
  return at;
}

size_t GraphemeEnd(std::string_view text, size_t begin) {
  size_t end = begin;
  char32_t before = NextChar(text, &end);
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    size_t next = end;
    const char32_t c = NextChar(text, &next);
    const bool breaks = before < 0x80 && c < 0x80 ? !(before == '\r' && c == '\n')
                                                  : utf8proc_grapheme_break_stateful(
                                                        static_cast<utf8proc_int32_t>(before),
                                                        static_cast<utf8proc_int32_t>(c), &state);
    if (breaks) {
      break;
    }
    before = c;
    end = next;
  }
  return end;
}

std::string Normalize(std::string_view text, NormalForm form) {
  if (IsAscii(text)) {
    return std::string(text);
  }
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &bytes, options);
  STRATA_CHECK(size >= 0);  // The text is well-formed, the options are consistent.
  std::string normalized(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  std::free(bytes);
  return normalized;
}

}  // namespace strata
