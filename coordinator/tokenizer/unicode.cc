#include "coordinator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "common/check.h"

namespace strata {
namespace {

// What may follow a leading byte.
struct Lead {
  int continuations = -1;  // -1: no leading byte.
  uint8_t low = 0x80;      // Range of the first continuation byte.
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) {
    return {0};
  }
  if (byte < 0xC2) {
    return {};
  }
  if (byte < 0xE0) {
    return {1};
  }
  if (byte < 0xF0) {
    return {2, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {3, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

utf8proc_category_t CategoryOf(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const size_t start = i;
    const Lead lead = LeadOf(static_cast<uint8_t>(text[i++]));
    if (lead.continuations < 0 ||
        text.size() - i < static_cast<size_t>(std::max(lead.continuations, 0))) {
      return start;
    }
    uint8_t low = lead.low;
    uint8_t high = lead.high;
    for (int n = 0; n < lead.continuations; ++n, ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (byte < low || byte > high) {
        return start;
      }
      low = 0x80;
      high = 0xBF;
    }
  }
  return std::nullopt;
}

bool BeginsCharacter(std::string_view bytes) {
  const Lead lead = LeadOf(static_cast<uint8_t>(bytes[0]));
  if (lead.continuations < static_cast<int>(bytes.size())) {
    return false;
  }
  for (size_t i = 1; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xBF)) {
      return false;
    }
  }
  return true;
}

char32_t NextChar(std::string_view text, size_t* offset) {
  const auto first = static_cast<uint8_t>(text[(*offset)++]);
  if (first < 0x80) {
    return first;
  }
  const int continuations = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t character = first & (0x3Fu >> continuations);
  for (int n = 0; n < continuations; ++n) {
    character = (character << 6) | (static_cast<uint8_t>(text[(*offset)++]) & 0x3Fu);
  }
  return character;
}

char32_t CharBefore(std::string_view text, size_t offset, size_t* start) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80);
  *start = offset;
  return NextChar(text, &offset);
}

void AppendUtf8(char32_t character, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

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

void Utf8Assembler::AddByte(uint8_t byte, std::string* text) {
  if (missing_ > 0) {
    if (byte >= low_ && byte <= high_) {
      pending_.push_back(static_cast<char>(byte));
      low_ = 0x80;
      high_ = 0xBF;
      if (--missing_ == 0) {
        text->append(pending_);
        pending_.clear();
      }
      return;
    }
    Finish(text);
  }
  const Lead lead = LeadOf(byte);
  if (lead.continuations < 0) {
    text->append(kReplacementCharacter);
  } else if (lead.continuations == 0) {
    text->push_back(static_cast<char>(byte));
  } else {
    pending_.assign(1, static_cast<char>(byte));
    missing_ = lead.continuations;
    low_ = lead.low;
    high_ = lead.high;
  }
}

void Utf8Assembler::Add(std::string_view bytes, std::string* text) {
  for (const char byte : bytes) {
    AddByte(static_cast<uint8_t>(byte), text);
  }
}

void Utf8Assembler::Finish(std::string* text) {
  if (missing_ > 0) {
    text->append(kReplacementCharacter);
    pending_.clear();
    missing_ = 0;
  }
}

}  // namespace strata
