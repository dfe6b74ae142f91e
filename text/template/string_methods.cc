// Methods of str. A result of a safe string is safe as well.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/text.h"
#include "text/unicode/characters.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

Value Like(Runtime& runtime, const Value& self, std::string text) {
  return runtime.String(std::move(text), self.safe());
}

Value ListLike(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts,
               bool tuple = false) {
  runtime.CheckBytes(parts.size() * (sizeof(Value) + sizeof(StringObject)));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    items.push_back(Like(runtime, self, std::string(part)));
  }
  return tuple ? runtime.Tuple(std::move(items)) : runtime.List(std::move(items));
}

template <std::string (*kMap)(std::string_view)>
Value Mapped(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("str method", arguments);
  runtime.StepCharacters(self.text().size());
  return Like(runtime, self, kMap(self.text()));
}

template <python::Side kSide>
Value StripMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("strip", arguments, {"chars"});
  if (!parameters.Has(0) || parameters.Get(0).Is(Kind::kNone)) {
    return StripSteps(runtime, self, kSide, nullptr);
  }
  const std::string_view characters = parameters.Text(0);
  return StripSteps(runtime, self, kSide, &characters);
}

template <bool kRight>
Value Split(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = parameters.Integer(1, -1);
  runtime.StepCharacters(self.text().size());
  if (!parameters.Has(0) || parameters.Get(0).Is(Kind::kNone)) {
    return ListLike(runtime, self,
                    kRight ? SplitSpaceRight(self.text(), limit) : SplitSpace(self.text(), limit));
  }
  const std::string& separator = parameters.Text(0);
  if (separator.empty()) {
    Fail("empty separator");
  }
  return ListLike(runtime, self,
                  kRight ? SplitAtRight(self.text(), separator, limit)
                         : SplitAt(self.text(), separator, limit));
}

Value SplitLinesMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("splitlines", arguments, {"keepends"});
  runtime.StepCharacters(self.text().size());
  return ListLike(runtime, self, SplitLines(self.text(), parameters.IsTrue(0)));
}

template <bool kRight>
Value Partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("partition", arguments, {"sep"});
  const std::string_view text = self.text();
  const std::string_view separator = parameters.Text(0);
  if (separator.empty()) {
    Fail("empty separator");
  }
  runtime.StepBytes(text.size() * 4);
  const size_t found = kRight ? FindLast(text, separator) : Find(text, separator);
  std::vector<std::string_view> parts = {text.substr(0, found), separator, {}};
  if (found != text.npos) {
    parts[2] = text.substr(found + separator.size());
  } else if (kRight) {
    parts = {{}, {}, text};
  } else {
    parts = {text, {}, {}};
  }
  return ListLike(runtime, self, parts, /*tuple=*/true);
}

// The part of a string between two optional indices in characters, and where it begins.
struct Window {
  std::string_view text;
  int64_t start;
};

Window WindowOf(Runtime& runtime, const Value& self, const Parameters& parameters) {
  const auto& string = self.As<StringObject>();
  const auto length = static_cast<int64_t>(string.Length());
  const auto clip = [&](size_t i, int64_t fallback) {
    if (!parameters.Has(i) || parameters.Get(i).Is(Kind::kNone)) {
      return fallback;
    }
    const int64_t index = parameters.Integer(i, fallback);
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  const int64_t start = clip(1, 0);
  const int64_t end = std::max(start, clip(2, length));
  runtime.StepCharacters(string.ascii() ? string.text.size() / 4 : string.text.size());
  const size_t from = ByteOffset(string.text, static_cast<size_t>(start));
  const std::string_view rest = std::string_view(string.text).substr(from);
  return {rest.substr(0, ByteOffset(rest, static_cast<size_t>(end - start))), start};
}

template <bool kRight, bool kMustBe>
Value FindSubstring(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("find", arguments, {"sub", "start", "end"});
  const std::string& wanted = parameters.Text(0);
  const Window window = WindowOf(runtime, self, parameters);
  const size_t found = kRight ? FindLast(window.text, wanted) : Find(window.text, wanted);
  if (found == window.text.npos) {
    if (kMustBe) {
      Fail("substring not found");
    }
    return Value::Int(-1);
  }
  return Value::Int(window.start +
                    static_cast<int64_t>(CountCodePoints(window.text.substr(0, found))));
}

Value Count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("count", arguments, {"sub", "start", "end"});
  const std::string& wanted = parameters.Text(0);
  const Window window = WindowOf(runtime, self, parameters);
  if (wanted.empty()) {
    return Value::Int(static_cast<int64_t>(CountCodePoints(window.text)) + 1);
  }
  int64_t count = 0;
  for (size_t at = 0; (at = Find(window.text, wanted, at)) != window.text.npos;) {
    ++count;
    at += wanted.size();
  }
  return Value::Int(count);
}

