// Filters that make text of text.
#include <algorithm>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/text.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

// The input as a string that may be safe.
Value Soft(Runtime& runtime, const Value& input) { return StringOf(runtime, input); }

// The input of a filter that calls methods of str itself.
const Value& MustBeString(const Value& input, const char* filter) {
  if (!input.IsString()) {
    if (input.IsUndefined()) {
      FailUndefined(input);
    }
    Fail(std::string(filter) + " needs a str, not " + std::string(TypeName(input)));
  }
  return input;
}

Value Like(Runtime& runtime, const Value& string, std::string text) {
  return runtime.String(std::move(text), string.safe());
}

template <std::string (*kMap)(std::string_view)>
Value Mapped(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("filter", arguments);
  const Value string = Soft(runtime, input);
  runtime.StepCharacters(string.text().size());
  return Like(runtime, string, kMap(string.text()));
}

// Words begin after white space, hyphens and opening brackets.
std::string TitleFilter(std::string_view text) {
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) {
      const size_t first = DecodeAt(word, 0).bytes;
      out += python::ToUpper(std::string_view(word).substr(0, first));
      out += python::ToLower(std::string_view(word).substr(first));
      word.clear();
    }
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    const bool between = python::IsSpace(c.value) || c.value == '-' || c.value == '(' ||
                         c.value == '{' || c.value == '[' || c.value == '<';
    if (between) {
      flush();
      out.append(text.substr(at, c.bytes));
    } else {
      word.append(text.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  flush();
  return out;
}

Value Trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("trim", arguments, {"chars"});
  const Value string = Soft(runtime, input);
  if (!parameters.Has(0) || parameters.Get(0).Is(Kind::kNone)) {
    return StripSteps(runtime, string, python::Side::kBoth, nullptr);
  }
  const std::string_view characters = parameters.Text(0);
  return StripSteps(runtime, string, python::Side::kBoth, &characters);
}

Value ReplaceFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  const bool all = !parameters.Has(2) || parameters.Get(2).Is(Kind::kNone);
  const int64_t count = all ? -1 : parameters.Integer(2, -1);
  const Value string = Soft(runtime, input);
  std::string from = ToString(runtime, parameters.Get(0));
  std::string to = ToString(runtime, parameters.Get(1));
  if (!runtime.autoescape()) {
    return runtime.String(Replace(runtime, string.text(), from, to, count));
  }
  const auto escape = [&](size_t i, std::string* text) {
    const Value& value = parameters.Get(i);
    if (!(value.IsString() && value.safe())) {
      *text = Escaped(runtime, *text);
    }
  };
  escape(0, &from);
  escape(1, &to);
  const std::string text = string.safe() ? string.text() : Escaped(runtime, string.text());
  return runtime.String(Replace(runtime, text, from, to, count), /*safe=*/true);
}

Value Indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  const Value& string = MustBeString(input, "indent");
  const std::string indention = parameters.Has(0) && parameters.Get(0).IsString()
                                    ? parameters.Get(0).text()
                                    : Repeated(runtime, " ", parameters.Integer(0, 4));
  const bool blank = parameters.IsTrue(2);
  std::string text = parameters.IsTrue(1) ? indention : "";
  const std::string source = string.text() + "\n";
  runtime.StepCharacters(source.size());
  const std::vector<std::string_view> lines = SplitLines(source);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      text += "\n";
      if (blank || !lines[i].empty()) {
        text += indention;
        runtime.StepBytes(indention.size());
      }
    }
    text += lines[i];
    runtime.CheckBytes(text.size());
  }
  return Like(runtime, string, std::move(text));
}

Value Truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = parameters.Integer(0, 255);
  const std::string end = parameters.Has(2) ? parameters.Text(2) : "...";
  const auto end_length = static_cast<int64_t>(CountCodePoints(end));
  const bool default_leeway = !parameters.Has(3) || parameters.Get(3).Is(Kind::kNone);
  const int64_t leeway = default_leeway ? 5 : parameters.Integer(3, 5);
  if (length < end_length || leeway < 0) {
    Fail("truncate: the length is shorter than the end, or the leeway is negative");
  }
  if (Length(input) - leeway <= length) {
    return input;
  }
  const Value& string = MustBeString(input, "truncate");
  std::string_view kept =
      std::string_view(string.text())
          .substr(0, ByteOffset(string.text(), static_cast<size_t>(length - end_length)));
  if (!parameters.IsTrue(1)) {
    kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  }
  return Like(runtime, string, std::string(kept) + end);
}

Value Center(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  const Value string = Soft(runtime, input);
  return Like(runtime, string, Pad(runtime, string.text(), parameters.Integer(0, 80), " ", 'c'));
}

