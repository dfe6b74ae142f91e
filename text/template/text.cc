#include "text/template/text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {

size_t Find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  if (wanted.empty()) {
    return from;
  }
  // std::string's search may take the product of both lengths.
  const void* found =
      ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view wanted) {
  const std::string mirrored(text.rbegin(), text.rend());
  const size_t found = Find(mirrored, std::string(wanted.rbegin(), wanted.rend()));
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

Value StripSteps(Runtime& runtime, const Value& string, python::Side side,
                 const std::string_view* characters) {
  const std::string& text = string.text();
  runtime.StepCharacters(characters == nullptr ? 0 : characters->size());
  const std::string_view stripped = python::Strip(text, side, characters);
  runtime.StepCharacters((text.size() - stripped.size()) * (characters == nullptr ? 1 : 4));
  return runtime.String(std::string(stripped), string.safe());
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (!python::IsLineBreak(c.value)) {
      at += c.bytes;
      continue;
    }
    const size_t end = at;
    at += c.value == '\r' && text.substr(at, 2) == "\r\n" ? 2 : c.bytes;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) {
    lines.push_back(text.substr(start));
  }
  return lines;
}

std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = python::Strip(text, python::Side::kLeft);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);  // Python keeps the space at the end of the last part.
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = DecodeAt(text, end);
      if (python::IsSpace(c.value)) {
        break;
      }
      end += c.bytes;
    }
    parts.push_back(text.substr(0, end));
    text = python::Strip(text.substr(end), python::Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> SplitSpaceRight(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = python::Strip(text, python::Side::kRight);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      const size_t before = PreviousStart(text, start);
      if (python::IsSpace(DecodeAt(text, before).value)) {
        break;
      }
      start = before;
    }
    parts.push_back(text.substr(start));
    text = python::Strip(text.substr(0, start), python::Side::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = Find(text, separator);
    if (found == text.npos) {
      break;
    }
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitAtRight(std::string_view text, std::string_view separator,
                                           int64_t limit) {
  // Mirrored, so that every search takes time by what it passes.
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string mirrored_separator(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts = SplitAt(mirrored, mirrored_separator, limit);
  for (std::string_view& part : parts) {
    const auto start = static_cast<size_t>(part.data() - mirrored.data());
    part = text.substr(text.size() - start - part.size(), part.size());
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string Replace(Runtime& runtime, std::string_view text, std::string_view from,
                    std::string_view to, int64_t limit) {
  std::string out;
  int64_t done = 0;
  runtime.StepBytes(text.size());
  const auto append = [&](std::string_view part) {
    runtime.CheckBytes(out.size() + part.size());
    out.append(part);
  };
  const auto more = [&] { return limit < 0 || done < limit; };
  if (from.empty()) {
    size_t at = 0;
    while (more() && at < text.size()) {
      append(to);
      ++done;
      const size_t bytes = DecodeAt(text, at).bytes;
      append(text.substr(at, bytes));
      at += bytes;
    }
    append(more() ? to : std::string_view());
    append(text.substr(std::min(at, text.size())));
    return out;
  }
  while (more()) {
    const size_t found = Find(text, from);
    if (found == text.npos) {
      break;
    }
    append(text.substr(0, found));
    append(to);
    text.remove_prefix(found + from.size());
    ++done;
    runtime.StepBytes(to.size());
  }
  append(text);
  return out;
}

std::string Repeated(Runtime& runtime, std::string_view text, int64_t count) {
  std::string out;
  if (count <= 0) {
    return out;
  }
  runtime.CheckBytes(text.size(), static_cast<uint64_t>(count));
  runtime.StepBytes(text.size() * static_cast<size_t>(count));
  out.reserve(text.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count && !text.empty(); ++i) {
    out.append(text);
  }
  return out;
}

std::string Pad(Runtime& runtime, std::string_view text, int64_t width, std::string_view fill,
                char align) {
  const auto length = static_cast<int64_t>(CountCodePoints(text));
  const int64_t missing = width - length;
  if (missing <= 0) {
    return std::string(text);
  }
  int64_t left = 0;
  if (align == '>') {
    left = missing;
  } else if (align == '^') {
    left = missing / 2;
  } else if (align == 'c') {  // str.center: the odd one goes left if the width is odd.
    left = missing / 2 + (missing & width & 1);
  }
  std::string out = Repeated(runtime, fill, left);
  out.append(text);
  out += Repeated(runtime, fill, missing - left);
  return out;
}

bool ParseFloat(std::string_view text, double* out) {
  text = python::Strip(text, python::Side::kBoth);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      const bool between = i > 0 && i + 1 < text.size() && std::isdigit(text[i - 1]) != 0 &&
                           std::isdigit(text[i + 1]) != 0;
      if (!between) {
        return false;
      }
    } else {
      digits.push_back(text[i]);
    }
  }
  if (digits.empty() || digits.find_first_of("xX\0", 0, 3) != digits.npos) {
    return false;
  }
  char* end = nullptr;
  *out = std::strtod(digits.c_str(), &end);
  const bool payload = digits.find('(') != digits.npos;  // nan(...) is C's own.
  return end == digits.c_str() + digits.size() && !payload;
}

}  // namespace strata::jinja