template <bool kEnd>
Value StartsOrEnds(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters(kEnd ? "endswith" : "startswith", arguments,
                              {"prefix", "start", "end"});
  const Window window = WindowOf(runtime, self, parameters);
  const auto matches = [&](const Value& candidate) {
    if (!candidate.IsString()) {
      Fail(std::string(kEnd ? "endswith" : "startswith") +
           " first arg must be str or a tuple of str, not " + std::string(TypeName(candidate)));
    }
    const std::string& part = candidate.text();
    runtime.StepBytes(part.size() * 4);
    return part.size() <= window.text.size() &&
           window.text.substr(kEnd ? window.text.size() - part.size() : 0, part.size()) == part;
  };
  if (!parameters.Get(0).Is(Kind::kTuple)) {
    return Value::Bool(matches(parameters.Get(0)));
  }
  const std::vector<Value>& all = parameters.Get(0).items();
  return Value::Bool(std::any_of(all.begin(), all.end(), matches));
}

Value ReplaceMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  const auto part = [&](size_t i) {
    const std::string& text = parameters.Text(i);
    return self.safe() && !parameters.Get(i).safe() ? Escaped(runtime, text) : text;
  };
  return Like(runtime, self,
              Replace(runtime, self.text(), part(0), part(1), parameters.Integer(2, -1)));
}

template <bool kSuffix>
Value RemoveAffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters(kSuffix ? "removesuffix" : "removeprefix", arguments, {"affix"});
  std::string_view text = self.text();
  const std::string& affix = parameters.Text(0);
  if (affix.size() <= text.size()) {
    if (kSuffix && text.substr(text.size() - affix.size()) == affix) {
      text.remove_suffix(affix.size());
    } else if (!kSuffix && text.substr(0, affix.size()) == affix) {
      text.remove_prefix(affix.size());
    }
  }
  return Like(runtime, self, std::string(text));
}

template <char kAlign>
Value PadMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("justify", arguments, {"width", "fillchar"});
  parameters.Get(0);
  const std::string fill = parameters.Has(1) ? parameters.Text(1) : " ";
  if (CountCodePoints(fill) != 1) {
    Fail("The fill character must be exactly one character long");
  }
  return Like(runtime, self, Pad(runtime, self.text(), parameters.Integer(0, 0), fill, kAlign));
}

Value ZeroFill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("zfill", arguments, {"width"});
  parameters.Get(0);
  const std::string& text = self.text();
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const int64_t width = parameters.Integer(0, 0) - (sign ? 1 : 0);
  return Like(runtime, self,
              text.substr(0, sign ? 1 : 0) +
                  Pad(runtime, std::string_view(text).substr(sign ? 1 : 0), width, "0", '>'));
}

Value Join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("join", arguments, {"iterable"});
  const Items items(runtime, parameters.Get(0));
  if (items.size() > 0) {
    runtime.CheckBytes(self.text().size(), items.size() - 1);
  }
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value item = items[i];
    if (!item.IsString()) {
      Fail("sequence item " + std::to_string(i) + ": expected str instance, " +
           std::string(TypeName(item)) + " found");
    }
    const std::string& separator = i > 0 ? self.text() : std::string();
    runtime.CheckBytes(text.size() + separator.size() + item.text().size() * 6);
    runtime.StepBytes(separator.size() + item.text().size());
    text += separator;
    text += self.safe() && !item.safe() ? Escaped(runtime, item.text()) : item.text();
  }
  return Like(runtime, self, std::move(text));
}

Value ExpandTabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("expandtabs", arguments, {"tabsize"});
  const int64_t size = parameters.Integer(0, 8);
  std::string text;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const CodePoint c = DecodeAt(self.text(), at);
    if (c.value == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      text += Repeated(runtime, " ", blanks);
      runtime.CheckBytes(text.size());
      column += blanks;
    } else {
      text.append(self.text(), at, c.bytes);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.bytes;
  }
  return Like(runtime, self, std::move(text));
}

Value Format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return BraceFormat(runtime, self, arguments);
}

Value FormatMap(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Parameters parameters("format_map", arguments, {"mapping"});
  if (!parameters.Get(0).Is(Kind::kDict)) {
    Fail("format_map() needs a mapping");
  }
  Arguments named;
  for (const auto& [key, value] : parameters.Get(0).As<DictObject>().entries) {
    if (key.IsString()) {
      named.named.emplace_back(key.text(), value);
    }
  }
  return BraceFormat(runtime, self, named);
}

// Methods that are there in Python but make no text.
Value NotForTemplates(Runtime& runtime, const Value& self, Arguments& arguments) {
  Fail("this method of str is not supported in chat templates");
}

