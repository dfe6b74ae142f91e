#include "text/unicode/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_set>

#include "text/unicode/characters.h"
#include "text/unicode/special_casing.h"
#include "text/unicode/utf8.h"

namespace strata::python {
namespace {

const SpecialCasing* FindSpecial(char32_t c) {
  if (c < 0xDF) {
    return nullptr;
  }
  const SpecialCasing* end = kSpecialCasing + kSpecialCasingCount;
  const SpecialCasing* found = std::lower_bound(
      kSpecialCasing, end, c, [](const SpecialCasing& s, char32_t code) { return s.code < code; });
  return found != end && found->code == c ? found : nullptr;
}

void AppendUpper(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : static_cast<char>(c));
  } else if (const SpecialCasing* special = FindSpecial(c)) {
    out->append(reinterpret_cast<const char*>(special->upper));
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  const SpecialCasing* special = FindSpecial(c);
  if (special != nullptr && special->title[0] != 0) {
    out->append(reinterpret_cast<const char*>(special->title));
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Marks, modifiers and some punctuation do not end a word for the final sigma.
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// Whether the capital sigma at [at, at + 2) ends a word.
bool IsFinalSigma(std::string_view text, size_t at) {
  size_t before = at;
  bool cased_before = false;
  while (before > 0) {
    before = PreviousStart(text, before);
    const char32_t c = DecodeAt(text, before).value;
    if (!IsCaseIgnorable(c)) {
      cased_before = IsCased(c);
      break;
    }
  }
  for (size_t after = at + 2; after < text.size();) {
    const CodePoint c = DecodeAt(text, after);
    if (!IsCaseIgnorable(c.value)) {
      return cased_before && !IsCased(c.value);
    }
    after += c.bytes;
  }
  return cased_before;
}

void AppendLower(std::string_view text, size_t at, CodePoint c, std::string* out) {
  if (c.value < 0x80) {
    out->push_back(c.value >= 'A' && c.value <= 'Z' ? static_cast<char>(c.value + 32)
                                                    : static_cast<char>(c.value));
  } else if (c.value == 0x130) {
    out->append("i\xCC\x87");
  } else if (c.value == 0x3A3) {
    AppendUtf8(IsFinalSigma(text, at) ? 0x3C2 : 0x3C3, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))),
               out);
  }
}

// Copies a byte that is no valid UTF-8 as it is.
bool CopyInvalid(std::string_view text, size_t at, CodePoint c, std::string* out) {
  if (c.bytes == 1 && static_cast<unsigned char>(text[at]) >= 0x80) {
    out->push_back(text[at]);
    return true;
  }
  return false;
}

template <typename Map>
std::string MapCharacters(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (!CopyInvalid(text, at, c, &out)) {
      map(at, c, &out);
    }
    at += c.bytes;
  }
  return out;
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t c) {
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2776 && c <= 0x277E);
}

bool IsWord(char32_t c) { return IsAlpha(c) || IsNumeric(c) || c == '_'; }

bool IsPrintable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsIdentifierStart(char32_t c) {
  return c == '_' || IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return IsIdentifierStart(c) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_PC;
}

std::string ToUpper(std::string_view text) {
  return MapCharacters(text,
                       [](size_t, CodePoint c, std::string* out) { AppendUpper(c.value, out); });
}

std::string ToLower(std::string_view text) {
  return MapCharacters(
      text, [text](size_t at, CodePoint c, std::string* out) { AppendLower(text, at, c, out); });
}

std::string ToTitleWords(std::string_view text) {
  bool in_word = false;
  return MapCharacters(text, [&](size_t at, CodePoint c, std::string* out) {
    if (in_word) {
      AppendLower(text, at, c, out);
    } else {
      AppendTitle(c.value, out);
    }
    in_word = IsCased(c.value);
  });
}

std::string Capitalize(std::string_view text) {
  return MapCharacters(text, [text](size_t at, CodePoint c, std::string* out) {
    if (at == 0) {
      AppendTitle(c.value, out);
    } else {
      AppendLower(text, at, c, out);
    }
  });
}

std::string SwapCase(std::string_view text) {
  return MapCharacters(text, [text](size_t at, CodePoint c, std::string* out) {
    if (IsUpper(c.value)) {
      AppendLower(text, at, c, out);
    } else if (IsLower(c.value)) {
      AppendUpper(c.value, out);
    } else {
      AppendUtf8(c.value, out);
    }
  });
}

std::string_view Strip(std::string_view text, Side side, const std::string_view* characters) {
  std::unordered_set<std::string_view> set;
  for (size_t at = 0; characters != nullptr && at < characters->size();) {
    const size_t bytes = DecodeAt(*characters, at).bytes;
    set.insert(characters->substr(at, bytes));
    at += bytes;
  }
  const auto drops = [&](std::string_view all, size_t at, CodePoint c) {
    return characters == nullptr ? IsSpace(c.value) : set.contains(all.substr(at, c.bytes));
  };
  if (side != Side::kRight) {
    while (!text.empty()) {
      const CodePoint c = DecodeAt(text, 0);
      if (!drops(text, 0, c)) {
        break;
      }
      text.remove_prefix(c.bytes);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const size_t start = PreviousStart(text, text.size());
      if (!drops(text, start, DecodeAt(text, start))) {
        break;
      }
      text = text.substr(0, start);
    }
  }
  return text;
}

}  // namespace strata::python
