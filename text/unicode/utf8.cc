#include "text/unicode/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

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

CodePoint DecodeAt(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    return {first, 1};
  }
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
  const CodePoint invalid = {0xFFFD, 1};
  if (bytes == 1 || first > 0xF4 || at + bytes > text.size()) {
    return invalid;
  }
  char32_t value = first & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0) != 0x80) {
      return invalid;
    }
    value = (value << 6) | (next & 0x3F);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return invalid;
  }
  return {value, bytes};
}

size_t PreviousStart(std::string_view text, size_t end) {
  for (size_t bytes = 1; bytes <= 4 && bytes <= end; ++bytes) {
    if (DecodeAt(text.substr(0, end), end - bytes).bytes == bytes) {
      const auto byte = static_cast<unsigned char>(text[end - bytes]);
      if (bytes > 1 || byte < 0x80) {
        return end - bytes;
      }
    }
  }
  return end - 1;
}

size_t CountCodePoints(std::string_view text) {
  size_t ascii = 0;
  for (uint64_t word = 0; ascii + sizeof(word) <= text.size(); ascii += sizeof(word)) {
    std::memcpy(&word, text.data() + ascii, sizeof(word));
    if ((word & 0x8080808080808080) != 0) {
      break;
    }
  }
  size_t count = ascii;
  for (size_t at = ascii; at < text.size(); ++count) {
    at += DecodeAt(text, at).bytes;
  }
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    at += DecodeAt(text, at).bytes;
  }
  return at;
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