constexpr MethodEntry kMethods[] = {
    {"strip", &StripMethod<python::Side::kBoth>},
    {"lstrip", &StripMethod<python::Side::kLeft>},
    {"rstrip", &StripMethod<python::Side::kRight>},
    {"split", &Split<false>},
    {"rsplit", &Split<true>},
    {"splitlines", &SplitLinesMethod},
    {"partition", &Partition<false>},
    {"rpartition", &Partition<true>},
    {"startswith", &StartsOrEnds<false>},
    {"endswith", &StartsOrEnds<true>},
    {"replace", &ReplaceMethod},
    {"removeprefix", &RemoveAffix<false>},
    {"removesuffix", &RemoveAffix<true>},
    {"upper", &Mapped<&python::ToUpper>},
    {"lower", &Mapped<&python::ToLower>},
    {"casefold", &Mapped<&python::ToLower>},
    {"title", &Mapped<&python::ToTitleWords>},
    {"capitalize", &Mapped<&python::Capitalize>},
    {"swapcase", &Mapped<&python::SwapCase>},
    {"find", &FindSubstring<false, false>},
    {"rfind", &FindSubstring<true, false>},
    {"index", &FindSubstring<false, true>},
    {"rindex", &FindSubstring<true, true>},
    {"count", &Count},
    {"center", &PadMethod<'c'>},
    {"ljust", &PadMethod<'<'>},
    {"rjust", &PadMethod<'>'>},
    {"zfill", &ZeroFill},
    {"join", &Join},
    {"expandtabs", &ExpandTabs},
    {"format", &Format},
    {"format_map", &FormatMap},
    {"encode", &NotForTemplates},
    {"translate", &NotForTemplates},
    {"maketrans", &NotForTemplates},
};

// Whether there is a character and `kTest` holds for all.
template <bool (*kTest)(char32_t)>
Value All(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("str method", arguments);
  const std::string& text = self.text();
  runtime.StepCharacters(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (!kTest(c.value)) {
      return Value::Bool(false);
    }
    at += c.bytes;
  }
  return Value::Bool(!text.empty());
}

bool IsAlphaNumeric(char32_t c) { return python::IsAlpha(c) || IsNumeric(c); }

// Whether there is a cased character, and none of the case that `kUnwanted` tests.
template <bool (*kWanted)(char32_t), bool (*kUnwanted)(char32_t)>
Value AllCased(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("str method", arguments);
  bool any = false;
  runtime.StepCharacters(self.text().size());
  for (size_t at = 0; at < self.text().size();) {
    const CodePoint c = DecodeAt(self.text(), at);
    if (kUnwanted(c.value) || python::IsTitle(c.value)) {
      return Value::Bool(false);
    }
    any = any || kWanted(c.value);
    at += c.bytes;
  }
  return Value::Bool(any);
}

Value IsTitleMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("istitle", arguments);
  bool any = false;
  bool in_word = false;
  for (size_t at = 0; at < self.text().size();) {
    const CodePoint c = DecodeAt(self.text(), at);
    const bool capital = python::IsUpper(c.value) || python::IsTitle(c.value);
    const bool small = python::IsLower(c.value);
    if ((capital && in_word) || (small && !in_word)) {
      return Value::Bool(false);
    }
    in_word = capital || small;
    any = any || in_word;
    at += c.bytes;
  }
  return Value::Bool(any);
}

Value IsAscii(Runtime& runtime, const Value& self, Arguments& arguments) {
  TakesNothing("isascii", arguments);
  return Value::Bool(std::all_of(self.text().begin(), self.text().end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value IsPrintableMethod(Runtime& runtime, const Value& self, Arguments& arguments) {
  return self.text().empty() ? Value::Bool(true)
                             : All<&python::IsPrintable>(runtime, self, arguments);
}

Value IsIdentifier(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = self.text();
  if (text.empty() || !python::IsIdentifierStart(DecodeAt(text, 0).value)) {
    return Value::Bool(false);
  }
  return All<&python::IsIdentifierPart>(runtime, self, arguments);
}

constexpr MethodEntry kTestMethods[] = {
    {"isalpha", &All<&python::IsAlpha>},
    {"isdigit", &All<&python::IsDigit>},
    {"isdecimal", &All<&python::IsDecimal>},
    {"isnumeric", &All<&IsNumeric>},
    {"isalnum", &All<&IsAlphaNumeric>},
    {"isspace", &All<&python::IsSpace>},
    {"isupper", &AllCased<&python::IsUpper, &python::IsLower>},
    {"islower", &AllCased<&python::IsLower, &python::IsUpper>},
    {"istitle", &IsTitleMethod},
    {"isascii", &IsAscii},
    {"isprintable", &IsPrintableMethod},
    {"isidentifier", &IsIdentifier},
};

}  // namespace

const std::span<const MethodEntry> kStringMethods(kMethods);
const std::span<const MethodEntry> kStringTestMethods(kTestMethods);

}  // namespace strata::jinja