Value WordCount(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("wordcount", arguments);
  const Value string = Soft(runtime, input);
  runtime.StepCharacters(string.text().size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < string.text().size();) {
    const CodePoint c = DecodeAt(string.text(), at);
    const bool word = python::IsWord(c.value);
    count += word && !in_word ? 1 : 0;
    in_word = word;
    at += c.bytes;
  }
  return Value::Int(count);
}

// Words with the white space before them apart, split after hyphens inside words.
std::vector<std::string_view> WrapChunks(std::string_view line, bool at_hyphens) {
  std::vector<std::string_view> chunks;
  size_t start = 0;
  for (size_t at = 0; at < line.size();) {
    const CodePoint c = DecodeAt(line, at);
    const size_t next = at + c.bytes;
    const bool space = python::IsSpace(c.value);
    const bool boundary =
        next < line.size() && python::IsSpace(DecodeAt(line, next).value) != space;
    const bool hyphen = at_hyphens && c.value == '-' && at > start && next < line.size() &&
                        python::IsAlpha(DecodeAt(line, PreviousStart(line, at)).value) &&
                        python::IsAlpha(DecodeAt(line, next).value);
    if (boundary || hyphen || next == line.size()) {
      chunks.push_back(line.substr(start, next - start));
      start = next;
    }
    at = next;
  }
  return chunks;
}

// Lines of chunks, as Python's textwrap fills them: a blank chunk at either end of a line is
// dropped, except at the very beginning.
class LineWrapper {
 public:
  LineWrapper(size_t width, bool break_long) : width_(width), break_long_(break_long) {}

  std::vector<std::string> Wrap(const std::vector<std::string_view>& chunks) {
    for (std::string_view chunk : chunks) {
      size_t length = CountCodePoints(chunk);
      if (used_ + length > width_ && length <= width_) {
        EndLine();
      }
      while (length > width_ && used_ + length > width_ && (break_long_ || used_ > 0)) {
        if (break_long_) {
          const size_t room = width_ - used_;
          const size_t bytes = ByteOffset(chunk, room);
          line_.push_back(chunk.substr(0, bytes));
          chunk.remove_prefix(bytes);
          length -= room;
        }
        EndLine();
      }
      const bool dropped = line_.empty() && !lines_.empty() && IsBlank(chunk);
      if (!dropped && !chunk.empty()) {
        line_.push_back(chunk);
        used_ += length;
      }
    }
    EndLine();
    return std::move(lines_);
  }

 private:
  static bool IsBlank(std::string_view text) {
    return python::Strip(text, python::Side::kBoth).empty();
  }

  void EndLine() {
    if (!line_.empty() && IsBlank(line_.back())) {
      line_.pop_back();
    }
    if (!line_.empty()) {
      std::string& text = lines_.emplace_back();
      for (const std::string_view chunk : line_) {
        text += chunk;
      }
    }
    line_.clear();
    used_ = 0;
  }

  const size_t width_;
  const bool break_long_;
  std::vector<std::string_view> line_;
  size_t used_ = 0;
  std::vector<std::string> lines_;
};

Value WordWrap(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("wordwrap", arguments,
                              {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const Value& string = MustBeString(input, "wordwrap");
  const int64_t width = parameters.Integer(0, 79);
  if (width <= 0) {
    Fail("invalid width " + std::to_string(width) + " (must be > 0)");
  }
  const bool default_wrap = !parameters.Has(2) || parameters.Get(2).Is(Kind::kNone);
  const std::string wrap = default_wrap ? "\n" : parameters.Text(2);
  runtime.StepCharacters(string.text().size() * 4);
  std::string text;
  bool first = true;
  for (const std::string_view line : SplitLines(string.text())) {
    text += first ? "" : wrap;
    first = false;
    LineWrapper wrapper(static_cast<size_t>(width), parameters.IsTrue(1, true));
    const std::vector<std::string> pieces =
        wrapper.Wrap(WrapChunks(line, parameters.IsTrue(3, true)));
    for (size_t i = 0; i < pieces.size(); ++i) {
      text += (i > 0 ? wrap : "") + pieces[i];
      runtime.CheckBytes(text.size());
      runtime.StepBytes(wrap.size());
    }
  }
  return Like(runtime, string, std::move(text));
}

Value Escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("escape", arguments);
  if (input.IsString() && input.safe()) {
    return input;
  }
  return runtime.String(Escaped(runtime, ToString(runtime, input)), /*safe=*/true);
}

Value ForceEscape(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("forceescape", arguments);
  return runtime.String(Escaped(runtime, ToString(runtime, input)), /*safe=*/true);
}

Value Safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("safe", arguments);
  return runtime.String(ToString(runtime, input), /*safe=*/true);
}

Value StripTagsFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("striptags", arguments);
  const std::string text = ToString(runtime, input);
  runtime.StepCharacters(text.size() * 2);
  return runtime.String(StripTags(text));
}

