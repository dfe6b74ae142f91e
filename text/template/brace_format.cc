// "{:>5}".format(values): replacement fields and the format specification of Python.
#include <algorithm>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/integer.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/text.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Specification {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

bool IsAlign(char32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Specification ParseSpecification(std::string_view text) {
  Specification spec;
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto number = [&](int64_t fallback) {
    int64_t value = fallback;
    while (peek() >= '0' && peek() <= '9') {
      value =
          std::min<int64_t>((value < 0 ? 0 : value) * 10 + (text[at++] - '0'), int64_t{1} << 40);
    }
    return value;
  };
  if (!text.empty()) {
    const CodePoint first = DecodeAt(text, 0);
    if (first.bytes < text.size() && IsAlign(static_cast<unsigned char>(text[first.bytes]))) {
      spec.fill = text.substr(0, first.bytes);
      spec.align = text[first.bytes];
      at = first.bytes + 1;
    } else if (IsAlign(first.value)) {
      spec.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') {
    spec.sign = text[at++];
  }
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = number(0);
  if (peek() == ',' || peek() == '_') {
    spec.grouping = text[at++];
  }
  if (peek() == '.') {
    ++at;
    spec.precision = number(-1);
    if (spec.precision < 0) {
      Fail("Format specifier missing precision");
    }
  }
  if (at < text.size()) {
    spec.type = text[at++];
  }
  if (at < text.size()) {
    Fail("Invalid format specifier '" + std::string(text) + "'");
  }
  return spec;
}

// Separators between groups of three digits before the point.
std::string Grouped(const std::string& number, char separator) {
  const size_t whole = std::min(number.find_first_not_of("0123456789"), number.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) {
      out.push_back(separator);
    }
    out.push_back(number[i]);
  }
  return out + number.substr(whole);
}

std::string Aligned(Runtime& runtime, const Specification& spec, const std::string& sign,
                    const std::string& body, char fallback) {
  const char align = spec.align != 0 ? spec.align : fallback;
  if (align == '=') {
    const int64_t width = spec.width - static_cast<int64_t>(sign.size());
    return sign + Pad(runtime, body, width, spec.fill, '>');
  }
  return Pad(runtime, sign + body, spec.width, spec.fill, align);
}

std::string FormatNumber(Runtime& runtime, const Value& value, const Specification& spec) {
  bool negative = false;
  std::string prefix;
  std::string body;
  const bool whole =
      !value.Is(Kind::kFloat) &&
      (spec.type == 0 || std::string_view("bcdoxXn").find(spec.type) != std::string_view::npos);
  if (whole) {
    if (spec.precision >= 0) {
      Fail("Precision not allowed in integer format specifier");
    }
    const int base = spec.type == 'x' || spec.type == 'X' ? 16
                     : spec.type == 'o'                   ? 8
                     : spec.type == 'b'                   ? 2
                                                          : 10;
    body = IntegerToString(value.Is(Kind::kBool) ? Value::Int(value.integer()) : value, base);
    negative = body[0] == '-';
    body.erase(0, negative ? 1 : 0);
    if (spec.type == 'X') {
      body = python::ToUpper(body);
    }
    if (spec.alternate && base != 10) {
      prefix = std::string("0") + spec.type;
    }
  } else {
    double d = ToDouble(value);
    negative = std::signbit(d) && !std::isnan(d);
    d = std::abs(d);
    if (spec.type == 0 && spec.precision < 0) {
      body = FloatRepr(d);
    } else if (spec.type == '%') {
      body = FormatFloat(runtime, d * 100, 'f', spec.precision, spec.alternate) + "%";
    } else {
      const char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
      if (std::string_view("eEfFgG").find(type) == std::string_view::npos) {
        Fail(std::string("Unknown format code '") + type + "' for object of type 'float'");
      }
      body = FormatFloat(runtime, d, type, spec.precision, spec.alternate);
    }
  }
  if (spec.grouping != 0) {
    body = Grouped(body, spec.grouping);
  }
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return Aligned(runtime, spec, sign + prefix, body, '>');
}

std::string FormatValue(Runtime& runtime, const Value& value, std::string_view text) {
  if (text.empty()) {
    return ToString(runtime, value);
  }
  const Specification spec = ParseSpecification(text);
  if (value.IsNumber() && !(value.Is(Kind::kBool) && spec.type == 0)) {
    return FormatNumber(runtime, value, spec);
  }
  if (!value.IsString() && !value.Is(Kind::kBool)) {
    Fail("unsupported format string passed to " + std::string(TypeName(value)) + ".__format__");
  }
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouping != 0) {
    Fail("Invalid format specifier '" + std::string(text) + "'");
  }
  std::string body = ToString(runtime, value);
  if (spec.precision >= 0) {
    body.resize(ByteOffset(body, static_cast<size_t>(spec.precision)));
  }
  return Aligned(runtime, spec, "", body, '<');
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Value& format, const Arguments& arguments)
      : runtime_(runtime), safe_(format.safe()), arguments_(arguments) {}

  std::string Run(std::string_view format, int level) {
    if (level > 2) {
      Fail("Max string recursion exceeded");
    }
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        out.push_back(c);
        at += 2;
      } else if (c == '{') {
        const size_t end = FieldEnd(format, at + 1);
        out += Field(format.substr(at + 1, end - at - 1), level);
        at = end + 1;
      } else if (c == '}') {
        Fail("Single '}' encountered in format string");
      } else {
        out.push_back(c);
        ++at;
      }
      runtime_.CheckBytes(out.size());
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view format, size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      open += format[at] == '{' ? 1 : format[at] == '}' ? -1 : 0;
      if (open == 0) {
        return at;
      }
    }
    Fail("expected '}' before end of string");
  }

  std::string Field(std::string_view field, int level) {
    runtime_.Step(4);
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    const Value value = Lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    char conversion = 0;
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) {
        Fail("unmatched '{' in format spec");
      }
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    const std::string spec = rest.empty() ? "" : Run(rest.substr(1), level + 1);
    std::string text;
    if (conversion == 'r') {
      text = FormatValue(runtime_, runtime_.String(ToRepr(runtime_, value)), spec);
    } else if (conversion == 's') {
      text = FormatValue(runtime_, StringOf(runtime_, value), spec);
    } else if (conversion == 0) {
      text = FormatValue(runtime_, value, spec);
    } else {
      Fail(std::string("Unknown conversion specifier '") + conversion + "'");
    }
    return safe_ && !(value.IsString() && value.safe()) ? Escaped(runtime_, text) : text;
  }

  // name.attribute[key]..., a missing name being the next number.
  Value Lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view name = path.substr(0, end);
    Value value = First(name);
    for (size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", at + 1), path.size());
        value = GetAttribute(runtime_, value, path.substr(at + 1, stop - at - 1));
        at = stop;
      } else {
        const size_t stop = path.find(']', at);
        if (path[at] != '[' || stop == path.npos) {
          Fail("Missing ']' in format string");
        }
        const std::string_view key = path.substr(at + 1, stop - at - 1);
        Value index;
        if (!ParseInteger(nullptr, key, 10, &index)) {
          index = Value::Constant(std::string(key));
        }
        value = GetItem(runtime_, value, index);
        at = stop + 1;
      }
      if (value.IsUndefined()) {
        FailUndefined(value);
      }
    }
    return value;
  }

  Value First(std::string_view name) {
    Value number;
    if (name.empty()) {
      number = Value::Int(next_++);
    }
    if (name.empty() || ParseInteger(nullptr, name, 10, &number)) {
      if (number.Is(Kind::kBigInt) || number.integer() < 0 ||
          static_cast<uint64_t>(number.integer()) >= arguments_.positional.size()) {
        Fail("Replacement index out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<size_t>(number.integer())];
    }
    for (const auto& [known, value] : arguments_.named) {
      if (known == name) {
        return value;
      }
    }
    Fail("no argument '" + std::string(name) + "' to format");
  }

  Runtime& runtime_;
  const bool safe_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

Value BraceFormat(Runtime& runtime, const Value& format, const Arguments& arguments) {
  return runtime.String(BraceFormatter(runtime, format, arguments).Run(format.text(), 0),
                        format.safe());
}

}  // namespace strata::jinja