Value UrlEncode(Runtime& runtime, const Value& input, Arguments& arguments) {
  TakesNothing("urlencode", arguments);
  const bool pairs = input.Is(Kind::kDict) || input.Is(Kind::kList) || input.Is(Kind::kTuple) ||
                     input.Is(Kind::kDictView) || input.Is(Kind::kIterator);
  if (!pairs) {
    const std::string text = ToString(runtime, input);
    runtime.CheckBytes(text.size(), 3);
    runtime.StepCharacters(text.size());
    return runtime.String(UrlQuote(text, "/", /*plus=*/false));
  }
  std::string out;
  const auto append = [&](const Value& key, const Value& value) {
    out += (out.empty() ? "" : "&") + UrlQuote(ToString(runtime, key), "", /*plus=*/true) + "=" +
           UrlQuote(ToString(runtime, value), "", /*plus=*/true);
    runtime.CheckBytes(out.size());
  };
  if (input.Is(Kind::kDict)) {
    for (const auto& [key, value] : input.As<DictObject>().entries) {
      append(key, value);
    }
    return runtime.String(std::move(out));
  }
  const Items items(runtime, input);
  for (size_t i = 0; i < items.size(); ++i) {
    const Items pair(runtime, items[i]);
    if (pair.size() != 2) {
      Fail("urlencode needs pairs");
    }
    append(pair[0], pair[1]);
  }
  return runtime.String(std::move(out));
}

Value XmlAttributes(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("xmlattr", arguments, {"autospace"});
  if (!input.Is(Kind::kDict)) {
    Fail("xmlattr needs a mapping");
  }
  std::string out;
  for (const auto& [key, value] : input.As<DictObject>().entries) {
    if (value.Is(Kind::kNone) || value.IsUndefined()) {
      continue;
    }
    const std::string name = ToString(runtime, key);
    if (name.find_first_of(" \t\n\f\r/>=") != name.npos) {
      Fail("Invalid character in attribute name: '" + name + "'");
    }
    const std::string text = ToString(runtime, value);
    out += (out.empty() ? "" : " ") + Escaped(runtime, name) + "=\"" +
           (value.IsString() && value.safe() ? text : Escaped(runtime, text)) + "\"";
    runtime.CheckBytes(out.size());
  }
  if (!out.empty() && parameters.IsTrue(0, true)) {
    out.insert(0, " ");
  }
  return runtime.String(std::move(out), runtime.autoescape());
}

Value FormatFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    Fail("can't handle positional and keyword arguments at the same time");
  }
  const Value string = Soft(runtime, input);
  if (arguments.named.empty()) {
    return PercentFormat(runtime, string, runtime.Tuple(std::move(arguments.positional)));
  }
  DictObject::Entries entries;
  for (auto& [name, value] : arguments.named) {
    entries.emplace_back(runtime.String(name), std::move(value));
  }
  return PercentFormat(runtime, string, runtime.Dict(std::move(entries)));
}

Value FileSize(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Parameters parameters("filesizeformat", arguments, {"binary"});
  const bool binary = parameters.IsTrue(0);
  const double base = binary ? 1024 : 1000;
  double bytes = 0;
  if (!input.IsString()) {
    bytes = ToDouble(input);
  } else if (!ParseFloat(input.text(), &bytes)) {
    Fail("could not convert string to float");
  }
  if (bytes == 1) {
    return runtime.String("1 Byte");
  }
  if (bytes < base) {
    return runtime.String(std::to_string(static_cast<int64_t>(bytes)) + " Bytes");
  }
  static constexpr char kPrefixes[] = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < sizeof(kPrefixes) - 1 && bytes >= unit; ++i) {
    unit *= base;
  }
  std::string prefix(1, kPrefixes[i]);
  if (binary) {
    prefix = (i == 0 ? "K" : prefix) + "i";
  }
  return runtime.String(FormatFloat(runtime, base * bytes / unit, 'f', 1, false) + " " + prefix +
                        "B");
}

constexpr FilterEntry kOfStrings[] = {
    {"upper", &Mapped<&python::ToUpper>},
    {"lower", &Mapped<&python::ToLower>},
    {"capitalize", &Mapped<&python::Capitalize>},
    {"title", &Mapped<&TitleFilter>},
    {"trim", &Trim},
    {"replace", &ReplaceFilter},
    {"indent", &Indent},
    {"truncate", &Truncate},
    {"center", &Center},
    {"wordcount", &WordCount},
    {"wordwrap", &WordWrap},
    {"escape", &Escape},
    {"e", &Escape},
    {"forceescape", &ForceEscape},
    {"safe", &Safe},
    {"striptags", &StripTagsFilter},
    {"urlencode", &UrlEncode},
    {"xmlattr", &XmlAttributes},
    {"format", &FormatFilter},
    {"filesizeformat", &FileSize},
};

}  // namespace

const std::span<const FilterEntry> kStringFilters(kOfStrings);

}  // namespace strata::jinja
